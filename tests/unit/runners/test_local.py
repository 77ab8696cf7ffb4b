"""The local runner: pausing and resuming, failures, saving, and at most one step over the budget."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_bench import checks

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import RunnerError
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.runners.training.code import Context, Report
from shoestring.study.loop import run_in_memory


def grow(ledger: Ledger, *entries: Entry) -> Ledger:
    for entry in entries:
        ledger = ledger.append(entry)
    return ledger


def new_ledger(budget: str = "20 epochs", **more: Any) -> Ledger:
    fields = {"max_steps": 4, "seed": 0, "policy": "random_search", "settings": {}, **more}
    return Ledger([StudyDefinition(space=Space({"x": Float(0, 1)}), budget=Budget(budget), **fields)])


class Clockwork:
    """A clock that only training code moves."""

    def __init__(self) -> None:
        self.time = 0.0

    def start(self, ledger: Ledger) -> None:
        self.time = ledger.state.clock

    def now(self) -> float:
        return self.time


def local(target: Any, tmp_path: Path, clock: Clockwork | None = None, **more: Any) -> LocalRunner:
    runner = LocalRunner(target, Checkpoints(tmp_path / "checkpoints", more.pop("at_most_bytes", float("inf"))), **more)
    if clock is not None:
        runner._clock = clock  # type: ignore[assignment]
    return runner


def receipts(ledger: Ledger) -> list[Receipt]:
    return [entry for entry in ledger.entries() if isinstance(entry, Receipt)]


def counting(config: Any) -> Iterator[float]:
    step = 0
    while True:
        step += 1
        yield config["x"] / step


class Saves:
    """A trainer whose whole state is a number; `broken` forgets to load it."""

    broken = False

    def __init__(self, config: Any) -> None:
        self.total = 0.0

    def step(self) -> float:
        self.total += 1.0
        return 10.0 - self.total

    def save(self, path: Path) -> None:
        path.write_text(str(self.total))

    def load(self, path: Path) -> None:
        if not self.broken:
            self.total = float(path.read_text())


def test_a_whole_study(tmp_path: Path) -> None:
    outcome = run_in_memory(new_ledger(), RandomSearch(), local(counting, tmp_path))
    assert (outcome.reason, outcome.ledger.spent) == ("budget", 20)
    assert [trial.steps for trial in outcome.ledger.trials] == [4] * 5
    for trial in outcome.ledger.trials:
        assert trial.values == [trial.config["x"] / step for step in (1, 2, 3, 4)]
    assert all(receipt.cost.total >= 0 and receipt.status == "ok" for receipt in receipts(outcome.ledger))


def test_a_paused_generator_continues_where_it_was(tmp_path: Path) -> None:
    runner = local(counting, tmp_path)
    runner.start(new_ledger())
    for number, (trial, until) in enumerate([(0, 1), (1, 2), (0, 2)]):
        order = Order(number=number, trial=trial, config={"x": 1.0}, until=until)
        runner.submit(order, resumable_step=1 if number == 2 else 0)
        values = []
        while runner.running():
            values += [entry.value for entry in runner.wait(float("inf")) if isinstance(entry, Receipt)]
        assert values == ([1.0], [1.0, 0.5], [0.5])[number]


# errors in the training code -----------------------------------------------------------------------------------------


def test_an_exception_is_a_charged_receipt_and_the_study_continues(tmp_path: Path) -> None:
    def fragile(config: Any) -> Iterator[float]:
        yield 0.5
        if config["x"] > 0.5:
            raise ValueError(f"x={config['x']} is too much")
        yield 0.4

    outcome = run_in_memory(new_ledger(max_steps=2), RandomSearch(), local(fragile, tmp_path))
    failed = [receipt for receipt in receipts(outcome.ledger) if receipt.status == "failed"]
    assert failed
    assert all("is too much" in receipt.text and "Traceback" in receipt.text for receipt in failed)
    assert all((receipt.step, receipt.value, receipt.saved_step) == (2, None, 0) for receipt in failed)
    assert (outcome.reason, outcome.ledger.spent) == ("budget", 20)


@pytest.mark.parametrize("how", ["at setup", "sys.exit", "in a constructor", "bad value"])
def test_the_same_failure_three_times_stops_the_study(tmp_path: Path, how: str) -> None:
    def generator(config: Any) -> Iterator[Any]:
        if how == "at setup":
            raise OSError("no data")
        if how == "sys.exit":
            sys.exit("no data")
        yield "no data"

    class Broken(Saves):
        def __init__(self, config: Any) -> None:
            raise OSError("no data")

    target = Broken if how == "in a constructor" else generator
    outcome = run_in_memory(new_ledger("500 epochs"), RandomSearch(), local(target, tmp_path))
    assert outcome.reason == "failing"
    assert "no data" in outcome.text
    assert outcome.ledger.spent == 3


def test_a_generator_that_ends_early_ends_its_trial(tmp_path: Path) -> None:
    def short(config: Any) -> Iterator[float]:
        yield from (0.5, 0.25)

    outcome = run_in_memory(new_ledger("6 epochs"), RandomSearch(), local(short, tmp_path))
    assert outcome.ledger.spent == 6
    limits = [(trial.steps, trial.limit, trial.failure) for trial in outcome.ledger.trials]
    assert limits == [(2, 2, ""), (2, 2, ""), (2, 4, "")]  # only two steps of the last one were ordered


def test_a_generator_that_yields_nothing_is_a_failure_not_an_endless_study(tmp_path: Path) -> None:
    def nothing(config: Any) -> Iterator[float]:
        yield from ()

    outcome = run_in_memory(new_ledger("500 epochs"), RandomSearch(), local(nothing, tmp_path))
    assert (outcome.reason, outcome.ledger.spent) == ("failing", 3)
    assert [(trial.steps, trial.failures) for trial in outcome.ledger.trials] == [(0, 1)] * 3
    assert outcome.ledger.trials[0].failure in outcome.text


def test_the_time_after_the_last_report_is_charged(tmp_path: Path) -> None:
    clock = Clockwork()

    def epilogue(config: Any) -> Iterator[Report]:
        clock.time += 1.0
        yield Report(0.5, cost=1.0)
        clock.time += 30.0  # a long last evaluation, and no report

    ledger = run_in_memory(new_ledger("20s"), RandomSearch(), local(epilogue, tmp_path, clock)).ledger
    assert ledger.spent == pytest.approx(31.0 + ledger.state.by_kind["thinking"])
    assert len(ledger.trials) == 1


def test_a_clock_that_jumps_back_refunds_nothing(tmp_path: Path) -> None:
    clock = Clockwork()

    def odd(config: Any) -> Iterator[float]:
        clock.time -= 50.0
        yield 0.5
        clock.time -= 50.0
        raise RuntimeError(f"jumped {config['x']}")

    outcome = run_in_memory(new_ledger("8 epochs"), RandomSearch(), local(odd, tmp_path, clock))
    assert [receipt.status for receipt in receipts(outcome.ledger)] == ["ok", "failed"] * 4
    assert all(receipt.cost.total >= 0 for receipt in receipts(outcome.ledger))
    assert outcome.ledger.state.seconds >= 0


def test_prints_of_training_code_go_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def chatty(config: Any) -> float:
        sys.stdout.write("epoch 1\n")
        return 0.5

    run_in_memory(new_ledger("1 epochs", max_steps=1), RandomSearch(), local(chatty, tmp_path))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "epoch 1\n")


# the budget limit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "max_steps"), [("25s", 100), ("25s", 2), ("$25 at 3600/h", 100)])
def test_at_most_one_step_goes_over_a_budget_of_time(tmp_path: Path, budget: str, max_steps: int) -> None:
    clock = Clockwork()

    def slow(config: Any) -> Iterator[Report]:
        while True:
            clock.time += 10.0
            yield Report(config["x"], cost=10.0)

    outcome = run_in_memory(new_ledger(budget, max_steps=max_steps), RandomSearch(), local(slow, tmp_path, clock))
    assert outcome.reason == "budget"
    assert outcome.ledger.spent <= 25.0 + 10.0 + 0.01  # and the thinking time of the policy
    assert len(receipts(outcome.ledger)) in (2, 3)
    assert not outcome.ledger.open_orders


def test_a_deadline_between_two_steps_costs_nothing_and_loses_nothing(tmp_path: Path) -> None:
    clock = Clockwork()

    def slow(config: Any) -> Iterator[float]:
        while True:
            clock.time += 10.0
            yield 0.5

    ledger = run_in_memory(
        new_ledger("99 epochs", max_steps=50),
        RandomSearch(),
        local(slow, tmp_path, clock),
        deadline_s=35.0,
    ).ledger
    assert (ledger.spent, ledger.reserved, ledger.trials[0].resumable_step) == (4, 0, 4)
    released = [entry for entry in ledger.entries() if isinstance(entry, Note)]
    assert [(note.topic, note.facts["why"]) for note in released] == [("released", "the deadline has come")]


def test_orders_left_open_by_several_workers_are_carried_out_one_by_one(tmp_path: Path) -> None:
    ledger = new_ledger("30 epochs", workers=4)
    for trial in range(3):
        order = place_order(ledger, Train(trial=trial, config={"x": trial / 4}, until=2))
        assert order is not None
        ledger = ledger.append(order)
    outcome = run_in_memory(ledger, RandomSearch(), local(counting, tmp_path))
    assert (outcome.reason, outcome.ledger.spent) == ("budget", 30)
    assert [trial.steps for trial in outcome.ledger.trials[:3]] == [2, 2, 2]


# pausing, saving, losing ---------------------------------------------------------------------------------------------


def orders(runner: LocalRunner, ledger: Ledger, *wanted: tuple[int, int]) -> Ledger:
    """Train (trial, until) one after the other, as the loop does."""
    for trial, until in wanted:
        config = {"x": trial / 100}
        order = place_order(
            ledger, Train(trial=trial, config=config, until=until), check_start_s=0.0 if runner.can_save else None
        )
        assert order is not None
        ledger = grow(ledger, order)
        runner.submit(order, ledger.trials[trial].resumable_step)
        while ledger.open_orders:
            ledger = grow(ledger, *runner.wait(float("inf")))
    return ledger


def test_trials_over_the_live_limit_are_lost_if_they_cannot_save(tmp_path: Path) -> None:
    runner = local(counting, tmp_path, live=3)
    ledger = new_ledger("90 epochs")
    runner.start(ledger)
    ledger = orders(runner, ledger, *((trial, 1) for trial in range(5)))
    assert [trial.resumable_step for trial in ledger.trials] == [0, 0, 1, 1, 1]
    ledger = orders(runner, ledger, (0, 2))
    assert ledger.trials[0].steps == 2
    assert sum(receipt.trial == 0 for receipt in receipts(ledger)) == 3  # its first step was run again
    assert ledger.spent == 6


def test_trials_that_can_save_are_resumed_from_disk(tmp_path: Path) -> None:
    runner = local(Saves, tmp_path, live=1)
    ledger = new_ledger("90 epochs")
    runner.start(ledger)
    ledger = orders(runner, ledger, (0, 2), (1, 2), (0, 4))
    assert ledger.trials[0].values == [9.0, 8.0, 7.0, 6.0]
    assert not [entry for entry in ledger.entries() if isinstance(entry, StateLoss)]
    runner.close()
    again = local(Saves, tmp_path)
    assert again.start(ledger) == {0: 4, 1: 2}


def test_closing_saves_live_trials(tmp_path: Path) -> None:
    runner = local(Saves, tmp_path)
    ledger = new_ledger("90 epochs")
    runner.start(ledger)
    order = place_order(ledger, Train(trial=0, config={"x": 0.5}, until=4))
    assert order is not None
    ledger = ledger.append(order)
    runner.submit(order, 0)
    runner.checkpoints._save_s[0] = 1e9  # saving seems expensive: only best values are saved before the end
    runner.checkpoints.best_loss = -1.0
    for _ in range(2):
        ledger = grow(ledger, *runner.wait(float("inf")))
    assert runner.checkpoints.newest_step(0) == 0
    runner.close()
    assert runner.checkpoints.newest_step(0) == 2
    ledger = grow(ledger, *runner.checkpoints.take_notes())
    whole = run_in_memory(ledger, RandomSearch(), local(Saves, tmp_path)).ledger
    assert whole.trials[0].values == [9.0, 8.0, 7.0, 6.0]
    assert not [entry for entry in whole.entries() if isinstance(entry, StateLoss)]


def test_the_state_within_a_step_is_never_saved(tmp_path: Path) -> None:
    """After Ctrl-C within a step, memory holds neither the state of this step nor that of the one before."""

    class Interrupted(Saves):
        def step(self) -> float:
            self.total += 0.5
            if self.total > 2:
                raise KeyboardInterrupt
            self.total += 0.5
            return 10.0 - self.total

    runner = local(Interrupted, tmp_path)
    ledger = new_ledger("90 epochs")
    runner.start(ledger)
    order = place_order(ledger, Train(trial=0, config={"x": 0.5}, until=4))
    assert order is not None
    runner.submit(order, 0)
    runner.checkpoints._save_s[0] = 1e9
    runner.checkpoints.best_loss = -1.0
    runner.wait(float("inf"))
    runner.wait(float("inf"))
    with pytest.raises(KeyboardInterrupt):
        runner.wait(float("inf"))
    runner.close()
    assert runner.checkpoints.newest_step(0) == 0


def test_evicted_checkpoints_are_lost_trials(tmp_path: Path) -> None:
    runner = local(Saves, tmp_path, live=1, at_most_bytes=10.0)  # a checkpoint has 3 bytes
    ledger = new_ledger("90 epochs")
    runner.start(ledger)
    ledger = orders(runner, ledger, (0, 3), (1, 2), (2, 2), (3, 2), (4, 2))
    lost = [entry for entry in ledger.entries() if isinstance(entry, StateLoss)]
    assert [(entry.trial, entry.resumable_step, entry.why) for entry in lost] == [
        (1, 0, "its checkpoint was over the size limit")
    ]
    assert [trial.resumable_step for trial in ledger.trials] == [3, 0, 2, 2, 2]  # trial 0 is the best


def test_a_save_that_fails_is_a_failure_of_that_step(tmp_path: Path) -> None:
    class NoDisk(Saves):
        def save(self, path: Path) -> None:
            raise OSError(f"no space left for {self.total}")

    ledger = run_in_memory(new_ledger("6 epochs"), RandomSearch(), local(NoDisk, tmp_path)).ledger
    first = receipts(ledger)[0]
    assert (first.status, first.step, first.saved_step) == ("failed", 1, 0)
    assert "no space left" in first.text


# the resume check ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [False, True])
def test_resuming_is_checked_once_and_charged_as_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    monkeypatch.setattr(Saves, "broken", broken)
    outcome = run_in_memory(new_ledger("100 epochs"), RandomSearch(), local(Saves, tmp_path))
    (note,) = checks(outcome.ledger.entries())
    facts = {name: note.facts[name] for name in ("trial", "step", "continued", "resumed", "same")}
    resumed = 9.0 if broken else 8.0
    assert facts == {"trial": 0, "step": 2, "continued": 8.0, "resumed": resumed, "same": not broken}
    assert note.facts["seconds"] > 0
    assert outcome.ledger.spent == 100
    assert sum(trial.steps for trial in outcome.ledger.trials) == 99
    assert outcome.ledger.trials[0].values == [9.0, 8.0, 7.0, 6.0]


def test_code_that_cannot_load_is_found_by_the_check_and_fails_no_trial(tmp_path: Path) -> None:
    class CannotLoad(Saves):
        def load(self, path: Path) -> None:
            raise NotImplementedError("later")

    runner = local(CannotLoad, tmp_path)
    ledger = new_ledger("200 epochs")
    runner.start(ledger)
    ledger = orders(runner, ledger, (0, 4))
    (note,) = checks(ledger.entries())
    assert (note.facts["resumed"], note.facts["same"]) == (None, False)
    assert (ledger.trials[0].failures, ledger.trials[0].steps, ledger.spent) == (0, 4, 5)


def test_the_check_waits_for_a_step_with_a_value(tmp_path: Path) -> None:
    class Validates(Saves):
        def validate(self) -> float:
            return -self.total

    runner = local(Validates, tmp_path)
    ledger = new_ledger("200 epochs")
    runner.start(ledger)
    order = place_order(ledger, Train(trial=0, config={"x": 0.5}, until=4, validate="last"), check_start_s=0.0)
    assert order is not None
    assert order.check
    ledger = ledger.append(order)
    runner.submit(order, 0)
    while ledger.open_orders:
        ledger = grow(ledger, *runner.wait(float("inf")))
    (note,) = checks(ledger.entries())
    assert (note.facts["step"], note.facts["continued"], note.facts["resumed"]) == (4, -4.0, -4.0)


def test_a_trial_just_resumed_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Saves, "broken", True)
    first = local(Saves, tmp_path)
    ledger = new_ledger("200 epochs", max_steps=9)
    first.start(ledger)
    first.can_save = False  # as if not known yet: no check is ordered
    ledger = orders(first, ledger, (0, 2))
    first.close()
    again = local(Saves, tmp_path)
    again.start(ledger)
    ledger = orders(again, ledger, (0, 5))
    (note,) = checks(ledger.entries())
    assert (note.facts["step"], note.facts["same"]) == (4, False)


def test_the_check_is_charged_to_time_with_its_checkpoint(tmp_path: Path) -> None:
    def slow_to_save(config: Any, context: Context) -> Iterator[Report]:
        step = context.step
        while True:
            step += 1
            yield Report(float(step), cost=0.5, save=lambda path: path.write_text("x"))

    ledger = run_in_memory(new_ledger("100s", max_steps=3), RandomSearch(), local(slow_to_save, tmp_path)).ledger
    (note,) = checks(ledger.entries())
    assert note.facts["same"]
    assert ledger.state.by_kind["check"] == note.facts["seconds"] > 0


def test_reported_costs_are_charged_instead_of_the_clock(tmp_path: Path) -> None:
    def costly(config: Any) -> Iterator[Report]:
        while True:
            yield Report(0.5, cost={"setup": 0.5, "train": 1.0, "validate": 0.25})

    ledger = run_in_memory(new_ledger("8 epochs"), RandomSearch(), local(costly, tmp_path)).ledger
    assert all(receipt.cost == Cost(setup=0.5, train=1.0, validate=0.25) for receipt in receipts(ledger))
    assert ledger.state.seconds == pytest.approx(8 * 1.75 + ledger.state.by_kind["thinking"])


def test_a_value_that_was_not_ordered_is_not_recorded(tmp_path: Path) -> None:
    runner = local(counting, tmp_path)
    order = Order(number=0, trial=0, config={"x": 1.0}, until=3, validate="last")
    ledger = new_ledger()
    runner.start(ledger)
    ledger = ledger.append(order)
    runner.submit(order, 0)
    while ledger.open_orders:
        ledger = grow(ledger, *runner.wait(float("inf")))
    runner.close()
    assert ledger.trials[0].values == [None, None, pytest.approx(1 / 3)]
    assert ledger.trials[0].best_step == 3


def test_a_value_that_was_not_ordered_can_still_show_divergence(tmp_path: Path) -> None:
    order = Order(number=0, trial=0, config={"x": float("nan")}, until=3, validate="none")
    runner = local(counting, tmp_path)
    runner.start(new_ledger())
    runner.submit(order, 0)
    (paid,) = runner.wait(float("inf"))
    runner.close()
    assert isinstance(paid, Receipt)
    assert paid.status == "diverged"


def test_metrics_are_kept_and_never_charged(tmp_path: Path) -> None:
    def train(config: Any) -> Iterator[Report]:
        while True:
            yield Report(1.0, metrics={"accuracy": 0.5})

    ledger = run_in_memory(new_ledger("3 epochs"), RandomSearch(), local(train, tmp_path)).ledger
    assert [receipt.metrics for receipt in receipts(ledger)] == [{"accuracy": 0.5}] * 3
    assert ledger.spent == 3


@pytest.mark.parametrize("train", [Saves, counting])
def test_a_folder_that_cannot_be_written_is_an_error_before_any_training(tmp_path: Path, train: Any) -> None:
    (tmp_path / "checkpoints").touch()
    with pytest.raises(RunnerError) as caught:
        run_in_memory(new_ledger(), RandomSearch(), local(train, tmp_path))
    assert str(caught.value) == (
        f"the checkpoint folder {tmp_path / 'checkpoints'} cannot be used: File exists: make it writable, "
        "or put the study's store where there is room, with store=…"
    )
    (tmp_path / "checkpoints").unlink()
    run_in_memory(new_ledger(), RandomSearch(), local(lambda config: 1.0, tmp_path))
    assert list(tmp_path.iterdir()) == []  # a plain function needs no folder


def test_code_that_cannot_save_leaves_no_folder(tmp_path: Path) -> None:
    run_in_memory(new_ledger(), RandomSearch(), local(counting, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_fails_after_its_check_pays_the_check_as_one(tmp_path: Path) -> None:
    class Breaks(Saves):
        is_copy = False

        def step(self) -> float:
            if self.total == 1.0 and not self.is_copy:
                raise RuntimeError("no such data")
            return super().step()

        def load(self, path: Path) -> None:
            super().load(path)
            self.is_copy = True
            clock.time += 5.0

    clock = Clockwork()
    runner = local(Breaks, tmp_path, clock)
    order, ledger = Order(number=0, trial=0, config={"x": 0.5}, until=3, check=True), new_ledger()
    runner.start(ledger)
    ledger = ledger.append(order)
    runner.submit(order, 0)
    events = [*runner.wait(float("inf")), *runner.wait(float("inf"))]
    ledger = grow(ledger, *events)
    runner.close()
    assert [getattr(entry, "topic", getattr(entry, "status", "")) for entry in events] == ["ok", "check", "failed"]
    assert events[1].facts["same"] is None  # type: ignore[union-attr]


def test_code_that_raises_stop_iteration_or_generator_exit_fails_its_step(tmp_path: Path) -> None:
    def train(config: Any) -> float:
        raise GeneratorExit("closed")

    ledger = run_in_memory(new_ledger("1 epochs", max_steps=1), RandomSearch(), local(train, tmp_path)).ledger
    assert [receipt.status for receipt in receipts(ledger)] == ["failed"]
