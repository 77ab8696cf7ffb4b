"""A list whose first items are read only when one of them is needed, for the entries and orders of a long study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class LazyList(Sequence[T]):
    """A list that can grow at its end. `fetch` returns the first `count` items; it is called once, when one of them is needed."""

    __slots__ = ("_fetch", "_items", "_missing")

    def __init__(self, count: int, fetch: Callable[[], list[T]]) -> None:
        self._missing, self._fetch = count, fetch
        self._items: list[T] = []

    def __len__(self) -> int:
        return self._missing + len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        places = range(len(self))[index]  # positions of the wanted items, as in a list of this length
        if isinstance(places, int):
            return self._read_all()[places] if places < self._missing else self._items[places - self._missing]
        if places and min(places[0], places[-1]) < self._missing:
            return self._read_all()[index]
        return [self._items[place - self._missing] for place in places]

    def __iter__(self) -> Iterator[T]:
        return iter(self._read_all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | LazyList) and self._read_all() == list(other)

    def append(self, item: T) -> None:
        """Add an item at the end."""
        self._items.append(item)

    def pop(self) -> T:
        """Remove and return the last item, which must have been added with `append`."""
        return self._items.pop()

    def _read_all(self) -> list[T]:
        if self._missing:
            fetched = self._fetch()
            self._items[:0] = fetched
            self._missing = 0
        return self._items
