"""Workers by number, each with a device of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_bench import Bench, fresh_ledger, list_workers, losses, receipts, summarise
from training_code import DeviceNumber, device_number

from shoestring.core.space.space import Space
from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.runners.devices import NumberedWorkers, count_workers, parse_devices
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.runners.make import RunnerOptions, make_runner
from shoestring.runners.process.process_runner import ProcessRunner

SPACE = Space({"x": {"float": [0.0, 1.0]}})


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # worker processes would import pytest
    made: list[Any] = []

    def make(train: Any, **more: Any) -> Bench:
        made.append(ProcessRunner(train, Checkpoints(tmp_path / "root"), **more))
        return Bench(made[-1], fresh_ledger(SPACE), {"x": 0.5})

    yield make
    for runner in made:
        runner.close()
    assert list_workers() == []


def test_devices_are_read_from_text_and_lists() -> None:
    assert parse_devices(None) == ()
    assert parse_devices("0, 1,1") == ("0", "1", "1")
    assert parse_devices([0, "GPU-8f2a", "1:0"]) == ("0", "GPU-8f2a", "1:0")


@pytest.mark.parametrize(
    ("given", "device"),
    [("", ""), ("0,,1", ""), ("0 1", "0 1"), (["-1"], "-1"), ("0;1", "0;1"), (["0,1"], "0,1")],
)
def test_invalid_devices_are_errors_of_one_line(given: Any, device: str) -> None:
    with pytest.raises(RunnerError) as caught:
        parse_devices(given)
    rule = "a device is a number or a name like GPU-1a2b; write 0,1"
    assert str(caught.value) == f"the devices {given!r} hold {device!r}: {rule}"


def test_devices_that_are_no_list_or_empty_are_errors_of_one_line() -> None:
    with pytest.raises(RunnerError, match=r"^the devices 3 cannot be read: write 0,1 or a list of numbers$"):
        parse_devices(3)  # type: ignore[arg-type]
    with pytest.raises(
        RunnerError, match=r"^the devices are an empty list: name one or more, as in 0,1, or leave them out$"
    ):
        parse_devices([])


def test_workers_get_devices_in_turn_and_are_found_when_free() -> None:
    workers = NumberedWorkers(5, ("0", "1"))
    assert workers.devices == ["0", "1", "0", "1", "0"]
    assert workers.find_free() == 0
    assert workers.find_free(prefer={"1"}) == 1
    workers.occupy(1)
    assert workers.find_free("1") == 3
    workers.occupy(3)
    assert workers.find_free("1") is None
    workers.release(1)
    assert workers.find_free("1") == 1
    assert [workers.name_of(number) for number in range(5)] == ["1", "2", "3", "4", "5"]
    assert NumberedWorkers(1).name_of(0) == ""


def test_there_is_a_worker_for_each_device_by_default(tmp_path: Path) -> None:
    assert count_workers(None, ("0", "0", "1")) == 3
    assert count_workers(2, ("0", "0", "1")) == 2
    assert count_workers(None, ()) == 1
    assert CommandRunner(["true"], SPACE, tmp_path, devices="0,0,1,1").workers == 4
    assert CommandRunner(["true"], SPACE, tmp_path).workers == 1


def test_each_worker_process_has_its_device_before_its_imports(bench: Callable[..., Bench]) -> None:
    it = bench(device_number, devices="5,7")
    assert it.runner.workers == 2
    it.submit(2, trial=0)
    it.submit(2, trial=1)
    finished = receipts(it.wait())
    assert {(r.value, r.worker) for r in finished} == {(5.0, "1"), (7.0, "2")}
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def train_on_first_device(it: Bench) -> None:
    """Train one step of two trials on the first worker, one after the other, while the second worker is busy."""
    it.runner._numbered_workers.occupy(1)
    it.train(1, trial=0)
    it.train(1, trial=1)
    it.runner._numbered_workers.release(1)
    assert [trial.values for trial in it.ledger.trials] == [[5.0], [5.0]]


def test_a_live_trial_waits_for_a_worker_on_its_device(bench: Callable[..., Bench]) -> None:
    it = bench(device_number, devices=[5, 7])
    train_on_first_device(it)
    it.submit(3, trial=0)
    it.submit(3, trial=1)
    assert set(it.runner.running()) == {2}  # it cannot be saved, so it waits for its own device
    events = it.wait()
    assert {(r.trial, r.value, r.worker) for r in receipts(events)} == {(0, 5.0, "1"), (1, 5.0, "1")}
    assert losses(events) == []


def test_a_saved_trial_continues_on_the_device_that_is_free(bench: Callable[..., Bench]) -> None:
    it = bench(DeviceNumber, devices=[5, 7])
    train_on_first_device(it)
    it.submit(3, trial=0)
    it.submit(3, trial=1)
    assert set(it.runner.running()) == {2, 3}
    events = it.wait()
    assert {(r.value, r.worker) for r in receipts(events)} == {(5.0, "1"), (7.0, "2")}
    assert losses(events) == []


def test_each_command_has_its_device(tmp_path: Path) -> None:
    script = "[ $CUDA_VISIBLE_DEVICES = $SHOESTRING_DEVICE ] && touch {0}/$SHOESTRING_DEVICE; "
    both = "while [ $(ls {0} | grep -c '^[57]$') -lt 2 ]; do sleep 0.01; done; echo $SHOESTRING_DEVICE"
    runner = CommandRunner(["sh", "-c", (script + both).format(tmp_path)], SPACE, tmp_path / "root", devices="5,7")
    it = Bench(runner, fresh_ledger(SPACE), {"x": 0.5})
    it.submit(1, trial=0)
    it.submit(1, trial=1)
    finished = receipts(it.wait())
    assert {(r.value, r.worker) for r in finished} == {(5.0, "1"), (7.0, "2")}
    assert [entry for entry in summarise(it.train(1, trial=2)) if entry[0] == 1] == [(1, 5.0, "ok")]
    runner.close()


def test_devices_choose_the_process_runner(tmp_path: Path) -> None:
    assert isinstance(make_runner(RunnerOptions(devices="0"), device_number, tmp_path, 1), ProcessRunner)
    assert isinstance(make_runner(RunnerOptions(), device_number, tmp_path, 1), LocalRunner)
    with pytest.raises(RunnerError) as caught:
        RunnerOptions(runner="local", devices="0")
    assert str(caught.value) == (
        "devices='0' is for worker processes: leave runner='local' out, or give runner='process'"
    )
    with pytest.raises(RunnerError, match=r"\b0\b"):
        RunnerOptions(devices=0)  # type: ignore[arg-type]
