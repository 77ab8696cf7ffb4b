"""Every runner trains the same steps for the same orders: simulated, local, process and command."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoestring.core.ledger.ledger import Ledger
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.runners.process.process_runner import ProcessRunner
from shoestring.runners.runner import Runner
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.testing.runners import (
    COMMAND,
    SPACE,
    Curve,
    CurveSource,
    MakeRunner,
    check_runner_contract,
    make_definition,
    outcomes,
    run_study,
)

RUNNERS: dict[str, MakeRunner] = {
    "simulated": lambda folder: SimulatedRunner(CurveSource()),
    "local": lambda folder: LocalRunner(Curve, Checkpoints(folder), live=2),
    "process": lambda folder: ProcessRunner(Curve, Checkpoints(folder), live=2),
    "command": lambda folder: CommandRunner(COMMAND, SPACE, folder),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "process" else name for name in RUNNERS]
)
def test_every_runner_keeps_the_contract(name: str, tmp_path: Path) -> None:
    check_runner_contract(RUNNERS[name], tmp_path)


@pytest.mark.parametrize("name", ["process", "command"])
def test_three_workers_train_what_one_trains(name: str, tmp_path: Path) -> None:
    runner: Runner = CommandRunner(COMMAND, SPACE, tmp_path, workers=3)
    if name == "process":
        runner = ProcessRunner(Curve, Checkpoints(tmp_path), workers=3)
    ledger = run_study(runner, Ledger([make_definition(workers=3)]))
    values = {(trial, step): (value, status) for _, trial, step, value, status in outcomes(ledger)}
    expected = run_study(SimulatedRunner(CurveSource()), Ledger([make_definition()]))
    common = {(trial, step): (value, status) for _, trial, step, value, status in outcomes(expected)}
    assert {key: values[key] for key in common if key in values} == {
        key: common[key] for key in common if key in values
    }
    assert ledger.spent <= 15
    assert len(values) >= 12
