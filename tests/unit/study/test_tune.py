"""`tune` and `Study.run` with training code: what they take, what they show, what they say when something is wrong."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring import Float, Space, Study, tune
from shoestring.core.ledger.entries import Amended, Cost, Order, Receipt
from shoestring.errors import RunnerError, StudyError, TrainingFailed
from shoestring.runners.simulated.simulated_runner import Simulated
from shoestring.study import run_code
from shoestring.study.loop import Ending
from shoestring.study.run_code import conclude
from shoestring.testing.curves import Decaying

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
    lines = inspect.getdoc(tune).splitlines()  # type: ignore[union-attr]
    explained = [line.split()[0] for line in lines if line and line.split()[0] in parameters and "  " in line]
    assert explained == list(parameters)
    assert all(p.annotation is not p.empty for p in parameters.values())
    passed_on = set(inspect.signature(Study.begin).parameters) - {"target"}
    assert passed_on <= set(parameters)


def test_devices_reach_the_runner_only_when_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    def make(*_: Any, **more: Any) -> Simulated:
        given.append(more)
        return Simulated(Decaying())

    monkeypatch.setattr(run_code, "make_runner", make)
    tune(loss, SPACE, "2 epochs")
    tune(loss, SPACE, "2 epochs", devices="0,1")
    assert given == [{}, {"devices": "0,1"}]


def test_a_deadline_of_nothing_buys_nothing() -> None:
    for deadline in (0, 0.0, "0s"):
        study = tune(loss, SPACE, "5 epochs", deadline=deadline)
        assert study.spent == 0
        assert study.ending is not None
        assert study.ending.reason == "deadline"


# code that fails -----------------------------------------------------------------------------------------------------


def test_code_that_always_fails_raises_and_the_study_is_at_hand() -> None:
    with pytest.raises(TrainingFailed) as caught:
        tune(crash, SPACE, "40 epochs", name="doomed")
    said = str(caught.value)
    assert "'doomed' has no result: 3 of 3 trials failed and no step has ever worked" in said
    assert "ZeroDivisionError: nothing works\\x1b[31m" in said
    assert said.isprintable()
    study = caught.value.study
    assert isinstance(study, Study)
    assert "error.study.trials[2].failure" in said
    assert "in crash" in study.trials[2].failure
    assert study.spent == 3


def test_a_budget_too_small_to_be_sure_is_no_reason_to_be_silent() -> None:
    with pytest.raises(TrainingFailed, match="its only trial failed"):
        tune(crash, SPACE, "1 epoch")


def test_values_that_are_never_numbers_raise() -> None:
    with pytest.raises(
        TrainingFailed, match=r"no step has ever worked: 10 trials diverged.*; look at what .* reports for \{'x'"
    ):
        tune(lambda config: float("nan"), SPACE, "40 epochs")
    with pytest.raises(TrainingFailed, match="no value was a finite number"):
        tune(lambda config: float("inf"), SPACE, "4 epochs")


def test_code_that_begins_to_fail_warns_and_keeps_what_there_is() -> None:
    calls: list[int] = []

    def fading(config: Any) -> float:
        calls.append(1)
        if len(calls) > 2:
            raise OSError("disk full")
        return float(config["x"])

    with pytest.warns(
        UserWarning, match=r"'study' ended early: OSError: disk full, again and again; repair the code"
    ) as said:
        study = tune(fading, SPACE, "40 epochs", policy="random_search")
    assert study.best is not None
    assert said[0].filename == __file__  # points at the user's call, not into the package


def test_a_budget_that_bought_no_step_is_told() -> None:
    study = Study.begin(SPACE, "10s", policy="random_search")
    order = Order(number=0, trial=0, config={"x": 0.5}, until=1)
    study.journal.append(order, Receipt(order=0, trial=0, step=1, cost=Cost(train=10.0), status="interrupted"))
    with pytest.warns(
        UserWarning, match=r"'study' has no result: 10.0 s of 10.0 s bought no validated step; raise the budget"
    ):
        assert study.run(loss).reason == "budget"


def test_a_run_that_was_stopped_is_no_failure() -> None:
    study = Study.begin(SPACE, "9 epochs")
    assert study.run(loss, should_stop=lambda: True).reason == "stopped"
    assert tune(crash, SPACE, "9 epochs", deadline=0).best is None


# money left over -----------------------------------------------------------------------------------------------------


def test_a_policy_that_leaves_money_says_so_and_why() -> None:
    with pytest.warns(
        UserWarning,
        match=r"grid has ended the run: .*, 2\d epochs of 30 epochs left unspent; widen the space or choose",
    ):
        tune(loss, SPACE, "30 epochs", policy="grid", settings={"levels": 5})


def test_a_budget_that_is_spent_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune(loss, SPACE, "5 epochs")


def test_less_than_a_step_is_not_worth_a_word() -> None:
    """conclude() warns of what could have paid for another step, and of nothing else."""

    def end(budget: str) -> None:
        study = _paid(budget, train_s=4.0, thinking_s=0.0, steps=2)
        conclude(study, Ending("policy", "done, much left unspent", study.ledger))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        end("10s")
    with pytest.warns(UserWarning, match="random_search has ended the run: done, much left unspent; widen"):
        end("20s")


def _paid(budget: str, train_s: float, thinking_s: float, steps: int) -> Study:
    study = Study.begin(SPACE, budget, policy="random_search")
    for number in range(steps):
        order = Order(number=number, trial=number, config={"x": number / 9}, until=1, thinking_s=thinking_s)
        paid = Receipt(order=number, trial=number, step=1, value=1.0, cost=Cost(train=train_s))
        study.journal.append(order, paid)
    return study


def test_much_thinking_is_pointed_out_with_a_remedy() -> None:
    study = _paid("100s", train_s=2.0, thinking_s=1.0, steps=5)
    with pytest.warns(UserWarning, match=r"thinking took 5\.0 s of 15\.0 s.*take a policy that thinks less"):
        conclude(study, Ending("stopped", "", study.ledger))


def test_the_remark_about_thinking_comes_with_the_end_of_a_run() -> None:
    study = _paid("100s", train_s=2.0, thinking_s=1.0, steps=5)
    with pytest.warns(UserWarning, match="take a policy that thinks less"):
        study.run(loss, deadline=0)


# a study that is there already ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("train", "max_steps"), [(loss, 1), (curve, 5), (Trainer, 5)])
def test_a_study_takes_training_code_itself(train: Any, max_steps: int, tmp_path: Path) -> None:
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
    with pytest.raises(RunnerError, match="a plain function is one step"):
        study.run(loss)
    with pytest.raises(RunnerError, match="5 is not training code"):
        study.run(5)  # type: ignore[arg-type]
    assert len(study.ledger) == 1


def test_another_number_of_workers_is_amended() -> None:
    study = Study.begin(SPACE, "4 epochs", workers=3, policy="random_search")
    with pytest.raises(StudyError, match="workers=0 must be a whole number, 1 or more"):
        study.run(loss, workers=0)
    study.run(loss, workers=1)
    assert (study.ledger.workers, study.spent) == (1, 4)
    assert sum(isinstance(entry, Amended) for entry in study.ledger.entries()) == 1


def test_a_runner_is_still_a_runner() -> None:
    study = Study.begin(SPACE, "4 epochs", policy="random_search")
    assert study.run(Simulated(Decaying())).reason == "budget"


# progress ------------------------------------------------------------------------------------------------------------


def test_nothing_is_shown_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    tune(loss, SPACE, "5 epochs")
    tune(loss, SPACE, "5 epochs", progress=False)
    assert capfd.readouterr() == ("", "")


def test_progress_can_be_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    tune(loss, SPACE, "5 epochs", progress=True)
    said = capfd.readouterr()
    assert "spent 5 epochs of 5 epochs" in said.err
    assert said.out == ""


def test_an_observer_sees_every_entry_beside_the_progress(capfd: pytest.CaptureFixture[str]) -> None:
    kinds: list[str] = []
    tune(
        loss, SPACE, "2 epochs", progress=True, observe=lambda ledger, entry: kinds.append(entry.kind if entry else "")
    )
    assert kinds.count("receipt") == 2
    assert "best" in capfd.readouterr().err


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"progress": "yes"}, "progress='yes' must be True, False, or None"),
    ({"observe": 5}, r"observe=5 must be a function, as observe\(ledger, entry\)"),
    ({"prices": 0.5}, r"prices=0.5 must be Prices\(…\), as Prices\(validate_epochs=0.5\)"),
    ({"initial": {"x": 0.5}}, r"initial=\{'x': 0.5\} must be a list of configs, as \[\{'lr': 0.1\}\]"),
    ({"store": 5}, "store=5 must be an address"),
    ({"store": "a\x00b"}, "must be an address of printable characters"),
    ({"name": 5}, "the study's name 5 must be text"),
    ({"name": "a\nb"}, "a name is one line of printable characters"),
    ({"seed": 1.5}, "seed=1.5 must be a whole number"),
    ({"workers": True}, "workers=True must be a whole number"),
    ({"live": "two"}, "live='two' must be a whole number"),
    ({"checkpoints": 5}, "checkpoints=5 must be a folder, or a place like s3://bucket/runs"),
    ({"checkpoints_at_most": 5}, "the size 5 cannot be read"),
    ({"runner": 5}, r"runner=5 must be 'local', 'process', 'ray', RayCluster\(…\), or an object"),
    ({"deadline": [1]}, r"deadline=\[1\] must be a number of seconds, or text as '2h'"),
    ({"max_steps": "3"}, "max_steps='3' must be a whole number"),
    ({"direction": ["min"]}, r"direction=\['min'\] must be 'min' or 'max'"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[next(iter(wrong)) for wrong, _ in WRONG])
def test_wrong_types_are_told_in_one_line_before_anything_is_written(
    wrong: dict[str, Any], said: str, tmp_path: Path
) -> None:
    from shoestring import ShoestringError

    told = {"max_steps": 5, "store": f"sqlite:///{tmp_path}/s.db", **wrong}
    with pytest.raises(ShoestringError, match=said) as caught:
        tune(curve, SPACE, "9 epochs", **told)
    assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    study = tune(curve, SPACE, "9 epochs", max_steps=np.int64(5), seed=np.int64(3), deadline=np.float32(60))  # type: ignore[arg-type]
    assert (type(study.ledger.opened.seed), study.ledger.opened.seed, study.ledger.max_steps) == (int, 3, 5)


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
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=theirs, env=environment, timeout=120, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 1_000_000).decode()
    os.close(ours)
    assert "study: thrift, seed 5" in shown
    assert "spent 3 epochs" in shown
    assert "printed by the training code" in shown
    assert float(done.stdout) == 3  # results alone on stdout
