"""Candidates for new trials: from the whole space, and around the best trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.policies.thrift.candidates import AROUND, BEST, draw_pool
from shoestring.policies.thrift.network_input import CONFIGS
from shoestring.policies.thrift.thrift import Thrift
from shoestring.testing.curves import DecayingCurves, DivergingCurves
from shoestring.testing.policies import make_definition, simulate

WIDE = Space({"lr": Float(1e-4, 1.0, log=True), "decay": Float(0.0, 1.0)})
MIXED = Space(
    {
        "lr": Float(1e-4, 1.0, log=True),
        "layers": Int(1, 9),
        "kind": Choice(["a", "b"]),
        "b": Float(0, 1, when={"kind": "b"}),
    }
)
LISTED = Space.from_configs([{"lr": 10.0 ** -(i / 10), "decay": i / 80} for i in range(80)])
Point = tuple[float, ...]


def study(space: Space = WIDE, source: Any = None, **more: Any) -> Ledger:
    policy = Thrift()
    start = make_definition(policy, **{"budget": "108 epochs", "max_steps": 9, "space": space, **more})
    return simulate(policy, source or DecayingCurves(), start).ledger


def list_points(ledger: Ledger, count: int = 100) -> list[Point]:
    """Return the points of all candidates; those around the best trials come first."""
    points = draw_pool(ledger, ledger.view(CONFIGS), count).points
    rows = np.hstack([points.cube, points.active])
    return [tuple(row) for row in np.round(rows, 9).tolist()]


def best_trials(ledger: Ledger) -> list[int]:
    return sorted(range(len(ledger.trials)), key=lambda number: ledger.trials[number].best_loss)[:BEST]


@pytest.mark.parametrize("space", [WIDE, MIXED])
def test_half_of_the_candidates_are_around_the_best_trials(space: Space) -> None:
    ledger = study(space)
    found = list_points(ledger)
    assert len(found) <= 100
    table, (best, *_) = ledger.view(CONFIGS), best_trials(ledger)
    distances = np.linalg.norm(np.array(found)[:AROUND, : space.dims] - table.trials[best].cube, axis=1)
    distances_of_others = np.linalg.norm(
        np.array(found)[BEST * AROUND :, : space.dims] - table.trials[best].cube, axis=1
    )
    assert np.median(distances) < np.median(distances_of_others) / 2
    assert distances.min() < 0.1


@pytest.mark.parametrize("space", [WIDE, MIXED, LISTED])
def test_candidates_are_untried_and_unique(space: Space) -> None:
    ledger = study(space)
    found = list_points(ledger)
    tried = {
        tuple(np.round(np.hstack([one.cube[0], one.active[0]]), 9).tolist()) for one in ledger.view(CONFIGS).trials
    }
    assert len(set(found)) == len(found)
    assert not tried & set(found)
    assert found == list_points(ledger)


def test_candidates_stay_until_they_are_tried_or_their_trial_is_no_longer_among_the_best() -> None:
    ledger = study()
    before = ledger.fork(len(ledger) - 6)
    remaining_best = [number for number in best_trials(before) if number in best_trials(ledger)]
    assert remaining_best, "nothing to compare"
    earlier, now = set(list_points(before)), set(list_points(ledger))
    tried = {tuple(np.round(one.cube[0], 9).tolist()) for one in ledger.view(CONFIGS).trials}
    dropped = earlier - now - tried
    assert len(dropped) <= AROUND * (BEST - len(remaining_best))


def test_there_are_no_candidates_around_diverged_trials() -> None:
    ledger = study(source=DivergingCurves(DecayingCurves(), share=1.0, before=1), budget="9 epochs")
    assert ledger.trials
    assert len(list_points(ledger, 10)) == 10


def test_a_listed_space_offers_its_untried_rows() -> None:
    ledger = study(LISTED)
    table = ledger.view(CONFIGS)
    assert draw_pool(ledger, table, 1000).rows.tolist() == np.flatnonzero(table.unused).tolist()
    few = draw_pool(ledger, table, 5).rows.tolist()
    assert len(few) == 5
    assert set(few) <= set(np.flatnonzero(table.unused).tolist())
