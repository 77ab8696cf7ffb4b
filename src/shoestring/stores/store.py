"""What a study asks of a store.

Entries of one study are numbered 0, 1, 2, …; `append` is compare-and-swap on that number, so two writers can never both
be right. A `Lease` says who runs a study; whoever takes it over from the dead learns which steps were cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

from shoestring.core.entries import Entry
from shoestring.core.ledger import Ledger


class Lease(Protocol):
    lost: bool  # somebody else has taken it over
    cut_off: Mapping[int, float]  # {order: seconds} of steps under way when the last holder was last heard of

    def beat(self, entries: int, running_s: Mapping[int, float]) -> None:
        """Still here: the ledger has `entries`, and these orders have been at their present step so long."""
        ...

    def __enter__(self) -> Lease: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


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

    def append(self, study: str, ledger: Ledger | None, *entries: Entry) -> Ledger:
        """All entries or none, behind the last entry of `ledger` (None: a new study). Raises Conflict if it is not last."""
        ...

    def lease(self, study: str) -> Lease:
        """Take the right to run this study. Raises Leased, naming the holder, if somebody alive has it."""
        ...
