"""The notes that have a meaning for the ledger: each topic with its facts is declared once, as a small record.

`to_note` turns a record into the entry that is stored, and `from_note` reads it back. A fact with its default value is not
stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from shoestring.core.ledger.entries import Note
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
