"""The notes that have a meaning for the ledger: each topic with its facts is declared once, as a small record.

`to_note` turns a record into the entry that is stored, and `from_note` reads it back. A fact with its default value is not
stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from typing import Any, ClassVar, Self

from shoestring.core.ledger.entries import Entry, Note, Order
from shoestring.core.space.space import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFacts:
    """The facts of a note of one topic."""

    topic: ClassVar[str]

    def to_note(self) -> Note:
        """Return the note that is stored."""
        values = ((one, getattr(self, one.name)) for one in fields(self))
        return Note(topic=self.topic, facts={one.name: value for one, value in values if value != one.default})

    @classmethod
    def from_note(cls, note: Note) -> Self:
        """Return the facts of a stored note of this topic."""
        facts: Mapping[str, Any] = note.facts
        return cls(**{one.name: facts[one.name] for one in fields(cls) if one.name in facts})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedConfig(NoteFacts):
    """The user queued this configuration, to be tried before those of the policy."""

    config: Config
    topic: ClassVar[str] = "enqueue"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEnd(NoteFacts):
    """The training code ended by itself after `step`.

    The order is closed, and the seconds since its last receipt are charged. An end before the first step is a failure.
    """

    order: int
    trial: int
    step: int
    seconds: float = 0.0
    price_factor: float = 1.0
    topic: ClassVar[str] = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRelease(NoteFacts):
    """The order is closed without a receipt: no report came for a long time, or the run was interrupted between steps."""

    order: int
    why: str = ""
    topic: ClassVar[str] = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAssignment(NoteFacts):
    """A worker received this order from a server. The state of the study does not change."""

    order: int
    worker: str
    topic: ClassVar[str] = "assigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeCheck(NoteFacts):
    """A resume check was made. It is charged as one epoch, or by its seconds."""

    order: int
    trial: int
    step: int
    seconds: float
    continued: float | None  # the value without interruption; None: the step was not finished
    resumed: float | None  # the value after save and load
    same: bool | None  # None: the check was not finished
    price_factor: float = 1.0
    declared: str = ""  # "inexact" if the training code declares that it cannot resume exactly
    topic: ClassVar[str] = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead(NoteFacts):
    """Seconds that led to no order: decisions of the policy ("thinking"), or saving at the end of a run ("setup")."""

    seconds: float
    kind: str = "thinking"
    topic: ClassVar[str] = "thinking"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeal(NoteFacts):
    """The checkpoint of this step was saved. A checkpoint with another digest is not read."""

    trial: int
    step: int
    digest: str
    topic: ClassVar[str] = "sealed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCheckpoint(NoteFacts):
    """The checkpoint of this step is not the one that was saved, so it will not be read."""

    trial: int
    step: int
    topic: ClassVar[str] = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierStudy(NoteFacts):
    """What an earlier study found, copied when this study began; policies may use it from their first decision on.

    The earlier study may change or be deleted afterwards. Row i of `configs`, `scores` and `step_s` belongs to one of its trials.
    """

    name: str  # its name
    source: str  # where it was read from, without credentials
    digest: str  # a fingerprint of the rows
    date: str  # the day on which it was read, in UTC: 2026-01-31
    trials: int  # trials that it had; at most some hundred of them are copied
    parameters: Sequence[str]  # its parameters that this study has too, by their names here
    configs: Sequence[Config]  # their values by name; a parameter that was not active is left out
    scores: Sequence[float]  # how good each trial looked in the end, in standard deviations; lower is better
    step_s: Sequence[float] = ()  # seconds of a step of each trial; empty if they are not known
    score_fit: Sequence[float] = ()  # fitted parameters of the model of the scores (`models.gp.fit`)
    price_fit: Sequence[float] = ()  # the same for the logarithm of `step_s`
    topic: ClassVar[str] = "earlier"


def list_earlier_studies(entries: Iterable[Entry]) -> list[EarlierStudy]:
    """Return what earlier studies found, from the entries of a study; they are copied before its first order."""
    before = takewhile(lambda entry: not isinstance(entry, Order), entries)
    notes = (entry for entry in before if isinstance(entry, Note) and entry.topic == EarlierStudy.topic)
    return [EarlierStudy.from_note(note) for note in notes]
