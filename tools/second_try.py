"""What failed, tried once more, alone: on a crowded machine a test of kills and clocks may fail by chance, a fault fails again.

Only where SECOND_TRY is set, as .ci/run does. What passes then is named at the end, to be mended: a test should not need it.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

VARIABLE = "SECOND_TRY"
MOST = 3  # more failures than these are no chance


class SecondTry:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failed: list[str] = []
        self.lucky: list[str] = []  # they passed when they were tried again

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # Other codes than "tests failed" are faults of the run itself: nothing was collected, or it was interrupted.
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and 0 < len(self.failed) <= MOST and self._pass_alone():
            self.lucky = self.failed
            session.exitstatus = pytest.ExitCode.OK

    def _pass_alone(self) -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *self.failed]
        command += [f"--override-ini={setting}" for setting in self.config.getoption("override_ini") or ()]
        if self.config.getoption("--all-must-run"):
            command.append("--all-must-run")
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        return subprocess.run(command, cwd=self.config.rootpath, env=environment, check=False).returncode == 0

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self.lucky:
            terminalreporter.write_line(f"failed at first and passed alone, to be mended: {test}", yellow=True)
