"""What training code prints is kept by trial, and bounded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_bench import Bench, fresh_ledger
from training_code import Counter, prints, prints_a_lot

from shoestring.core.space.space import Space
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import cut_long_logs, log_files, read_log
from shoestring.runners.process.process_runner import ProcessRunner

SPACE = Space({"x": {"float": [0.0, 1.0]}})


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # worker processes would import pytest
    made: list[Any] = []

    def make(train: Any) -> Bench:
        made.append(ProcessRunner(train, Checkpoints(tmp_path / "root"), live=1))
        return Bench(made[-1], fresh_ledger(SPACE), {"x": 0.5})

    yield make
    for runner in made:
        runner.close()


def test_worker_processes_print_to_their_trials_logs(
    bench: Callable[..., Bench], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    it = bench(prints)
    for trial in range(6):  # more than there are processes: each serves several trials
        it.train(1, trial=trial, config={"x": trial / 10})
    it.train(2, trial=5, config={"x": 0.5})
    it.runner.close()
    for trial in range(6):
        out, err = log_files(tmp_path / "root" / f"trial-000{trial}")
        assert out.read_text() == f"out {trial / 10}\nout from below\n" * (2 if trial == 5 else 1)
        assert err.read_text() == "err\n" * (2 if trial == 5 else 1)
    captured = capfd.readouterr()
    assert "out" not in captured.out + captured.err


def test_a_trial_that_prints_nothing_leaves_no_logs(bench: Callable[..., Bench], tmp_path: Path) -> None:
    it = bench(Counter)
    it.train(2, check=True)
    it.runner.close()
    assert [path.name for path in (tmp_path / "root" / "trial-0000").iterdir() if path.suffix == ".txt"] == []


def test_the_oldest_part_of_a_long_log_is_cut_off(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoestring.runners.checkpoints.trial_logs.MAX_BYTES", 50_000)
    bench(prints_a_lot).train(9)
    text = (tmp_path / "root" / "trial-0000" / "stdout.txt").read_text()
    first = text.partition("\n")[0]
    assert first.startswith("[")
    assert "bytes" in first
    assert len(text) <= 50_000


def test_only_long_logs_are_cut_and_their_end_is_kept(tmp_path: Path) -> None:
    (tmp_path / "stdout.txt").write_text("a" * 50 + "b" * 50)
    (tmp_path / "stderr.txt").write_text("short")
    cut_long_logs([tmp_path, tmp_path / "nowhere"], max_bytes=60)
    assert (tmp_path / "stdout.txt").read_text() == "[the log grew too long: 70 bytes were cut off here]\n" + "b" * 30
    assert (tmp_path / "stderr.txt").read_text() == "short"


def test_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "stdout.txt"
    assert log_files(tmp_path) == []
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    assert log_files(tmp_path) == [log]
    assert read_log(log).splitlines() == [f"line {n}" for n in range(100)]
    assert read_log(log, tail=2) == "line 98\nline 99\n"
    assert read_log(log, tail=0) == ""
    cut = read_log(log, at_most_bytes=20)
    assert cut.splitlines()[0] == f"[the first {log.stat().st_size - 16} bytes are left out]"
    assert cut.splitlines()[1:] == ["line 98", "line 99"]
    log.write_bytes(b"\xff\x00\x1b[31m" * 10)  # not even text: the reader decides how to show it
    assert len(read_log(log)) == 70
