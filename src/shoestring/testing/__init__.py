"""Contracts for authors of plugins, as checks that you run in your own tests, and artificial training curves.

    a policy             `POLICY_CHECKS`, `LEARNING_CHECKS`, `PREDICTION_CHECKS`; `simulate`, `watch`, `make_definition`
    a ledger store       `LEDGER_STORE_CHECKS`
    a checkpoint store   `check_checkpoint_store_contract`
    a runner             `check_runner_contract`
    training code        `check_resuming`: training that is saved, loaded and continued gives the same values
    training curves      `DecayingCurves` and the other classes of curves, for `simulate`; a `Source` of your own returns a
                         `StepOutcome` for each step

A check raises an AssertionError that says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoestring.lazy_exports import import_on_first_use

__all__ = [
    "LEARNING_CHECKS",
    "LEDGER_STORE_CHECKS",
    "POLICY_CHECKS",
    "PREDICTION_CHECKS",
    "DecayingCurves",
    "DivergingCurves",
    "EarlyEndingCurves",
    "FailingCurves",
    "ListedCurves",
    "NegatedCurves",
    "NoisyCurves",
    "ParallelCurves",
    "Source",
    "StepOutcome",
    "check_checkpoint_store_contract",
    "check_resuming",
    "check_runner_contract",
    "make_definition",
    "simulate",
    "train_in_one_piece",
    "train_in_pieces",
    "watch",
]

if TYPE_CHECKING:
    from shoestring.runners.simulated.simulated_runner import Source, StepOutcome
    from shoestring.testing.checkpoint_stores import check_checkpoint_store_contract
    from shoestring.testing.curves import (
        DecayingCurves,
        DivergingCurves,
        EarlyEndingCurves,
        FailingCurves,
        ListedCurves,
        NegatedCurves,
        NoisyCurves,
        ParallelCurves,
    )
    from shoestring.testing.ledger_stores import LEDGER_STORE_CHECKS
    from shoestring.testing.policies import LEARNING_CHECKS, POLICY_CHECKS, make_definition, simulate, watch
    from shoestring.testing.predictions import PREDICTION_CHECKS
    from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces
    from shoestring.testing.runners import check_runner_contract

# The checks of runners import many modules that the other checks do not need.
__getattr__ = import_on_first_use(
    __name__,
    {
        "checkpoint_stores": ("check_checkpoint_store_contract",),
        "curves": (
            "DecayingCurves",
            "DivergingCurves",
            "EarlyEndingCurves",
            "FailingCurves",
            "ListedCurves",
            "NegatedCurves",
            "NoisyCurves",
            "ParallelCurves",
            "Source",
            "StepOutcome",
        ),
        "ledger_stores": ("LEDGER_STORE_CHECKS",),
        "policies": ("LEARNING_CHECKS", "POLICY_CHECKS", "make_definition", "simulate", "watch"),
        "predictions": ("PREDICTION_CHECKS",),
        "resuming": ("check_resuming", "train_in_one_piece", "train_in_pieces"),
        "runners": ("check_runner_contract",),
    },
)


def __dir__() -> list[str]:
    return __all__
