"""tools/same_decisions.py ignores changed explanations and finds changed decisions."""

from __future__ import annotations

from same_decisions import find_changed

LINE = '{"trial": 0, "until": 1, "why": {"rung": 0}}'


def test_only_the_reasons_of_an_order_may_change() -> None:
    before = {"a": LINE, "b": LINE, "c": LINE}
    relabelled = LINE.replace('"rung": 0', '"compared": 0')
    assert find_changed(before, {"a": relabelled, "b": LINE, "c": LINE}) == []
    assert find_changed(before, {"a": LINE, "b": LINE.replace('"until": 1', '"until": 2'), "c": LINE}) == ["b"]
    assert find_changed(before, {"a": LINE, "b": f"{LINE}\n{LINE}"}) == ["b", "c"]
