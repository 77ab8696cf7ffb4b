"""Options and fixtures shared by all tests."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from thoroughness import Thoroughness, repetitions

# Matrices are small here, so more than one thread only makes workers wait. This must be set before numpy is imported.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# Studies of tests that name no store, also in the processes that tests start.
if "SHOESTRING_STUDIES" not in os.environ:
    os.environ["SHOESTRING_STUDIES"] = tempfile.mkdtemp(prefix="shoestring-tests-")
    atexit.register(shutil.rmtree, os.environ["SHOESTRING_STUDIES"], ignore_errors=True)

# Tests start hundreds of processes: the first one that imports a file writes its bytecode for all others.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-dir",
        type=Path,
        default=Path(__file__).parent / "golden" / "data",
        help="folder with golden JSON files (default: the files in the repository)",
    )
    parser.addoption("--update-golden", action="store_true", help="record the golden decision traces again")
    parser.addoption(
        "--all-must-run", action="store_true", help="a skipped test fails, so that no test is left out unnoticed"
    )
    parser.addoption(
        "--thorough", action="store_true", help="tests marked `repeated` run with all their examples and kills"
    )
    parser.addoption("--times", type=int, default=1, help="with --thorough, multiply the numbers of examples and kills")


def pytest_configure(config: pytest.Config) -> None:
    Thoroughness.is_thorough = bool(config.getoption("--thorough"))
    Thoroughness.times = config.getoption("--times")
    # No time limits: a machine that stalls while an example is drawn is not an error.
    # CI draws the same examples in each run; runs on other machines draw new ones.
    settings.register_profile(
        "any machine",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=bool(os.environ.get("CI")),
        max_examples=repetitions(30, thorough=100),
    )
    settings.load_profile("any machine")
    if config.getoption("--all-must-run"):
        config.pluginmanager.register(AllMustRun())


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every property that Hypothesis tests as `repeated`."""
    if is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("repeated")


class AllMustRun:
    """Make every skipped test fail, and every test file that is skipped while it is collected."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.skipped and not hasattr(report, "wasxfail"):
            report.outcome = "failed"
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if report.skipped:
            report.outcome = "failed"
        return report
