"""Golden numbers: one JSON file per method, `{section: [{"inputs": …, "expected": …, "notes": …}, …]}`.

A test marked `@pytest.mark.golden("bhpt", "action_value")`, with an argument `case`, runs once for each case of that section
in the folder `--golden-dir`. It is skipped if the file or section is missing. `case.check(result)` compares the fields that
the file has: numbers to rtol 1e-7 (or a given tolerance), decisions exactly. A relative tolerance is useless for an expected
0, so 0 is compared within 1e-12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

AT_ZERO = 1e-12  # sums of numbers around 1 that cancel differ by less than this, whatever the order of summation


@dataclass(frozen=True)
class Case:
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]

    def check(self, result: Mapping[str, Any], *, rtol: float = 1e-7, atol: float = 0.0) -> None:
        """Compare every expected field; a field that `result` lacks is a failure."""
        for field, want in self.expected.items():
            assert field in result, f"the test computes no {field!r}, which the golden file expects"
            _compare(field, result[field], want, rtol, atol)

    def check_part(self, result: Mapping[str, Any], **tolerances: float) -> None:
        """Compare the fields of `result` that the file has."""
        part = {field: want for field, want in self.expected.items() if field in result}
        Case(self.inputs, part).check(result, **tolerances)

    def records(self, field: str) -> list[Mapping[str, Any]]:
        """Return a list of expected records; empty if the file lacks it."""
        return list(self.expected.get(field, ()))


def _compare(field: str, got: Any, want: Any, rtol: float, atol: float) -> None:
    if isinstance(want, Mapping):
        for key, value in want.items():
            _compare(f"{field}.{key}", got[key], value, rtol, atol)
        return
    wanted = np.asarray(want)
    computed = wanted.dtype.kind == "f" or (wanted.dtype.kind in "iu" and np.asarray(got).dtype.kind == "f")
    if not computed:  # decisions, indices, words, ragged lists, nulls: exact
        assert _plain(got) == want, f"{field}: got {_plain(got)!r}, expected {want!r}"
    else:
        numbers = np.asarray(got, dtype=float)
        allowed = np.where(wanted == 0, max(atol, AT_ZERO), atol + rtol * np.abs(wanted))
        same = (numbers == wanted) | (np.abs(numbers - wanted) <= allowed) | (np.isnan(numbers) & np.isnan(wanted))
        assert np.all(same), f"{field}: got {_plain(numbers)!r}, expected {want!r}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "golden(file, section): run once for each case of a section of a golden file")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("golden")
    if marker is None:
        return
    name, section = marker.args
    path = metafunc.config.getoption("--golden-dir") / f"{name}.json"
    cases: list[Any] = []
    reason = f"{path} is absent"
    if path.exists():
        found = json.loads(path.read_text()).get(section, [])
        reason = f"{path} has no section {section!r}"
        cases = [
            pytest.param(Case(entry["inputs"], entry["expected"]), id=f"{name}-{section}-{i}")
            for i, entry in enumerate(found)
        ]
    if not cases:
        cases = [pytest.param(None, id=f"{name}-{section}-absent", marks=pytest.mark.skip(reason=reason))]
    metafunc.parametrize("case", cases)
