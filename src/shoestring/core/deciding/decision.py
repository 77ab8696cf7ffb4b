"""What a policy may answer: train a trial, wait for receipts, or finish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from shoestring.core.space.parameters import Scalar
from shoestring.core.space.space import Config

Validate = Literal["each", "last", "none"]
Why = Mapping[str, Scalar]  # what was compared, under the keys of `comparison.py`, and the policy's own numbers
Memo = Mapping[str, Sequence[float]]
NO_WHY: Why = MappingProxyType({})
NO_MEMO: Memo = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Train `trial` until it has been trained for `until` steps in all (not for `until` more steps).

    Parameters
    ----------
    trial : int
        Number of the trial; `len(ledger.trials)` for a new one.
    config : mapping
        The configuration. It may differ from the trial's last one, so hyperparameters can change during a run.
    until : int
        The last step to train.
    validate : {"each", "last", "none"}
        Which of these steps are followed by a validation pass.
    expected_cost : float, optional
        What the order will probably cost, in the budget's unit. Without it, the mean price of a step is used.
    reserve : float, optional
        An amount that the order will very probably not exceed. Without it, a quantile of earlier step costs is used.
    why : mapping
        Numbers and words behind the decision; `shoestring explain` prints them.
    memo : mapping
        Lists of numbers that the next decision may start from.
    """

    trial: int
    config: Config
    until: int
    validate: Validate = "each"
    expected_cost: float | None = None
    reserve: float | None = None
    why: Why = field(default_factory=lambda: NO_WHY)
    memo: Memo = field(default_factory=lambda: NO_MEMO)


@dataclass(frozen=True, slots=True)
class Wait:
    """Train nothing until the next receipt."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Train nothing more: the study ends.

    Parameters
    ----------
    why : str
        The reason, for the user.
    """

    why: str = ""


Decision = Train | Wait | Finish
