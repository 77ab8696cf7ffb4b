"""CE-GP-UCB and its variants as policies: configs, validations, and settings that are refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoestring import policies
from shoestring.core.deciding.decision import Train, Validate
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Note, Order, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Config, Space
from shoestring.core.values.strict_json import dumps
from shoestring.errors import PolicyError
from shoestring.models.online.parameter_fit import NOISE_BOUNDS, VARIANCE_BOUNDS, forgetting_bounds, lengthscale_bounds
from shoestring.policies.online.ce_gp_ucb import CEGPUCB
from shoestring.policies.online.gp_ucb_variants import RGPUCB, TVGPUCB, GPUCBBandit
from shoestring.runners.runner import write_receipt

GRID = Space.from_configs([{"x": float(x)} for x in np.linspace(0.0, 1.0, 41)])
VALUES: dict[str, Any] = {"reward": "value", "clip": None}


def begin(policy: Policy, space: Space = GRID, rounds: int = 60) -> Ledger:
    definition = StudyDefinition(
        space=space,
        budget=Budget(f"{rounds} epochs"),
        policy=policy.name,
        settings=policies.settings_of(policy),
        seed=3,
        direction="max",
        max_steps=rounds,
    )
    return Ledger([definition])


def play(policy: Policy, value: Callable[[Config, int], float], ledger: Ledger, rounds: int) -> Ledger:
    for _ in range(rounds):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        order = place_order(ledger, decision)
        assert order is not None
        measured = value(order.config, order.until) if order.validate == "last" else None
        ledger = ledger.append(order).append(
            write_receipt(order, order.until, measured, Cost(), at=0.0, saved_step=order.until)
        )
    return ledger


def peak(config: Config, round: int) -> float:
    """Return the height of a landscape with a hill at 0.7, a lower one at 0.2, and a plain around them."""
    x = float(config["x"])
    return max(2.0 - 8.0 * abs(x - 0.7), 1.0 - 8.0 * abs(x - 0.2), -1.0)


def list_validated(ledger: Ledger) -> list[bool]:
    return [order.validate == "last" for order in ledger.orders]


def test_kappa_validates_less_than_always_and_finds_the_same_hill() -> None:
    always = play(TVGPUCB(**VALUES), peak, begin(TVGPUCB()), 60)
    sparing = play(CEGPUCB(query="kappa", kappa=0.8, **VALUES), peak, begin(CEGPUCB()), 60)
    assert all(list_validated(always))
    assert sum(list_validated(sparing)) <= 40
    for ledger in (always, sparing):
        assert abs(np.median([order.config["x"] for order in ledger.orders[-20:]]) - 0.7) <= 0.1


def test_a_higher_kappa_validates_more() -> None:
    validated = [
        sum(list_validated(play(CEGPUCB(query="kappa", kappa=k, **VALUES), peak, begin(CEGPUCB()), 60)))
        for k in (0.6, 0.9, 1.0)
    ]
    assert validated[0] < validated[1] < validated[2]


def test_bernoulli_validates_at_its_rate_and_the_first_round() -> None:
    policy = TVGPUCB(query="bernoulli", query_probability=0.3, **VALUES)
    validated = list_validated(play(policy, peak, begin(policy, rounds=400), 400))
    assert validated[0]
    assert 90 <= sum(validated) <= 150
    never = TVGPUCB(query="bernoulli", query_probability=0.0, **VALUES)
    assert list_validated(play(never, peak, begin(never), 10)) == [True] + [False] * 9


def test_the_first_two_rounds_are_validated_if_rewards_are_gains() -> None:
    policy = CEGPUCB(kappa=0.6)
    ledger = play(policy, lambda config, round: float(round), begin(policy), 3)
    assert list_validated(ledger)[:2] == [True, True]
    assert [order.why["query"] for order in ledger.orders[:2]] == ["first", "first"]


def test_exact_covariance_changes_only_the_probability() -> None:
    ledger = play(CEGPUCB(query="kappa", kappa=0.8, **VALUES), peak, begin(CEGPUCB()), 25)
    plain = CEGPUCB(query="kappa", kappa=0.8, **VALUES).decide(ledger, ledger.decision_rng())
    exact = CEGPUCB(query="kappa", kappa=0.8, exact_covariance=True, **VALUES).decide(ledger, ledger.decision_rng())
    assert isinstance(plain, Train)
    assert isinstance(exact, Train)
    assert plain.config == exact.config
    assert plain.why["competitors"] == exact.why["competitors"]
    assert plain.why["pr_better"] != exact.why["pr_better"]


def test_the_round_after_a_reset_is_validated() -> None:
    policy = RGPUCB(block=5, query="bernoulli", query_probability=0.0, **VALUES)
    validated = list_validated(play(policy, peak, begin(policy), 16))
    assert [round for round, query in enumerate(validated, start=1) if query] == [1, 6, 11, 16]


def test_a_model_that_forgets_explores_longer() -> None:
    stationary = play(GPUCBBandit(**VALUES), peak, begin(GPUCBBandit(), rounds=120), 120)
    forgetful = play(TVGPUCB(forgetting_rate=0.2, **VALUES), peak, begin(TVGPUCB(), rounds=120), 120)
    counts = [len({order.config["x"] for order in ledger.orders[-40:]}) for ledger in (stationary, forgetful)]
    assert counts[0] < counts[1]


@pytest.mark.parametrize(("acquisition", "height"), [("pi", 0.5), ("ei", 1.5)])
def test_pi_and_ei_find_a_hill_and_only_ei_the_higher_one(acquisition: str, height: float) -> None:
    policy = TVGPUCB(acquisition=acquisition, **VALUES)
    grid = play(policy, peak, begin(policy), 60)
    best = max(peak(order.config, 0) for order in grid.orders)
    assert best > height
    cube = play(policy, peak, begin(policy, Space({"x": Float(0, 1)})), 12)
    assert len({order.config["x"] for order in cube.orders}) > 3


def test_a_continuous_space_with_options_and_conditions() -> None:
    space = Space({"x": Float(0, 1), "kind": Choice(["a", "b"]), "m": Float(0, 1, when={"kind": "a"})})
    policy = CEGPUCB(n_starts=3, lengthscale=0.4, **VALUES)
    value = lambda config, round: peak(config, round) + (config["kind"] == "b")  # noqa: E731
    ledger = play(policy, value, begin(policy, space, rounds=30), 30)
    late = [order.config for order in ledger.orders[-10:]]
    assert sum(config["kind"] == "b" for config in late) >= 6
    assert np.median([abs(config["x"] - 0.7) for config in late]) <= 0.15


def test_queued_configs_come_first_and_are_validated() -> None:
    policy = CEGPUCB(kappa=0.6, **VALUES)
    ledger = begin(policy)
    for x in (0.25, 0.75):
        ledger = ledger.append(Note(topic="enqueue", facts={"config": {"x": x}}))
    ledger = play(policy, peak, ledger, 12)
    assert [order.config["x"] for order in ledger.orders[:2]] == [0.25, 0.75]
    ledger = play(policy, peak, ledger.append(Note(topic="enqueue", facts={"config": {"x": 0.5}})), 2)
    assert ledger.orders[12].config["x"] == 0.5
    assert ledger.orders[12].validate == "last"
    assert ledger.orders[13].why["query"] != "queued"


def test_the_forgetting_rate_is_fitted_within_bounds_each_time_observations_double() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=200)
    policy = TVGPUCB(forgetting_rate=None, **VALUES)
    ledger = play(policy, lambda config, round: float(noise[round]), begin(policy, rounds=80), 40)
    low, high = forgetting_bounds(80)
    rates = [float(str(order.why["forgetting_rate"])) for order in ledger.orders]
    assert rates[0] == low
    assert all(low <= rate <= high for rate in rates)
    assert len(set(rates[8:16])) == len(set(rates[16:32])) == 1
    assert rates[-1] > 0.2  # noise is new in every round
    assert ledger.orders[-1].memo["fitted_at"][0] == 32.0
    without_memo = Ledger(
        [replace(entry, memo={}) if isinstance(entry, Order) else entry for entry in ledger.entries()]
    )
    decision = policy.decide(without_memo, without_memo.decision_rng())
    assert isinstance(decision, Train)
    assert decision.why["forgetting_rate"] == rates[-1], "a fit must not depend on the moment of the decision"


def test_a_memo_without_the_next_fit_is_understood() -> None:
    policy = TVGPUCB(forgetting_rate=None, **VALUES)
    ledger = play(policy, peak, begin(policy), 12)
    fitted = ledger.memo["forgetting_rate"]
    older = {"fitted_at": [8.0], "forgetting_rate": fitted}
    entries = [replace(entry, memo=older) if isinstance(entry, Order) else entry for entry in ledger.entries()]
    decision = policy.decide(Ledger(entries), ledger.decision_rng())
    assert isinstance(decision, Train)
    assert decision.memo["forgetting_rate"] == fitted


def test_a_round_that_may_not_be_validated_takes_the_best_known_config() -> None:
    policy = TVGPUCB(validate_at_most="12 passes", **VALUES)
    ledger = play(policy, peak, begin(policy, rounds=20), 20)
    assert list_validated(ledger) == [True] * 12 + [False] * 8
    assert {order.why["query"] for order in ledger.orders[12:]} == {"cap"}
    validated_best = max(ledger.orders[:12], key=lambda order: peak(order.config, 0)).config["x"]
    assert all(abs(order.config["x"] - validated_best) <= 0.05 for order in ledger.orders[12:])


def test_the_config_stays_without_rewards_and_validations() -> None:
    policy = TVGPUCB(validate_at_most="1 passes", query="always")
    ledger = play(policy, peak, begin(policy, Space({"x": Float(0, 1)}), rounds=6), 6)
    assert list_validated(ledger) == [True] + [False] * 5
    assert len({order.config["x"] for order in ledger.orders}) == 1


def test_the_predicted_gains_of_skipped_rounds_are_subtracted() -> None:
    """Compare with the dense formula: the sum of three rounds' rewards is observed, the last config is predicted."""
    space = Space({"mode": Choice(["a", "b"])})
    policy = TVGPUCB(unit=1.0, clip=None, forgetting_rate=0.1, noise_variance=0.05)
    ledger = begin(policy, space)
    rounds = [("a", 0.0), ("a", 0.9), ("b", 1.3), ("a", None), ("a", None), ("b", 4.0)]
    for step, (mode, value) in enumerate(rounds, start=1):
        validate: Validate = "none" if value is None else "last"
        order = place_order(ledger, Train(trial=0, config={"mode": mode}, until=step, validate=validate))
        assert order is not None
        ledger = ledger.append(order).append(write_receipt(order, step, value, Cost(), at=0.0, saved_step=step))
    surrogate = ledger.view(policy._learn(ledger)[0]).surrogate
    # The modes are unrelated, so each observation but the last is about one of two scalar processes: 0.9 of a in round 2, 0.4 of
    # b in round 3; then 2.7 = a_4 + a_5 + b_6 in round 6.
    keep, noise = 0.9, 0.05

    def corr(lag: int) -> float:
        return float(keep ** (lag / 2))

    a_sum, b_now = [corr(2) + corr(3)], [corr(3)]  # with the observations of a and of b
    gram = np.array(
        [
            [1 + noise, 0, a_sum[0]],
            [0, 1 + noise, b_now[0]],
            [a_sum[0], b_now[0], 2 + 2 * corr(1) + 1 + noise],
        ]
    )
    cross = np.array([0.0, corr(4), corr(1)])  # of b in round 7
    expected = cross @ np.linalg.solve(gram, [0.9, 0.4, 2.7])
    np.testing.assert_allclose(surrogate.predict({"mode": "b"})[0], expected, rtol=1e-4)  # unrelated to about 1e-6


def swamp(config: Config, round: int) -> float:
    """Return the value of a run that crawls at 0.2, gains much more at 0.7, and gains nothing elsewhere."""
    x = float(config["x"])
    return 1.0 if abs(x - 0.7) < 0.08 else 0.2 if abs(x - 0.2) < 0.08 else 0.0


def play_sum(policy: Policy, gain: Callable[[Config, int], float], rounds: int, space: Space = GRID) -> Ledger:
    ledger, total = begin(policy, space, rounds), 0.0
    for _ in range(rounds):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        order = place_order(ledger, decision)
        assert order is not None
        total += gain(order.config, order.until)
        value = total if order.validate == "last" else None
        ledger = ledger.append(order).append(
            write_receipt(order, order.until, value, Cost(), at=0.0, saved_step=order.until)
        )
    return ledger


def stretches(ledger: Ledger) -> list[int]:
    """Return the lengths of all stretches of rounds without validation."""
    words = "".join("v" if validated else "." for validated in list_validated(ledger))
    return [len(stretch) for stretch in words.split("v") if stretch]


def test_no_stretch_without_validation_is_longer_than_the_limit() -> None:
    """One gain is so much better than all others that the paper's rule stops validating."""
    alone = play_sum(CEGPUCB(query="kappa", forgetting_rate=0.01), swamp, 80)
    assert max(stretches(alone)) > 4
    paced = play_sum(CEGPUCB(forgetting_rate=0.01), swamp, 80)
    assert max(stretches(paced)) == 3  # a thirtieth of 80
    assert "stretch" in {order.why["query"] for order in paced.orders}
    assert max(stretches(play_sum(CEGPUCB(forgetting_rate=0.01, longest_stretch=2), swamp, 80))) == 2


def test_at_most_a_share_of_the_rounds_is_validated() -> None:
    certain = CEGPUCB(query="kappa", kappa=1.0)  # 1.0 is never reached
    assert all(list_validated(play_sum(certain, swamp, 60)))
    for share in (0.5, 0.2):
        ledger = play_sum(CEGPUCB(kappa=1.0, pass_share=share), swamp, 60)
        validated = np.cumsum(list_validated(ledger))
        assert all(validated <= share * np.arange(1, 61) + 9)  # 15 % of 60
        assert validated[-1] == share * 60 + 9
        assert "share" in {order.why["query"] for order in ledger.orders}


def test_a_round_without_validation_takes_the_largest_mean_or_the_largest_acquisition() -> None:
    ledger = play(TVGPUCB(**VALUES), peak, begin(TVGPUCB()), 20)
    never = CEGPUCB(query="bernoulli", query_probability=0.0, **VALUES)
    for policy in (never, replace(never, unvalidated="acquisition")):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        assert decision.validate == "none"
        surrogate = ledger.view(policy._learn(ledger)[0]).surrogate
        beta = 0.0 if policy.unvalidated == "mean" else float(str(decision.why["beta"]))
        assert decision.config == surrogate.propose("ucb", beta, np.random.default_rng(0)).config


def test_a_run_in_a_bad_corner_is_found_out() -> None:
    """The reward becomes worse where the run is, at a round in which it no longer validates."""
    switch = lambda config, round: swamp({"x": config["x"] if round < 40 else 0.9 - config["x"]}, round)  # noqa: E731
    ledger = play_sum(CEGPUCB(), switch, 100)
    late = [order.config["x"] for order in ledger.orders[-20:]]
    assert np.mean([abs(x - 0.2) < 0.08 for x in late]) >= 0.5


def test_the_forgetting_rate_follows_from_the_number_of_rounds() -> None:
    for rounds, lag in ((30, 30), (60, 60), (600, 600)):
        policy = CEGPUCB()
        decision = policy.decide(begin(policy, rounds=rounds), np.random.default_rng(0))
        assert isinstance(decision, Train)
        rate = float(str(decision.why["forgetting_rate"]))
        assert (1.0 - rate) ** (lag / 2) == pytest.approx(math.exp(-0.3))


def test_all_parameters_in_time_are_fitted_within_bounds() -> None:
    policy = TVGPUCB(time_kernel="se", variance=None, noise_variance=None, **VALUES)
    rng = np.random.default_rng(0)
    ledger = play(policy, lambda config, round: peak(config, round) + float(rng.normal(0.0, 0.3)), begin(policy), 40)
    lengths = [float(str(order.why["time_lengthscale"])) for order in ledger.orders]
    low, high = lengthscale_bounds(60)
    assert lengths[0] == high
    assert all(low <= length <= high for length in lengths)
    assert len(set(lengths[8:16])) == 1
    memo = ledger.orders[-1].memo
    assert VARIANCE_BOUNDS[0] <= memo["variance"][0] <= VARIANCE_BOUNDS[1]
    assert 0.02 < memo["noise_variance"][0] < 0.4
    assert NOISE_BOUNDS[0] < 0.02
    changed = CEGPUCB(forgetting_rate=None, **VALUES).decide(ledger, ledger.decision_rng())
    assert isinstance(changed, Train)
    assert changed.memo["forgetting_rate"], "a memo of other settings is not understood as this one's"


def test_why_has_the_numbers_of_the_decision() -> None:
    ledger = play(CEGPUCB(query="kappa", kappa=0.8, **VALUES), peak, begin(CEGPUCB()), 20)
    why = ledger.orders[-1].why
    assert {"round", "query", "competitors", "mean", "std", "beta", "kappa", "forgetting_rate"} <= set(why)
    assert why["round"] == 20
    dumps(why)


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        (CEGPUCB, "kappa", 0.0),
        (CEGPUCB, "kappa", 1.1),
        (CEGPUCB, "query", "sometimes"),
        (TVGPUCB, "query_probability", 1.5),
        (CEGPUCB, "forgetting_rate", -0.1),
        (CEGPUCB, "reward", "loss"),
        (CEGPUCB, "unit", 0.0),
        (CEGPUCB, "clip", -1.0),
        (CEGPUCB, "acquisition", "lcb"),
        (CEGPUCB, "kernel", "hamming"),
        (CEGPUCB, "beta", -1.0),
        (CEGPUCB, "beta", math.inf),
        (CEGPUCB, "n_starts", 0),
        (CEGPUCB, "pass_share", 0.0),
        (CEGPUCB, "longest_stretch", 0),
        (CEGPUCB, "unvalidated", "best"),
        (CEGPUCB, "time_kernel", "rbf"),
        (CEGPUCB, "time_lengthscale", 0.0),
        (CEGPUCB, "forgetting_rate", "slowly"),
        (CEGPUCB, "variance", 0.0),
        (CEGPUCB, "noise_variance", -1.0),
        (CEGPUCB, "validate_at_most", "a lot"),
        (CEGPUCB, "validate_at_most", 20),
        (RGPUCB, "block", 0),
        (RGPUCB, "forgetting_rate", None),
    ],
)
def test_settings_out_of_range_are_refused(kind: type[CEGPUCB], setting: str, value: Any) -> None:
    with pytest.raises(PolicyError, match=rf"^{kind.name}\({setting}={re.escape(repr(value))}\) "):
        kind(**{setting: value})


def test_the_message_of_an_unknown_limit_on_validation() -> None:
    with pytest.raises(
        PolicyError, match=r"a share of the training cost, a number of passes or a duration: write '20%'"
    ):
        CEGPUCB(validate_at_most="a lot")
