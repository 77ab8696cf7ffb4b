"""Online tuning in the user's own loop: rounds, measured times, continuing a killed job, schedules."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Prices
from shoestring.core.space.parameters import Choice
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError, StudyError
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.stores.in_memory import MemoryStore
from shoestring.study.online import OnlineTuner, Schedule

ARMS = Space({"mode": Choice(["a", "b", "c"])})
GAINS = {"a": 0.1, "b": 1.0, "c": 0.4}


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Job:
    """A training job with its own clock: a round takes 2 s, a validation pass `validate_s`."""

    def __init__(
        self, store: MemoryStore, *, validate_s: float = 1.0, done: int = 0, score: float = 0.0, **options: Any
    ) -> None:
        self.clock, self.validate_s = FakeClock(), validate_s
        self.score, self.trained, self.validated = score, [""] * 0, 0
        settings = {"kappa": 0.8, "kernel": "matern52"} if options.get("policy", "ce_gp_ucb") == "ce_gp_ucb" else {}
        settings |= options.pop("settings", {})
        self.tuner = OnlineTuner(
            ARMS,
            options.pop("rounds", 30),
            direction="max",
            store=store,
            seed=7,
            done_rounds=done,
            clock=self.clock,
            settings=settings,
            **options,
        )

    def round(self) -> bool:
        config = self.tuner.next()
        if config is None:
            return False
        self.clock.now += 2.0
        self.score += GAINS[config["mode"]]
        self.trained.append(config["mode"])
        if self.tuner.should_validate:
            self.clock.now += self.validate_s
            self.tuner.tell(self.score)
            self.validated += 1
        return True

    def run(self, rounds: int | None = None) -> Job:
        while rounds is None or rounds > 0:
            if not self.round():
                break
            rounds = None if rounds is None else rounds - 1
        return self


def test_a_run_from_start_to_end() -> None:
    job = Job(MemoryStore()).run()
    assert len(job.trained) == 30
    assert 2 <= job.validated < 30
    assert job.trained.count("b") > 10
    assert job.tuner.next() is None
    ledger = job.tuner.study.ledger
    assert ledger.state.validations == job.validated
    assert [dict(config)["mode"] for config in job.tuner.schedule()] == job.trained
    assert job.tuner.round == 30


def test_the_times_of_rounds_are_recorded() -> None:
    job = Job(MemoryStore(), validate_s=0.5)
    job.clock.now += 3.0  # building the model
    job.run()
    kinds = job.tuner.study.ledger.state.by_kind
    assert kinds["setup"] == pytest.approx(3.0)
    assert kinds["train"] == pytest.approx(60.0)
    assert kinds["validate"] == pytest.approx(0.5 * job.validated)


def test_reported_seconds_replace_measured_ones() -> None:
    job = Job(MemoryStore())
    job.tuner.next()
    job.clock.now += 5.0
    job.tuner.tell(1.0, validate_s=2.0)  # the job never read should_validate
    kinds = job.tuner.study.ledger.state.by_kind
    assert (kinds["train"], kinds["validate"]) == (3.0, 2.0)


def test_validation_stays_within_its_limit() -> None:
    job = Job(MemoryStore(), policy="tv_gp_ucb", rounds=100, validate_s=1.0, validate_at_most="20%").run()
    kinds = job.tuner.study.ledger.state.by_kind
    assert kinds["validate"] <= 0.2 * kinds["train"]
    assert job.validated == 40


def test_a_time_budget_pays_for_training_and_validation() -> None:
    job = Job(MemoryStore(), rounds=100, budget="60s", policy="tv_gp_ucb").run()
    assert job.tuner.study.ledger.spent <= 60.0
    assert len(job.trained) == 20


def test_validation_with_a_price_is_charged_in_epochs() -> None:
    job = Job(MemoryStore(), rounds=40, prices=Prices(0.5), budget="50 epochs", policy="tv_gp_ucb").run()
    assert (len(job.trained), job.validated) == (40, 20)
    assert job.tuner.study.ledger.spent == 50.0


@pytest.mark.parametrize("cut", [0, 1, 2, 7, 15, 29, 30])
@pytest.mark.parametrize("n_lost", [0, 1, 5, 30])
def test_a_killed_job_repeats_rounds_without_validation_and_then_continues(cut: int, n_lost: int) -> None:
    whole = Job(MemoryStore()).run()
    store = MemoryStore()
    first = Job(store).run(cut)
    saved = max(0, cut - n_lost)
    score = sum(GAINS[mode] for mode in first.trained[:saved])
    second = Job(store, done=saved, score=score).run()
    assert first.trained[:saved] + second.trained == whole.trained
    assert first.validated + second.validated == whole.validated
    assert second.tuner.schedule() == whole.tuner.schedule()
    assert second.tuner.study.ledger.state.steps == 30


def test_a_job_killed_within_a_round() -> None:
    whole = Job(MemoryStore()).run()
    store = MemoryStore()
    first = Job(store).run(9)
    interrupted = first.tuner.next()
    assert interrupted is not None
    second = Job(store, done=6, score=sum(GAINS[mode] for mode in first.trained[:6]))
    for mode in first.trained[6:9]:
        config = second.tuner.next()
        assert config == {"mode": mode}
        assert second.tuner.is_replaying
        assert not second.tuner.should_validate
        second.score += GAINS[mode]
    second.run()
    assert not second.tuner.is_replaying
    assert first.trained[:9] + second.trained == whole.trained


def test_a_round_that_was_saved_but_not_recorded_is_not_trained_again() -> None:
    store = MemoryStore()
    first = Job(store).run(5)
    config = first.tuner.next()
    assert config is not None
    was_due = first.tuner.should_validate
    second = Job(store, done=6, score=first.score + GAINS[config["mode"]])
    assert second.tuner.should_validate is was_due
    if was_due:
        with pytest.raises(StudyError, match="call tell"):
            second.tuner.next()
        second.tuner.tell(second.score)
    second.run()
    assert len(first.trained) + 1 + len(second.trained) == 30


def test_a_finished_run_can_be_trained_again_from_an_old_checkpoint() -> None:
    store = MemoryStore()
    whole = Job(store).run()
    entries = len(whole.tuner.study.ledger)
    resumed = Job(store, done=25).run()
    assert resumed.trained == whole.trained[25:]
    assert resumed.validated == 0
    assert len(resumed.tuner.study.ledger) == entries + 1  # one note that the state went back


def test_a_checkpoint_of_another_run_is_refused() -> None:
    store = MemoryStore()
    Job(store).run(5)
    with pytest.raises(StudyError, match="has rounds 1 to 5; load the checkpoint of this run"):
        Job(store, done=9)
    with pytest.raises(StudyError, match="done_rounds=-1"):
        Job(store, done=-1)


def test_calls_in_the_wrong_order_are_errors() -> None:
    job = Job(MemoryStore())
    with pytest.raises(StudyError, match="is not to be validated"):
        job.tuner.tell(1.0)
    job.tuner.next()
    assert job.tuner.should_validate
    with pytest.raises(StudyError, match="round 1 has should_validate=True"):
        job.tuner.next()
    job.tuner.tell(1.0)
    with pytest.raises(StudyError, match="is not to be validated"):
        job.tuner.tell(1.0)


def test_two_jobs_on_one_run_are_an_error() -> None:
    store = MemoryStore()
    one = Job(store).run(2)
    other = Job(store, done=2)
    one.run(1)
    with pytest.raises(StudyError, match="another job is training the run"):
        other.run(3)


def test_a_value_that_is_not_finite_ends_the_run() -> None:
    for value in (math.nan, math.inf):
        job = Job(MemoryStore())
        job.tuner.next()
        with pytest.warns(
            UserWarning, match=f"the value of round 1 is {value}: the run has diverged and ends here; to continue"
        ):
            job.tuner.tell(value)
        assert job.tuner.next() is None


def test_a_bad_finite_value_does_not_end_the_run() -> None:
    job = Job(MemoryStore())
    job.tuner.next()
    job.tuner.tell(-1e9)
    assert job.tuner.next() is not None


@pytest.mark.parametrize("policy", ["sequential_halving", "asha", "bhpt", "random_search", SequentialHalving()])
def test_policies_that_train_several_trials_are_refused(policy: Any) -> None:
    with pytest.raises(
        PolicyError, match=r"trains several trials, but an online run has only one: choose one of ce_gp_ucb, .*ucb1"
    ):
        OnlineTuner(ARMS, 5, policy=policy, store=None)


def test_every_online_policy_is_accepted() -> None:
    for name, where in policies.REGISTRY.items():
        if ".online." in where:
            assert OnlineTuner(ARMS, 5, policy=name, store=None).next() is not None


def test_an_unregistered_policy_must_train_trial_0() -> None:
    class Restless:
        name = "restless"

        def decide(self, ledger: Any, rng: Any) -> Train:
            return Train(trial=len(ledger.trials), config={"mode": "a"}, until=1, validate="none")

    tuner = OnlineTuner(ARMS, 5, policy=Restless(), store=None)
    assert tuner.next() == {"mode": "a"}
    with pytest.raises(StudyError, match="the policy restless began trial 1, but an online run has only trial 0"):
        tuner.next()


def test_values_must_be_numbers() -> None:
    job = Job(MemoryStore())
    job.tuner.next()
    for value, seconds, message in (
        ("good", None, "value='good'"),
        (None, None, "its value must be a number, not None"),
        (1.0, -1.0, "validate_s=-1.0"),
    ):
        with pytest.raises(StudyError, match=message):
            job.tuner.tell(value, validate_s=seconds)  # type: ignore[arg-type]
    job.tuner.tell(1.0)
    assert job.tuner.next() is not None


def test_why_has_the_numbers_of_the_newest_decision() -> None:
    job = Job(MemoryStore())
    assert job.tuner.why == {}
    job.run(10)
    assert job.tuner.why["round"] == 10
    assert "kappa" in job.tuner.why


def test_initial_configs_come_first() -> None:
    job = Job(MemoryStore(), initial=[{"mode": "c"}, {"mode": "b"}]).run(2)
    assert job.trained == ["c", "b"]


def test_a_schedule_is_saved_and_loaded(tmp_path: Path) -> None:
    schedule = Job(MemoryStore()).run().tuner.schedule()
    path = tmp_path / "schedule.json"
    schedule.save(path)
    resumed = Schedule.load(path)
    assert resumed == schedule
    assert list(resumed) == list(schedule)
    assert resumed.config(1) == next(iter(schedule))
    assert resumed.config(99) == dict(schedule.configs[-1])
    assert path.read_text().count("rounds") < 30


def test_a_file_without_a_schedule_is_refused(tmp_path: Path) -> None:
    for text in ("", "{}", "[]", '{"shoestring_schedule": 2, "spans": []}'):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(StudyError, match="is not a schedule"):
            Schedule.load(tmp_path / "s.json")
    with pytest.raises(StudyError, match="has no rounds"):
        Schedule(()).config(1)
