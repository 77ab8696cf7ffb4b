"""The tuner for people who own their loop: rounds, measured prices, taking up a killed job, schedules."""

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
from shoestring.stores.in_memory import Memory
from shoestring.study.online import OnlineTuner, Schedule

ARMS = Space({"mode": Choice(["a", "b", "c"])})
GAINS = {"a": 0.1, "b": 1.0, "c": 0.4}


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Job:
    """A training job with a clock of its own: a round takes 2 s, a validation pass `validate_s`."""

    def __init__(
        self, store: Memory, *, validate_s: float = 1.0, done: int = 0, score: float = 0.0, **told: Any
    ) -> None:
        self.clock, self.validate_s = FakeClock(), validate_s
        self.score, self.trained, self.validated = score, [""] * 0, 0
        settings = {"kappa": 0.8, "kernel": "matern52"} if told.get("policy", "ce_gp_ucb") == "ce_gp_ucb" else {}
        settings |= told.pop("settings", {})
        self.tuner = OnlineTuner(
            ARMS,
            told.pop("rounds", 30),
            direction="max",
            store=store,
            seed=7,
            done_rounds=done,
            clock=self.clock,
            settings=settings,
            **told,
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
    job = Job(Memory()).run()
    assert len(job.trained) == 30
    assert 2 <= job.validated < 30
    assert job.trained.count("b") > 10
    assert job.tuner.next() is None
    ledger = job.tuner.study.ledger
    assert ledger.books.validations == job.validated
    assert [dict(config)["mode"] for config in job.tuner.schedule()] == job.trained
    assert job.tuner.round == 30


def test_what_rounds_took_is_in_the_ledger() -> None:
    job = Job(Memory(), validate_s=0.5)
    job.clock.now += 3.0  # building the model
    job.run()
    kinds = job.tuner.study.ledger.books.by_kind
    assert kinds["setup"] == pytest.approx(3.0)
    assert kinds["train"] == pytest.approx(60.0)
    assert kinds["validate"] == pytest.approx(0.5 * job.validated)


def test_told_seconds_win_over_measured_ones() -> None:
    job = Job(Memory())
    job.tuner.next()
    job.clock.now += 5.0
    job.tuner.tell(1.0, validate_s=2.0)  # should_validate was read nowhere
    kinds = job.tuner.study.ledger.books.by_kind
    assert (kinds["train"], kinds["validate"]) == (3.0, 2.0)


def test_a_cap_on_validation_holds() -> None:
    job = Job(Memory(), policy="tv_gp_ucb", rounds=100, validate_s=1.0, validate_at_most="20%").run()
    kinds = job.tuner.study.ledger.books.by_kind
    assert kinds["validate"] <= 0.2 * kinds["train"]
    assert job.validated == 40


def test_a_budget_of_time_ends_the_run_and_pays_for_both() -> None:
    job = Job(Memory(), rounds=100, budget="60s", policy="tv_gp_ucb").run()
    assert job.tuner.study.ledger.spent <= 60.0
    assert len(job.trained) == 20


def test_validation_at_a_listed_price_counts_in_epochs() -> None:
    job = Job(Memory(), rounds=40, prices=Prices(0.5), budget="50 epochs", policy="tv_gp_ucb").run()
    assert (len(job.trained), job.validated) == (40, 20)
    assert job.tuner.study.ledger.spent == 50.0


@pytest.mark.parametrize("cut", [0, 1, 2, 7, 15, 29, 30])
@pytest.mark.parametrize("behind", [0, 1, 5, 30])
def test_a_killed_job_replays_without_validating_and_goes_on_as_if_uncut(cut: int, behind: int) -> None:
    whole = Job(Memory()).run()
    store = Memory()
    first = Job(store).run(cut)
    saved = max(0, cut - behind)
    score = sum(GAINS[mode] for mode in first.trained[:saved])
    second = Job(store, done=saved, score=score).run()
    assert first.trained[:saved] + second.trained == whole.trained
    assert first.validated + second.validated == whole.validated
    assert second.tuner.schedule() == whole.tuner.schedule()
    assert second.tuner.study.ledger.books.steps == 30


def test_a_job_killed_within_a_round() -> None:
    whole = Job(Memory()).run()
    store = Memory()
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
    store = Memory()
    first = Job(store).run(5)
    config = first.tuner.next()
    assert config is not None
    owed = first.tuner.should_validate
    second = Job(store, done=6, score=first.score + GAINS[config["mode"]])
    assert second.tuner.should_validate is owed
    if owed:
        with pytest.raises(StudyError, match="call tell"):
            second.tuner.next()
        second.tuner.tell(second.score)
    second.run()
    assert len(first.trained) + 1 + len(second.trained) == 30


def test_a_finished_run_can_be_trained_again_from_an_old_checkpoint() -> None:
    store = Memory()
    whole = Job(store).run()
    entries = len(whole.tuner.study.ledger)
    again = Job(store, done=25).run()
    assert again.trained == whole.trained[25:]
    assert again.validated == 0
    assert len(again.tuner.study.ledger) == entries + 1  # that the state went back, nothing else


def test_a_checkpoint_of_another_run_is_refused() -> None:
    store = Memory()
    Job(store).run(5)
    with pytest.raises(StudyError, match="knows rounds 1 to 5; load the checkpoint of this run"):
        Job(store, done=9)
    with pytest.raises(StudyError, match="done_rounds=-1"):
        Job(store, done=-1)


def test_misuse_is_told() -> None:
    job = Job(Memory())
    with pytest.raises(StudyError, match="buys no validation"):
        job.tuner.tell(1.0)
    job.tuner.next()
    assert job.tuner.should_validate
    with pytest.raises(StudyError, match="round 1 was handed out with should_validate=True"):
        job.tuner.next()
    job.tuner.tell(1.0)
    with pytest.raises(StudyError, match="buys no validation"):
        job.tuner.tell(1.0)


def test_two_jobs_on_one_run_are_noticed() -> None:
    store = Memory()
    one = Job(store).run(2)
    two = Job(store, done=2)
    one.run(1)
    with pytest.raises(StudyError, match="another job is at work"):
        two.run(3)


def test_a_value_that_is_no_number_ends_the_run() -> None:
    for value in (math.nan, math.inf):
        job = Job(Memory())
        job.tuner.next()
        with pytest.warns(
            UserWarning, match=f"the value of round 1 is {value}: the run has diverged and ends here; to go on"
        ):
            job.tuner.tell(value)
        assert job.tuner.next() is None


def test_a_bad_value_that_is_finite_goes_on() -> None:
    job = Job(Memory())
    job.tuner.next()
    job.tuner.tell(-1e9)
    assert job.tuner.next() is not None


@pytest.mark.parametrize("policy", ["sequential_halving", "asha", "bhpt", "random_search", SequentialHalving()])
def test_policies_that_race_trials_are_refused(policy: Any) -> None:
    with pytest.raises(
        PolicyError, match=r"races several trials, and here there is one run: choose one of ce_gp_ucb, .*ucb1"
    ):
        OnlineTuner(ARMS, 5, policy=policy, store=None)


def test_every_online_policy_is_taken() -> None:
    for name, where in policies.REGISTRY.items():
        if ".online." in where:
            assert OnlineTuner(ARMS, 5, policy=name, store=None).next() is not None


def test_a_policy_of_ones_own_must_keep_to_the_one_run() -> None:
    class Restless:
        name = "restless"

        def decide(self, ledger: Any, rng: Any) -> Train:
            return Train(trial=len(ledger.trials), config={"mode": "a"}, until=1, validate="none")

    tuner = OnlineTuner(ARMS, 5, policy=Restless(), store=None)
    assert tuner.next() == {"mode": "a"}
    with pytest.raises(StudyError, match="the policy restless began trial 1, and there is one run"):
        tuner.next()


def test_what_may_be_told() -> None:
    job = Job(Memory())
    job.tuner.next()
    for value, seconds, said in (
        ("good", None, "value='good' cannot be told"),
        (None, None, "tell its value, a number, not None"),
        (1.0, -1.0, "validate_s=-1.0 must be seconds, 0 or more"),
    ):
        with pytest.raises(StudyError, match=said):
            job.tuner.tell(value, validate_s=seconds)  # type: ignore[arg-type]
    job.tuner.tell(1.0)
    assert job.tuner.next() is not None


def test_the_reasons_are_there_to_read() -> None:
    job = Job(Memory())
    assert job.tuner.why == {}
    job.run(10)
    assert job.tuner.why["round"] == 10
    assert "kappa" in job.tuner.why


def test_initial_configs_come_first() -> None:
    job = Job(Memory(), initial=[{"mode": "c"}, {"mode": "b"}]).run(2)
    assert job.trained == ["c", "b"]


def test_a_schedule_survives_its_file(tmp_path: Path) -> None:
    schedule = Job(Memory()).run().tuner.schedule()
    path = tmp_path / "schedule.json"
    schedule.save(path)
    again = Schedule.load(path)
    assert again == schedule
    assert list(again) == list(schedule)
    assert again.config(1) == next(iter(schedule))
    assert again.config(99) == dict(schedule.configs[-1])
    assert path.read_text().count("rounds") < 30


def test_a_file_that_is_no_schedule_is_refused(tmp_path: Path) -> None:
    for text in ("", "{}", "[]", '{"shoestring_schedule": 2, "spans": []}'):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(StudyError, match="is not a schedule"):
            Schedule.load(tmp_path / "s.json")
    with pytest.raises(StudyError, match="without rounds"):
        Schedule(()).config(1)
