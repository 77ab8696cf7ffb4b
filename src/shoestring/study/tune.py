"""`tune`: a study from start to end in one call.

from shoestring import Float, Space, tune

study = tune(train, Space({"lr": Float(1e-4, 1.0, log=True)}), budget="200 epochs", max_steps=20)
print(study.best.config, study.best.value)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from shoestring.core.entries import Entry, Note
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget, parse_duration_s
from shoestring.core.space import Space
from shoestring.reports.text import warning_of
from shoestring.runners.make import check_runner, make_runner, steps_of, target_of
from shoestring.runners.runner import Runner
from shoestring.study.loop import Observe
from shoestring.study.study import Study


def tune(
    train: Any,
    space: Space | Mapping[str, Any],
    budget: str | Budget,
    *,
    max_steps: int | None = None,
    workers: int = 1,
    runner: str | Runner | None = None,
    live: int | None = None,
    checkpoints_at_most: str | None = None,
    deadline: str | float | None = None,
    observe: Observe | None = None,
    **settings_of_study: Any,
) -> Study:
    """Tune `train` over `space` until the budget is spent; the result is the study, with `.best`.

    The other arguments are those of `Study.begin`: name, store, direction, policy, settings, seed, prices, initial.
    """
    check_runner(runner, workers, live, checkpoints_at_most)
    if isinstance(deadline, str):
        deadline = parse_duration_s(deadline, "deadline")
    study = Study.begin(
        space,
        budget,
        max_steps=steps_of(train, max_steps),
        workers=workers,
        target=target_of(train),
        **settings_of_study,
    )
    chosen = make_runner(runner, train, study.checkpoints, workers, live, checkpoints_at_most)
    study.run(chosen, deadline=deadline, observe=observe or _warn)
    return study


def _warn(ledger: Ledger, entry: Entry | None) -> None:
    """What the command line would say aloud."""
    if isinstance(entry, Note) and (text := warning_of(entry)):
        warnings.warn(text, stacklevel=2)
