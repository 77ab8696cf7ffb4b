"""`tune` and `Study.run` with training code: their arguments, what they show, and their warnings and errors."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shoestring import Choice, Float, Space, Study, Trial, tune
from shoestring.core.ledger.entries import Amendment, Cost, Order, Receipt
from shoestring.errors import RunnerError, StoreError, StudyError, TrainingFailed
from shoestring.runners.make import RunnerOptions
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.stores.in_memory import MemoryStore
from shoestring.study import run_study
from shoestring.study.loop import Ending
from shoestring.study.run_study import report_problems
from shoestring.testing.curves import DecayingCurves

SPACE = Space({"x": Float(0.0, 1.0)})


def loss(config: Any) -> float:
    return float(config["x"])


def curve(config: Any) -> Iterator[float]:
    for step in range(5):
        yield config["x"] / (step + 1)


def crash(config: Any) -> float:
    raise ZeroDivisionError("nothing works\x1b[31m")


class Trainer:
    def __init__(self, config: Any) -> None:
        self.x = config["x"]

    def step(self) -> float:
        return float(self.x)


# the arguments -------------------------------------------------------------------------------------------------------


def test_every_argument_is_named_typed_and_explained() -> None:
    parameters = inspect.signature(tune).parameters
    assert all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters.values())
    (section,) = re.findall(r"^Parameters\n-+\n(.*?)\n\n", inspect.getdoc(tune) or "", flags=re.M | re.S)
    assert re.findall(r"^(\w+) : ", section, flags=re.M) == list(parameters)
    assert all(p.annotation is not p.empty for p in parameters.values())
    passed_on = set(inspect.signature(Study.begin).parameters) - {"target"}
    assert passed_on <= set(parameters)


@pytest.mark.parametrize(("given", "best"), [("min", 1.0), ("minimize", 1.0), ("max", 3.0), ("maximize", 3.0)])
def test_the_direction_may_be_written_in_full(given: Any, best: float, tmp_path: Path) -> None:
    space = Space({"x": Choice([1.0, 3.0])})
    options: dict[str, Any] = {"store": f"{tmp_path}/s.db", "initial": [{"x": 1.0}, {"x": 3.0}]}
    study = tune(loss, space, "2 epochs", direction=given, **options)
    assert study.best is not None
    assert study.best.value == best
    short: Any = given[:3]
    assert tune(loss, space, "2 epochs", direction=short, **options).spent == 2  # the same study


def test_devices_reach_the_runner_and_set_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, int]] = []

    def make(
        options: RunnerOptions, train: Any, place: Path, workers: int, deadline_s: float | None
    ) -> SimulatedRunner:
        given.append((options.devices, workers))
        return SimulatedRunner(DecayingCurves())

    monkeypatch.setattr(run_study, "make_runner", make)
    tune(loss, SPACE, "2 epochs")
    tune(loss, SPACE, "2 epochs", devices="0,1")
    tune(loss, SPACE, "2 epochs", devices="0,1", workers=3)
    assert given == [(None, 1), ("0,1", 2), ("0,1", 3)]


def test_a_deadline_of_zero_trains_nothing() -> None:
    for deadline in (0, 0.0, "0s"):
        study = tune(loss, SPACE, "5 epochs", deadline=deadline)
        assert study.spent == 0
        assert study.ending is not None
        assert study.ending.reason == "deadline"


# code that fails -----------------------------------------------------------------------------------------------------


def test_code_that_always_fails_raises_an_error_with_the_study() -> None:
    with pytest.raises(TrainingFailed) as caught:
        tune(crash, SPACE, "40 epochs", name="doomed")
    message = str(caught.value)
    assert "'doomed' has no result: 3 of 3 trials failed and no step has ever worked" in message
    assert "ZeroDivisionError: nothing works\\x1b[31m" in message
    assert message.isprintable()
    study = caught.value.study
    assert isinstance(study, Study)
    assert "error.study.trials[2].failure" in message
    assert "in crash" in study.trials[2].failure
    assert study.spent == 3


def test_a_single_failed_trial_raises_too() -> None:
    with pytest.raises(
        TrainingFailed,
        match="'study' has no result: its only trial failed and no step has ever worked; the last failure was ZeroDivision",
    ):
        tune(crash, SPACE, "1 epoch")


def test_values_that_are_never_numbers_raise() -> None:
    with pytest.raises(
        TrainingFailed, match=r"no step has ever worked: 10 trials diverged.*; check what .* reports for \{'x'"
    ):
        tune(lambda config: float("nan"), SPACE, "40 epochs")
    with pytest.raises(TrainingFailed, match="no value was a finite number"):
        tune(lambda config: float("inf"), SPACE, "4 epochs")


def test_code_that_begins_to_fail_warns_and_keeps_its_results() -> None:
    calls: list[int] = []

    def fading(config: Any) -> float:
        calls.append(1)
        if len(calls) > 2:
            raise OSError("disk full")
        return float(config["x"])

    with pytest.warns(
        UserWarning, match=r"'study' ended early after repeated failures: OSError: disk full; repair the code"
    ) as caught:
        study = tune(fading, SPACE, "40 epochs", policy="random_search")
    assert study.best is not None
    assert caught[0].filename == __file__  # points at the user's call, not into the package


def test_a_budget_without_a_validated_step_warns() -> None:
    study = Study.begin(SPACE, "10s", policy="random_search")
    order = Order(number=0, trial=0, config={"x": 0.5}, until=1)
    study.journal.append(order, Receipt(order=0, trial=0, step=1, cost=Cost(train=10.0), status="interrupted"))
    with pytest.warns(
        UserWarning,
        match=r"'study' has no result: it spent 10.0 s of 10.0 s and no step was validated; raise the budget",
    ):
        assert study.run(loss).reason == "budget"


def test_a_stopped_run_raises_nothing() -> None:
    study = Study.begin(SPACE, "9 epochs")
    assert study.run(loss, should_stop=lambda: True).reason == "stopped"
    assert tune(crash, SPACE, "9 epochs", deadline=0).best is None


# a budget left unspent -----------------------------------------------------------------------------------------------------


def test_a_policy_that_leaves_budget_unspent_warns_with_its_reason() -> None:
    with pytest.warns(
        UserWarning,
        match=r"grid has ended the run: .*, 2\d epochs of 30 epochs .*; to spend the rest, widen the space or choose another",
    ):
        tune(loss, SPACE, "30 epochs", policy="grid", settings={"levels": 5})


def test_a_spent_budget_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune(loss, SPACE, "5 epochs")


def test_unspent_budget_gives_a_warning_only_if_it_pays_for_a_step() -> None:

    def end(budget: str) -> None:
        study = _make_study(budget, train_s=4.0, thinking_s=0.0, steps=2)
        report_problems(study, Ending("policy", "done", study.ledger))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        end("10s")
    with pytest.warns(UserWarning, match=r"random_search .*done"):
        end("20s")


def _make_study(budget: str, train_s: float, thinking_s: float, steps: int) -> Study:
    study = Study.begin(SPACE, budget, policy="random_search")
    for number in range(steps):
        order = Order(number=number, trial=number, config={"x": number / 9}, until=1, thinking_s=thinking_s)
        receipt = Receipt(order=number, trial=number, step=1, value=1.0, cost=Cost(train=train_s))
        study.journal.append(order, receipt)
    return study


def test_a_slow_policy_gives_a_warning_with_a_remedy() -> None:
    study = _make_study("100s", train_s=2.0, thinking_s=1.0, steps=5)
    with pytest.warns(UserWarning, match=r"5\.0 s of 15\.0 s.*random_search"):
        report_problems(study, Ending("stopped", "", study.ledger))


def test_the_warning_of_a_slow_policy_comes_at_the_end_of_a_run() -> None:
    study = _make_study("100s", train_s=2.0, thinking_s=1.0, steps=5)
    with pytest.warns(UserWarning, match=r"5\.0 s of 15\.0 s.*random_search"):
        study.run(loss, deadline=0)


# a study that exists already ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("train", "max_steps"), [(loss, 1), (curve, 5), (Trainer, 5)])
def test_a_study_runs_training_code(train: Any, max_steps: int, tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/s.db"
    Study.begin(SPACE, "10 epochs", max_steps=max_steps, store=where, seed=3, policy="random_search")
    opened = Study.open(store=where)
    ending = opened.run(train, live=2)
    assert repr(ending) == "Ending(reason='budget', text='')"
    assert (ending.reason, opened.spent) == ("budget", 10)
    whole = tune(train, SPACE, "10 epochs", max_steps=None if train is loss else 5, seed=3, policy="random_search")
    assert [trial.values for trial in opened.trials] == [trial.values for trial in whole.trials]


def test_code_that_does_not_fit_the_study_is_refused() -> None:
    study = Study.begin(SPACE, "10 epochs", max_steps=5)
    with pytest.raises(RunnerError, match="max_steps=5"):
        study.run(loss)
    with pytest.raises(RunnerError, match=r"\b5 .*step\(\)"):
        study.run(5)  # type: ignore[arg-type]
    assert len(study.ledger) == 1


def test_another_number_of_workers_is_amended() -> None:
    study = Study.begin(SPACE, "4 epochs", workers=3, policy="random_search")
    with pytest.raises(StudyError, match="workers=0"):
        study.run(loss, workers=0)
    study.run(loss, workers=1)
    assert (study.ledger.workers, study.spent) == (1, 4)
    assert sum(isinstance(entry, Amendment) for entry in study.ledger.entries()) == 1


def test_a_study_runs_a_runner() -> None:
    study = Study.begin(SPACE, "4 epochs", policy="random_search")
    assert study.run(SimulatedRunner(DecayingCurves())).reason == "budget"


# progress ------------------------------------------------------------------------------------------------------------


def test_nothing_is_shown_outside_terminals_and_notebooks(capfd: pytest.CaptureFixture[str]) -> None:
    tune(loss, SPACE, "5 epochs", store=":memory:")
    tune(loss, SPACE, "5 epochs", progress=False)
    assert capfd.readouterr() == ("", "")


# the file of a study whose user named no store ---------------------------------------------------------------------------


def test_a_study_without_a_store_survives_its_process(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "from shoestring import tune\n"
        "def train(config):\n"
        "    for step in range(5):\n"
        "        if step == 3:\n"
        "            os.kill(os.getpid(), 9)\n"
        "        yield config['x'] / (step + 1)\n"
        "tune(train, {'x': {'float': [0.0, 1.0]}}, '20 epochs', max_steps=5, seed=1, policy='random_search')\n"
    )
    environment = {**os.environ, "SHOESTRING_STUDIES": str(tmp_path / "studies")}
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    (file,) = tmp_path.glob("studies/study-*/study.db")
    assert killed.stderr == (
        f"the study is stored in {file}, which is deleted when nobody has used it for 14 days\n"  # named at the start
    )
    assert Study.open(store=str(file)).spent == 3
    study = tune(curve, SPACE, "20 epochs", max_steps=5, store=str(file))
    assert study.spent == 20


def test_the_file_of_a_study_without_a_store_is_named_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    study = tune(curve, SPACE, "9 epochs", max_steps=5)
    first, last = capfd.readouterr().err.splitlines()
    assert first.startswith(f"the study is stored in {study.store.where}, which is deleted when")
    assert last == f"to open or continue this study later: store={study.store.where!r}"
    assert len(Study.open(store=study.store.where).ledger) == len(study.ledger)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_only_the_user_can_read_the_file_of_a_study_without_a_store() -> None:
    study = tune(Saved, SPACE, "9 epochs", max_steps=5)
    file = Path(study.store.where)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert study.best is not None
    assert study.best.checkpoint is not None
    assert study.best.checkpoint.is_relative_to(file.parent)


class Saved(Trainer):
    def save(self, path: Path) -> None:
        path.write_text(repr(self.x))

    def load(self, path: Path) -> None:
        self.x = float(path.read_text())


def test_memory_keeps_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHOESTRING_STUDIES", str(tmp_path))
    study = tune(curve, SPACE, "9 epochs", max_steps=5, store=":memory:")
    assert isinstance(study.store, MemoryStore)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="store ':memory:' is a new one in memory, so there is no study in it"):
        Study.open(store=":memory:")


def test_a_study_that_cannot_begin_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHOESTRING_STUDIES", str(tmp_path))
    with pytest.raises(StudyError, match="seed"):
        tune(loss, SPACE, "9 epochs", seed=-1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux lists open files")
def test_many_studies_without_a_store_keep_no_files_open() -> None:
    studies = [tune(loss, SPACE, "2 epochs") for _ in range(3)]
    opened = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_link(name)}
    assert not opened & {study.store.where for study in studies}
    assert studies[0].run(loss).reason == "budget"


def _is_link(name: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{name}")


def test_a_pickle_of_a_study_without_a_store_does_not_need_its_file() -> None:
    study = tune(loss, SPACE, "2 epochs")
    pickled = pickle.dumps(study)
    shutil.rmtree(Path(study.store.where).parent)
    again: Study = pickle.loads(pickled)
    assert again.spent == 2
    assert again.best == study.best


def test_progress_true_shows_the_progress(capfd: pytest.CaptureFixture[str]) -> None:
    tune(loss, SPACE, "5 epochs", progress=True)
    output = capfd.readouterr()
    assert "spent 5 epochs of 5 epochs" in output.err
    assert output.out == ""


def test_callbacks_are_called_while_progress_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    spent: list[float] = []
    tune(loss, SPACE, "2 epochs", progress=True, callbacks=[lambda study, trial: spent.append(study.spent)])
    assert spent == [1, 2]
    assert "best" in capfd.readouterr().err


# callbacks -----------------------------------------------------------------------------------------------------------


def test_callbacks_get_the_study_and_the_trial_after_each_step() -> None:
    calls: list[tuple[str, int, list[float | None]]] = []

    def note(name: str) -> Callable[[Study, Trial], None]:
        return lambda study, trial: calls.append((name, trial.number, list(study.trials[trial.number].values)))

    study = tune(curve, SPACE, "7 epochs", max_steps=5, policy="random_search", callbacks=[note("a"), note("b")])
    steps = [(trial.number, trial.values[:step]) for trial in study.trials for step in range(1, trial.steps + 1)]
    assert calls == [(name, *step) for step in steps for name in ("a", "b")]


def test_a_callback_sees_failures() -> None:
    failures: list[str] = []

    def fail_once(config: Any) -> float:
        if not failures:
            raise ValueError("no data")
        return loss(config)

    tune(fail_once, SPACE, "3 epochs", callbacks=[lambda study, trial: failures.append(trial.failure)])
    assert ["no data" in text for text in failures] == [True, False, False]


def test_a_callback_can_stop_the_run() -> None:
    def stop(study: Study, trial: Trial) -> None:
        if study.spent == 4:
            study.stop()

    study = tune(curve, SPACE, "20 epochs", max_steps=5, callbacks=[stop])
    assert study.ending is not None
    assert (study.ending.reason, study.spent) == ("stopped", 4)
    assert study.run(curve, callbacks=()).reason == "budget"


def test_a_callback_of_a_run_with_worker_processes_can_stop_it() -> None:
    study = tune(loss, SPACE, "1000 epochs", workers=2, callbacks=[lambda study, trial: study.stop()])
    assert study.ending is not None
    assert study.ending.reason == "stopped"
    assert study.spent < 10


def test_an_error_in_a_callback_is_raised_and_the_step_is_stored(tmp_path: Path) -> None:
    def fail(study: Study, trial: Trial) -> None:
        raise ConnectionError("the chat does not answer")

    with pytest.raises(ConnectionError):
        tune(loss, SPACE, "9 epochs", store=str(tmp_path / "s.db"), callbacks=[fail])
    assert Study.open(store=str(tmp_path / "s.db")).spent == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"progress": "yes"}, r"progress='yes' must be True, False, or None \(show it in a terminal or notebook\)"),
    ({"callbacks": [5]}, r"callbacks=\[5\] must be a list of functions, such as \[f\] with f\(study, trial\)"),
    ({"callbacks": loss}, r"callbacks=<function loss .* must be a list of functions"),
    ({"prices": 0.5}, r"prices=0.5 must be Prices\(…\), as Prices\(validate_epochs=0.5\)"),
    ({"initial": {"x": 0.5}}, r"initial=\{'x': 0.5\} must be a list of configs, such as \[\{'lr': 0.1\}\]"),
    ({"store": 5}, "store=5 must be an address, such as sqlite:///file.db, or a ledger store"),
    ({"store": "a\x00b"}, "must be an address of printable characters"),
    ({"name": 5}, "the study's name 5 must be text"),
    ({"name": "a\nb"}, "a name is one line of printable characters"),
    ({"seed": 1.5}, "seed=1.5 must be a whole number, 0 or more"),
    ({"workers": True}, "workers=True must be a whole number, 1 or more"),
    ({"live": "two"}, "live='two' must be a whole number, 1 or more: the trial in training is one of them"),
    ({"checkpoints": 5}, "checkpoints=5 must be a folder, or a place like s3://bucket/runs"),
    ({"checkpoints_at_most": 5}, "the size 5 cannot be read: write 500MB or 2GB"),
    ({"runner": 5}, r"runner=5 must be 'local', 'process', 'ray', RayCluster\(…\), or a Runner object"),
    ({"deadline": [1]}, r"deadline=\[1\] must be a number of seconds, or text such as '2h' or '90s'"),
    ({"max_steps": "3"}, "max_steps='3' must be a whole number, 1 or more: the steps of a full training"),
    ({"direction": ["min"]}, r"direction=\['min'\] must be 'min' or 'max'"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[next(iter(wrong)) for wrong, _ in WRONG])
def test_wrong_types_are_refused_in_one_line_before_anything_is_written(
    wrong: dict[str, Any], message: str, tmp_path: Path
) -> None:
    from shoestring import ShoestringError

    given = {"max_steps": 5, "store": f"sqlite:///{tmp_path}/s.db", **wrong}
    with pytest.raises(ShoestringError, match=message) as caught:
        tune(curve, SPACE, "9 epochs", **given)
    assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    study = tune(curve, SPACE, "9 epochs", max_steps=np.int64(5), seed=np.int64(3), deadline=np.float32(60))  # type: ignore[arg-type]
    assert (type(study.ledger.definition.seed), study.ledger.definition.seed, study.ledger.max_steps) == (int, 3, 5)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_gets_the_live_view() -> None:
    program = (
        "from shoestring import tune\n"
        "def train(config):\n"
        "    print('printed by the training code')\n"
        "    return config['x']\n"
        "study = tune(train, {'x': {'float': [0, 1]}}, '3 epochs', seed=5)\n"
        "print(study.spent)\n"
    )
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    result = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=theirs, env=environment, timeout=120, check=True
    )
    os.close(theirs)
    parts = []
    with suppress(OSError):  # the end of a terminal that its last writer has closed
        while part := os.read(ours, 1_000_000):  # at most 4 kB at a time
            parts.append(part)
    os.close(ours)
    output = b"".join(parts).decode()
    assert "study: guided_halving, seed 5" in output
    assert "spent 3 epochs" in output
    assert "printed by the training code" in output
    assert float(result.stdout) == 3  # results alone on stdout
