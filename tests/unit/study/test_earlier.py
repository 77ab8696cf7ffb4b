"""Earlier studies: what is copied from each kind of source, and how a new study uses it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring import Choice, Float, Int, Report, Space, Study, tune
from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.entries import Note, Order
from shoestring.core.ledger.notes import EarlierStudy, list_earlier_studies
from shoestring.core.values.strict_json import dumps
from shoestring.errors import PolicyError, StudyError
from shoestring.policies.earlier_studies import EARLIER_STUDIES
from shoestring.stores.in_memory import MemoryStore
from shoestring.study.earlier import MAX_TRIALS, EarlierTrial, SourceStudy, copy_source

SPACE = Space({"lr": Float(1e-4, 1.0, log=True), "width": Int(1, 64), "kind": Choice(["a", "b"])})


def loss(config: Any) -> float:
    return float(abs(math.log10(config["lr"]) + 2) + (config["kind"] == "b") + config["width"] / 1000)


def train(config: Any) -> Iterator[float]:
    for step in range(1, 5):
        yield loss(config) + 1 / step


def begin(store: Any, name: str, **more: Any) -> Study:
    return Study.begin(
        SPACE, **{"budget": "20 epochs", "name": name, "store": store, "max_steps": 4, "seed": 1, **more}
    )


@pytest.fixture
def store() -> MemoryStore:
    """A store with a study that is finished."""
    store = MemoryStore()
    begin(store, "old", policy="random_search", settings={}).run(train)
    return store


def source(*trials: EarlierTrial, name: str = "old") -> SourceStudy:
    return SourceStudy(name, name, trials, "min")


def copied(*trials: EarlierTrial, space: Space = SPACE, renames: dict[str, str] | None = None) -> EarlierStudy:
    return copy_source(source(*trials), renames or {}, space, "min")


def one(lr: float, losses: list[float | None], **more: Any) -> EarlierTrial:
    return EarlierTrial({"lr": lr, "width": 4, "kind": "a", **more}, losses, 2.0)


# what is copied -------------------------------------------------------------------------------------------------------


def test_a_study_of_the_store_is_copied_with_its_origin(store: MemoryStore) -> None:
    old = Study.open("old", store)
    study = begin(store, "new", like="old")
    [facts] = list_earlier_studies(study.ledger.entries())
    assert (facts.name, facts.source, facts.trials) == ("old", "old", len(old.trials))
    assert facts.parameters == ["kind", "lr", "width"]
    configs = [dict(config) for config in facts.configs]
    assert sorted(map(dumps, configs)) == sorted(dumps(dict(trial.config)) for trial in old.trials)
    assert old.best is not None
    assert configs[0] == dict(old.best.config)
    assert (len(facts.digest), len(facts.date)) == (16, 10)


def test_scores_are_in_the_order_of_the_trials_and_lower_is_better() -> None:
    facts = copied(one(0.01, [3.0, 1.0]), one(0.1, [3.0, 2.0]), one(1.0, [9.0]), one(0.5, [math.inf]))
    assert [config["lr"] for config in facts.configs] == [0.01, 0.1, 1.0, 0.5]
    assert list(facts.scores) == sorted(facts.scores)


def test_trials_without_a_result_are_not_copied() -> None:
    facts = copied(one(0.01, [1.0]), one(0.02, [2.0]), one(0.03, [None]), one(0.04, []))
    assert len(facts.configs) == 2
    assert facts.trials == 4


def test_many_trials_are_thinned_from_the_best_to_the_worst() -> None:
    lrs = np.geomspace(1e-4, 1.0, 500)
    facts = copied(*(one(float(lr), [float(i)]) for i, lr in enumerate(lrs)))
    assert len(facts.configs) == len(facts.scores) == len(facts.step_s) == MAX_TRIALS
    assert facts.configs[0]["lr"] == lrs[0]
    assert facts.configs[-1]["lr"] == lrs[-1]


def test_prices_are_copied_only_if_all_are_known() -> None:
    known, unknown = one(0.01, [1.0]), replace(one(0.02, [2.0]), step_s=None)
    assert copied(known, one(0.02, [2.0])).step_s == [2.0, 2.0]
    assert copied(known, unknown).step_s == []


def test_equal_trials_have_equal_digests_and_others_do_not() -> None:
    first = copied(one(0.01, [1.0]), one(0.02, [2.0]))
    assert copied(one(0.01, [1.0]), one(0.02, [2.0])).digest == first.digest
    assert copied(one(0.01, [1.0]), one(0.03, [2.0])).digest != first.digest


# spaces that differ ---------------------------------------------------------------------------------------------------


def test_new_parameters_are_unknown_and_missing_ones_ignored() -> None:
    space = Space({"lr": Float(1e-3, 10.0, log=True), "momentum": Float(0.0, 0.9)})
    facts = copied(one(0.01, [1.0]), one(0.02, [2.0]), space=space)
    assert facts.parameters == ["lr"]
    assert [dict(config) for config in facts.configs] == [{"lr": 0.01}, {"lr": 0.02}]


def test_an_unknown_parameter_has_no_influence_on_the_prediction() -> None:
    space = Space({"lr": Float(1e-3, 1.0, log=True), "momentum": Float(0.0, 0.9), "kind": Choice(["x", "y"])})
    trials = [EarlierTrial({"lr": 10.0**-e}, [float(e)]) for e in (0, 1, 2, 3)]
    study = Study.begin(space, "9 epochs", name="n", store=MemoryStore(), max_steps=3)
    ledger = study.ledger.append(copied(*trials, space=space).to_note())
    from shoestring.policy import Encoding

    encoding = Encoding(space)
    configs = [{"lr": 0.01, "momentum": m, "kind": k} for m in (0.0, 0.5, 0.9) for k in ("x", "y")]
    features = encoding.features(encoding.points(configs))
    expected = ledger.view(EARLIER_STUDIES).expect_scores(features[:0], np.zeros(0))
    np.testing.assert_allclose(expected.mean(features), expected.mean(features)[0], rtol=1e-12)
    assert (
        np.abs(expected.mean_with_gradient(features)[1]).sum(axis=0).nonzero()[0].size == 1
    )  # only lr has an influence


def test_a_value_beyond_the_range_is_used_and_an_option_that_is_gone_is_not() -> None:
    facts = copied(one(5.0, [1.0]), one(1e-5, [2.0]), one(0.1, [3.0]), one(0.2, [4.0], kind="gone"))
    assert [config["lr"] for config in facts.configs] == [5.0, 1e-5, 0.1]


@pytest.mark.parametrize("value", [0.0, -1.0, True, "0.1", None, math.nan, math.inf, 10**400])
def test_what_a_log_scale_cannot_place_is_left_out(value: Any) -> None:
    facts = copied(one(0.01, [1.0]), one(0.02, [2.0]), EarlierTrial({"lr": value, "width": 3, "kind": "a"}, [0.5]))
    assert len(facts.configs) == 2


def test_a_parameter_that_was_renamed_is_mapped() -> None:
    trials = [EarlierTrial({"learning_rate": lr}, [lr]) for lr in (0.01, 0.1)]
    assert copied(*trials, renames={"learning_rate": "lr"}).parameters == ["lr"]


def test_a_rename_to_an_unknown_parameter_is_an_error(store: MemoryStore) -> None:
    with pytest.raises(StudyError, match=r"'rate' is not a parameter of this study.*width"):
        begin(store, "new", like="old", like_rename={"lr": "rate"})


def test_nothing_in_common_is_an_error_and_nothing_is_begun(store: MemoryStore) -> None:
    with pytest.raises(StudyError, match=r"'old' has no parameter in common.*kind, lr, width.*--like-rename"):
        Study.begin(Space({"depth": Int(1, 9)}), "9 epochs", name="new", store=store, like="old")
    assert store.studies() == ["old"]


def test_another_direction_is_an_error(store: MemoryStore) -> None:
    with pytest.raises(StudyError, match=r"'old' has the direction 'min', this one 'max'"):
        begin(store, "new", like="old", direction="max")


def test_too_few_trials_are_an_error() -> None:
    with pytest.raises(StudyError, match=r"has 1 trial with a result and a configuration.*of 2: it needs at least 2"):
        copied(one(0.1, [1.0]), one(0.2, [None]))


# sources --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["old.db#first", "sqlite:///old.db#first", "old.db"])
def test_a_study_of_another_file(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    begin("old.db", "first").run(train)
    study = begin("new.db", "new", like=words)
    assert [one.source for one in list_earlier_studies(study.ledger.entries())] == [words]


def test_a_file_with_several_studies_needs_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        begin("old.db", name)
    with pytest.raises(StudyError, match=r"must name one of its studies.*#NAME.*first, second"):
        begin("new.db", "new", like="old.db")


def test_a_study_object_and_a_list_of_sources(store: MemoryStore) -> None:
    other = begin(MemoryStore(), "other")
    other.run(train)
    study = begin(store, "new", like=["old", other])
    assert [one.name for one in list_earlier_studies(study.ledger.entries())] == ["old", "other"]


def test_an_unknown_study_is_an_error_that_names_the_others(store: MemoryStore) -> None:
    with pytest.raises(StudyError, match=r"there is no study 'odl' in .*Did you mean 'old'"):
        begin(store, "new", like="odl")


def test_none_is_no_earlier_study(store: MemoryStore) -> None:
    assert list_earlier_studies(begin(store, "new", like=None).ledger.entries()) == []


@pytest.mark.parametrize("wrong", [3, "", [None], [["old"]]])
def test_what_names_no_source_is_an_error(store: MemoryStore, wrong: Any) -> None:
    with pytest.raises(StudyError, match=r"must name an earlier study"):
        begin(store, "new", like=wrong)


def test_a_password_is_not_stored(store: MemoryStore) -> None:
    from shoestring.study.earlier import describe_source

    assert "geheim" not in describe_source("postgresql://me:geheim@host/db#old")


def test_a_table_is_a_source(tmp_path: Path) -> None:
    table = tmp_path / "runs.jsonl"
    rows = [
        {"config": {"lr": 10.0**-e, "width": e, "kind": "a"}, "value": float(e), "seconds": 2 * e} for e in (1, 2, 3)
    ]
    table.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    study = begin(MemoryStore(), "new", like=table)
    [facts] = list_earlier_studies(study.ledger.entries())
    assert [config["lr"] for config in facts.configs] == [0.1, 0.01, 0.001]
    assert facts.step_s == [2.0, 4.0, 6.0]


def test_in_a_table_of_a_maximised_value_the_largest_is_the_best(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("lr,accuracy\n0.1,0.5\n0.01,0.9\n0.2,nan\n", "utf-8")
    study = begin(MemoryStore(), "new", like=f"{table}#accuracy", direction="max")
    [facts] = list_earlier_studies(study.ledger.entries())
    assert [config["lr"] for config in facts.configs] == [0.01, 0.1, 0.2]


# a study that has learned from others ---------------------------------------------------------------------------------


def test_the_same_call_continues_the_study_even_if_the_old_one_is_gone(store: MemoryStore) -> None:
    entries = begin(store, "new", like="old").ledger.entries()
    without = MemoryStore()
    without.append("new", None, *entries)
    assert len(begin(without, "new", like="old").ledger) == len(entries)


def test_a_source_that_comes_later_is_an_error(store: MemoryStore) -> None:
    begin(store, "new")
    with pytest.raises(StudyError, match=r"'new' exists and did not begin with the earlier study 'old'"):
        begin(store, "new", like="old")


def test_a_rename_without_a_source_is_an_error(store: MemoryStore) -> None:
    with pytest.raises(StudyError, match=r"like_rename=.* needs like"):
        begin(store, "new", like_rename={"a": "lr"})


@pytest.mark.parametrize("policy", ["guided_halving", "cost_aware_ei"])
def test_the_first_configurations_are_chosen_by_the_earlier_study(store: MemoryStore, policy: str) -> None:
    Study.begin(SPACE, "200 epochs", name="large", store=store, max_steps=4, seed=3).run(train)

    def mean_of_first(**more: Any) -> float:
        losses = []
        for seed in range(8):
            study = begin(MemoryStore(), "new", policy=policy, seed=seed, **more)
            study.run(train)
            losses += [loss(trial.config) for trial in study.trials[:3]]
        return float(np.mean(losses))

    assert mean_of_first(like=Study.open("large", store)) < 0.6 * mean_of_first()


@pytest.mark.parametrize("policy", ["guided_halving", "asha", "hyperband", "cost_aware_ei"])
def test_decisions_are_a_function_of_the_ledger(store: MemoryStore, policy: str) -> None:
    """Each decision, made again from the entries before it alone, is the same."""
    settings = {} if policy in ("guided_halving", "cost_aware_ei") else {"newcomers": "guided"}
    study = begin(MemoryStore(), "new", policy=policy, settings=settings, like=Study.open("old", store))
    study.run(train)
    entries = study.ledger.entries()
    orders = [at for at, entry in enumerate(entries) if isinstance(entry, Order)]
    assert orders
    for at in orders:
        before, order = study.ledger.fork(at), entries[at]
        again = study.policy.decide(before, before.decision_rng())
        assert isinstance(order, Order)
        assert isinstance(again, Train)
        assert (again.trial, dict(again.config), again.memo) == (order.trial, dict(order.config), order.memo)


def test_a_decision_says_which_studies_led_to_it(store: MemoryStore) -> None:
    study = begin(store, "new", like="old")
    study.run(train)
    assert "old" in str(study.ledger.orders[0].why["learned_from"])


def test_tune_takes_an_earlier_study(tmp_path: Path) -> None:
    where = str(tmp_path / "studies.db")
    for name, like in (("old", ()), ("new", "old")):
        study = tune(train, SPACE, "12 epochs", max_steps=4, store=where, name=name, like=like, seed=2)
    assert [one.name for one in list_earlier_studies(study.ledger.entries())] == ["old"]


def test_the_note_is_one_entry_that_reads_back(store: MemoryStore) -> None:
    study = begin(store, "new", like="old")
    notes = [entry for entry in study.ledger.entries() if isinstance(entry, Note)]
    assert [note.topic for note in notes] == ["earlier"]
    again = store.load("new")
    assert again is not None
    assert list_earlier_studies(again.entries()) == list_earlier_studies(study.ledger.entries())


# prices ---------------------------------------------------------------------------------------------------------------


def priced(config: Any) -> Iterator[Report]:
    for step in range(1, 5):
        yield Report(loss(config) + 1 / step, cost=float(config["width"]))


def ordered_widths(like: Any, policy: str, **settings: Any) -> list[int]:
    """Return the widths of the first five trials under a budget of time."""
    widths = []
    for seed in range(4):
        study = begin(MemoryStore(), "new", policy=policy, settings=settings, like=like, budget="4000s", seed=seed)
        study.run(priced)
        widths += [trial.config["width"] for trial in study.trials[:5]]
    return widths


@pytest.mark.parametrize("policy", ["guided_halving", "cost_aware_ei"])
def test_prices_are_known_from_the_first_configuration_on(policy: str) -> None:
    """A step costs as many seconds as the width, which hardly changes the loss."""
    old = begin(MemoryStore(), "old", policy="random_search", settings={}, budget="6000s")
    old.run(priced)
    assert np.mean(ordered_widths(old, policy)) < 0.7 * np.mean(ordered_widths((), policy))


def test_a_transferred_cost_model_gets_its_data_from_earlier_studies() -> None:
    old = begin(MemoryStore(), "old", policy="random_search", settings={}, budget="6000s")
    old.run(priced)
    study = begin(
        MemoryStore(), "new", policy="cost_aware_ei", settings={"cost_model": "transfer"}, like=old, budget="4000s"
    )
    study.run(priced)
    first = study.ledger.orders[0]
    assert first.expected_cost == pytest.approx(4 * first.config["width"], rel=0.5)
    without = begin(MemoryStore(), "new", policy="cost_aware_ei", settings={"cost_model": "transfer"}, budget="4000s")
    with pytest.raises(PolicyError, match="has no earlier study that knows the seconds of its steps"):
        without.run(priced)
