"""The loop: orders are recorded before they are submitted; how a study ends; what a crash costs."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from shoestring import Report, tune
from shoestring.core.deciding.decision import Decision, Finish, Train, Wait
from shoestring.core.deciding.policy import find_untried_config
from shoestring.core.ledger.accounting import StudyStateView
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Cost, Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import StudyState
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.errors import DecisionError, StaleLedger
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.runners.runner import RunnerEvent
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.stores.in_memory import MemoryLease, MemoryStore
from shoestring.study.journal import Journal
from shoestring.study.loop import Loop, run_in_memory
from shoestring.study.study import Study
from shoestring.testing.curves import DecayingCurves


def new_ledger(budget: str = "20 epochs", **more: Any) -> Ledger:
    given = {"max_steps": 4, "seed": 0, "policy": "random_search", "settings": {}, **more}
    return Ledger([StudyDefinition(space=Space({"x": Float(0, 1)}), budget=Budget(budget), **given)])


@dataclass(frozen=True)
class Curves:
    outcome: Callable[[Config, int], StepOutcome | None] = lambda config, step: StepOutcome(
        config["x"] / step, Cost(train=1.0)
    )

    def step(self, config: Config, step: int) -> StepOutcome | None:
        return self.outcome(config, step)


@dataclass(frozen=True)
class Scripted:
    """A policy that makes the given decisions, one for each call."""

    decide_as: Callable[[Ledger], Decision]
    name: ClassVar[str] = "scripted"
    asked: list[int] = field(default_factory=list)

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        self.asked.append(len(ledger))
        return self.decide_as(ledger)


def test_the_whole_budget_is_spent() -> None:
    outcome = run_in_memory(new_ledger("10 epochs"), RandomSearch(), SimulatedRunner(Curves()))
    assert (outcome.reason, outcome.ledger.spent, outcome.ledger.left) == ("budget", 10, 0)
    assert [trial.steps for trial in outcome.ledger.trials] == [4, 4, 2]


def test_every_order_is_recorded_before_it_is_submitted() -> None:
    recorded: list[str] = []

    class Watching(SimulatedRunner):
        def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
            assert f"order {order.number}" in recorded
            super().submit(order, resumable_step, former_configs)

    class Noting(MemoryStore):
        def append(self, study: str, ledger: Ledger | None, *entries: Entry, **how: Any) -> Ledger:
            recorded.extend(f"{e.kind} {e.number}" if isinstance(e, Order) else e.kind for e in entries)
            return super().append(study, ledger, *entries, **how)

    run_in_memory(new_ledger(), RandomSearch(), Watching(Curves(), 3), store=Noting())
    assert recorded.count("receipt") == 20


class RecordsBatches(MemoryStore):
    """A store that records the entries of each append."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[list[str]] = []

    def append(self, study: str, ledger: Ledger | None, *entries: Entry, **how: Any) -> Ledger:
        grown = super().append(study, ledger, *entries, **how)
        self.stored.append([entry.kind for entry in entries])
        return grown


def test_all_free_workers_are_filled_with_one_append() -> None:
    store = RecordsBatches()
    run_in_memory(new_ledger("20 epochs"), RandomSearch(), SimulatedRunner(Curves(), 4), store=store)
    assert store.stored[1] == ["order"] * 4
    assert store.stored[-1] == ["receipt"]


def test_a_crash_between_storing_orders_and_submitting_them_leaves_them_open() -> None:
    class Crashing(SimulatedRunner):
        def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
            if order.number == 1:
                raise KeyboardInterrupt
            super().submit(order, resumable_step, former_configs)

    store = RecordsBatches()
    with pytest.raises(KeyboardInterrupt):
        run_in_memory(new_ledger(), RandomSearch(), Crashing(Curves(), 3), store=store)
    left = store.load("study")
    assert left is not None
    assert list(left.open_orders) == [0, 1, 2]
    again = run_in_memory(left, RandomSearch(), SimulatedRunner(Curves(), 3)).ledger
    whole = run_in_memory(new_ledger(), RandomSearch(), SimulatedRunner(Curves(), 3)).ledger
    assert again.entries() == whole.entries()


def test_orders_are_decided_again_after_a_conflict() -> None:
    """The orders of the older ledger are dropped, but the thinking time is charged."""
    queued = Note(topic="enqueue", facts={"config": {"x": 0.25}})

    class Shared(MemoryStore):
        def append(self, study: str, ledger: Ledger | None, *entries: Entry, **how: Any) -> Ledger:
            current = self.load(study)
            if current is not None and len(current) == 1 and isinstance(entries[0], Order):
                super().append(study, current, queued)
            return super().append(study, ledger, *entries, **how)

    ledger = run_in_memory(new_ledger(), RandomSearch(), SimulatedRunner(Curves(), 3), store=Shared()).ledger
    assert ledger.entries()[1] == queued
    assert ledger.orders[0].config == {"x": 0.25}
    assert [order.number for order in ledger.orders] == list(range(len(ledger.orders)))
    assert ledger.spent == 20


def test_a_slow_policy_does_not_keep_the_first_worker_waiting_for_the_last() -> None:
    def decide(ledger: Ledger) -> Decision:
        clock[0] += 0.04
        return Train(trial=len(ledger.trials), config={"x": len(ledger.trials) / 9}, until=4)

    class Real(SimulatedRunner):
        simulated = False

        def now(self) -> float:
            return super().now() + clock[0]

    clock = [0.0]
    store = RecordsBatches()
    run_in_memory(new_ledger("20 epochs"), Scripted(decide), Real(Curves(), 5), store=store)
    assert store.stored[1:4] == [["order"] * 2, ["order"] * 2, ["order"]]


def test_a_policy_is_not_asked_when_nothing_can_be_paid() -> None:
    policy = Scripted(lambda ledger: Train(trial=len(ledger.trials), config={"x": 0.5}, until=4))
    outcome = run_in_memory(new_ledger("8 epochs"), policy, SimulatedRunner(Curves(), 3))
    assert (outcome.reason, outcome.text, outcome.ledger.spent) == ("budget", "", 8)
    assert policy.asked == [1, 2]  # lengths of the ledger: no call for the third worker, and none after a receipt


def test_a_policy_that_finishes_gives_its_reason_and_open_orders_are_completed() -> None:
    def decide(ledger: Ledger) -> Decision:
        if len(ledger.trials) < 2:
            return Train(trial=len(ledger.trials), config={"x": 0.5}, until=3)
        return Finish("enough")

    outcome = run_in_memory(new_ledger(), Scripted(decide), SimulatedRunner(Curves(), 4))
    assert (outcome.reason, outcome.text) == ("policy", "enough, 14 epochs of 20 epochs left unspent")
    assert [trial.steps for trial in outcome.ledger.trials] == [3, 3]


def test_unspent_budget_too_small_for_a_step_is_in_the_ending() -> None:
    """Two steps with their validation cost 4 epochs each; 3 are left."""
    outcome = run_in_memory(new_ledger("11 epochs", prices=Prices(3.0)), RandomSearch(), SimulatedRunner(Curves()))
    assert outcome.reason == "budget"
    assert outcome.text.startswith("the rest does not pay for another step, 3 epochs of 11 epochs")


def test_a_deadline_of_zero_trains_nothing_not_even_open_orders() -> None:
    stopped = run_in_memory(new_ledger(), RandomSearch(), SimulatedRunner(Curves()), deadline_s=0.0)
    assert (stopped.reason, len(stopped.ledger.orders)) == ("deadline", 0)
    cut = run_in_memory(new_ledger(), RandomSearch(), SimulatedRunner(Curves(), 2), should_stop=_after(3))
    assert cut.ledger.open_orders
    again = run_in_memory(cut.ledger, RandomSearch(), SimulatedRunner(Curves(), 2), deadline_s=0.0)
    assert (again.reason, again.ledger.spent) == ("deadline", cut.ledger.spent)
    assert again.ledger.open_orders.keys() == cut.ledger.open_orders.keys()


def _after(calls: int) -> Callable[[], bool]:
    """Return a `should_stop` that is True after so many calls."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def test_a_policy_must_not_wait_without_open_orders() -> None:
    with pytest.raises(DecisionError, match="scripted waits, but no order is open"):
        run_in_memory(new_ledger(), Scripted(lambda ledger: Wait()), SimulatedRunner(Curves()))


def test_a_policy_is_asked_again_only_after_a_new_entry() -> None:
    """A real runner is polled several times a second; deciding again without a new entry would cost thinking time."""
    policy = Scripted(lambda ledger: Wait() if ledger.open_orders else _first_then_finish(ledger))

    class Slow(SimulatedRunner):
        simulated = False
        polls = 0

        def wait(self, until: float) -> Any:
            self.polls += 1
            return super().wait(math.inf) if self.polls % 5 == 0 else []

    runner = Slow(Curves(), workers=2)
    run_in_memory(new_ledger(), policy, runner)
    assert runner.polls == 20
    assert policy.asked == [1, 2, 3, 4, 5, 6]  # lengths of the ledger: opened, order, and four receipts one by one


def _first_then_finish(ledger: Ledger) -> Decision:
    return Finish("done") if ledger.trials else Train(trial=0, config={"x": 0.5}, until=4)


def test_an_order_that_cannot_be_paid_ends_the_study_when_nothing_is_open() -> None:
    outcome = run_in_memory(new_ledger("6 epochs"), RandomSearch(), SimulatedRunner(Curves(), 3))
    assert (outcome.reason, outcome.ledger.spent) == ("budget", 6)


def test_the_deadline_interrupts_steps_and_ends_the_run() -> None:
    outcome = run_in_memory(new_ledger("99 epochs"), RandomSearch(), SimulatedRunner(Curves(), 2), deadline_s=5.5)
    assert outcome.reason == "deadline"
    assert outcome.ledger.state.clock == 5.5
    assert not outcome.ledger.open_orders
    assert outcome.ledger.spent == 10 + 2  # five steps each, and the two that were interrupted


def test_a_stop_leaves_orders_open_for_the_next_start() -> None:
    stops = iter([False] * 4 + [True] * 9)
    outcome = run_in_memory(new_ledger(), RandomSearch(), SimulatedRunner(Curves()), should_stop=lambda: next(stops))
    assert outcome.reason == "stopped"
    assert list(outcome.ledger.open_orders) == [0]
    again = run_in_memory(outcome.ledger, RandomSearch(), SimulatedRunner(Curves()))
    whole = run_in_memory(new_ledger(), RandomSearch(), SimulatedRunner(Curves()))
    assert again.ledger.entries() == whole.ledger.entries()


# failures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_diverged_losses_do_not_stop_a_study(value: float | None) -> None:
    def one_in_two(config: Config, step: int) -> StepOutcome:
        return StepOutcome(value if config["x"] > 0.5 else config["x"], Cost(train=1.0))

    outcome = run_in_memory(new_ledger("40 epochs"), RandomSearch(), SimulatedRunner(Curves(one_in_two)))
    assert outcome.reason == "budget"
    assert outcome.ledger.spent == 40
    assert {trial.diverged for trial in outcome.ledger.trials} == {True, False}
    assert outcome.ledger.best is not None
    assert outcome.ledger.best.best_loss <= 0.5


def failing(texts: Callable[[int], str]) -> Curves:
    known: dict[float, int] = {}

    def outcome(config: Config, step: int) -> StepOutcome:
        number = known.setdefault(config["x"], len(known))
        text = texts(number)
        return StepOutcome(None, Cost(train=1.0), failure=text) if text else StepOutcome(0.5, Cost(train=1.0))

    return Curves(outcome)


def test_failures_are_charged_and_the_study_continues() -> None:
    failing_source = failing(lambda number: "" if number % 2 else f"Traceback\nError: no {number}")
    outcome = run_in_memory(new_ledger(), RandomSearch(), SimulatedRunner(failing_source))
    assert (outcome.reason, outcome.ledger.spent) == ("budget", 20)
    assert outcome.ledger.trials[0].failure == "Traceback\nError: no 0"
    assert [trial.failures for trial in outcome.ledger.trials] == [1, 0, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_same_failure_from_the_first_three_trials_stops_the_study(workers: int) -> None:
    same = failing(lambda number: f"Traceback, line {number}\nModuleNotFoundError: torch")
    outcome = run_in_memory(new_ledger("1000 epochs"), RandomSearch(), SimulatedRunner(same, workers))
    assert outcome.reason == "failing"
    assert "ModuleNotFoundError: torch" in outcome.text
    assert outcome.ledger.spent <= 2 + workers
    again = run_in_memory(outcome.ledger, RandomSearch(), SimulatedRunner(failing(lambda number: ""), workers))
    assert again.reason == "budget", "code that was repaired is given another chance"


def test_failures_of_an_earlier_run_do_not_count_for_a_failure_of_another_kind() -> None:
    ledger = new_ledger("1000 epochs")
    for _ in range(3):  # the first run ends after three failures, each of the others after one more
        missing = failing(lambda number: "ModuleNotFoundError: torch")
        ledger = run_in_memory(ledger, RandomSearch(), SimulatedRunner(missing)).ledger
    assert (ledger.spent, ledger.state.failures_in_a_row) == (5, 5)
    other = run_in_memory(ledger, RandomSearch(), SimulatedRunner(failing(lambda number: "the data is not there")))
    assert (other.reason, other.ledger.spent) == ("failing", 5 + 3)
    both = failing(lambda number: "ModuleNotFoundError: torch" if number else "the data is not there")
    assert run_in_memory(ledger, RandomSearch(), SimulatedRunner(both)).ledger.spent == 5 + 1 + 3


@pytest.mark.parametrize(
    "texts",
    [
        lambda number: f"Error: {'xyz'[number % 3] * 3} is missing",  # three different ones
        lambda number: "boom" if number != 1 and number % 9 else "",  # one trial in nine succeeds
        lambda number: "boom" if number < 2 else "" if number % 8 == 2 else "boom",
    ],
)
def test_different_failures_do_not_stop_the_study(texts: Callable[[int], str]) -> None:
    outcome = run_in_memory(new_ledger(), RandomSearch(), SimulatedRunner(failing(texts)))
    assert (outcome.reason, outcome.ledger.spent) == ("budget", 20)


TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 9, in train
    loss = step(batch)
  File "/srv/run-{0}/model.py", line 41, in step
    raise RuntimeError(message)
RuntimeError: {1}"""


@pytest.mark.parametrize(
    "text",
    [
        lambda number: f"CUDA out of memory. Tried to allocate {1.5 + number:.2f} GiB (GPU 0; {number} MiB free)",
        lambda number: f"OSError: cannot write /data/checkpoints/trial-{number:04d}/step-000001.partial: no space",
        lambda number: f"ValueError: bad config {{'lr': {number / 7}, 'optimizer': '{'ab'[number % 2]}'}}",
        lambda number: TRACEBACK.replace("-{0}", "").replace("{1}", f"no luck with {'abc'[number % 3]}"),
        lambda number: f"the command ended with exit code 1: at 0x7f{number:04x} in layer {number}",
    ],
)
@pytest.mark.parametrize("first_succeeds", [False, True])
def test_one_failure_with_many_texts_stops_the_study(text: Callable[[int], str], first_succeeds: bool) -> None:
    """Numbers, paths and quoted texts vary, but the failure is the same."""
    same = failing(lambda number: "" if first_succeeds and number == 0 else text(number))
    outcome = run_in_memory(new_ledger("40 epochs"), RandomSearch(), SimulatedRunner(same))
    assert outcome.reason == "failing"
    assert outcome.ledger.spent == (4 + 10 if first_succeeds else 3)


def test_training_that_never_reports_a_number_stops_the_study() -> None:
    nan = Curves(lambda config, step: StepOutcome(math.nan, Cost(train=1.0)))
    outcome = run_in_memory(new_ledger("1000 epochs"), RandomSearch(), SimulatedRunner(nan))
    assert (outcome.reason, outcome.ledger.spent) == ("failing", 10)
    assert "10" in outcome.text.split(), "the number of trials"
    again = run_in_memory(outcome.ledger, RandomSearch(), SimulatedRunner(nan))
    assert (again.reason, again.ledger.spent) == ("failing", 20), "each new run trains up to ten more trials"


def test_a_few_diverged_trials_at_the_start_do_not_stop_the_study() -> None:
    known: dict[float, int] = {}

    def nine_diverge(config: Config, step: int) -> StepOutcome:
        number = known.setdefault(config["x"], len(known))
        return StepOutcome(math.nan if number % 10 else 0.5, Cost(train=1.0))

    outcome = run_in_memory(new_ledger("60 epochs"), RandomSearch(), SimulatedRunner(Curves(nine_diverge)))
    assert (outcome.reason, outcome.ledger.spent) == ("budget", 60)


def test_a_rounding_error_is_not_unspent_budget() -> None:
    """Six workers are interrupted at the cutoff before any step has a price; then 1e-16 s are left."""
    outcome = run_in_memory(
        new_ledger("1s", max_steps=1, workers=6),
        RandomSearch(),
        SimulatedRunner(DecayingCurves(cost_s=3.0, spread=1.0), 6),
    )
    assert outcome.reason == "budget"
    assert len(outcome.ledger.orders) == 6
    assert outcome.ledger.spent == pytest.approx(1.0)


class DyingWorkers(SimulatedRunner):
    """A runner whose workers die in the first step of a trial, `deaths(trial)` times."""

    def __init__(self, deaths: Callable[[int], int], workers: int = 1) -> None:
        super().__init__(Curves(), workers)
        self._deaths_left: dict[int, int] = {}
        self._deaths, self.submitted = deaths, list[int]()

    def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
        self.submitted.append(order.number)
        super().submit(order, resumable_step, former_configs)

    def wait(self, until: float) -> list[RunnerEvent]:
        events: list[RunnerEvent] = []
        for entry in super().wait(until):
            left = (
                self._deaths_left.setdefault(entry.trial, self._deaths(entry.trial))
                if isinstance(entry, Receipt)
                else 0
            )
            if isinstance(entry, Receipt) and left:
                self._deaths_left[entry.trial] -= 1
                self.forget(entry.order)
                seconds = entry.cost.total
                events.append(
                    StateLoss(trial=entry.trial, resumable_step=0, seconds=seconds, why="its process died", death=True)
                )
            else:
                events.append(entry)
        return events

    def forget(self, number: int) -> None:
        self._forget(number)
        self._due = [due for due in self._due if due[1] != number]
        heapq.heapify(self._due)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_death_of_a_worker_is_not_a_failure_of_the_trial(workers: int) -> None:
    runner = DyingWorkers(lambda trial: 2 if trial == 0 else 0, workers)
    outcome = run_in_memory(new_ledger("20s", workers=workers), RandomSearch(), runner)
    first = outcome.ledger.trials[0]
    assert runner.submitted.count(0) == 3, "the same order is given to another worker"
    assert (first.failure, first.deaths, first.steps) == ("", 0, 4)
    assert outcome.ledger.state.by_kind["lost"] == 2 * outcome.ledger.trials[0].step_costs[0]
    assert outcome.reason == "budget"
    assert outcome.ledger.spent <= 20


def test_the_third_death_of_a_worker_is_a_failure_of_the_trial() -> None:
    outcome = run_in_memory(new_ledger("20 epochs"), RandomSearch(), DyingWorkers(lambda trial: 9 if trial == 1 else 0))
    state, dead = outcome.ledger.state, outcome.ledger.trials[1]
    assert (dead.failure, dead.failures, dead.open_order) == ("its process died", 1, None)
    assert (outcome.reason, outcome.ledger.spent) == ("budget", 20)
    assert state.steps == 20
    assert sum(trial.steps for trial in outcome.ledger.trials) == 19, "the failure costs one epoch"


def test_code_that_kills_every_worker_stops_the_study() -> None:
    outcome = run_in_memory(new_ledger("1000 epochs"), RandomSearch(), DyingWorkers(lambda trial: 9))
    assert (outcome.reason, outcome.text) == ("failing", "its process died")
    assert outcome.ledger.spent == 1


def test_steps_that_are_trained_again_get_their_former_configs() -> None:
    """The config of the trial changes while it trains; the runner gets the config of each former step."""
    given: list[list[float]] = []

    class Forgetting(SimulatedRunner):
        def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
            given.append([config["x"] for config in former_configs])
            super().submit(order, resumable_step, former_configs)

    def decide(ledger: Ledger) -> Decision:
        steps = ledger.trials[0].steps if ledger.trials else 0
        return Train(trial=0, config={"x": steps / 10}, until=steps + 1) if steps < 4 else Finish()

    run_in_memory(new_ledger(), Scripted(decide), Forgetting(Curves()))
    assert given == [[], [0.0], [0.0, 0.1], [0.0, 0.1, 0.2]]


def test_code_that_never_reports_a_step_stops_the_study_too() -> None:
    never = Curves(lambda config, step: None)
    outcome = run_in_memory(new_ledger("1000 epochs"), RandomSearch(), SimulatedRunner(never))
    assert outcome.reason == "failing"
    assert outcome.text
    assert {trial.failure for trial in outcome.ledger.trials} == {outcome.text}
    assert outcome.ledger.spent == 3


# time ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "budget"), [(1, "10s"), (3, "10s"), (4, "$10 at 3600/h")])
def test_steps_are_interrupted_exactly_at_the_cutoff(workers: int, budget: str) -> None:
    slow = Curves(lambda config, step: StepOutcome(0.5, Cost(train=3.0)))
    outcome = run_in_memory(new_ledger(budget, workers=workers), RandomSearch(), SimulatedRunner(slow, workers))
    assert outcome.reason == "budget"
    assert outcome.ledger.spent == pytest.approx(10.0, abs=1e-9)


def test_thinking_is_charged_to_time() -> None:
    class Real(SimulatedRunner):
        simulated = False

    def decide(ledger: Ledger) -> Decision:
        config = find_untried_config(ledger)
        assert config is not None
        return Train(trial=len(ledger.trials), config=config, until=1) if len(ledger.trials) < 3 else Finish()

    outcome = run_in_memory(new_ledger("10s"), Scripted(decide), Real(Curves()))
    assert all(order.thinking_s > 0 for order in outcome.ledger.orders)
    entries = outcome.ledger.entries()  # a long last decision without an order has a note of its own
    noted_s = [entry.facts["seconds"] for entry in entries if isinstance(entry, Note) and entry.topic == "thinking"]
    thinking_s = outcome.ledger.state.by_kind["thinking"]
    assert thinking_s == pytest.approx(sum(order.thinking_s for order in outcome.ledger.orders) + sum(noted_s))
    assert outcome.ledger.spent == pytest.approx(3.0 + thinking_s)


def test_starting_workers_is_not_charged_as_thinking() -> None:
    class SlowToStart(SimulatedRunner):
        simulated = False

        def start(self, ledger: Ledger) -> Mapping[int, int]:
            time.sleep(0.3)
            return super().start(ledger)

    ledger = run_in_memory(new_ledger("4s"), RandomSearch(), SlowToStart(Curves())).ledger
    assert ledger.state.by_kind["thinking"] < 0.2


@pytest.mark.parametrize("answer", [None, "train", 3])
def test_a_wrong_return_value_of_decide_is_an_error(answer: Any) -> None:
    with pytest.raises(DecisionError, match=r"scripted decided .*must return Train\(…\), Wait\(\) or Finish"):
        run_in_memory(new_ledger(), Scripted(lambda ledger: answer), SimulatedRunner(Curves()))


def test_an_order_is_recorded_only_on_the_ledger_it_was_decided_on() -> None:
    """Another thread may change the study while its policy decides; then the order is decided again."""

    class Overtaken:
        name = "overtaken"
        other_order: Order | None = None

        def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
            config = find_untried_config(ledger)
            assert config is not None
            if self.other_order is None:
                self.other_order = Order(number=0, trial=0, config={"x": 0.5}, until=1, is_external=True)
                study.journal.append(self.other_order)
                study.tell(self.other_order, 0.5)
            return Train(trial=len(ledger.trials), config=config, until=4)

    study = Study.begin(Space({"x": Float(0, 1)}), "8 epochs", max_steps=4, policy=Overtaken())
    study.run(SimulatedRunner(Curves()))
    assert [order.number for order in study.ledger.orders] == list(range(len(study.ledger.orders)))
    assert study.ledger.orders[0].is_external
    assert study.spent == 8


def test_a_policy_that_appends_to_its_ledger_is_an_error() -> None:
    def decide(ledger: Ledger) -> Decision:
        ledger.append(Note(topic="thinking", facts={"seconds": 1.0}))
        return Train(trial=0, config={"x": 0.5}, until=1)

    with pytest.raises(StaleLedger):
        run_in_memory(new_ledger(), Scripted(decide), SimulatedRunner(Curves()))


# after a crash -------------------------------------------------------------------------------------------------------


def test_the_time_that_a_crash_lost_is_recorded_and_charged() -> None:
    stops = iter([False] * 3 + [True])
    cut = run_in_memory(
        new_ledger("20s"), RandomSearch(), SimulatedRunner(Curves()), should_stop=lambda: next(stops)
    ).ledger
    assert (cut.trials[0].resumable_step, list(cut.open_orders)) == (2, [0])

    class Amnesiac(SimulatedRunner):
        def start(self, ledger: Ledger) -> Mapping[int, int]:
            super().start(ledger)
            return {}

    observed: list[Entry | None] = []
    journal = Journal.in_memory(cut)
    lease = MemoryLease(MemoryStore(), "study")
    lease.uncharged_s = {0: 2.0}
    watch: dict[str, Any] = {"observe": lambda ledger, entry: observed.append(entry)}
    outcome = Loop(journal, lease, RandomSearch(), Amnesiac(Curves()), **watch).run()
    lost = [entry for entry in outcome.ledger.entries() if isinstance(entry, StateLoss)]
    assert [(entry.trial, entry.resumable_step) for entry in lost] == [(0, 0)]
    assert observed[0] == lost[0]
    assert outcome.ledger.state.by_kind["lost"] == 2.0
    assert outcome.ledger.state.by_kind["repeated"] == 2.0
    assert outcome.ledger.spent == pytest.approx(20.0)


def test_a_crash_that_lost_nothing_adds_no_entry() -> None:
    whole = run_in_memory(new_ledger("4 epochs"), RandomSearch(), SimulatedRunner(Curves())).ledger
    assert run_in_memory(whole, RandomSearch(), SimulatedRunner(Curves())).ledger.entries() == whole.entries()


@pytest.mark.parametrize("budget", ["200 epochs", "2000s", "$2000 at 3600/h"])
def test_no_entry_is_counted_twice_while_a_study_runs(
    budget: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computing the state of a study again takes time that grows with its length, so nothing may cause it."""
    counted: list[Entry] = []

    def absorb(view: StudyStateView, state: StudyState, entry: Entry) -> StudyState:
        counted.append(entry)
        return absorb_once(view, state, entry)

    absorb_once = StudyStateView.absorb
    monkeypatch.setattr(StudyStateView, "absorb", absorb)

    def train(config: Config) -> Iterator[Report]:
        for step in range(1, 5):
            yield Report(config["x"] / step, cost=10.0)

    study = tune(train, {"x": Float(0, 1)}, budget, max_steps=4, store=f"sqlite:///{tmp_path}/s.db", seed=0)
    assert len(study.ledger) > 100
    assert len(counted) < 1.2 * len(study.ledger)
