"""The contract of a runner, as a check that its author can run.

The author of a runner calls `check_runner_contract(make, folder)` with a function that makes the runner for a folder. For the
same study, the runner must lead to the same orders and receipts as the simulated runner. The training code here is the same in
each form that runners accept: `Curve` for Python processes, `CurveSource` for the simulated runner, `COMMAND` for commands.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.decision import Decision, Finish, Train
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.runners.runner import Runner
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.runners.training.code import Context
from shoestring.study.journal import Journal
from shoestring.study.loop import Loop

MakeRunner = Callable[[Path], Runner]
SPACE = Space({"rate": {"float": [0.05, 0.9]}, "kind": {"choice": ["good", "bad"]}})
MAX_STEPS = 6
CONFIGS: tuple[Config, ...] = (
    {"rate": 0.3, "kind": "good"},
    {"rate": 0.5, "kind": "bad"},  # fails at step 3
    {"rate": 0.1, "kind": "good"},
    {"rate": 0.85, "kind": "good"},  # diverges at step 4
)
BROKEN = "broken on purpose"


def next_state(config: Config, state: float) -> float:
    """Return the loss after one more step. It falls by the rate; with a very high rate it becomes NaN."""
    state *= 1.0 - config["rate"]
    return math.nan if config["rate"] > 0.8 and state < 1e-3 else state


class Curve:
    """The training code as a class that can be saved and loaded."""

    def __init__(self, config: Config, context: Context) -> None:
        assert context.max_steps == MAX_STEPS
        self.config, self.state, self.done = config, 1.0, 0

    def step(self) -> float:
        if self.config["kind"] == "bad" and self.done == 2:
            raise RuntimeError(BROKEN)
        self.state = next_state(self.config, self.state)
        self.done += 1
        return self.state

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([self.done, self.state]), encoding="utf-8")

    def load(self, path: Path) -> None:
        self.done, self.state = json.loads(path.read_text(encoding="utf-8"))


class CurveSource:
    """The same training code as a source of curves for the simulated runner."""

    def step(self, config: Config, step: int) -> StepOutcome | None:
        state = 1.0
        for _ in range(step):
            state = next_state(config, state)
        failure = BROKEN if config["kind"] == "bad" and step == 3 else ""
        return StepOutcome(state, Cost(train=1.0), failure)


# The same training code as a command. It does not import this package, so that it starts quickly.
COMMAND = [
    sys.executable,
    "-S",
    "-c",
    f"""
import json, math, os, sys
environment = os.environ
assert environment["SHOESTRING_MAX_STEPS"] == "{MAX_STEPS}"
config = json.load(open(environment["SHOESTRING_CONFIG"]))
place = os.path.join(environment["SHOESTRING_CHECKPOINT"], "state.json")
done, state = json.load(open(place)) if os.path.exists(place) else (0, 1.0)
while done < int(environment["SHOESTRING_UNTIL"]):
    if config["kind"] == "bad" and done == 2:
        sys.exit("{BROKEN}")
    state *= 1.0 - config["rate"]
    state = math.nan if config["rate"] > 0.8 and state < 1e-3 else state
    done += 1
    with open(place + ".new", "w") as file:
        json.dump([done, state], file)
    os.replace(place + ".new", place)
    print(json.dumps({{"value": state, "step": done, "saved": True}}))
""",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """Trains each config for one step, then the best trial for one or two more steps; so trials are often paused and resumed."""

    name: ClassVar[str] = "greedy"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        trials = ledger.trials
        if len(trials) < len(CONFIGS):
            return Train(trial=len(trials), config=CONFIGS[len(trials)], until=1)
        open_to_more = [t for t in trials if not t.is_ended and t.open_order is None]
        if not open_to_more:
            return Finish("all trials are at their end")
        best = min(open_to_more, key=lambda t: (t.steps + t.last_loss * (1 + t.number), t.number))
        return Train(trial=best.number, config=best.config, until=best.steps + int(rng.integers(1, 3)))


def make_definition(budget: str = "15 epochs", workers: int = 1, seed: int = 7) -> StudyDefinition:
    return StudyDefinition(
        space=SPACE,
        budget=Budget(budget),
        policy="greedy",
        settings={},
        seed=seed,
        max_steps=MAX_STEPS,
        workers=workers,
    )


def run_study(runner: Runner, ledger: Ledger, stop_after: float = math.inf) -> Ledger:
    """Run a study until its budget is spent or it has `stop_after` entries, close the runner, and return the ledger."""
    journal = Journal.in_memory(ledger)
    with journal.store.lease(journal.name) as lease:
        Loop(journal, lease, Greedy(), runner, should_stop=lambda: len(journal.ledger) >= stop_after).run()
    return journal.ledger


def decisions(ledger: Ledger) -> list[tuple[int, int, str]]:
    """Return (trial, until, validate) of every order."""
    return [(order.trial, order.until, order.validate) for order in ledger.orders]


def outcomes(ledger: Ledger) -> list[tuple[object, ...]]:
    """Return (order, trial, step, value, status) of every step, from its first receipt."""
    seen: set[tuple[int, int]] = set()
    steps: list[tuple[object, ...]] = []
    for entry in ledger.entries():
        if isinstance(entry, Receipt) and (entry.trial, entry.step) not in seen:
            seen.add((entry.trial, entry.step))
            steps.append((entry.order, entry.trial, entry.step, repr(entry.value), entry.status))
    return steps


def check_runner_contract(make: MakeRunner, folder: Path, *, cuts: Sequence[int] = (4, 15)) -> None:
    """Check the whole contract of runners, for a runner with one worker.

    Parameters
    ----------
    make : callable
        Makes a runner for a folder.
    folder : Path
        An empty folder.
    cuts : sequence of int
        The numbers of entries after which the study is stopped and resumed.

    Raises
    ------
    AssertionError
        If the runner breaks the contract.
    """
    expected = run_study(SimulatedRunner(CurveSource()), Ledger([make_definition()]))
    check_parity(make, folder / "uncut", expected)
    check_continuing_study(make, folder / "cut", expected, cuts)
    check_submitting_twice(make, folder / "twice")
    check_former_configs(make, folder / "former")


def check_parity(make: MakeRunner, folder: Path, expected: Ledger) -> None:
    """Orders and outcomes equal those of the simulated runner; receipts have the texts of failures and no negative costs."""
    ledger = run_study(make(folder), Ledger([make_definition()]))
    assert decisions(ledger) == decisions(expected)
    assert outcomes(ledger) == outcomes(expected)
    assert ledger.spent == expected.spent
    receipts = [entry for entry in ledger.entries() if isinstance(entry, Receipt)]
    assert all(min(r.cost.setup, r.cost.train, r.cost.validate) >= 0 for r in receipts)
    assert all(BROKEN in r.text for r in receipts if r.status == "failed")
    clock = [receipt.at for receipt in receipts]
    assert clock == sorted(clock)


def check_continuing_study(make: MakeRunner, folder: Path, expected: Ledger, cuts: Sequence[int]) -> None:
    """A study that is stopped, and continued by a new runner in the same folder, has the same result as without the stop."""
    ledger = Ledger([make_definition()])
    for cut in (*cuts, math.inf):
        ledger = run_study(make(folder), Ledger(ledger.entries()), stop_after=cut)
    assert decisions(ledger) == decisions(expected)
    assert outcomes(ledger) == outcomes(expected)
    assert ledger.spent == expected.spent


def check_submitting_twice(make: MakeRunner, folder: Path) -> None:
    """Submitting an order a second time changes nothing; orders are identified by their numbers."""
    runner = make(folder)
    order = Order(number=0, trial=0, config=CONFIGS[0], until=2)
    ledger = Ledger([make_definition()])
    try:
        runner.start(ledger)
        ledger = ledger.append(order)
        runner.submit(order, 0)
        runner.submit(order, 0)
        assert set(runner.running()) == {0}
        while ledger.open_orders:
            for entry in runner.wait(math.inf):
                ledger = ledger.append(entry)
        assert [step for _, _, step, _, _ in outcomes(ledger)] == [1, 2]
        assert runner.running() == {}
        assert runner.wait(runner.now()) == []
    finally:
        runner.close()


def check_former_configs(make: MakeRunner, folder: Path) -> None:
    """If a trial loses its state, each step is trained again with the config that it had the first time."""
    rates = (0.3, 0.1, 0.1, 0.5)
    orders = [
        Order(number=n, trial=0, config={"rate": rates[until - 1], "kind": "good"}, until=until)
        for n, until in enumerate((1, 3, 4))
    ]
    ledger, state, values = Ledger([make_definition()]), 1.0, []
    for rate in rates:
        state = next_state({"rate": rate}, state)
        values.append(repr(state))
    for order in orders:
        ledger = ledger.append(order)
        shutil.rmtree(folder, ignore_errors=True)
        runner = make(folder)
        if runner.simulated:  # it loses nothing
            return
        try:
            resumable_step = runner.start(ledger).get(0, 0)
            if ledger.trials[0].resumable_step != resumable_step:
                ledger = ledger.append(StateLoss(trial=0, resumable_step=resumable_step))
            runner.submit(order, resumable_step, ledger.former_configs(0))
            while ledger.open_orders:
                for entry in runner.wait(math.inf):
                    ledger = ledger.append(entry)
                    assert not isinstance(entry, Receipt) or repr(entry.value) == values[entry.step - 1]
        finally:
            runner.close()
    assert [repr(value) for value in ledger.trials[0].values] == values
