"""Random streams by name."""

from __future__ import annotations

from itertools import pairwise

from shoestring.core.values.randomness import stream


def test_the_same_name_gives_the_same_numbers() -> None:
    assert stream(7, "pool", 3).random(5).tolist() == stream(7, "pool", 3).random(5).tolist()


def test_every_part_of_the_name_matters() -> None:
    numbers: list[tuple[int, ...]] = [(), (0,), (0, 0), (1,), (0, 1), (2**40,)]
    streams = [stream(0, "a", *those) for those in numbers] + [stream(0, "b"), stream(1, "a"), stream(2**40, "a")]
    draws = sorted(float(each.random()) for each in streams)
    assert all(a < b for a, b in pairwise(draws)), "two names share a stream"


def test_a_stream_does_not_depend_on_what_was_drawn_elsewhere() -> None:
    first = stream(1, "decide", 4)
    stream(1, "decide", 3).random(1000)
    assert first.random() == stream(1, "decide", 4).random()
