"""Online policies and the online tuner: the budget holds, runs end, and a run cut anywhere equals the whole one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Cost, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.core.values.randomness import stream
from shoestring.core.values.strict_json import dumps
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.stores.in_memory import MemoryStore
from shoestring.study.loop import Ending, run_in_memory
from shoestring.study.online import OnlineTuner
from shoestring.testing.ledger_stores import WatchedMemory

ONLINE = ["ce_gp_ucb", "tv_gp_ucb", "r_gp_ucb", "gp_ucb_bandit", "exp3s", "epsilon_greedy", "softmax", "ucb1"]
SPACES = [
    Space.from_configs([{"x": x / 10} for x in range(11)]),
    Space({"n": Int(1, 5), "c": Choice(["a", "b"]), "m": Int(1, 3, when={"c": "a"})}),
    Space({"x": Float(0, 1), "c": Choice(["a", "b"]), "m": Float(0, 1, when={"c": "a"})}),
]
QUERIES: list[dict[str, Any]] = [
    {},
    {"query": "bernoulli", "query_probability": 0.5},
    {"validate_at_most": "30%"},
    {"validate_at_most": "3 passes"},
    {"reward": "value"},
]
MODELS: list[dict[str, Any]] = [
    {},
    {"query": "lcb_ucb"},
    {"kappa": 0.7, "exact_covariance": True},
    {"acquisition": "ei"},
    {"forgetting_rate": None},
]


def draw_job_values(seed: int, chance_of_failure: float) -> Any:
    class Values:
        def step(self, config: Config, step: int) -> StepOutcome | None:
            rng = stream(seed, dumps(config), step)
            cost = Cost(train=float(rng.choice([0.5, 1.0, 2.0])), validate=float(rng.choice([0.0, 0.25])))
            if rng.random() < chance_of_failure:
                return (
                    StepOutcome(None, cost, failure="boom") if rng.random() < 0.5 else StepOutcome(float("inf"), cost)
                )
            return StepOutcome(float(rng.normal()), cost)

    return Values()


@st.composite
def studies(draw: st.DrawFn) -> tuple[StudyDefinition, Policy, Any]:
    name = draw(st.sampled_from(ONLINE))
    settings = draw(st.sampled_from(QUERIES))
    if name in ("ce_gp_ucb", "tv_gp_ucb"):
        settings = draw(st.sampled_from(MODELS)) | settings
    if "gp_ucb" in name:
        settings = {"n_starts": 2} | settings
    policy = policies.make(name, settings)
    amount = draw(st.integers(2, 30))
    text = draw(st.sampled_from([f"{amount} epochs", f"{amount}s", f"${amount} at 3600/h"]))
    definition = StudyDefinition(
        space=draw(st.sampled_from(SPACES)),
        budget=Budget(text),
        policy=name,
        settings=policies.settings_of(policy),
        seed=draw(st.integers(0, 2**32 - 1)),
        direction=draw(st.sampled_from(["min", "max"])),
        max_steps=draw(st.integers(1, 20)),
        prices=Prices(draw(st.sampled_from([0.0, 1 / 3, 1.0]))),
        workers=draw(st.integers(1, 3)),
    )
    return definition, policy, draw_job_values(draw(st.integers(0, 10**6)), draw(st.sampled_from([0.0, 0.03])))


def spend(ledger: Ledger, policy: Policy, curves: Any, cuts: list[int] | None = None) -> Ending:
    def look(grown: Ledger) -> None:
        assert len(grown) < 200
        if grown.budget.unit == "epochs":
            assert grown.spent + grown.reserved <= grown.budget.total

    store = WatchedMemory(look)
    ending = run_in_memory(ledger, policy, SimulatedRunner(curves, ledger.workers), store=store)
    if cuts is not None:
        cuts.extend(store.lengths)
    return ending


@examples(30, thorough=120)
@given(studies(), st.data())
def test_a_run_cut_anywhere_and_resumed_equals_the_whole_one(
    study: tuple[StudyDefinition, Policy, Any], data: st.DataObject
) -> None:
    definition, policy, curves = study
    cuts = [1]
    uncut = spend(Ledger([definition]), policy, curves, cuts)
    assert len(uncut.ledger.trials) <= 1
    assert uncut.ledger.spent <= uncut.ledger.budget.total * (1 + 1e-9)
    cut = data.draw(st.sampled_from(cuts), label="cut after entry")
    resumed = spend(uncut.ledger.fork(cut), policy, curves)
    assert resumed.ledger.entries() == uncut.ledger.entries()


def job(
    store: MemoryStore,
    seed: int,
    policy: str,
    settings: dict[str, Any],
    space: Space,
    done: int,
    kill_after: int | None,
) -> list[tuple[int, str, bool]]:
    """Train to the end, or for some rounds, of which the last is interrupted; return [(round, config, validated)]."""
    tuner = OnlineTuner(
        space, 12, policy=policy, settings=settings, store=store, seed=seed, done_rounds=done, clock=lambda: 0.0
    )
    trained: list[tuple[int, str, bool]] = []
    while (config := tuner.next()) is not None:
        if kill_after is not None and len(trained) == kill_after:
            return trained
        value = float(stream(seed, dumps(config), tuner.round).normal())
        trained.append((tuner.round, dumps(config), tuner.should_validate))
        if tuner.should_validate:
            tuner.tell(value)
    return trained


@examples(15, thorough=60)
@given(
    st.integers(0, 2**16),
    st.sampled_from(ONLINE),
    st.sampled_from(QUERIES[:2]),
    st.sampled_from(SPACES),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4),
)
def test_a_job_that_is_killed_repeatedly_finds_the_same_schedule(
    seed: int, policy: str, settings: dict[str, Any], space: Space, kills: list[tuple[int, int]]
) -> None:
    settings = {"n_starts": 2} | settings if "gp_ucb" in policy else settings
    whole = job(MemoryStore(), seed, policy, settings, space, 0, None)
    store, done = MemoryStore(), 0
    validated_rounds: set[int] = set()
    for rounds, n_lost in [*kills, (None, 0)]:
        trained = job(store, seed, policy, settings, space, done, rounds)
        for round, config, validated in trained:
            assert config == whole[round - 1][1]
            assert not (validated and round in validated_rounds)  # no round is validated twice
            validated_rounds |= {round} if validated else set()
        reached = done + len(trained)
        done = max(0, reached - n_lost)
    assert validated_rounds == {round for round, _, validated in whole if validated}
    assert reached == 12
