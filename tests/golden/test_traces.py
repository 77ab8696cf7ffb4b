"""Decisions on recorded curves, one JSON line per order, in `traces/POLICY.jsonl`. `--update-golden` records them again.

The curves are listed below and not drawn from a model, so a line that changes is a decision that changed. Each file has
three studies: epochs with one worker, epochs with three, seconds with two.

No two curves are equal at any step, and the configs differ, so every choice is clear: it beats its runner-up by ten times the
tolerance of `core/deciding/reproducible.py`, which a test checks. Decisions between equal candidates are recorded separately,
in `traces/ties/POLICY.jsonl`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring import policies
from shoestring.core.deciding import comparison as comparing
from shoestring.core.deciding.policy import Policy
from shoestring.core.deciding.reproducible import measure_tolerance
from shoestring.core.ledger.entries import Cost
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.policies.halving import guide
from shoestring.runners.simulated.simulated_runner import Source, StepOutcome
from shoestring.testing.curves import ListedCurves
from shoestring.testing.policies import make_definition, simulate

TRACES = Path(__file__).parent / "traces"


@dataclass(frozen=True)
class Row:
    lr: float
    dropout: float
    step_s: float
    values: list[float]


ROWS = {  # good early, good late, crossing, noisy, flat, diverging, ending early
    "a": Row(0.16596, 0.808, 2.097, [0.9014, 0.7030, 0.5978, 0.5532, 0.5230, 0.4961, 0.4917, 0.4760, 0.4700]),
    "b": Row(0.01152, 0.286, 1.723, [0.7976, 0.7486, 0.7324, 0.7185, 0.7072, 0.7066, 0.6996, 0.6974, 0.6879]),
    "c": Row(0.00016, 0.383, 3.743, [0.9524, 0.8001, 0.5001, 0.3479, 0.2761, 0.2435, 0.2167, 0.2128, 0.1989]),
    "d": Row(0.00430, 0.045, 2.751, [0.5992, 0.5835, 0.6104, 0.5679, 0.6219, 0.5614, 0.6015, 0.5897, 0.5778]),
    "e": Row(0.00023, 0.999, 2.982, [0.9969, 1.0015, 1.0011, 0.9990, 1.0024, 0.9976, 0.9995, 1.0028, 0.9989]),
    "f": Row(0.04069, 0.235, 3.873, [0.7009, 0.5035, math.nan]),
    "g": Row(0.00549, 0.974, 3.412, [0.6518, 0.4525, 0.3972, 0.3817]),
    "h": Row(0.38968, 0.844, 3.692, [0.8492, 0.6004, 0.4498, 0.4037, 0.3585, 0.3292, 0.3060, 0.2994, 0.2911]),
    "i": Row(0.00371, 0.493, 3.352, [0.9934, 0.9686, 0.9039, 0.6975, 0.4026, 0.1973, 0.0992, 0.0466, 0.0229]),
    "j": Row(0.05090, 0.061, 0.883, [0.7471, 0.6502, 0.5481, 0.4999, 0.4504, 0.4369, 0.4335, 0.4182, 0.4096]),
    "k": Row(0.01669, 0.271, 0.709, [math.inf]),
    "l": Row(0.33007, 0.064, 3.241, [0.8776, 0.6587, 0.5534, 0.5031, 0.4698, 0.4496, 0.4413, 0.4329, 0.4187]),
}
NAME_OF = {row.lr: name for name, row in ROWS.items()}
SPACE = Space.from_configs([{"lr": row.lr, "dropout": row.dropout} for row in ROWS.values()], log=["lr"])


def config_of(name: str) -> Config:
    return {"lr": ROWS[name].lr, "dropout": ROWS[name].dropout}


FIXED = {"orders": [[0, config_of("c"), 2], [1, config_of("f"), 4], [0, None, 5], [1, None, 9], [2, config_of("g"), 9]]}
# Curve models get fixed parameters, so that a trace tests the decision and not the fit, and related configs, so that arms
# that were not trained yet differ from each other.
PARAMETERS = [1.0, 5.0, 1.0, 0.01, 1.0, 0.0]
CURVE_MODEL = {"parameters": PARAMETERS, "lengthscale": 0.3}
FALLING = {"parameters": [*PARAMETERS, 1.0], "lengthscale": 0.3}
SETTINGS: dict[str, Any] = {
    "replay_fixed": FIXED,
    "bhpt": FALLING,
    "freeze_thaw_bo": CURVE_MODEL,
    "rollout": CURVE_MODEL,
}
EARLY = {"initial_trials": 2}  # or these short studies would end within the initial design
SETTINGS |= {"gp_ucb": EARLY, "boca": EARLY, "bo_bos": EARLY | {"n0": 2, "paths": 5000}}
SETTINGS |= {"lc_prediction": EARLY | {"n0": 2, "forecast": "process"}}
SETTINGS |= {"boil": EARLY}
# The numbers in `why` are recorded only if nothing is fitted: those of a fit differ between machines.
FITTED = {"bo_bos", "boca", "boil", "cost_aware_ei", "fabolas_epochs", "gp_ucb", "guided_halving", "lc_prediction"}
STUDIES = (("45 epochs", 1), ("45 epochs", 3), ("70s", 2))
# It counts draws in which a trial is best. Once the best trial is certain, none has information left: all gains are exactly 0.
SHORTER = {"freeze_thaw_bo": (("18 epochs", 1), ("18 epochs", 3), ("40s", 2))}
NAMES = sorted(policies.REGISTRY)


class RecordedCurves:
    """The curves listed above."""

    def step(self, config: Config, step: int) -> StepOutcome | None:
        row = ROWS[NAME_OF[config["lr"]]]
        return StepOutcome(row.values[step - 1], Cost(train=row.step_s)) if step <= len(row.values) else None


def make(name: str) -> Policy:
    return policies.make(name, SETTINGS.get(name))


def run_study(policy: Policy, space: Space, source: Source, budget: str, workers: int) -> Ledger:
    start = make_definition(policy, space=space, budget=budget, max_steps=9, workers=workers, seed=7)
    return simulate(policy, source, start).ledger


def describe(ledger: Ledger, budget: str, workers: int, name_of: Callable[[Config], str], with_why: bool) -> list[str]:
    """Return a line about the study, then one for each order."""
    best = ledger.best
    assert best is not None
    head = {"budget": budget, "workers": workers, "orders": len(ledger.orders), "spent": round(ledger.spent, 9)}
    lines: list[dict[str, Any]] = [head | {"best": [name_of(best.config), best.best_step, best.best_loss]}]
    for order in ledger.orders:
        facts = {"trial": order.trial, "config": name_of(order.config), "until": order.until, "at": round(order.at, 9)}
        why = {k: round(v, 9) + 0.0 if isinstance(v, float) else v for k, v in order.why.items()}
        lines.append(facts | {"why": why} if with_why else facts)
    return [json.dumps(line) for line in lines]


def compare_with_record(path: Path, lines: list[str], request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert path.exists(), f"{path.stem} has no trace yet: record it with --update-golden, and read it"
    assert path.read_text(encoding="utf-8").splitlines() == lines, f"{path.stem} decides differently: see {path}"


@pytest.mark.parametrize("name", NAMES)
def test_decisions_on_recorded_curves(name: str, request: pytest.FixtureRequest) -> None:
    lines: list[str] = []
    with clear_choices(name):
        for budget, workers in SHORTER.get(name, STUDIES):
            ledger = run_study(make(name), SPACE, RecordedCurves(), budget, workers)
            lines += describe(ledger, budget, workers, lambda config: NAME_OF[config["lr"]], name not in FITTED)
    compare_with_record(TRACES / f"{name}.jsonl", lines, request)


# every choice is clear ----------------------------------------------------------------------------------------------


MARGIN = 10.0  # tolerances between the chosen candidate and its runner-up


@contextmanager
def clear_choices(name: str) -> Iterator[None]:
    """Within this context, a choice fails if its runner-up is almost as good, whichever module makes it.

    Every policy reports what it compared through `compare_scores`. Choices among candidates about which nothing is known are
    exempt: there a stated order is the method (UCB1 begins with the first arm that was never chosen, whose bound is
    infinite), or there is no loss yet, and all scores are equal to the last bit.
    """
    for one in NAMES:
        make(one)  # a module that is imported below would keep the patched function
    plain = comparing.compare_scores

    def checked(
        score_name: str, best_is: comparing.BestIs, scores: np.ndarray, chosen: int, say: Any, **more: Any
    ) -> dict[str, Any]:
        if best_is != "drawn" and np.isfinite(scores[chosen]):
            heights = -scores if best_is == "lowest" else scores
            competitors = np.isfinite(heights) & (np.arange(heights.size) != chosen)
            if more.get("competitors") is not None:
                competitors &= more["competitors"]
            finite = heights[np.isfinite(heights)]
            tolerance = measure_tolerance(scores, best_is)
            if competitors.any() and not np.all(np.abs(finite - finite[0]) <= tolerance):
                gap = heights[chosen] - heights[competitors].max()
                assert gap >= MARGIN * tolerance, (
                    f"{name}: {score_name} {scores[chosen]!r} beats its runner-up by {gap:.3g} only"
                )
        return plain(score_name, best_is, scores, chosen, say, **more)

    assert vars(guide)["compare_scores"] is plain
    patched = [module for module in list(sys.modules.values()) if getattr(module, "compare_scores", None) is plain]
    with pytest.MonkeyPatch.context() as patch:
        for module in patched:
            patch.setattr(module, "compare_scores", checked)
        yield


def test_no_two_curves_are_equal_at_any_step() -> None:
    for step in range(9):
        values = [
            row.values[step] for row in ROWS.values() if step < len(row.values) and math.isfinite(row.values[step])
        ]
        assert len(set(values)) == len(values)
    for row in ROWS.values():
        assert len(set(row.values)) == len(row.values)


def test_a_near_tie_is_noticed() -> None:
    with clear_choices("made up"), pytest.raises(AssertionError, match="beats its runner-up by"):
        comparing.compare_scores("score", "highest", np.array([1.0, 1.0 - 1e-9, 0.0]), 0, str)


# equal candidates ----------------------------------------------------------------------------------------------


TIED = [
    "asha",
    "bhpt",
    "bo_bos",
    "boil",
    "ce_gp_ucb",
    "cost_aware_ei",
    "fabolas_epochs",
    "freeze_thaw_bo",
]
TIED += ["gp_ucb", "guided_halving", "hyperband", "rollout", "sequential_halving", "successive_halving", "ucb1"]
EQUAL = {name: [0.9, 0.8, 0.7, 0.65, 0.6, 0.58, 0.56, 0.55, 0.54] for name in "abcdefgh"}
UNRELATED = Space.from_configs([{"name": name} for name in EQUAL])


@pytest.mark.parametrize("name", TIED)
def test_among_equal_candidates_the_first_is_chosen(name: str, request: pytest.FixtureRequest) -> None:
    """Unrelated configs, equal curves and equal prices: only the stated order can decide."""
    ledger = run_study(make(name), UNRELATED, ListedCurves(EQUAL), "30 epochs", 1)
    lines = describe(ledger, "30 epochs", 1, lambda config: str(config["name"]), with_why=False)
    compare_with_record(TRACES / "ties" / f"{name}.jsonl", lines, request)
