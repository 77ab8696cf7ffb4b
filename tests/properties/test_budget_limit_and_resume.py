"""With a hostile policy the budget holds, and a study cut anywhere and resumed equals the whole one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.deciding.decision import Decision, Finish, Train, Wait
from shoestring.core.deciding.policy import Policy, find_untried_config
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Cost, Note, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.core.values.randomness import stream
from shoestring.core.values.strict_json import dumps
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.study.loop import Ending, run_in_memory
from shoestring.testing.ledger_stores import WatchedMemory

SPACE = Space({"x": Float(0, 1), "n": Int(1, 50), "c": Choice(["a", "b"]), "m": Float(0, 1, when={"c": "a"})})


@dataclass(frozen=True)
class Hostile:
    """Makes random decisions that the rules allow, including `Finish` and `Wait`."""

    name: ClassVar[str] = "hostile"
    boldness: float = 0.5

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.open_orders and rng.random() < 0.1:
            return Wait()
        if rng.random() < 0.01:
            return Finish("tired")
        free = [t for t in ledger.trials if t.open_order is None and t.steps < t.limit]
        validate: Any = ("each", "last", "none")[rng.integers(3)]
        if free and rng.random() < self.boldness:
            trial = free[rng.integers(len(free))]
            until = trial.steps + int(rng.integers(1, 2 * ledger.max_steps + 1))
            config = trial.config if rng.random() < 0.5 else find_untried_config(ledger)
            return Train(trial=trial.number, config=config or trial.config, until=until, validate=validate)
        config = find_untried_config(ledger)
        assert config is not None
        return Train(
            trial=len(ledger.trials), config=config, until=int(rng.integers(1, 100)), validate=validate, why={"u": 1.0}
        )


@dataclass(frozen=True)
class AnyCurves:
    """Curves with values, divergences, failures, early ends and costs, drawn for each step."""

    seed: int
    chance_of_failure: float

    def step(self, config: Config, step: int) -> StepOutcome | None:
        rng = stream(self.seed, dumps(config), step)
        cost = Cost(setup=float(rng.random() < 0.1), train=float(rng.choice([0.0, 0.25, 1.0, 1.0, 3.0])), validate=0.5)
        if rng.random() < self.chance_of_failure:
            kind = rng.integers(5)
            if kind == 0:
                return StepOutcome(None, cost, failure="boom")
            if kind == 1:
                return None
            return StepOutcome([math.nan, math.inf, None][kind - 2], cost)
        return StepOutcome(float(rng.normal()), cost)


class Forgetful(SimulatedRunner):
    """A runner that loses the state of some trials whenever it is started."""

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        resumable_step = super().start(ledger)
        rng = stream(len(ledger), "forget")
        return {
            trial: int(rng.integers(step + 1)) if step and rng.random() < 0.5 else step
            for trial, step in resumable_step.items()
        }


@st.composite
def studies(draw: st.DrawFn, unit: str | None = None) -> tuple[StudyDefinition, Hostile, AnyCurves]:
    unit = unit or draw(st.sampled_from(["epochs", "seconds", "dollars"]))
    amount = draw(st.integers(1, 120))
    text = {"epochs": f"{amount + 2} epochs", "seconds": f"{amount}s", "dollars": f"${amount} at 3600/h"}[unit]
    definition = StudyDefinition(
        space=SPACE,
        budget=Budget(text),
        policy="hostile",
        settings={},
        seed=draw(st.integers(0, 2**32 - 1)),
        direction=draw(st.sampled_from(["min", "max"])),
        max_steps=draw(st.integers(1, 12)),
        prices=Prices(draw(st.sampled_from([0.0, 0.1, 1 / 3, 1.0]))),
        workers=draw(st.integers(1, 5)),
    )
    return (
        definition,
        Hostile(draw(st.floats(0, 1))),
        AnyCurves(draw(st.integers(0, 10**6)), draw(st.sampled_from([0, 0.1, 0.5]))),
    )


def spend(ledger: Ledger, policy: Policy, runner: SimulatedRunner, cuts: list[int] | None = None) -> Ending:
    """Run in memory, and check the budget limit after each entry.

    `cuts` collects the lengths that the ledger of a killed process can have: a store appends all entries of a call or none.
    """

    def look(grown: Ledger) -> None:
        assert grown.spent >= 0
        assert grown.reserved >= 0
        if grown.budget.unit == "epochs":
            assert grown.spent + grown.reserved <= grown.budget.total

    store = WatchedMemory(look)
    ending = run_in_memory(ledger, policy, runner, store=store)
    if cuts is not None:
        cuts.extend(store.lengths)
    return ending


def summary_of(ledger: Ledger) -> Any:
    """Return everything that must not depend on where a study was cut."""
    best = ledger.best
    orders = [(o.trial, dumps(o.config), o.until, o.validate) for o in ledger.orders]
    return orders, ledger.spent, None if best is None else (best.number, best.best_step, best.best_loss)


@examples(120, thorough=1000)
@given(studies(), st.data())
def test_a_study_cut_anywhere_and_resumed_equals_the_whole_one(
    study: tuple[StudyDefinition, Hostile, AnyCurves], data: st.DataObject
) -> None:
    definition, policy, curves = study
    cuts = [1]
    uncut = spend(Ledger([definition]), policy, SimulatedRunner(curves, definition.workers), cuts)
    if uncut.reason == "failing":  # a study that was stopped for its failures tries again when it is started again
        cuts = [length for length in cuts if length < len(uncut.ledger)]
    cut = data.draw(st.sampled_from(cuts), label="cut after entry")
    resumed = spend(uncut.ledger.fork(cut), policy, SimulatedRunner(curves, definition.workers))
    assert summary_of(resumed.ledger) == summary_of(uncut.ledger)
    assert resumed.ledger.entries() == uncut.ledger.entries()


@examples(60, thorough=500)
@given(studies(unit="epochs"), st.data())
def test_lost_states_cost_no_epochs_and_change_no_decision(
    study: tuple[StudyDefinition, Hostile, AnyCurves], data: st.DataObject
) -> None:
    definition, policy, curves = study
    cuts = [1]
    uncut = spend(Ledger([definition]), policy, SimulatedRunner(curves, definition.workers), cuts)
    cut = data.draw(st.sampled_from(cuts), label="cut after entry")
    resumed = spend(uncut.ledger.fork(cut), policy, Forgetful(curves, definition.workers))
    # With one worker receipts come in the same order; failures at repeated steps are charged again, so there are none here.
    if definition.workers == 1 and curves.chance_of_failure == 0:
        assert summary_of(resumed.ledger) == summary_of(uncut.ledger)


@examples(40, thorough=300)
@given(studies(), st.data())
def test_views_computed_at_once_equal_views_carried_forward(
    study: tuple[StudyDefinition, Hostile, AnyCurves], data: st.DataObject
) -> None:
    definition, policy, curves = study
    ledger = spend(Ledger([definition]), policy, SimulatedRunner(curves, definition.workers)).ledger
    step = data.draw(st.integers(1, definition.max_steps))
    carried = Ledger(ledger.entries()[:1])
    for entry in ledger.entries()[1:]:
        carried.losses_at(step)
        carried = carried.append(entry)
    at_once = Ledger(ledger.entries())
    assert carried.state == at_once.state == ledger.state
    assert carried.losses_at(step) == at_once.losses_at(step)
    fork = ledger.fork(data.draw(st.integers(1, len(ledger))))
    assert fork.state == Ledger(fork.entries()).state


@examples(40, thorough=200)
@given(studies())
def test_budgets_of_time_are_held(study: tuple[StudyDefinition, Hostile, AnyCurves]) -> None:
    """The simulated runner cuts steps off at the exact moment, so only rounding errors exceed the budget."""
    definition, policy, curves = study
    ledger = spend(Ledger([definition]), policy, SimulatedRunner(curves, definition.workers)).ledger
    assert ledger.spent <= ledger.budget.total * (1 + 1e-9) + 1e-9


def test_two_proposals_on_one_ledger_are_independent() -> None:
    definition = StudyDefinition(space=SPACE, budget=Budget("9 epochs"), policy="hostile", settings={}, seed=1)
    first = Ledger([definition])
    before = len(first.queue)
    second = first.propose(Note(topic="enqueue", facts={"config": {"x": 0.5, "n": 1, "c": "b"}}))
    third = first.propose(Note(topic="enqueue", facts={"config": {"x": 0.1, "n": 2, "c": "b"}}))
    assert (len(first.queue), len(second.queue), len(third.queue)) == (before, 1, 1)
    assert second.queue != third.queue
