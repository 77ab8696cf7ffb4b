"""The entries of a ledger and their stored bodies: small typed records.

    opened    what the study is: space, direction, steps of a full training, budget, prices, policy, seed, format
    order     what a policy wants to train, priced and numbered
    receipt   one finished step (or the step that failed), with its cost
    lost      the state of a trial was lost; it can continue only from an earlier step
    amended   budget, policy or number of workers changed
    note      everything else that must be remembered; its `topic` says what

Values are stored as the training code reported them. The direction of the study says whether small or large values are better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from shoestring.core.deciding.decision import NO_MEMO, NO_WHY, Memo, Validate, Why
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.space.space import Config, Space
from shoestring.errors import StudyError, UnknownFormat

FORMAT = 1  # format of the bodies of all entries; a study of another format is not read
Direction = Literal["min", "max"]
Status = Literal["ok", "diverged", "failed", "interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDefinition:
    """The first entry: what the study is."""

    space: Space  # the search space
    budget: Budget  # the budget of the whole study
    policy: str  # name of the policy
    settings: Mapping[str, Any]  # settings of the policy
    seed: int  # the seed of everything random
    direction: Direction = "min"  # whether small or large values are better
    max_steps: int = 1  # steps of a full training
    prices: Prices = field(default_factory=Prices)  # what a budget in epochs is charged besides steps
    workers: int = 1  # number of workers
    target: Mapping[str, Any] = field(default_factory=dict)  # what is trained, and a fingerprint of its code
    metric: str = ""  # what the values are, for reports: "validation error"; empty: not named
    format: int = FORMAT  # format of the entries
    kind: ClassVar[str] = "opened"

    @property
    def sign(self) -> float:
        """The factor that turns a value into a loss, which is small when good."""
        return 1.0 if self.direction == "min" else -1.0

    def body(self) -> dict[str, Any]:
        """Return the fields of the entry as they are stored.

        Returns
        -------
        dict
            Plain values by the names of the fields.
        """
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "metric" or self.metric}
        return shown | {"space": self.space.to_dict(), "budget": str(self.budget), "prices": self.prices.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The seconds of one step, split by what they were spent on."""

    setup: float = 0.0  # starting the trial, loading and saving checkpoints
    train: float = 0.0  # training
    validate: float = 0.0  # the validation pass

    @property
    def total(self) -> float:
        """All seconds together."""
        return self.setup + self.train + self.validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An instruction to train one trial up to step `until`, with the cost that is reserved for it."""

    number: int  # number of the order, from 0
    trial: int  # number of the trial
    config: Config  # its configuration
    until: int  # the last step to train
    validate: Validate = "each"  # which steps are followed by a validation pass
    expected_cost: float | None = None  # what it will probably cost, in the budget's unit
    reserve: float = 0.0  # what it may cost at most, in the budget's unit
    why: Why = field(default_factory=lambda: NO_WHY)  # what the policy compared
    memo: Memo = field(default_factory=lambda: NO_MEMO)  # numbers for the policy's next decision
    check: bool = False  # check on the way that a saved and resumed trial continues as if it had not stopped
    is_external: bool = False  # the user carries it out (ask and tell), not a runner
    thinking_s: float = 0.0  # seconds that the decision took; budgets of time and money are charged for them
    at: float = 0.0  # time on the runner's clock
    kind: ClassVar[str] = "order"

    def validates(self, step: int) -> bool:
        """Return whether this order includes a validation pass after a step.

        Parameters
        ----------
        step : int
            The step.

        Returns
        -------
        bool
            Whether the step is validated.
        """
        return self.validate == "each" or (self.validate == "last" and step == self.until)

    def body(self) -> dict[str, Any]:
        """Return the fields of the entry as they are stored.

        Returns
        -------
        dict
            Plain values by the names of the fields.
        """
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
            "is_external": self.is_external,
            "thinking_s": self.thinking_s,
            "at": self.at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One finished step, or the step at which training failed or was interrupted, which closes the order."""

    order: int  # number of its order
    trial: int  # number of its trial
    step: int  # the step
    value: float | None = None  # the value as reported; None: not validated, or not a number
    cost: Cost = field(default_factory=Cost)  # seconds of the step
    status: Status = "ok"  # how the step ended
    text: str = ""  # text of a failure
    saved_step: int = 0  # the newest step of this trial with a checkpoint
    at: float = 0.0  # time on the runner's clock
    worker: str = ""  # which worker ran the step, if there are several: "2", or "2 on gpu-7"
    price_factor: float = 1.0  # price of a second of this worker, as a multiple of the budget's rate
    metrics: Mapping[str, float] = field(default_factory=dict)  # reported with the value; not used for decisions
    kind: ClassVar[str] = "receipt"

    @property
    def is_finished(self) -> bool:
        """Whether the step was completed, with a good value or a bad one."""
        return self.status in ("ok", "diverged")

    def body(self) -> dict[str, Any]:
        """Return the fields of the entry as they are stored.

        Returns
        -------
        dict
            Plain values by the names of the fields.
        """
        return {
            "order": self.order,
            "trial": self.trial,
            "step": self.step,
            "value": self.value,
            "cost": [self.cost.setup, self.cost.train, self.cost.validate],
            "status": self.status,
            "text": self.text,
            "saved_step": self.saved_step,
            "at": self.at,
            **_without_defaults(worker=self.worker, price_factor=self.price_factor, metrics=dict(self.metrics)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLoss:
    """The state of a trial was lost: it can continue only from `resumable_step`.

    An open order of the trial stays open and is carried out again from `resumable_step`. Only the third death in a row closes it:
    then the trial has failed.
    """

    trial: int  # number of the trial
    resumable_step: int  # the newest step whose state still exists
    seconds: float = 0.0  # seconds of a step that a crash cut off; budgets of time and money are charged for them
    why: str = ""  # what happened
    death: bool = False  # its process died, not its machine; after three such deaths in a row the trial has failed
    worker: str = ""  # the worker that ran it
    price_factor: float = 1.0  # price of a second of this worker, as a multiple of the budget's rate
    kind: ClassVar[str] = "lost"

    def body(self) -> dict[str, Any]:
        """Return the fields of the entry as they are stored.

        Returns
        -------
        dict
            Plain values by the names of the fields.
        """
        fields_set = {
            "trial": self.trial,
            "resumable_step": self.resumable_step,
            "seconds": self.seconds,
            "why": self.why,
        }
        return fields_set | _without_defaults(death=self.death, worker=self.worker, price_factor=self.price_factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """Budget, policy or number of workers changed; None means unchanged."""

    budget: Budget | None = None  # the new budget
    policy: str | None = None  # name of the new policy
    settings: Mapping[str, Any] | None = None  # settings of the new policy
    workers: int | None = None  # the new number of workers
    kind: ClassVar[str] = "amended"

    def body(self) -> dict[str, Any]:
        """Return the fields of the entry as they are stored.

        Returns
        -------
        dict
            Plain values by the names of the fields.
        """
        changed: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        changed["budget"] = None if self.budget is None else str(self.budget)
        return {name: value for name, value in changed.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Anything else that must be remembered; `core/ledger/notes.py` declares the topics that have a meaning for the ledger."""

    topic: str  # what the note is about
    facts: Mapping[str, Any] = field(default_factory=dict)  # its facts, by name
    kind: ClassVar[str] = "note"

    def body(self) -> dict[str, Any]:
        """Return the fields of the entry as they are stored.

        Returns
        -------
        dict
            Plain values by the names of the fields.
        """
        return {"topic": self.topic, **self.facts}


def _without_defaults(**optional: Any) -> dict[str, Any]:
    """Return those fields that differ from their defaults; nearly all entries have none."""
    return {name: value for name, value in optional.items() if value and not (name == "price_factor" and value == 1.0)}


Entry = StudyDefinition | Order | Receipt | StateLoss | Amendment | Note


# from stored bodies ---------------------------------------------------------------------------------------------------


def from_stored(kind: str, body: Mapping[str, Any]) -> Entry:
    """Return the entry of this kind with this stored body."""
    if kind not in _READERS:
        raise StudyError(f"the ledger has an entry of the unknown kind {kind!r}: it needs a newer shoestring")
    return _READERS[kind](body)


def _read_definition(body: Mapping[str, Any]) -> StudyDefinition:
    if (found := int(body["format"])) != FORMAT:
        raise UnknownFormat(
            f"the study is of format {found}, this shoestring reads format {FORMAT}: use the version that recorded it"
        )
    parsed = {
        "space": Space.from_dict(body["space"]),
        "budget": Budget(body["budget"]),
        "prices": Prices(**body["prices"]),
    }
    return StudyDefinition(**{**body, **parsed})


def _read_receipt(body: Mapping[str, Any]) -> Receipt:
    setup, train, validate = body["cost"]
    return Receipt(**{**body, "cost": Cost(setup=setup, train=train, validate=validate)})


def _read_amendment(body: Mapping[str, Any]) -> Amendment:
    budget = {"budget": Budget(body["budget"])} if "budget" in body else {}
    return Amendment(**{**body, **budget})


def _read_note(body: Mapping[str, Any]) -> Note:
    return Note(topic=body["topic"], facts={name: value for name, value in body.items() if name != "topic"})


_READERS: dict[str, Callable[[Mapping[str, Any]], Entry]] = {
    StudyDefinition.kind: _read_definition,
    Order.kind: lambda body: Order(**body),
    Receipt.kind: _read_receipt,
    StateLoss.kind: lambda body: StateLoss(**body),
    Amendment.kind: _read_amendment,
    Note.kind: _read_note,
}
