"""A list whose beginning is fetched when it is first looked at: the past of a long study, which few people ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class LateList(Sequence[T]):
    """Grows at its end like a list. `fetch` gives the first `count` items, once, when one of them is asked for."""

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
        places = range(len(self))[index]  # what a list of this length would look at
        if isinstance(places, int):
            return self._whole()[places] if places < self._missing else self._items[places - self._missing]
        if places and min(places[0], places[-1]) < self._missing:
            return self._whole()[index]
        return [self._items[place - self._missing] for place in places]

    def __iter__(self) -> Iterator[T]:
        return iter(self._whole())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | LateList) and self._whole() == list(other)

    def append(self, item: T) -> None:
        self._items.append(item)

    def pop(self) -> T:
        """The last item, which must have been appended here."""
        return self._items.pop()

    def _whole(self) -> list[T]:
        if self._missing:
            fetched = self._fetch()
            self._items[:0] = fetched
            self._missing = 0
        return self._items
