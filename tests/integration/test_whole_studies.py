"""Whole studies use their budget up, on every runner and in every unit, and never go over it.

Used up: at least 97 % is spent, or what is left pays for no step that anybody could buy. No test here depends on how fast the
machine is: steps move a clock of their own, or say themselves what they cost.
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
from shoestring.core.ledger.entries import Cost, Opened, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.runners import runner as runner_module
from shoestring.runners.checkpoints import checkpoints
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.command.command_runner import Commands
from shoestring.runners.local import local_runner as local
from shoestring.runners.local.local_runner import Local
from shoestring.runners.process.process_runner import Processes
from shoestring.runners.runner import News, Runner
from shoestring.runners.simulated.simulated_runner import Simulated, StepOutcome
from shoestring.runners.training import code as training
from shoestring.runners.training.code import Context, Report
from shoestring.study import loop
from shoestring.study.decide import REST, Thinking
from shoestring.study.loop import Ending, run_in_memory

SPACE = Space({"x": Float(0, 1), "y": Float(0, 1)})
POLICIES = ("sequential_halving", "random_search", "asha", "hyperband", "top_k_after_one")
WITH_A_MODEL = ("bhpt", "cost_aware_ei", "thrift")
UNITS = {"epochs": "{} epochs", "seconds": "{}s", "dollars": "${} at 3600/h"}  # one of each is one step of one second
ENOUGH = 0.97


def loss_at(config: Config, step: int) -> float:
    return float(abs(config["x"] - 0.3) + 0.1 * config["y"] + 1.0 / step)


@dataclass(frozen=True)
class Code:
    """What training costs, in seconds, as simulated curves."""

    step_s: Callable[[Config], float] = lambda config: 1.0
    setup_s: float = 0.0

    def step(self, config: Config, step: int) -> StepOutcome:
        cost = Cost(setup=self.setup_s if step == 1 else 0.0, train=self.step_s(config))
        return StepOutcome(loss_at(config, step), cost)


EVEN = Code()
SPREAD = Code(step_s=lambda config: 10 ** (3 * config["x"] - 2))  # 0.01 to 10 s
SLOW_TO_START = Code(step_s=lambda config: 0.5, setup_s=5.0)


def make_ledger(budget: str, max_steps: int, workers: int = 1) -> Ledger:
    opened = Opened(
        space=SPACE, budget=Budget(budget), policy="p", settings={}, seed=3, max_steps=max_steps, workers=workers
    )
    return Ledger([opened])


def run(ledger: Ledger, policy: str, runners: Iterable[Runner]) -> Ending:
    """To its end; every runner but the last is stopped after a while, and the next one takes the study up."""
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
        price_next(ledger, trial.step_costs) for trial in ledger.trials if trial.can_go_on and trial.step_costs
    ]
    begun = [trial.step_costs[0] * rate_of(ledger) for trial in ledger.trials if trial.step_costs]
    cheapest = min(
        [*next_steps, max(begun)]
    )  # nobody knows what a newcomer would cost: as much as the dearest, perhaps
    assert ledger.spent >= ENOUGH * total or total - ledger.spent <= cheapest, ending.text


def price_next(ledger: Ledger, step_costs: list[float]) -> float:
    """Of a trial's next step, as its dearest one so far but the first, in which it was set up."""
    return max(step_costs[1:] or step_costs) * rate_of(ledger)


def rate_of(ledger: Ledger) -> float:
    return ledger.budget.per_second(ledger.workers) if ledger.budget.unit != "epochs" else 1.0 / max(1.0, ledger.spent)


# simulated -----------------------------------------------------------------------------------------------------------


@pytest.mark.repeated
@pytest.mark.parametrize("policy", [*POLICIES, *WITH_A_MODEL])
@pytest.mark.parametrize("code", [EVEN, SPREAD, SLOW_TO_START], ids=["even", "spread", "slow to start"])
def test_simulated(policy: str, code: Code) -> None:
    sizes = [(20, 5)] if policy in WITH_A_MODEL else [(100, 9), (100, 50), (20, 5)]
    shared = [("epochs", 1), ("seconds", 3), ("dollars", 1)]  # each unit, one worker and several
    shared = [*itertools.product(UNITS, (1, 3))] if Thoroughness.is_thorough else shared
    for (amount, max_steps), (unit, workers) in itertools.product(sizes, shared):
        ledger, runner = make_ledger(UNITS[unit].format(amount), max_steps, workers), Simulated(code, workers)
        require_used_up(run(ledger, policy, [runner]))


def test_a_dear_wish_does_not_end_a_study_that_can_pay_for_something_else() -> None:
    """ASHA wants a newcomer that may cost 8 of the last 8 seconds, while a frozen trial goes on for a tenth of one."""
    ending = run(make_ledger("20s", 5), "asha", [Simulated(SPREAD)])
    assert ending.ledger.spent >= ENOUGH * 20
    last = ending.ledger.orders[-1]
    assert last.why["stage"] == REST
    assert last.why["score_name"] == "newest value"


def test_a_trial_that_was_set_up_is_not_priced_as_if_it_were_set_up_again() -> None:
    ledger = run(make_ledger("100s", 50), "successive_halving", [Simulated(SLOW_TO_START)]).ledger
    assert ledger.left < 0.5 + 1e-9, "another step of any trial costs half a second"


class BreaksAtStepThree:
    """Always, or for the configs named."""

    def __init__(self, breaks: Callable[[Config], bool] = lambda config: True) -> None:
        self._breaks = breaks

    def step(self, config: Config, step: int) -> StepOutcome:
        failure = f"RuntimeError: no place for batch {config['x']}" if step == 3 and self._breaks(config) else ""
        return StepOutcome(loss_at(config, step), Cost(train=1.0), failure)


def test_code_that_always_breaks_at_a_later_step_does_not_use_up_the_budget() -> None:
    ending = run(make_ledger("300 epochs", 20), "sequential_halving", [Simulated(BreaksAtStepThree())])
    assert (ending.reason, sum(trial.failures for trial in ending.ledger.trials)) == ("failing", 5)
    assert ending.text.startswith("RuntimeError")
    again = run(Ledger(ending.ledger.entries()), "sequential_halving", [Simulated(BreaksAtStepThree())]).ledger
    assert sum(trial.failures for trial in again.trials) == 10, "it may have been repaired: five more are borne"


def test_code_that_breaks_for_some_configs_uses_the_budget_up() -> None:
    code = BreaksAtStepThree(lambda config: bool(config["y"] < 0.5))
    ending = run(make_ledger("300 epochs", 20), "random_search", [Simulated(code)])
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
def test_in_this_process(
    clock: type[Clock], tmp_path: Path, policy: str, shape: Any, base: type[Steps], live: int | None
) -> None:
    """With slow and with quick saves, cut in two or not."""
    times, max_steps = shape
    slow = {"save_s": 0.2 * times["step_s"], "load_s": 0.2 * times["step_s"]}
    for (more, pieces), unit in itertools.product([({}, 1), (slow, 1), (slow, 2)], ("seconds", "dollars")):
        code: Any = type("Code", (base,), {**times, **more})
        folder = tmp_path / f"{unit}-{len(more)}-{pieces}"
        ledger, began_s = make_ledger(UNITS[unit].format(TOTAL_S), max_steps), clock.now_s
        ending = run(ledger, policy, [Local(code, Checkpoints(folder), live) for _ in range(pieces)])
        a_step_s = code.setup_s + code.load_s + code.step_s + 2 * code.save_s  # its own, and of one that is put away
        require_used_up(ending, over_s=a_step_s)
        assert ending.ledger.spent == pytest.approx(clock.now_s - began_s), "all time is charged, once"


@pytest.mark.parametrize("save_s", [0.0, 3.0])
def test_a_deadline_in_this_process_is_used_and_kept(clock: type[Clock], tmp_path: Path, save_s: float) -> None:
    code = type("Code", (SavingSteps,), {"save_s": save_s})
    ledger, runner = make_ledger("10000s", 9), Local(code, Checkpoints(tmp_path))
    ending = run_in_memory(ledger, policies.make("random_search", {}), runner, deadline_s=200.0)
    assert ending.reason == "deadline"
    assert ENOUGH * 200 <= clock.now_s <= 200 + 1.0 + save_s


def test_saving_at_the_end_does_not_go_over_the_budget(clock: type[Clock], tmp_path: Path) -> None:
    """A save that takes a fifth of the budget is not begun at the wall; nothing but the step itself goes over."""
    code = type("Code", (SavingSteps,), {"save_s": 20.0})
    ending = run(make_ledger("110s", 9), "sequential_halving", [Local(code, Checkpoints(tmp_path))])
    assert ending.ledger.spent <= 110.0 + 1.0 + 20.0
    before_s = clock.now_s
    stopped = Local(code, Checkpoints(tmp_path / "stopped"))
    run_in_memory(make_ledger("100s", 9), policies.make("random_search", {}), stopped, should_stop=_after(3))
    assert clock.now_s == before_s + 2 * 1.0 + 2 * 20.0, "stopped early there is money left for the newest"


# in other processes and as programs: they say what a step costs ------------------------------------------------------


SAID_S = 1000.0  # of a step: what it really takes is nothing beside it


def report_cost(config: Config, context: Context) -> Any:
    """Code that says what a step costs, and takes no time."""
    done = int(context.checkpoint.read_text()) if context.checkpoint else 0
    while True:
        done += 1

        def save(path: Path, done: int = done) -> None:
            path.write_text(str(done))

        yield Report(loss_at(config, done), cost=SAID_S, save=save if config["x"] >= 0 else None)


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
    print(json.dumps({{"value": value, "cost": {SAID_S}, "step": done, "saved": "saves" in sys.argv}}), flush=True)
"""


class OneStepAtATime(Commands):
    """Gives one program at a time leave to train a step, and the next one when the study has heard of it and goes on.

    A step that says it took a quarter of an hour takes no time here. Left alone, programs are steps ahead of the study by the
    time that it looks, the more so the busier the machine is, and all that they say has to be paid.
    """

    def __init__(self, saves: str, folder: Path, number: int) -> None:
        self._leaves, self._goals, self._has_leave = folder / f"leaves-{number}", dict[int, int](), False
        self._leaves.mkdir()
        super().__init__([sys.executable, "-S", "-c", COMMAND, saves, str(self._leaves)], SPACE, folder, workers=2)

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        self._goals[order.trial] = order.until
        super().submit(order, held, former)

    def wait(self, until: float) -> list[News]:
        if self._goals and not self._has_leave:
            trial = next(iter(self._goals))
            self._goals[trial] = self._goals.pop(trial)  # the others come first the next time
            (self._leaves / str(trial)).touch()
            self._has_leave = True
        news = super().wait(until)
        for receipt in (one for one in news if isinstance(one, Receipt)):
            self._has_leave = False
            if receipt.step >= self._goals[receipt.trial]:
                del self._goals[receipt.trial]
        return news


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
def test_elsewhere(tmp_path: Path, kind: str, unit: str, pieces: int) -> None:
    def make(number: int) -> Runner:
        if kind.startswith("command"):
            return OneStepAtATime(kind.split()[1], tmp_path, number)
        return Processes(report_cost if "saves" in kind else report_cost_only, Checkpoints(tmp_path), workers=2)

    amount = 12 if unit == "epochs" else 12 * int(SAID_S)
    ledger = make_ledger(UNITS[unit].format(amount), 4, workers=2)
    ending = run(ledger, "sequential_halving", (make(number) for number in range(pieces)))
    # Beside what it says it costs, time is charged that was spent in truth: thinking, and what a stop cut off.
    require_used_up(ending, over_s=0.0 if unit == "epochs" else 0.01 * amount)
    assert ending.ledger.best is not None
