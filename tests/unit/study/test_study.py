"""Studies from Python: tune, continue, ask and tell, read results. Wrong arguments are one-line errors and write nothing."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring import Choice, Float, Int, Prices, Report, ShoestringError, Space, Study, policies, tune
from shoestring.core.deciding.decision import Decision, Finish, Train
from shoestring.core.deciding.policy import find_untried_config
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import (
    BudgetError,
    PolicyError,
    RunnerError,
    SpaceError,
    StudyError,
    StudyInUse,
    TrainingFailed,
)
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.sql import SqlStore
from shoestring.testing.curves import DecayingCurves

SPACE = Space({"lr": Float(1e-4, 1.0, log=True), "n": Int(1, 9)})


def loss(config: Any) -> float:
    return float((math.log10(config["lr"]) + 2) ** 2 + config["n"])


def curve(config: Any) -> Iterator[float]:
    step = 0
    while True:
        step += 1
        yield loss(config) / step


class Trainer:
    def __init__(self, config: Any) -> None:
        self.config, self.steps = config, 0

    def step(self) -> float:
        self.steps += 1
        return loss(self.config) + abs(self.steps - 2)  # best at step 2

    def save(self, path: Path) -> None:
        path.write_text(str(self.steps))

    def load(self, path: Path) -> None:
        self.steps = int(path.read_text())


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Return a function that opens the same store again, as another process would."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    return lambda: SqlStore(f"sqlite:///{tmp_path}/store.db")


# tune ----------------------------------------------------------------------------------------------------------------


def test_a_function_is_tuned() -> None:
    study = tune(loss, SPACE, "30 epochs", seed=1)
    assert study.spent == 30
    assert len(study.trials) == 30
    assert study.best is not None
    assert study.best.value == min(trial.best_loss for trial in study.trials) == loss(study.best.config)
    assert (study.best.step, study.best.checkpoint) == (1, None)
    assert study.ending is not None
    assert study.ending.reason == "budget"


def test_a_generator_is_tuned_in_a_space_from_a_plain_dict() -> None:
    space = {"lr": {"float": [1e-4, 1.0], "log": True}, "n": {"int": [1, 9]}}
    study = tune(curve, space, "20 epochs", max_steps=4, policy="random_search", seed=0)
    assert [trial.steps for trial in study.trials] == [4] * 5
    assert study.best is not None
    assert study.best.step == 4


def test_larger_values_are_better_with_direction_max() -> None:
    study = tune(loss, SPACE, "20 epochs", direction="max", policy="random_search")
    assert study.best is not None
    assert study.best.value == max(value for trial in study.trials for value in trial.values if value is not None)


def test_the_best_checkpoint_is_of_exactly_the_best_step(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    study = tune(Trainer, SPACE, "12 epochs", max_steps=4, policy="random_search", store=store, seed=3)
    assert study.best is not None
    assert study.best.step == 2
    assert study.best.checkpoint is not None
    assert study.best.checkpoint.read_text() == "2"
    assert study.best.checkpoint.parent.name == f"trial-{study.best.trial:04d}"
    assert Study.open(store=store).best == study.best


def test_studies_in_memory_have_separate_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = tune(Trainer, SPACE, "8 epochs", max_steps=4, policy="random_search", seed=1)
    second = tune(Trainer, SPACE, "8 epochs", max_steps=4, policy="random_search", seed=2)
    assert first.best is not None
    assert second.best is not None
    assert first.best.checkpoint is not None
    assert second.best.checkpoint is not None
    assert first.best.checkpoint != second.best.checkpoint
    assert Study.open(store=first.store).checkpoints == first.checkpoints


def test_initial_configs_come_first() -> None:
    mine = [{"lr": 0.5, "n": 9}, {"lr": 0.25, "n": 8}]
    study = tune(loss, SPACE, "5 epochs", initial=mine)
    assert [trial.config for trial in study.trials[:2]] == mine


@dataclass(frozen=True)
class Unregistered:
    """A policy that is not registered: only its object exists."""

    stop_after: int = 2
    name: ClassVar[str] = "unregistered"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        config = find_untried_config(ledger)
        if config is None or len(ledger.trials) >= self.stop_after:
            return Finish("enough")
        return Train(trial=len(ledger.trials), config=config, until=1, why={"score": 0.5})


def test_a_policy_object_is_used_unchanged() -> None:
    with pytest.warns(
        UserWarning,
        match=r"unregistered .*enough, 5 epochs of 9 epochs",
    ):
        study = tune(loss, SPACE, "9 epochs", policy=Unregistered(stop_after=4))
    assert len(study.trials) == 4
    assert study.ledger.state.settings == {"stop_after": 4}
    study = Study.begin(SPACE, "9 epochs", policy=Unregistered(stop_after=1))
    assert study.ask() is not None


class Plain:
    """A policy with only the required attributes."""

    name = "plain"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        config = find_untried_config(ledger)
        assert config is not None
        return Train(trial=len(ledger.trials), config=config, until=1)


def test_an_unregistered_policy_is_passed_again(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/s.db"
    tune(loss, SPACE, "3 epochs", policy=Plain(), store=where)
    assert tune(loss, SPACE, "5 epochs", policy=Plain(), store=where).spent == 5
    assert tune(loss, SPACE, "6 epochs", policy=Plain(), store=where).ledger.state.policy == "plain"
    with pytest.raises(PolicyError, match=r"'plain' .*policy=Plain"):
        Study.open("study", where).ask()
    study = Study.begin(SPACE, "7 epochs", policy=Plain(), store=where)
    assert Study.open("study", where, policy=Plain()).ask() is not None
    for wrong, what in ((Unregistered(), "has the policy plain .*not unregistered"), ("asha", "not asha with")):
        with pytest.raises(PolicyError, match=what):
            Study.open("study", where, policy=wrong)  # type: ignore[arg-type]
    assert study.ledger.state.policy == "plain"
    Study.begin(SPACE, "9 epochs", name="by name", policy="random_search", store=where)
    assert Study.open("by name", where, policy="random_search").ask() is not None  # type: ignore[arg-type]


def test_a_name_belongs_to_one_policy() -> None:
    class Fake(Plain):
        name = "asha"

    with pytest.raises(PolicyError, match="belongs to another policy"):
        Study.begin(SPACE, "9 epochs", policy=Fake())


def test_settings_must_be_storable() -> None:
    @dataclass(frozen=True)
    class Odd(Plain):
        how: Any = print

    with pytest.raises(
        PolicyError, match=r"the setting 'how' of the policy plain cannot be stored in the ledger: .*use numbers"
    ):
        Study.begin(SPACE, "9 epochs", policy=Odd())


def test_the_best_config_of_a_trial_whose_config_changes() -> None:
    study = Study.begin(SPACE, "9 epochs", max_steps=3, policy=Unregistered())
    for number, (lr, value) in enumerate([(0.1, 1.0), (0.2, 5.0)]):
        order = Order(number=number, trial=0, config={"lr": lr, "n": 1}, until=number + 1)
        receipt = Receipt(order=number, trial=0, step=number + 1, value=value, saved_step=number + 1)
        study.journal.append_newest(lambda ledger, entries=(order, receipt): entries)  # type: ignore[misc]
    assert study.best is not None
    assert study.best.config == {"lr": 0.1, "n": 1}


# wrong arguments ----------------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], type[ShoestringError], list[str]]] = [
    ({"budget": "lots"}, BudgetError, ["'lots'"]),
    (
        {"budget": "1 epoch", "prices": Prices(1.0)},
        BudgetError,
        ["the budget 1 epoch is too small", "one step with its validation costs 2", "raise it to that at least"],
    ),
    ({"space": {}}, SpaceError, ["empty", "at least one parameter"]),
    ({"space": None}, SpaceError, ["None"]),
    ({"space": {"lr": {"flaot": [0, 1]}}}, SpaceError, ["lr", "'flaot'", "'float'"]),
    ({"policy": "sequental_halving"}, PolicyError, ["'sequental_halving'", "'sequential_halving'"]),
    ({"policy": 5}, PolicyError, ["policy=5"]),
    ({"policy": "asha", "settings": {"reduction": 3}}, PolicyError, ["asha", "'reduction'", "'reduction_factor'"]),
    ({"policy": "asha", "settings": {"reduction_factor": 1}}, PolicyError, ["asha(reduction_factor=1)"]),
    (
        {"policy": Unregistered(), "settings": {"stop_after": 3}},
        PolicyError,
        ["{'stop_after': 3}", "Unregistered(stop_after=2)"],
    ),
    ({"direction": "down"}, StudyError, ["direction='down'", "'min'", "'max'"]),
    ({"metric": ""}, StudyError, ["metric=''", "1 to 60 printable characters"]),
    ({"metric": "a\nb"}, StudyError, ["metric='a\\nb'", "one line"]),
    ({"metric": 3}, StudyError, ["metric=3"]),
    ({"max_steps": 0}, StudyError, ["max_steps=0"]),
    ({"workers": 0}, StudyError, ["workers=0"]),
    ({"seed": -1}, StudyError, ["seed=-1"]),
    ({"initial": [{"lr": 7.0, "n": 1}]}, SpaceError, ["lr = 7.0", "0.0001", "1.0"]),
    ({"initial": [{"lr": 0.1}]}, SpaceError, ["n is", "{'lr': 0.1}"]),
    ({"runner": "locl"}, RunnerError, ["unknown runner 'locl'. Did you mean 'local'?"]),
    (
        {"runner": "local", "workers": 2},
        RunnerError,
        ["the local runner has one worker, not 2: leave runner='local' out, or give runner='process'"],
    ),
    ({"live": 0}, RunnerError, ["live=0"]),
    ({"checkpoints_at_most": "much"}, RunnerError, ["'much'", "500MB"]),
    ({"deadline": "soon"}, BudgetError, ["deadline", "'soon'"]),
    ({"train": 5}, RunnerError, ["5", "step()"]),
    ({"train": lambda: 1.0}, RunnerError, ["<lambda>", "(config, context)"]),
    (
        {"train": loss, "max_steps": 7},
        RunnerError,
        ["max_steps=7 needs a generator or a class: a plain function has one step"],
    ),
    ({"max_steps": None}, RunnerError, ["max_steps=20"]),
]


@pytest.mark.parametrize(
    ("change", "error", "expected"), WRONG, ids=[f"{i}-{next(iter(wrong[0]))}" for i, wrong in enumerate(WRONG)]
)
def test_wrong_arguments_are_one_line_errors_and_write_nothing(
    change: dict[str, Any], error: type[ShoestringError], expected: list[str], tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    words = {"train": curve, "space": SPACE, "budget": "9 epochs", "max_steps": 3, "store": store, **change}
    with pytest.raises(error) as caught:
        tune(words.pop("train"), words.pop("space"), words.pop("budget"), **words)
    assert "\n" not in str(caught.value)
    for word in expected:
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []


junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)


@examples(100, thorough=300)
@given(st.one_of(junk, st.sampled_from(sorted(policies.REGISTRY))), junk, junk)
def test_wrong_settings_raise_only_our_own_errors(name: Any, names: Any, value: Any) -> None:
    all_settings: list[Any] = [names, {"x": value}]
    if isinstance(name, str) and name in policies.REGISTRY:
        all_settings += [{setting: value} for setting in policies.defaults_of(name)]
    for settings_tried in all_settings:
        with contextlib.suppress(ShoestringError):
            policies.make(name, settings_tried)


# continuing ---------------------------------------------------------------------------------------------------------


def test_the_same_call_again_continues(reopen: Callable[[], Any]) -> None:
    def again(budget: str, **more: Any) -> Study:
        return tune(loss, SPACE, budget, store=reopen(), policy="random_search", **more)

    first = again("5 epochs", seed=4)
    assert again("5 epochs").ledger.entries() == first.ledger.entries()  # the budget is spent, so nothing is written
    second = again("9 epochs")
    assert (second.spent, second.ledger.definition.seed) == (9, 4)
    whole = tune(loss, SPACE, "9 epochs", policy="random_search", seed=4)
    assert [trial.config for trial in second.trials] == [trial.config for trial in whole.trials]
    for change, message in (
        ({"seed": 5}, r"\bseed 4\b.*\b5\b"),
        ({"direction": "max"}, "'min'.*'max'"),
        ({"prices": Prices(1.0)}, r"\b0 epochs .*\b1\b"),
    ):
        with pytest.raises(StudyError, match=message):
            again("9 epochs", **change)
    with pytest.raises(StudyError, match=r"\b8 epochs .*\b9 epochs\b"):
        again("8 epochs")
    with pytest.raises(StudyError, match=r"epochs.*seconds"):
        again("8h")
    with pytest.raises(StudyError, match=r"\blr\b"):
        tune(loss, Space({"lr": Float(0, 1), "n": Int(1, 9)}), "9 epochs", store=reopen())
    assert reopen().load("study").entries() == second.ledger.entries()


def test_another_policy_is_amended(reopen: Callable[[], Any]) -> None:
    tune(loss, SPACE, "5 epochs", store=reopen(), policy="random_search")
    study = tune(loss, SPACE, "9 epochs", store=reopen(), policy="asha", settings={"reduction_factor": 2})
    assert (study.ledger.state.policy, study.ledger.state.settings["reduction_factor"]) == ("asha", 2)
    assert sum(isinstance(entry, Amendment) for entry in study.ledger.entries()) == 1


def test_only_new_initial_configs_are_queued_when_a_study_continues(reopen: Callable[[], Any]) -> None:
    mine = [{"lr": 0.5, "n": 9}, {"lr": 0.25, "n": 8}, {"lr": 0.125, "n": 7}]
    tune(loss, SPACE, "1 epochs", store=reopen(), initial=mine[:2])
    study = tune(loss, SPACE, "4 epochs", store=reopen(), initial=mine)
    assert [trial.config for trial in study.trials[:3]] == mine
    assert len({tuple(sorted(trial.config.items())) for trial in study.trials}) == 4


def test_a_study_is_opened_by_its_name_or_if_it_is_the_only_one(reopen: Callable[[], Any]) -> None:
    with pytest.raises(StudyError, match="has no study: name another store"):
        Study.open(store=_with_tables(reopen))
    Study.begin(SPACE, "5 epochs", name="one", store=reopen())
    assert Study.open(store=reopen()).name == "one"
    Study.begin(SPACE, "5 epochs", name="two", store=reopen())
    with pytest.raises(StudyError, match=r"has 2 studies, one, two: name one of them, with name=…"):
        Study.open(store=reopen())
    assert Study.open("two", store=reopen()).name == "two"
    with pytest.raises(StudyError, match=r"no study 'tow'.*Did you mean 'two'\?"):
        Study.open("tow", store=reopen())


def _with_tables(reopen: Callable[[], Any]) -> Any:
    store = reopen()
    if isinstance(store, SqlStore):
        store.database.make_tables()
    return store


def test_only_one_may_run_a_study_at_a_time(reopen: Callable[[], Any]) -> None:
    study = Study.begin(SPACE, "5 epochs", store=reopen(), policy="random_search")
    with reopen().lease("study"), pytest.raises(StudyInUse, match="'study'"):
        study.run(SimulatedRunner(DecayingCurves()))
    assert study.run(SimulatedRunner(DecayingCurves())).reason == "budget"


def test_a_runner_is_closed_whatever_happens() -> None:
    class Fragile(SimulatedRunner):
        closed = False

        def wait(self, until: float) -> Any:
            raise RuntimeError("out of paper")

        def close(self, pause: bool = True) -> None:
            self.closed = True

    runner = Fragile(DecayingCurves())
    study = Study.begin(SPACE, "5 epochs", policy="random_search")
    with pytest.raises(RuntimeError, match="out of paper"):
        study.run(runner)
    assert runner.closed
    assert list(study.ledger.open_orders) == [0]  # the order was recorded, and the next run continues it
    assert study.run(SimulatedRunner(DecayingCurves())).ledger.spent == 5


def test_an_enqueued_config_is_tried_next(reopen: Callable[[], Any]) -> None:
    study = Study.begin(SPACE, "9 epochs", store=reopen(), policy="random_search")
    assert study.ask() is not None
    Study.open(store=reopen()).enqueue({"lr": 0.5, "n": 3})
    order = study.ask()
    assert order is not None
    assert order.config == {"lr": 0.5, "n": 3}
    with pytest.raises(ShoestringError, match="n = 30"):
        study.enqueue({"lr": 0.5, "n": 30})


# ask and tell --------------------------------------------------------------------------------------------------------


def test_ask_and_tell_until_the_budget_is_spent() -> None:
    study = Study.begin(SPACE, "12 epochs", max_steps=3, policy="random_search")
    while (order := study.ask()) is not None:
        for _ in range(study.trials[order.trial].resumable_step, order.until):
            study.tell(order, loss(order.config), cost_s=2.0)
    assert study.spent == 12
    assert study.ledger.state.by_kind["train"] == 24.0
    assert study.best is not None
    assert study.ask() is None


def test_reports_are_checked() -> None:
    study = Study.begin(SPACE, "12 epochs", max_steps=3, policy="random_search")
    order = study.ask()
    assert order is not None
    for value, cost_s, message in (
        ("good", None, "value='good' must be a number, or None if there is none: str is not a number"),
        (b"1", None, "value=b'1' must be a number"),
        (True, None, "value=True must be a number"),
        (np.complex128(1 + 2j), None, "must be a number, or None if there is none: a complex number has no order"),
        (10**5000, None, "value=a value of type int must be a number"),
        (1.0, -1.0, "cost_s=-1.0 must be seconds, 0 or more; leave it out to have them measured"),
        (1.0, math.nan, "cost_s=nan"),
        (1.0, math.inf, "cost_s=inf"),
    ):
        with pytest.raises(StudyError, match=message):
            study.tell(order, value, cost_s)  # type: ignore[arg-type]
    assert study.spent == 0
    study.tell(order, np.float32(0.5))  # type: ignore[arg-type]
    study.tell(order, failed="out of memory")
    trial = study.trials[order.trial]
    assert (trial.values, trial.failure, trial.resumable_step, study.spent) == ([0.5], "out of memory", 1, 2)
    with pytest.raises(StudyError, match="order 0"):
        study.tell(order, 1.0)
    assert study.spent == 2
    other = study.ask()
    assert other is not None
    study.tell(other, math.nan)
    assert study.trials[other.trial].diverged
    third = study.ask()
    assert third is not None
    study.tell(third)  # the step was ordered with validation, but no value is reported
    assert study.trials[third.trial].diverged


def test_setting_the_clock_of_the_machine_changes_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0, set_by_s=0.0)
    times = SimpleNamespace(time=lambda: 1e9 + clock.set_by_s + clock.now, monotonic=lambda: clock.now)
    monkeypatch.setattr("shoestring.study.ask.time", times)
    study = Study.begin(SPACE, "100s", max_steps=3, policy="random_search")
    order = study.ask()
    assert order is not None
    clock.now, clock.set_by_s = 2.0, 7200.0
    study.tell(order, 1.0)
    clock.now, clock.set_by_s = 4.0, -3600.0
    study.tell(order, failed="boom")
    assert study.ledger.state.by_kind["train"] == 4.0
    other = study.ask(give_up_after=1.0)
    assert other is not None
    clock.set_by_s = 7200.0
    study.ask(give_up_after=1.0)
    assert other.number in study.ledger.open_orders, "its time is not over"


def test_an_order_without_a_report_is_released(reopen: Callable[[], Any]) -> None:
    study = Study.begin(SPACE, "2 epochs", max_steps=2, policy="random_search", store=reopen())
    lost = study.ask()
    assert lost is not None
    other = Study.open(store=reopen())
    assert other.ask() is None
    assert other.ask(give_up_after="1h") is None
    again = other.ask(give_up_after=-1.0)
    assert again is not None
    assert again.trial in (0, 1)
    with pytest.raises(StudyError, match="order 0 is not open: all its steps were reported, or it was released"):
        study.tell(lost, 1.0)
    other.tell(again, 1.0)
    other.tell(again, 1.0)
    assert Study.open(store=reopen()).spent == 2


def test_several_handles_that_ask_stay_within_the_budget(reopen: Callable[[], Any]) -> None:
    Study.begin(SPACE, "40 epochs", max_steps=5, policy="random_search", store=reopen(), seed=1)
    handles = [Study.open(store=reopen()) for _ in range(4)]
    open_orders: list[tuple[Study, Order]] = []
    rng = np.random.default_rng(0)
    reported = 0
    while True:
        handle = handles[rng.integers(4)]
        if rng.random() < 0.4 and (order := handle.ask()) is not None:
            open_orders.append((handle, order))
        elif open_orders:
            handle, order = open_orders[rng.integers(len(open_orders))]
            handle.tell(order, loss(order.config))
            reported += 1
            if order.number not in handle.ledger.open_orders:
                open_orders.remove((handle, order))
        elif handle.ask() is None:
            break
        now = Study.open(store=reopen()).ledger
        assert now.spent + now.reserved <= 40
    assert reported == 40
    final = Study.open(store=reopen())
    assert final.spent == 40
    assert [order.number for order in final.ledger.orders] == list(range(len(final.ledger.orders)))


def test_threads_that_ask_share_one_database(tmp_path: Path) -> None:
    """Compare-and-swap under contention: after a conflict the policy is asked again, and the budget is kept."""
    address = f"sqlite:///{tmp_path}/store.db"
    started = threading.Barrier(4)
    errors: list[BaseException] = []

    def ask_and_tell() -> None:
        try:
            started.wait(timeout=60)
            study = Study.begin(SPACE, "24 epochs", max_steps=3, policy="random_search", store=address)
            while (order := study.ask()) is not None:
                while order.number in study.ledger.open_orders:
                    study.tell(order, loss(order.config))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask_and_tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert errors == []
    ledger = Study.open(store=address).ledger
    assert (ledger.spent, ledger.reserved) == (24, 0)
    assert all(None not in trial.values for trial in ledger.trials)


# results -------------------------------------------------------------------------------------------------------------


def test_explain_gives_the_order_and_its_reason() -> None:
    study = Study.begin(SPACE, "9 epochs", policy=Unregistered(stop_after=9))
    with pytest.raises(StudyError, match="no order 0: the study 'study' has no orders yet"):
        study.explain(0)
    study.run(SimulatedRunner(DecayingCurves()))
    assert study.explain(3).why == {"score": 0.5}
    assert study.explain(3).trial == 3
    with pytest.raises(StudyError, match="no order 9: the study 'study' has orders 0 to 8"):
        study.explain(9)


def test_to_frame_has_a_row_for_each_step() -> None:
    pandas = pytest.importorskip("pandas")
    space = Space({"o": Choice(["a", "b"]), "m": Float(0, 1, when={"o": "a"})})
    study = tune(lambda config: 0.5, space, "6 epochs", policy="random_search", seed=0)
    frame = study.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 6
    assert frame["value"].tolist() == [0.5] * 6
    assert frame["config.m"].isna().sum() == 1  # inactive where o is b
    assert set(frame["status"]) == {"ok"}


def test_best_is_none_before_the_first_value() -> None:
    study = Study.begin(SPACE, "9 epochs")
    assert study.best is None
    with pytest.raises(TrainingFailed, match="'study' has no result: no value was reported; check what") as caught:
        tune(lambda config: Report(None), SPACE, "40 epochs")
    failing = caught.value.study
    assert failing.best is None
    assert failing.spent == 3  # more trials of the same code would not report a value either
    assert failing.ending is not None
    assert (failing.ending.reason, failing.ending.text) == ("failing", "no value was reported")


def test_amendments_are_checked_by_the_ledger() -> None:
    study = tune(loss, SPACE, "4 epochs", policy="random_search")
    with pytest.raises(StudyError, match=r"\b3 epochs .*\b4 epochs\b"):
        study.amend(Amendment(budget=Budget("3 epochs")))
    study.amend(Amendment(budget=Budget("5 epochs")))
    assert study.ledger.left == 1


def test_other_training_code_makes_another_study(tmp_path: Path) -> None:
    def begin(kind: str, where: str | list[str], budget: str = "9 epochs") -> Study:
        space = {"lr": {"float": [0.1, 1.0]}}
        target = {"kind": kind, "where": where}
        return Study.begin(space, budget, store=f"sqlite:///{tmp_path}/s.db", name="s", target=target)

    begin("python", "train.py:train")
    begin("python", "src/train.py:train", "12 epochs")  # the same file from another folder
    with pytest.raises(
        StudyError, match=r"'s' trains train.py:train, not train.py:Model; start another study, with name=…"
    ):
        begin("python", "train.py:Model")
    with pytest.raises(StudyError, match=r"trains train.py:train, not a command"):
        begin("command", ["./train.sh"])
    with pytest.raises(
        StudyError, match="'s' has a budget in epochs, not in seconds: keep the unit, or start another study"
    ):
        begin("python", "train.py:train", "9s")


def test_threads_may_ask_and_tell_through_one_study(reopen: Callable[[], Any]) -> None:
    study = Study.begin(SPACE, "100 epochs", store=reopen(), policy="random_search", seed=0)
    errors: list[ShoestringError] = []

    def train() -> None:
        try:
            while (order := study.ask()) is not None:
                study.tell(order, value=loss(order.config))
        except ShoestringError as error:
            errors.append(error)

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert (study.spent, len(study.trials)) == (100.0, 100)


def test_a_study_can_be_used_after_an_append_that_was_interrupted(reopen: Callable[[], Any]) -> None:
    study = Study.begin(SPACE, "5 epochs", store=reopen(), policy="random_search", seed=0)
    study.store.append(study.name, study.ledger, Amendment(workers=2))  # stored, but the journal does not know it
    assert study.ledger.workers == 2
    assert len(study.ledger) == 2


def test_another_thread_may_enqueue_while_a_runner_starts(reopen: Callable[[], Any]) -> None:
    study = Study.begin(SPACE, "5 epochs", store=reopen(), policy="random_search", seed=0)
    thread = threading.Thread(target=study.enqueue, args=({"lr": 0.5, "n": 3},))

    class SlowStart(SimulatedRunner):
        def start(self, ledger: Ledger) -> Any:
            thread.start()
            thread.join(0.2)
            return super().start(ledger)

    assert study.run(SlowStart(DecayingCurves())).reason == "budget"
    thread.join()
    assert {"lr": 0.5, "n": 3} in [trial.config for trial in study.trials] + list(study.ledger.queue)
