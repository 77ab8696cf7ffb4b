"""What a study asks of a store.

Entries of one study are numbered 0, 1, 2, …; `append` is compare-and-swap on that number, so two writers can never both
be right. A `Lease` says who runs a study; whoever takes it over from the dead learns which steps were cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, Protocol

from shoestring.core.entries import Entry
from shoestring.core.ledger import Ledger


class Lease(Protocol):
    lost: bool  # somebody else has taken it over
    cut_off: Mapping[int, float]  # {order: seconds, some priced} of steps under way when its holder was last heard of

    def beat(self, entries: int, running_s: Mapping[int, float]) -> None:
        """Still here: the ledger has `entries`, and these orders have been at their present step so long."""
        ...

    def __enter__(self) -> Lease: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Heartbeat(NamedTuple):
    """What whoever runs the study says with an append: it is me, and these orders have been at their step so long."""

    lease: Lease
    running_s: Mapping[int, float]


class Store(Protocol):
    @property
    def where(self) -> str:
        """The address, for messages: without a password."""
        ...

    def studies(self) -> list[str]:
        """Names of all studies, in the order they were opened."""
        ...

    def load(self, study: str) -> Ledger | None:
        """The study's ledger with every checksum verified; None if there is no such study."""
        ...

    def refresh(self, study: str, ledger: Ledger) -> Ledger:
        """The ledger with whatever others have appended since."""
        ...

    def append(
        self, study: str, ledger: Ledger | None, *entries: Entry, beat: Heartbeat | None = None, durable: bool = True
    ) -> Ledger:
        """All entries or none, behind the last entry of `ledger` (None: a new study). Raises Conflict if it is not last.

        `beat` is stored with them, as a whole; if that lease is gone, nothing is stored and Leased is raised. What is not
        `durable` survives the end of this process, but a power cut may take the newest entries: for what can be computed
        again.
        """
        ...

    def settle(self, study: str, ledger: Ledger) -> None:
        """A run is over: do what makes the next opening of this ledger quick. May do nothing."""
        ...

    def lease(self, study: str) -> Lease:
        """Take the right to run this study. Raises Leased, naming the holder, if somebody alive has it."""
        ...
