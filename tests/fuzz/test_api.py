"""Whatever is passed to a public name, it works or raises an error of shoestring with a one-line message."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from junk import Junk, TimeLimitExceeded, limit_time
from thoroughness import repetitions

from shoestring import (
    Budget,
    Choice,
    Constant,
    Float,
    Int,
    OnlineTuner,
    Prices,
    Report,
    Schedule,
    ShoestringError,
    Space,
    Study,
    policies,
    tune,
)
from shoestring.core.ledger.entries import Amendment

SPACE = {"x": {"float": [0.0, 1.0]}}


def loss(config: Any) -> float:
    return float(config["x"])


def curve(config: Any) -> Iterator[float]:
    for step in range(3):
        yield config["x"] + step


def attempt(call: Callable[[], None]) -> None:
    """Make one call; anything but a result or a one-line error of shoestring is a failure."""
    try:
        call()
        message = "it works"
    except ShoestringError as error:
        message = str(error)
    assert message
    assert message.isprintable(), message  # one line, without characters that control a terminal


def _without_calls(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Replace functions by one that raises nothing: errors of a user's function are passed on unchanged."""
    return {**arguments, name: (lambda *_: None) if callable(arguments[name]) else arguments[name]}


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write stores and checkpoints of accepted inputs into a folder; ignore the library's own warnings."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, about settings such as 1e308
        yield


def fuzz(times: int, call: Callable[[Junk], Any]) -> None:
    for seed in range(times):
        junk = Junk(seed)
        try:
            limit_time(lambda junk=junk: attempt(lambda: call(junk)))  # type: ignore[misc]
        except (Exception, TimeLimitExceeded) as error:
            pytest.fail(f"{call.__name__} with seed {seed}: {type(error).__name__}: {error!r}", pytrace=True)


# spaces and budgets---------------------------------------------------------------------------------------------------


def make_parameter(junk: Junk) -> None:
    kind, good = junk.rng.choice(
        [
            (Float, {"low": 0.0, "high": 1.0, "log": False, "when": {}}),
            (Int, {"low": 1, "high": 9, "log": True, "when": {}}),
            (Choice, {"options": ["a", "b"], "when": {}}),
            (Constant, {"value": 1, "when": {}}),
        ]
    )
    space = Space({"y": {"choice": [1, "a"]}, "x": kind(**junk.replace_some(good))})  # type: ignore[arg-type]
    assert Space.from_dict(space.to_dict()) == space
    if junk.rng.random() < 0.5:
        space.validate({"y": 1, "x": junk.draw()})


def make_space(junk: Junk) -> None:
    good: dict[str, Any] = {
        "x": {"float": [0.0, 1.0]},
        "y": {"choice": ["a", "b"]},
        "z": {"int": [1, 5], "when": {"y": "a"}, "cost": "increases"},
    }
    how = junk.rng.randrange(4)
    if how == 0:
        space = Space(junk.draw())
    elif how == 1:
        name = junk.rng.choice(sorted(good))
        space = Space({**good, name: junk.replace_some(good[name])})
    elif how == 2:
        space = Space.from_dict(junk.replace_some(good))
    else:
        space = Space({"x": junk.draw(), **({"y": {"constant": junk.draw()}} if junk.rng.random() < 0.5 else {})})
    assert Space.from_dict(space.to_dict()) == space
    assert repr(space)


def list_space(junk: Junk) -> None:
    good = {"configs": [{"x": 0.1}, {"x": 10.0}], "log": ["x"], "cost": {"x": "decreases"}}
    if junk.rng.random() < 0.5:
        good["configs"] = [{"x": junk.draw()}, {"x": 10.0, "y": junk.draw()}]
        good["log"] = junk.rng.choice([["x"], []])
        space = Space.from_configs(**good)  # type: ignore[arg-type]
    else:
        space = Space.from_configs(**junk.replace_some(good))
    assert Space.from_dict(space.to_dict()) == space
    space.validate(space.rows[0] if junk.rng.random() < 0.5 else junk.draw())  # type: ignore[index]


def make_budget(junk: Junk) -> None:
    budget = Budget(junk.draw())
    assert Budget(str(budget)) == budget


def make_prices(junk: Junk) -> None:
    Prices(junk.draw())


# policies ------------------------------------------------------------------------------------------------------------


def make_policy(junk: Junk) -> None:
    name = junk.rng.choice(sorted(policies.REGISTRY))
    settings = policies.defaults_of(name)
    how = junk.rng.random()
    if how < 0.1:
        policies.make(junk.draw(), junk.draw())
    elif how < 0.2:
        policies.make(name, junk.draw())
    elif settings:
        Study.begin(SPACE, "9 epochs", policy=name, settings={junk.rng.choice(sorted(settings)): junk.draw()})


def run_policy(junk: Junk) -> None:
    """Settings that are accepted must also work."""
    name = junk.rng.choice(sorted(name for name in policies.REGISTRY if policies.defaults_of(name)))
    settings = {junk.rng.choice(sorted(policies.defaults_of(name))): junk.draw()}
    space = {**SPACE, "y": {"choice": ["a", "b"]}}
    tune(curve, space, "8 epochs", max_steps=3, policy=name, settings=settings, seed=1, deadline=1.0)


# studies -------------------------------------------------------------------------------------------------------------


def call_tune(junk: Junk) -> None:
    good: dict[str, Any] = {
        "train": junk.rng.choice([loss, curve]),
        "space": SPACE,
        "budget": "3 epochs",
        "max_steps": None,
        "direction": "min",
        "policy": "random_search",
        "settings": None,
        "workers": 1,
        "runner": "local",
        "live": None,
        "checkpoints_at_most": None,
        "name": "study",
        "store": None,
        "seed": 1,
        "prices": None,
        "initial": (),
        "progress": False,
        "callbacks": (),
    }
    if good["train"] is curve:
        good["max_steps"] = 3
    tune(deadline=0.01, **_without_calls(junk.replace_some(good), "callbacks"))


def call_deadline(junk: Junk) -> None:
    tune(loss, SPACE, "2 epochs", policy="random_search", deadline=junk.draw(), devices=None)


def call_report(junk: Junk) -> None:
    reported = junk.replace_some({"value": 0.5, "cost": None, "save": None})
    shape = junk.rng.randrange(3)

    def function(config: Any) -> Any:
        return Report(**reported) if shape else junk.draw()

    def generator(config: Any) -> Iterator[Any]:
        yield Report(**reported) if junk.rng.random() < 0.5 else junk.draw()
        yield junk.draw()

    budget = junk.rng.choice(["3 epochs", "1s", "$1 at 3600/h"])
    study = Study.begin(SPACE, budget, max_steps=2 if shape == 2 else 1, policy="random_search")
    study.run(generator if shape == 2 else function, deadline=0.01, progress=False)
    assert repr(study)
    assert study._repr_html_()


def call_begin(junk: Junk) -> None:
    good = {"space": SPACE, "budget": "9 epochs", "name": "s", "store": None, "max_steps": 2, "direction": "max"}
    more = {
        "policy": "asha",
        "settings": None,
        "seed": None,
        "workers": 1,
        "prices": None,
        "initial": (),
        "target": None,
    }
    repr(Study.begin(**junk.replace_some({**good, **more})))


def call_open(junk: Junk) -> None:
    Study.begin(SPACE, "9 epochs", name="s", store="open.db")
    Study.open(**junk.replace_some({"name": "s", "store": "open.db", "policy": None}))


def call_study(junk: Junk) -> None:
    """Call a method of a study that is not finished."""
    study = Study.begin(SPACE, "9 epochs", max_steps=3, policy="random_search", seed=1)
    order = study.ask()
    calls: list[Callable[[], Any]] = [
        lambda: study.enqueue(junk.draw()),
        lambda: study.ask(junk.draw()),
        lambda: study.tell(**junk.replace_some({"order": order, "value": 0.5, "cost_s": 1.0, "failed": None})),
        lambda: study.explain(junk.draw()),
        lambda: study.amend(junk.draw()),
        lambda: study.amend(
            Amendment(**junk.replace_some({"budget": None, "policy": None, "settings": None, "workers": None}))
        ),
        lambda: study.retrain_best(
            **_without_calls(junk.replace_some({"train": curve, "runner": None, "on_step": None}), "on_step")
        ),
        lambda: study.run(
            **junk.replace_some({"train": curve, "workers": None, "runner": "local", "live": None, "deadline": 0.01})
        ),
    ]
    junk.rng.choice(calls)()
    assert repr(study)
    assert study._repr_html_()


def call_finished(junk: Junk) -> None:
    study = tune(curve, SPACE, "3 epochs", max_steps=3, policy="random_search", progress=False)
    assert study.best is not None
    how = junk.rng.randrange(3)
    if how == 0:
        study.retrain_best(
            **_without_calls(junk.replace_some({"train": curve, "runner": None, "on_step": None}), "on_step")
        )
    elif how == 1:
        study.best.load(junk.draw())
    else:
        study.explain(junk.draw())


# online --------------------------------------------------------------------------------------------------------------


def call_online(junk: Junk) -> None:
    good: dict[str, Any] = {
        "space": SPACE,
        "rounds": 2,
        "policy": "epsilon_greedy",
        "settings": None,
        "direction": "min",
        "store": None,
        "name": "online",
        "done_rounds": 0,
        "budget": None,
        "validate_at_most": None,
        "prices": None,
        "initial": (),
        "seed": 1,
    }
    tuner = OnlineTuner(**junk.replace_some(good))
    for _ in range(2):
        if tuner.next() is not None and tuner.should_validate:
            tuner.tell(
                **(junk.replace_some({"value": 0.5, "validate_s": None}) if junk.rng.random() < 0.3 else {"value": 0.5})
            )


def call_schedule(junk: Junk) -> None:
    how = junk.rng.randrange(3)
    if how == 0:
        schedule = Schedule(({"x": 1}, {"x": 2}))
        schedule.config(junk.draw())
    elif how == 1:
        Schedule.load(junk.draw())
    else:
        Schedule(junk.draw()).save("schedule.json")


TIMES: dict[Callable[[Junk], None], int] = {
    make_parameter: 2000,
    make_space: 2000,
    list_space: 1200,
    make_budget: 700,
    make_prices: 300,
    make_policy: 1500,
    run_policy: 300,
    call_tune: 1000,
    call_deadline: 200,
    call_report: 300,
    call_begin: 700,
    call_open: 200,
    call_study: 600,
    call_finished: 200,
    call_online: 400,
    call_schedule: 200,
}


@pytest.mark.repeated
@pytest.mark.parametrize("call", TIMES, ids=lambda call: call.__name__)
def test_a_call_works_or_raises_an_error_of_ours(call: Callable[[Junk], None]) -> None:
    fuzz(repetitions(TIMES[call] // 5, thorough=TIMES[call]), call)


def test_there_are_enough_calls() -> None:
    assert sum(TIMES.values()) >= 10_000


@pytest.mark.parametrize("call", [Budget, Prices, Space, tune, OnlineTuner], ids=lambda call: call.__name__)
def test_a_wrong_signature_raises_a_type_error(call: Any) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'no_such_argument'|missing"):
        call(no_such_argument=1)
