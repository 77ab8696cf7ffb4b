"""Studies that others change while they run, that are stopped at critical moments, or that have a slow policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from shoestring import Float, Space
from shoestring.core.deciding.decision import Decision, Train
from shoestring.core.deciding.policy import find_untried_config
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import StudyError, StudyInUse
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.stores.sql import SqlStore
from shoestring.study.journal import default_checkpoint_folder
from shoestring.study.run_study import RunOptions, run_study
from shoestring.study.study import Study

SPACE = Space({"lr": Float(1e-3, 1.0, log=True)})


class Descent:
    def __init__(self, config: Any) -> None:
        self.lr, self.weight = config["lr"], 5.0

    def step(self) -> float:
        self.weight *= 1 - self.lr
        return self.weight

    def save(self, path: Path) -> None:
        path.write_text(repr(self.weight))

    def load(self, path: Path) -> None:
        self.weight = float(path.read_text())


@dataclass(frozen=True, kw_only=True)
class SlowPolicy:
    """A policy that takes a while to choose a new config."""

    name: ClassVar[str] = "thinker"
    seconds: float = 0.2

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        time.sleep(self.seconds)
        config = find_untried_config(ledger)
        assert config is not None
        return Train(trial=len(ledger.trials), config=config, until=ledger.max_steps)


def begin(folder: Path, budget: str, **more: Any) -> Study:
    return Study.begin(SPACE, budget, store=f"sqlite:///{folder}/s.db", name="s", seed=1, **({"max_steps": 10} | more))


def local(study: Study, train: Any = Descent) -> LocalRunner:
    return LocalRunner(train, Checkpoints(study.checkpoints))


def test_a_study_stopped_right_after_the_resume_check_continues(tmp_path: Path) -> None:
    study = begin(tmp_path, "300 epochs", policy="random_search")

    def checked() -> bool:
        return any(isinstance(entry, Note) and entry.topic == "check" for entry in study.ledger.entries())

    assert study.run(local(study), should_stop=checked).reason == "stopped"
    assert checked()
    again = Study.open("s", f"sqlite:///{tmp_path}/s.db")
    assert again.run(local(again)).reason == "budget"
    assert again.spent == 300
    assert sum(isinstance(entry, Note) and entry.topic == "check" for entry in again.ledger.entries()) == 1


def test_others_may_enqueue_ask_and_tell_while_a_study_runs(tmp_path: Path) -> None:
    study = begin(tmp_path, "60 epochs", policy="random_search")
    other = Study.open("s", f"sqlite:///{tmp_path}/s.db")
    mine = {"lr": 0.123}
    orders: list[Any] = []
    actions: list[tuple[int, Callable[[], Any]]] = [
        (8, lambda: other.enqueue(mine)),
        (20, lambda: orders.append(other.ask())),
        (30, lambda: other.tell(orders[0], 0.5, 1.0)),
    ]

    def interfere(ledger: Ledger, entry: Any) -> None:
        if actions and len(ledger) >= actions[0][0]:
            actions.pop(0)[1]()

    outcome = run_study(study, local(study), RunOptions(observe=interfere))
    assert not actions
    assert outcome.reason == "budget"
    assert any(trial.config == mine for trial in study.trials)
    assert orders[0] is not None
    assert study.trials[orders[0].trial].values[0] == 0.5
    assert study.ledger.spent + study.ledger.reserved <= 60


def test_a_running_study_cannot_be_amended(tmp_path: Path) -> None:
    study = begin(tmp_path, "20 epochs", policy="random_search")
    tried: list[bool] = []

    def interfere(ledger: Ledger, entry: Any) -> None:
        if len(ledger) >= 8 and not tried:
            tried.append(True)
            with pytest.raises(StudyInUse):
                Study.open("s", f"sqlite:///{tmp_path}/s.db").amend(Amendment(budget=Budget("30 epochs")))
            with pytest.raises(StudyInUse):
                begin(tmp_path, "40 epochs", policy="random_search")

    assert run_study(study, local(study), RunOptions(observe=interfere)).reason == "budget"
    assert study.spent == 20
    assert tried


def test_a_run_whose_lease_was_taken_over_stops(tmp_path: Path) -> None:
    study = begin(tmp_path, "500 epochs", policy="random_search")
    store = SqlStore(f"sqlite:///{tmp_path}/s.db")

    taken: list[bool] = []

    def take_lease(ledger: Ledger, entry: Any) -> None:
        if len(ledger) >= 8 and not taken:
            taken.append(True)
            with store.database.transaction() as connection:
                connection.exec_driver_sql("UPDATE leases SET holder = 'somebody else'")
            study.enqueue({"lr": 0.5})  # the next append notices it, long before the next heartbeat

    with pytest.raises(StudyInUse, match="'s'"):
        run_study(study, local(study), RunOptions(observe=take_lease))


def test_a_study_continues_with_repaired_code(tmp_path: Path) -> None:
    def broken(config: Any) -> float:
        raise ValueError("no data")

    study = begin(tmp_path, "10 epochs", policy="random_search", max_steps=1)
    assert study.run(local(study, broken)).reason == "failing"
    assert study.run(local(study, lambda config: config["lr"])).reason == "budget"
    assert study.spent == 10


def test_the_same_failure_is_not_repeated_for_ever(tmp_path: Path) -> None:
    calls: list[float] = []

    def vanishing(config: Any) -> float:
        calls.append(config["lr"])
        if len(calls) > 2:
            raise FileNotFoundError("data.csv")
        return float(config["lr"])

    study = begin(tmp_path, "1h", policy="random_search", max_steps=1)
    outcome = study.run(local(study, vanishing))
    assert outcome.reason == "failing"
    assert "data.csv" in outcome.text
    assert len(study.trials) == 12


def test_thinking_and_bookkeeping_are_charged_completely(tmp_path: Path) -> None:
    def tiny(config: Any) -> Iterator[float]:
        while True:
            yield config["lr"]

    study = begin(tmp_path, "1s", policy=SlowPolicy(), max_steps=20)
    moments_s: list[float] = []
    run_study(study, local(study, tiny), RunOptions(observe=lambda ledger, entry: moments_s.append(time.monotonic())))
    assert study.ledger.state.by_kind["thinking"] >= 0.2
    between_s = moments_s[-1] - moments_s[0]  # without the time before the first order and after the last step
    assert study.spent >= 0.9 * between_s, "overhead is charged; training itself took hardly any time"
    slow = Study.begin(SPACE, "0.3s", policy=SlowPolicy(seconds=0.5), max_steps=20)
    slow.run(local(slow, tiny))
    assert slow.spent >= 0.5
    assert slow.trials == []


def test_orders_of_a_runner_cannot_be_reported_by_tell(tmp_path: Path) -> None:
    study = begin(tmp_path, "20 epochs", policy="random_search")
    study.run(local(study), should_stop=lambda: len(study.ledger) > 3)
    (definition,) = study.ledger.open_orders.values()
    with pytest.raises(StudyError, match="was not given out by ask"):
        study.tell(definition.order, 0.5)
    study.ask(give_up_after=1e-9)
    assert definition.order.number in study.ledger.open_orders


def test_checkpoints_of_studies_are_separate(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/s.db")
    names = ["a b", "a_b", "a/b", "..", ".", "a.b", "ä", "A_b"]
    folders = [default_checkpoint_folder(store, name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert folder.resolve().parent == (tmp_path / "s.db.checkpoints").resolve()
    assert default_checkpoint_folder(store, "digits").name == "digits"
