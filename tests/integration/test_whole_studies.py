"""Whole studies use up their budget, on every runner and in every unit, and do not exceed it.

A budget is used up if at least 97 % is spent, or the rest pays for no further step. No test depends on the speed of the machine:
steps move a simulated clock, or report their cost themselves.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from thoroughness import Thoroughness

from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Order, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.runners import runner as runner_module
from shoestring.runners.checkpoints import checkpoints
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.runners.local import local_runner as local
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.runners.process.process_runner import ProcessRunner
from shoestring.runners.runner import Runner, RunnerEvent
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.runners.training import code as training
from shoestring.runners.training.code import Context, Report
from shoestring.study import loop
from shoestring.study.decide import REST, Thinking
from shoestring.study.loop import Ending, run_in_memory

SPACE = Space({"x": Float(0, 1), "y": Float(0, 1)})
POLICIES = ("sequential_halving", "random_search", "asha", "hyperband", "top_k_after_one")
WITH_A_MODEL = ("bhpt", "cost_aware_ei", "guided_halving")
UNITS = {"epochs": "{} epochs", "seconds": "{}s", "dollars": "${} at 3600/h"}  # one of each is one step of one second
ENOUGH = 0.97


def loss_at(config: Config, step: int) -> float:
    return float(abs(config["x"] - 0.3) + 0.1 * config["y"] + 1.0 / step)


@dataclass(frozen=True)
class Code:
    """Simulated curves with the cost of training in seconds."""

    step_s: Callable[[Config], float] = lambda config: 1.0
    setup_s: float = 0.0

    def step(self, config: Config, step: int) -> StepOutcome:
        cost = Cost(setup=self.setup_s if step == 1 else 0.0, train=self.step_s(config))
        return StepOutcome(loss_at(config, step), cost)


EVEN = Code()
SPREAD = Code(step_s=lambda config: 10 ** (3 * config["x"] - 2))  # 0.01 to 10 s
SLOW_TO_START = Code(step_s=lambda config: 0.5, setup_s=5.0)


def make_ledger(budget: str, max_steps: int, workers: int = 1) -> Ledger:
    definition = StudyDefinition(
        space=SPACE, budget=Budget(budget), policy="p", settings={}, seed=3, max_steps=max_steps, workers=workers
    )
    return Ledger([definition])


def run(ledger: Ledger, policy: str, runners: Iterable[Runner]) -> Ending:
    """Run a study to its end; every runner but the last is stopped after a while, and the next one continues."""
    *first, last = runners
    for runner in first:
        stopped = run_in_memory(ledger, policies.make(policy, {}), runner, should_stop=_after(calls=12))
        assert stopped.reason == "stopped"
        ledger = Ledger(stopped.ledger.entries())
    return run_in_memory(ledger, policies.make(policy, {}), last)


def _after(calls: int) -> Callable[[], bool]:
    counter = itertools.count(1)
    return lambda: next(counter) > calls


def require_used_up(ending: Ending, *, over_s: float = 0.0) -> None:
    ledger = ending.ledger
    total = ledger.budget.total
    assert ending.reason == "budget", ending.text
    assert ledger.spent <= total + over_s + 1e-9 * total
    next_steps = [
        price_next(ledger, trial.step_costs) for trial in ledger.trials if trial.can_continue and trial.step_costs
    ]
    begun = [trial.step_costs[0] * rate_of(ledger) for trial in ledger.trials if trial.step_costs]
    # The cost of a new configuration is unknown; it may be as high as that of the most expensive one.
    cheapest = min([*next_steps, max(begun)])
    assert ledger.spent >= ENOUGH * total or total - ledger.spent <= cheapest, ending.text


def price_next(ledger: Ledger, step_costs: list[float]) -> float:
    """Return the price of a trial's next step: its most expensive one, without the first, which included the setup."""
    return max(step_costs[1:] or step_costs) * rate_of(ledger)


def rate_of(ledger: Ledger) -> float:
    return ledger.budget.per_second(ledger.workers) if ledger.budget.unit != "epochs" else 1.0 / max(1.0, ledger.spent)


# simulated -----------------------------------------------------------------------------------------------------------


@pytest.mark.repeated
@pytest.mark.parametrize("policy", [*POLICIES, *WITH_A_MODEL])
@pytest.mark.parametrize("code", [EVEN, SPREAD, SLOW_TO_START], ids=["even", "spread", "slow to start"])
def test_simulated_studies_use_up_their_budget(policy: str, code: Code) -> None:
    sizes = [(20, 5)] if policy in WITH_A_MODEL else [(100, 9), (100, 50), (20, 5)]
    shared = [("epochs", 1), ("seconds", 3), ("dollars", 1)]  # each unit, one worker and several
    shared = [*itertools.product(UNITS, (1, 3))] if Thoroughness.is_thorough else shared
    for (amount, max_steps), (unit, workers) in itertools.product(sizes, shared):
        ledger, runner = make_ledger(UNITS[unit].format(amount), max_steps, workers), SimulatedRunner(code, workers)
        require_used_up(run(ledger, policy, [runner]))


def test_a_decision_that_cannot_be_paid_does_not_end_a_study_that_can_pay_for_another_step() -> None:
    """ASHA wants a new configuration that may cost 8 of the last 8 s, while a paused trial continues for 0.1 s."""
    ending = run(make_ledger("20s", 5), "asha", [SimulatedRunner(SPREAD)])
    assert ending.ledger.spent >= ENOUGH * 20
    last = ending.ledger.orders[-1]
    assert last.why["stage"] == REST
    assert last.why["score_name"] == "newest value"


def test_a_trial_that_needs_no_setup_is_priced_without_it() -> None:
    ledger = run(make_ledger("100s", 50), "successive_halving", [SimulatedRunner(SLOW_TO_START)]).ledger
    assert ledger.left < 0.5 + 1e-9, "another step of any trial costs half a second"


class BreaksAtStepThree:
    """Training that fails at step 3, for all configs or for some."""

    def __init__(self, breaks: Callable[[Config], bool] = lambda config: True) -> None:
        self._breaks = breaks

    def step(self, config: Config, step: int) -> StepOutcome:
        failure = f"RuntimeError: no place for batch {config['x']}" if step == 3 and self._breaks(config) else ""
        return StepOutcome(loss_at(config, step), Cost(train=1.0), failure)


def test_code_that_always_fails_at_a_later_step_does_not_use_up_the_budget() -> None:
    ending = run(make_ledger("300 epochs", 20), "sequential_halving", [SimulatedRunner(BreaksAtStepThree())])
    assert (ending.reason, sum(trial.failures for trial in ending.ledger.trials)) == ("failing", 5)
    assert ending.text.startswith("RuntimeError")
    again = run(Ledger(ending.ledger.entries()), "sequential_halving", [SimulatedRunner(BreaksAtStepThree())]).ledger
    assert sum(trial.failures for trial in again.trials) == 10, (
        "the code may have been repaired, so five more failures are allowed"
    )


def test_code_that_fails_for_some_configs_uses_up_the_budget() -> None:
    code = BreaksAtStepThree(lambda config: bool(config["y"] < 0.5))
    ending = run(make_ledger("300 epochs", 20), "random_search", [SimulatedRunner(code)])
    assert sum(trial.failures for trial in ending.ledger.trials) > 5
    require_used_up(ending)


# in this process, with a clock that only training code moves ---------------------------------------------------------


class Clock:
    now_s: ClassVar[float] = 0.0


class Steps:
    """Training code that cannot save."""

    step_s, setup_s, save_s, load_s = 1.0, 0.0, 0.0, 0.0

    def __init__(self, config: Config) -> None:
        self.config, self.done = config, 0
        Clock.now_s += self.setup_s

    def step(self) -> float:
        Clock.now_s += self.step_s
        self.done += 1
        return loss_at(self.config, self.done)


class SavingSteps(Steps):
    def save(self, path: Path) -> None:
        Clock.now_s += self.save_s
        path.write_text(str(self.done))

    def load(self, path: Path) -> None:
        Clock.now_s += self.load_s
        self.done = int(path.read_text())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(Clock, "now_s", 0.0)
    fake = SimpleNamespace(monotonic=lambda: Clock.now_s, perf_counter=lambda: Clock.now_s, time=time.time)
    for module in (checkpoints, local, training, runner_module):
        monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr(loop, "Thinking", partial(Thinking, lambda: Clock.now_s))
    return Clock


MANY_SHORT = {"step_s": 1.0}, 9  # and the steps of a full training
FEW_LONG = {"step_s": 3.0, "setup_s": 1.0}, 8
TOTAL_S = 100


@pytest.mark.parametrize("policy", ["sequential_halving", "random_search", "asha"])
@pytest.mark.parametrize("shape", [MANY_SHORT, FEW_LONG], ids=["many short", "few long"])
@pytest.mark.parametrize("base", [Steps, SavingSteps], ids=["cannot save", "saves"])
@pytest.mark.parametrize("live", [None, 1])
def test_studies_in_this_process_use_up_their_budget(
    clock: type[Clock], tmp_path: Path, policy: str, shape: Any, base: type[Steps], live: int | None
) -> None:
    """This holds with slow and with fast saves, and if the study is stopped once and continued."""
    times, max_steps = shape
    slow = {"save_s": 0.2 * times["step_s"], "load_s": 0.2 * times["step_s"]}
    for (more, pieces), unit in itertools.product([({}, 1), (slow, 1), (slow, 2)], ("seconds", "dollars")):
        code: Any = type("Code", (base,), {**times, **more})
        folder = tmp_path / f"{unit}-{len(more)}-{pieces}"
        ledger, began_s = make_ledger(UNITS[unit].format(TOTAL_S), max_steps), clock.now_s
        ending = run(ledger, policy, [LocalRunner(code, Checkpoints(folder), live) for _ in range(pieces)])
        a_step_s = (
            code.setup_s + code.load_s + code.step_s + 2 * code.save_s
        )  # of this trial, and of one that is evicted
        require_used_up(ending, over_s=a_step_s)
        assert ending.ledger.spent == pytest.approx(clock.now_s - began_s), "all time is charged, once"


@pytest.mark.parametrize("save_s", [0.0, 3.0])
def test_a_deadline_in_this_process_is_used_and_not_exceeded(clock: type[Clock], tmp_path: Path, save_s: float) -> None:
    code = type("Code", (SavingSteps,), {"save_s": save_s})
    ledger, runner = make_ledger("10000s", 9), LocalRunner(code, Checkpoints(tmp_path))
    ending = run_in_memory(ledger, policies.make("random_search", {}), runner, deadline_s=200.0)
    assert ending.reason == "deadline"
    assert ENOUGH * 200 <= clock.now_s <= 200 + 1.0 + save_s


def test_saving_at_the_end_does_not_exceed_the_budget(clock: type[Clock], tmp_path: Path) -> None:
    """A save that takes a fifth of the budget does not begin at the cutoff; only the step itself exceeds the budget."""
    code = type("Code", (SavingSteps,), {"save_s": 20.0})
    ending = run(make_ledger("110s", 9), "sequential_halving", [LocalRunner(code, Checkpoints(tmp_path))])
    assert ending.ledger.spent <= 110.0 + 1.0 + 20.0
    before_s = clock.now_s
    stopped = LocalRunner(code, Checkpoints(tmp_path / "stopped"))
    run_in_memory(make_ledger("100s", 9), policies.make("random_search", {}), stopped, should_stop=_after(3))
    assert clock.now_s == before_s + 2 * 1.0 + 2 * 20.0, (
        "after an early stop the budget still pays for saving the newest trials"
    )


# in other processes and as programs: they report the cost of a step -----------------------------------------------------


REPORTED_S = 1000.0  # of a step; its real duration is negligible in comparison


def report_cost(config: Config, context: Context) -> Any:
    """Training code that reports a cost and takes no time."""
    done = int(context.checkpoint.read_text()) if context.checkpoint else 0
    while True:
        done += 1

        def save(path: Path, done: int = done) -> None:
            path.write_text(str(done))

        yield Report(loss_at(config, done), cost=REPORTED_S, save=save if config["x"] >= 0 else None)


def report_cost_only(config: Config) -> Any:
    for report in report_cost(config, Context(config)):
        yield Report(report.value, cost=report.cost)


COMMAND = f"""
import json, os, sys, time
config = json.load(open(os.environ["SHOESTRING_CONFIG"]))
trial = int(os.path.basename(os.path.dirname(os.environ["SHOESTRING_CHECKPOINT"])).split("-")[1])
leave = os.path.join(sys.argv[2], str(trial))
place = os.path.join(os.environ["SHOESTRING_CHECKPOINT"], "done")
done = int(open(place).read()) if os.path.exists(place) else 0
while done < int(os.environ["SHOESTRING_UNTIL"]):
    while not os.path.exists(leave):
        time.sleep(0.002)
    os.remove(leave)
    done += 1
    value = abs(config["x"] - 0.3) + 0.1 * config["y"] + 1.0 / done
    if "saves" in sys.argv:
        open(place, "w").write(str(done))
    print(json.dumps({{"value": value, "cost": {REPORTED_S}, "step": done, "saved": "saves" in sys.argv}}), flush=True)
"""


class OneStepAtATime(CommandRunner):
    """A runner that lets one program at a time train a step, and the next one after the study has recorded it.

    Here a step reports a quarter of an hour and takes no time. Without this limit the programs would be several steps ahead of
    the study when it reads their reports, more so on a busy machine, and all of these steps would be charged.
    """

    def __init__(self, saves: str, folder: Path, number: int) -> None:
        self._leaves, self._goals, self._has_leave = folder / f"leaves-{number}", dict[int, int](), False
        self._leaves.mkdir()
        super().__init__([sys.executable, "-S", "-c", COMMAND, saves, str(self._leaves)], SPACE, folder, workers=2)

    def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
        self._goals[order.trial] = order.until
        super().submit(order, resumable_step, former_configs)

    def wait(self, until: float) -> list[RunnerEvent]:
        if self._goals and not self._has_leave:
            trial = next(iter(self._goals))
            self._goals[trial] = self._goals.pop(trial)  # the other trials come first the next time
            (self._leaves / str(trial)).touch()
            self._has_leave = True
        events = super().wait(until)
        for receipt in (one for one in events if isinstance(one, Receipt)):
            self._has_leave = False
            if receipt.step >= self._goals[receipt.trial]:
                del self._goals[receipt.trial]
        return events


@pytest.mark.parametrize(
    ("kind", "unit", "pieces"),
    [
        ("process saves", "epochs", 2),
        ("process saves", "seconds", 2),
        ("process saves", "dollars", 1),
        ("process cannot", "seconds", 2),
        *itertools.product(("command saves", "command cannot"), UNITS, (1, 2)),
    ],
)
def test_studies_in_other_processes_use_up_their_budget(tmp_path: Path, kind: str, unit: str, pieces: int) -> None:
    def make(number: int) -> Runner:
        if kind.startswith("command"):
            return OneStepAtATime(kind.split()[1], tmp_path, number)
        return ProcessRunner(report_cost if "saves" in kind else report_cost_only, Checkpoints(tmp_path), workers=2)

    amount = 12 if unit == "epochs" else 12 * int(REPORTED_S)
    ledger = make_ledger(UNITS[unit].format(amount), 4, workers=2)
    ending = run(ledger, "sequential_halving", (make(number) for number in range(pieces)))
    # Besides the reported costs, real time is charged: thinking, and steps that a stop interrupted.
    require_used_up(ending, over_s=0.0 if unit == "epochs" else 0.01 * amount)
    assert ending.ledger.best is not None
