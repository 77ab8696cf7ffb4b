"""The entries of a ledger, and their bodies as stored: small typed records, no blobs.

    opened    what the study is: space, direction, longest training, budget, prices, policy, seed, format version
    order     what a policy asked to buy, priced and numbered
    receipt   one finished step (or the step that failed), with its cost
    lost      a trial's surviving state went back to an earlier step
    amended   budget, policy or number of workers changed
    note      everything else that must be remembered: `topic` says what

Values are kept as the training code reported them; whether small or large is better is the study's direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from shoestring.core.deciding.decision import NO_MEMO, NO_WHY, Memo, Validate, Why
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.space.space import Config, Space
from shoestring.errors import StudyError

FORMAT = 2
Direction = Literal["min", "max"]
Status = Literal["ok", "diverged", "failed", "interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    space: Space
    budget: Budget
    policy: str
    settings: Mapping[str, Any]
    seed: int
    direction: Direction = "min"
    max_steps: int = 1
    prices: Prices = field(default_factory=Prices)
    workers: int = 1
    target: Mapping[str, Any] = field(default_factory=dict)  # what is trained, and a fingerprint of its code
    format: int = FORMAT
    kind: ClassVar[str] = "opened"

    @property
    def sign(self) -> float:
        """Times a value: its loss, which is small when good."""
        return 1.0 if self.direction == "min" else -1.0

    def body(self) -> dict[str, Any]:
        shown = {f.name: getattr(self, f.name) for f in fields(self)}
        return shown | {"space": self.space.to_dict(), "budget": str(self.budget), "prices": self.prices.to_dict()}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Opened:
        parsed = {
            "space": Space.from_dict(body["space"]),
            "budget": Budget(body["budget"]),
            "prices": Prices(**body["prices"]),
        }
        return cls(**{**body, **parsed})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of one receipt by what they were spent on."""

    setup: float = 0.0  # start of the trial, loading and saving checkpoints
    train: float = 0.0
    validate: float = 0.0

    @property
    def total(self) -> float:
        return self.setup + self.train + self.validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    number: int
    trial: int
    config: Config
    until: int
    validate: Validate = "each"
    expected_cost: float | None = None
    reserve: float = 0.0
    why: Why = field(default_factory=lambda: NO_WHY)
    memo: Memo = field(default_factory=lambda: NO_MEMO)
    check: bool = False  # test on the way whether a saved trial continues as if it had never been frozen
    asked: bool = False  # for, by somebody who owns their loop; a runner leaves it alone
    thinking_s: float = 0.0  # the policy's own time, charged to time and money
    at: float = 0.0  # the runner's clock
    kind: ClassVar[str] = "order"

    def validates(self, step: int) -> bool:
        """Whether this order pays for a validation pass after `step`."""
        return self.validate == "each" or (self.validate == "last" and step == self.until)

    def body(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "trial": self.trial,
            "config": dict(self.config),
            "until": self.until,
            "validate": self.validate,
            "expected_cost": self.expected_cost,
            "reserve": self.reserve,
            "why": dict(self.why),
            "memo": {name: list(numbers) for name, numbers in self.memo.items()},
            "check": self.check,
            "asked": self.asked,
            "thinking_s": self.thinking_s,
            "at": self.at,
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Order:
        return cls(**body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One finished step. `failed` and `interrupted` name the step that was under way and close the order."""

    order: int
    trial: int
    step: int
    value: float | None = None
    cost: Cost = field(default_factory=Cost)
    status: Status = "ok"
    text: str = ""  # of a failure
    saved: int = 0  # newest step of this trial on durable storage
    at: float = 0.0
    worker: str = ""  # who carried the step out, where there are several: "2", or "2 on gpu-7"
    price_factor: float = 1.0  # times the budget's rate: what a second of this worker costs
    metrics: Mapping[str, float] = field(default_factory=dict)  # reported beside the value; never charged or decided on
    kind: ClassVar[str] = "receipt"

    @property
    def is_finished(self) -> bool:
        """Whether the step came to its end, with a good value or a bad one."""
        return self.status in ("ok", "diverged")

    def body(self) -> dict[str, Any]:
        return {
            "order": self.order,
            "trial": self.trial,
            "step": self.step,
            "value": self.value,
            "cost": [self.cost.setup, self.cost.train, self.cost.validate],
            "status": self.status,
            "text": self.text,
            "saved": self.saved,
            "at": self.at,
            **_without_defaults(worker=self.worker, price_factor=self.price_factor, metrics=dict(self.metrics)),
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Receipt:
        setup, train, validate = body["cost"]
        return cls(**{**body, "cost": Cost(setup=setup, train=train, validate=validate)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A trial can go on only from `held`; `seconds` of a step that a crash cut off are charged to time and money.

    The order stays open: whoever carries it out begins again from `held`. `death`: the process of the trial died in a
    step, by itself; after three of these with no finished step between, the books count the trial as failed. The loss of
    a whole machine, a stop or an eviction is none.
    """

    trial: int
    held: int
    seconds: float = 0.0
    why: str = ""
    death: bool = False
    worker: str = ""
    price_factor: float = 1.0
    kind: ClassVar[str] = "lost"

    def body(self) -> dict[str, Any]:
        told = {"trial": self.trial, "held": self.held, "seconds": self.seconds, "why": self.why}
        return told | _without_defaults(death=self.death, worker=self.worker, price_factor=self.price_factor)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Lost:
        return cls(**body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """What changed; None means unchanged."""

    budget: Budget | None = None
    policy: str | None = None
    settings: Mapping[str, Any] | None = None
    workers: int | None = None
    kind: ClassVar[str] = "amended"

    def body(self) -> dict[str, Any]:
        changed: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        changed["budget"] = None if self.budget is None else str(self.budget)
        return {name: value for name, value in changed.items() if value is not None}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Amended:
        budget = {"budget": Budget(body["budget"])} if "budget" in body else {}
        return cls(**{**body, **budget})


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Topics with a meaning for the ledger:

    enqueue   {"config"}: a config that the user wants tried before the policy's own
    ended     {"order", "trial", "step", "seconds"}: the training code came to its own end after that step; the order is
              closed, the seconds since its last receipt are charged, and an end before the first step is a failure
    released  {"order"}: an order that nobody reported on is given up; it is closed, nothing is charged
    taken     {"order", "client"}: who took the order from a server; it changes nothing in the books
    check     {"order", "trial", "step", "seconds", …}: resuming was tried out; charged as one step or its seconds
    thinking  {"seconds"}: thinking and bookkeeping that led to no order; with {"kind": "setup"}, saving at the end of a run
    """

    topic: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "note"

    def body(self) -> dict[str, Any]:
        return {"topic": self.topic, **self.facts}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Note:
        return cls(topic=body["topic"], facts={name: value for name, value in body.items() if name != "topic"})


def _without_defaults(**told: Any) -> dict[str, Any]:
    """Of these fields, those that say something: nearly all entries have none of them."""
    return {name: value for name, value in told.items() if value and not (name == "price_factor" and value == 1.0)}


Entry = Opened | Order | Receipt | Lost | Amended | Note
_KINDS = {kind.kind: kind for kind in (Opened, Order, Receipt, Lost, Amended, Note)}


def from_stored(kind: str, body: Mapping[str, Any]) -> Entry:
    """An entry from its kind and its body in the present format; `core/ledger/formats.py` brings older bodies up to it."""
    if kind not in _KINDS:
        raise StudyError(f"the ledger holds an entry of the unknown kind {kind!r}: it needs a newer shoestring")
    return _KINDS[kind].from_body(body)
