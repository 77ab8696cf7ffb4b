"""The local runner keeps paused trials in memory and saves late: live trials are not loaded, and a kill costs little."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Note, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.study.loop import run_in_memory
from shoestring.testing.runners import Greedy, make_definition

EXPENSIVE_SAVE_S = 1e9  # then only best values are saved


class Counter:
    """Its state is one number. Loads are counted. At the steps in `out_of_memory_at` there is no memory."""

    loads = 0
    out_of_memory_at: tuple[int, ...] = ()

    def __init__(self, config: Any) -> None:
        self.total = 0

    def step(self) -> float:
        if self.total + 1 in self.out_of_memory_at:
            raise MemoryError(f"no room for step {self.total + 1}")
        self.total += 1
        return float(self.total)

    def save(self, path: Path) -> None:
        path.write_text(str(self.total))

    def load(self, path: Path) -> None:
        type(self).loads += 1
        self.total = int(path.read_text())


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> type[Counter]:
    monkeypatch.setattr(Counter, "loads", 0)
    monkeypatch.setattr(Counter, "out_of_memory_at", ())
    return Counter


class Study:
    """A runner with a ledger, as in the loop."""

    def __init__(self, target: Any, folder: Path, ledger: Ledger | None = None, **more: Any) -> None:
        definition = StudyDefinition(
            space=Space({"x": Float(0, 1)}), budget=Budget("99 epochs"), policy="p", settings={}, seed=0, max_steps=9
        )
        self.ledger = ledger or Ledger([definition])
        self.runner = LocalRunner(target, Checkpoints(folder), **more)
        survivors = self.runner.start(self.ledger)
        for trial in self.ledger.trials:
            if trial.resumable_step != survivors.get(trial.number, 0):
                self.take(StateLoss(trial=trial.number, resumable_step=survivors.get(trial.number, 0)))

    def make_saves_expensive(self) -> None:
        self.runner.checkpoints._newest_save_s = EXPENSIVE_SAVE_S

    def take(self, *entries: Entry) -> None:
        for entry in entries:
            self.ledger = self.ledger.append(entry)

    def train(self, *wanted: tuple[int, int]) -> None:
        for trial, until in wanted:
            order = place_order(self.ledger, Train(trial=trial, config={"x": trial / 100}, until=until))
            assert order is not None
            self.take(order)
            while self.ledger.open_orders:
                self.runner.submit(order, self.ledger.trials[trial].resumable_step)  # again, after a loss
                self.take(*self.runner.wait(float("inf")))

    @property
    def losses(self) -> list[tuple[int, int]]:
        return [(entry.trial, entry.resumable_step) for entry in self.ledger.entries() if isinstance(entry, StateLoss)]


def test_a_trial_that_is_alive_is_not_loaded(counter: type[Counter], tmp_path: Path) -> None:
    study = Study(counter, tmp_path)
    study.train((0, 1), (1, 1), (2, 1), (0, 3), (1, 3), (0, 5))
    assert counter.loads == 0
    assert [trial.values for trial in study.ledger.trials] == [[1, 2, 3, 4, 5], [1, 2, 3], [1]]


def test_a_trial_moved_to_disk_is_saved_then_and_loaded_again(counter: type[Counter], tmp_path: Path) -> None:
    study = Study(counter, tmp_path, live=2)
    study.make_saves_expensive()
    study.train((0, 1), (1, 1))
    assert [study.runner.checkpoints.newest_step(trial) for trial in (0, 1)] == [1, 0], "only the best step is saved"
    study.train((0, 2), (2, 1), (1, 2))
    assert study.runner.checkpoints.newest_step(1) == 1
    assert (counter.loads, study.losses) == (1, [])
    assert study.ledger.trials[1].values == [1, 2]


def test_saving_a_trial_moved_to_disk_is_charged(counter: type[Counter], tmp_path: Path) -> None:
    study = Study(counter, tmp_path, live=1)
    study.make_saves_expensive()
    study.runner.checkpoints.best_loss = -1.0
    study.runner.checkpoints.save = lambda *_: 7.0  # type: ignore[method-assign]
    study.train((0, 1), (1, 1))
    receipts = [entry for entry in study.ledger.entries() if isinstance(entry, Receipt)]
    assert [receipt.cost.setup > 6.9 for receipt in receipts] == [False, True]


def test_a_trial_without_room_that_cannot_be_saved_is_lost(tmp_path: Path) -> None:
    class Full(Counter):
        def save(self, path: Path) -> None:
            if self.total > 1:
                raise OSError("no space left")
            super().save(path)

    study = Study(Full, tmp_path, live=1)
    study.make_saves_expensive()
    study.train((0, 1), (0, 2), (1, 1))
    assert study.losses == [(0, 1)]
    assert study.ledger.trials[0].failures == 0, "the trial that is trained has nothing to do with it"
    study.train((0, 3))
    assert study.ledger.trials[0].values == [1, 2, 3]


def test_a_kill_costs_what_was_not_saved_and_a_stop_costs_nothing(counter: type[Counter], tmp_path: Path) -> None:
    study = Study(counter, tmp_path)
    study.make_saves_expensive()
    study.train((0, 1), (1, 3), (2, 2))  # and the runner is not closed
    killed = Study(counter, tmp_path, study.ledger)
    assert killed.losses == [(1, 0), (2, 0)], "trial 0 was the best"
    killed.make_saves_expensive()
    killed.train((1, 4))
    assert (killed.ledger.trials[1].values, killed.ledger.spent) == ([1, 2, 3, 4], 7), "no epoch is charged twice"
    killed.runner.close()
    stopped = Study(counter, tmp_path, killed.ledger)
    assert stopped.losses == killed.losses, "no more than before"
    assert stopped.ledger.trials[1].resumable_step == 4


def test_unsaved_work_is_saved_when_it_is_fifty_times_what_saving_takes(counter: type[Counter], tmp_path: Path) -> None:
    study = Study(counter, tmp_path)
    study.make_saves_expensive()
    study.train((0, 1), (1, 1))
    assert study.runner.checkpoints.newest_step(1) == 0
    study.runner._lives[1].unsaved_s = 50.1 * EXPENSIVE_SAVE_S
    study.train((1, 2))
    assert study.runner.checkpoints.newest_step(1) == 2
    assert study.runner._lives[1].unsaved_s == 0.0


def test_a_complete_trial_is_saved_and_leaves_memory(counter: type[Counter], tmp_path: Path) -> None:
    study = Study(counter, tmp_path)
    study.make_saves_expensive()
    study.train((0, 1), (1, 9))
    assert [trial for trial, _ in study.runner._lives] == [0]
    assert study.runner.checkpoints.newest_step(1) == 9


# memory --------------------------------------------------------------------------------------------------------------


def test_a_step_that_runs_out_of_memory_is_tried_again_alone(
    counter: type[Counter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(counter, tmp_path)
    study.make_saves_expensive()
    study.train((0, 2), (1, 2), (2, 2))
    monkeypatch.setattr(counter, "out_of_memory_at", (3,))
    order = place_order(study.ledger, Train(trial=1, config={"x": 0.01}, until=3))
    assert order is not None
    study.take(order)
    study.runner.submit(order, 2)
    study.take(*study.runner.wait(float("inf")))
    assert [trial for trial, _ in study.runner._lives] == []
    assert [study.ledger.trials[trial].resumable_step for trial in (0, 1, 2)] == [2, 0, 2], "the others were saved"
    assert study.ledger.trials[1].failures == 0
    monkeypatch.setattr(counter, "out_of_memory_at", ())
    study.runner.submit(order, 0)
    while study.ledger.open_orders:
        study.take(*study.runner.wait(float("inf")))
    assert study.ledger.trials[1].values == [1, 2, 3]
    study.train((0, 3), (2, 3), (3, 1))
    assert len(study.runner._lives) == 2, "one fewer than there were"


def test_a_trial_that_is_too_large_alone_fails(
    counter: type[Counter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter, "out_of_memory_at", (2,))
    study = Study(counter, tmp_path)
    study.train((0, 1), (1, 1), (1, 2))
    assert "no room for step 2" in study.ledger.trials[1].failure
    assert study.ledger.spent == 3


# the end -------------------------------------------------------------------------------------------------------------


class Slowly(Counter):
    """A step takes one second and a save half a second, on a clock that only they move."""

    clock = 0.0

    def step(self) -> float:
        Slowly.clock += 1.0
        return super().step()

    def save(self, path: Path) -> None:
        Slowly.clock += 0.5
        super().save(path)


@pytest.mark.parametrize("more", [{}, {"deadline_s": 20.0}])
def test_saving_at_the_end_is_paid_from_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    monkeypatch.setattr(Slowly, "clock", 0.0)
    for module in ("local.local_runner", "checkpoints.checkpoints"):
        monkeypatch.setattr(f"shoestring.runners.{module}.time.monotonic", lambda: Slowly.clock)
    monkeypatch.setattr("shoestring.runners.training.code.time.perf_counter", lambda: Slowly.clock)
    definition = make_definition("20s" if not more else "99s")
    runner = LocalRunner(Slowly, Checkpoints(tmp_path))
    runner._clock.now = lambda: Slowly.clock  # type: ignore[method-assign]
    outcome = run_in_memory(Ledger([definition]), Greedy(), runner, **more)
    notes = [entry.facts for entry in outcome.ledger.entries() if isinstance(entry, Note) and "kind" in entry.facts]
    saving_s = sum(facts["seconds"] for facts in notes)
    assert saving_s > 0
    assert saving_s % 0.5 == 0
    assert Slowly.clock <= 21.0, "at most one step over the budget"
    assert Slowly.clock >= 18.0
    if not more:
        assert outcome.ledger.spent == pytest.approx(Slowly.clock, abs=0.5)
        assert outcome.ledger.state.by_kind["setup"] >= saving_s


def test_the_time_for_saving_is_computed_once_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop asks for it several times a step, and there may be hundreds of trials."""
    estimated: list[int] = []
    expected = Checkpoints.expected_save_s

    def remember(self: Checkpoints, trial: int) -> float:
        estimated.append(trial)
        return expected(self, trial)

    monkeypatch.setattr(Checkpoints, "expected_save_s", remember)
    study = Study(Slowly, tmp_path)
    study.train((0, 1), (1, 1), (2, 1), (1, 3))
    estimated.clear()
    first = study.runner.saving_reserve_s
    assert len(estimated) == len(set(estimated))
    estimated.clear()
    assert [study.runner.saving_reserve_s for _ in range(5)] == [first] * 5
    assert not estimated
    study.train((0, 2))
    assert study.runner.saving_reserve_s >= 0
    assert estimated, "a new step changes the estimate"


def test_saving_hundreds_of_poor_trials_does_not_use_up_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saving all 60 would take 30 of 100 seconds; 2 % are reserved, for the trials that were trained last."""
    monkeypatch.setattr(Slowly, "clock", 0.0)
    for module in ("local.local_runner", "checkpoints.checkpoints"):
        monkeypatch.setattr(f"shoestring.runners.{module}.time.monotonic", lambda: Slowly.clock)
    monkeypatch.setattr("shoestring.runners.training.code.time.perf_counter", lambda: Slowly.clock)
    space, budget = Space({"x": Float(0, 1)}), Budget("100s")
    definition = StudyDefinition(space=space, budget=budget, policy="p", settings={}, seed=0, max_steps=9)
    study = Study(Slowly, tmp_path, Ledger([definition]))
    study.runner._clock.now = lambda: Slowly.clock  # type: ignore[method-assign]
    study.train(*((trial, 1) for trial in range(60)))
    saved = set(study.runner.checkpoints._entries)
    assert len(saved) < 10, "only former best values were saved"
    assert study.runner.saving_reserve_s == 2.0
    assert study.runner.pause() == 2.0
    study.runner.close()
    assert set(study.runner.checkpoints._entries) - saved == {56, 57, 58, 59}, "and closing it saves no more"


def test_the_time_limit_for_saving_does_not_apply_in_epochs(counter: type[Counter], tmp_path: Path) -> None:
    ledger = Ledger([make_definition("12 epochs")])
    outcome = run_in_memory(ledger, RandomSearch(), LocalRunner(counter, Checkpoints(tmp_path)))
    assert outcome.ledger.spent == 12
    assert not [entry for entry in outcome.ledger.entries() if isinstance(entry, Note) and "kind" in entry.facts]


def test_generators_that_cannot_save_are_kept_too(tmp_path: Path) -> None:
    def counting(config: Any) -> Iterator[float]:
        step = 0.0
        while True:
            step += 1.0
            yield step

    study = Study(counting, tmp_path)
    study.train(*((trial, 1) for trial in range(30)), *((trial, 2) for trial in range(30)))
    assert study.losses == []
    assert all(trial.values == [1.0, 2.0] for trial in study.ledger.trials)
