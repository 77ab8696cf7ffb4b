"""BLAS uses one thread while a policy decides, and as many as before afterwards."""

from __future__ import annotations

import sys

import pytest
import scipy.linalg  # noqa: F401  # brings an OpenBLAS of its own

from shoestring.study import blas
from shoestring.study.blas import OneThread


def counts() -> list[int]:
    return [count() for count, _ in blas._find_loaded()]


@pytest.mark.skipif(sys.platform != "linux" or not counts(), reason="no OpenBLAS in this process")
def test_threads_are_limited_inside_and_restored_outside() -> None:
    for _, limit in blas._find_loaded():
        limit(2)
    before = counts()
    one_thread = OneThread()
    for _ in range(2):
        with one_thread:
            assert set(counts()) == {1}
        assert counts() == before
    with pytest.raises(ZeroDivisionError), one_thread:
        raise ZeroDivisionError
    assert counts() == before
    for _, limit in blas._find_loaded():
        limit(1)


@pytest.mark.skipif(sys.platform != "linux" or not counts(), reason="no OpenBLAS in this process")
def test_overlapping_uses_restore_the_number() -> None:
    for _, limit in blas._find_loaded():
        limit(2)
    first, second = OneThread(), OneThread()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert set(counts()) == {1}, "the second one is still deciding"
    second.__exit__()
    assert set(counts()) == {2}
    for _, limit in blas._find_loaded():
        limit(1)


def test_without_openblas_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_find_loaded", lambda: iter(()))
    with OneThread():
        pass
