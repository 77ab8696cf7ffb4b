"""tools/same_decisions.py tells a trace that was retold from one that decides differently."""

from __future__ import annotations

from same_decisions import find_changed

LINE = '{"trial": 0, "until": 1, "why": {"rung": 0}}'


def test_what_is_told_may_change_and_what_is_bought_may_not() -> None:
    before = {"a": LINE, "b": LINE, "c": LINE}
    retold = LINE.replace('"rung": 0', '"compared": 0')
    assert find_changed(before, {"a": retold, "b": LINE, "c": LINE}) == []
    assert find_changed(before, {"a": LINE, "b": LINE.replace('"until": 1', '"until": 2'), "c": LINE}) == ["b"]
    assert find_changed(before, {"a": LINE, "b": f"{LINE}\n{LINE}"}) == ["b", "c"]
