"""What a policy may answer: buy training, wait for receipts, or finish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from shoestring.core.space.parameters import Scalar
from shoestring.core.space.space import Config

Validate = Literal["each", "last", "none"]
Why = Mapping[
    str, Scalar
]  # what was compared, in the words of `core/deciding/comparison.py`, and the policy's own numbers
Memo = Mapping[str, Sequence[float]]
NO_WHY: Why = MappingProxyType({})
NO_MEMO: Memo = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Pay for training `trial` up to `until` steps in all (not `until` more).

    A trial that does not exist yet is numbered `len(ledger.trials)`. `config` may differ from the trial's last one:
    that is how one run changes its hyperparameters as it goes.
    """

    trial: int
    config: Config
    until: int
    validate: Validate = "each"
    expected_cost: float | None = None  # in the budget's unit; None: the core fills in what it knows
    reserve: float | None = None  # what the order may cost at most, in all likelihood; None: the core's default
    why: Why = field(default_factory=lambda: NO_WHY)  # numbers and words behind it; `explain` prints them
    memo: Memo = field(default_factory=lambda: NO_MEMO)  # what the next decision may start from


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to buy before another receipt is in."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing more is worth buying."""

    why: str = ""


Decision = Train | Wait | Finish
