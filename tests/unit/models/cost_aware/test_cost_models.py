"""Cost models, compared with dense least squares and brute-force leave-one-out; limits, few receipts, transfer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from shoestring.models.cost_aware.cost_models import (
    COST_MODELS,
    GPCost,
    choose_cost_model,
    cost_quantile,
    fit_cost_model,
    fit_gp_cost,
    log_costs,
)
from shoestring.models.cost_aware.linear import LinearCost, choose_columns, fit_linear, fit_transfer, pack, unpack

Array = NDArray[np.float64]
NAMES = list(COST_MODELS)


def receipts(n: int, seed: int = 0, noise: float = 0.1) -> tuple[Array, Array]:
    """Return log costs that depend on columns 1 and 3 of five."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 4, (n, 5))
    return features, 2.0 + 0.9 * features[:, 1] - 0.5 * features[:, 3] + noise * rng.standard_normal(n)


def test_least_squares_and_its_predictive_std() -> None:
    features, log_cost = receipts(12)
    model = fit_linear(features, log_cost, (3, 1))
    design = np.column_stack([np.ones(12), features[:, [3, 1]]])
    weights, rss, _, _ = np.linalg.lstsq(design, log_cost, rcond=None)
    np.testing.assert_allclose(model.weights, weights, rtol=1e-11)
    np.testing.assert_allclose(model.residual_sum, rss[0], rtol=1e-10)
    new = receipts(4, seed=1)[0]
    rows = np.column_stack([np.ones(4), new[:, [3, 1]]])
    mean, std = model.predict(new)
    np.testing.assert_allclose(mean, rows @ weights, rtol=1e-11)
    spread = 1 + np.einsum("mi,im->m", rows, np.linalg.solve(design.T @ design, rows.T))
    np.testing.assert_allclose(std, np.sqrt((0.25 + rss[0]) / 10 * spread), rtol=1e-10)


def test_fewer_receipts_than_weights_use_ridge() -> None:
    features, log_cost = receipts(3)
    model = fit_linear(features, log_cost, (0, 1, 3))
    design = np.column_stack([np.ones(3), features[:, [0, 1, 3]]])
    want = np.linalg.solve(design.T @ design + 1e-3 * np.diag([0, 1, 1, 1]), design.T @ log_cost)
    np.testing.assert_allclose(model.weights, want, rtol=1e-8)
    plain = fit_linear(*receipts(4), (0, 1, 3))  # as many as weights: through every point
    np.testing.assert_allclose(plain.line(receipts(4)[0]), receipts(4)[1], rtol=1e-9)
    np.testing.assert_allclose(plain.residual_sum, 0.0, atol=1e-20)  # nothing is left to estimate a spread from


def test_repeated_and_constant_columns_do_no_harm() -> None:
    features, log_cost = receipts(10)
    features[:, 2] = 7.0
    features[:, 4] = 2 * features[:, 1] - 3
    model = fit_linear(features, log_cost, (1, 2, 4))
    alone = fit_linear(features, log_cost, (1,))
    np.testing.assert_allclose(model.predict(features)[0], alone.predict(features)[0], rtol=1e-3)
    assert np.all(np.isfinite(model.predict(features)[1]))
    assert set(choose_columns(features, log_cost, 5)) & {1, 4} in ({1}, {4})
    assert 2 not in choose_columns(features, log_cost, 5)


def brute_selection(features: Array, log_cost: Array, most: int) -> tuple[int, ...]:
    """Select columns by refitting without each receipt in turn."""

    def error(columns: list[int]) -> float:
        design = np.column_stack([np.ones(len(log_cost)), features[:, columns]])
        squares = []
        for i in range(len(log_cost)):
            rest = np.delete(np.arange(len(log_cost)), i)
            weights = np.linalg.lstsq(design[rest], log_cost[rest], rcond=None)[0]
            squares.append((log_cost[i] - design[i] @ weights) ** 2)
        return float(np.mean(squares))

    selected: list[int] = []
    while len(selected) < min(most, len(log_cost) - 2):
        scores = {j: error([*selected, j]) for j in range(features.shape[1]) if j not in selected}
        best = min(scores, key=scores.__getitem__)
        if scores[best] >= error(selected):
            break
        selected.append(best)
    return tuple(selected)


@examples(9, thorough=25)
@given(st.integers(2, 14), st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([0.05, 1.0, 5.0]))
def test_selection_equals_refitting_without_each_receipt(n: int, seed: int, most: int, noise: float) -> None:
    features, log_cost = receipts(n, seed, noise)
    assert choose_columns(features, log_cost, most) == brute_selection(features, log_cost, most)


def test_selection_finds_what_matters_in_order() -> None:
    assert choose_columns(*receipts(40), 2) == (1, 3)
    assert choose_columns(*receipts(1), 3) == ()
    assert choose_columns(receipts(10)[0], np.full(10, 3.0), 3) == ()


@examples(14, thorough=40)
@given(st.integers(1, 40), st.booleans(), st.sampled_from(NAMES))
def test_auto_is_linear_for_few_receipts_in_named_features_and_else_a_gp(n: int, named: bool, name: str) -> None:
    chosen = choose_cost_model(name, n, named)
    assert chosen == (name if name != "auto" else "lv3" if named and n <= 15 else "gp")
    features, log_cost = receipts(min(n, 20))
    columns = (1, 3, 0) if named else None
    if name == "auto" and n <= 20:
        mean, std = fit_cost_model("auto", features, log_cost, columns=columns).predict(features)
        same_mean, same_std = fit_cost_model(chosen, features, log_cost, columns=columns).predict(features)
        assert np.array_equal(mean, same_mean)
        assert np.array_equal(std, same_std)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
def test_few_receipts_give_finite_predictions_near_the_data(name: str, n: int) -> None:
    features, log_cost = receipts(n)
    for columns in (None, (1, 3, 0)):
        mean, std = fit_cost_model(name, features, log_cost, columns=columns).predict(receipts(50, seed=1)[0])
        assert mean.shape == std.shape == (50,)
        assert np.all(np.isfinite(mean))
        assert np.all((std > 0.01) & (std <= 2.0 + 0.5 * np.ptp(log_cost) + 1e-12))
        assert np.all((mean >= log_cost.min() - 2) & (mean <= log_cost.max() + 2))
        assert np.all(cost_quantile(mean, std) > np.exp(mean))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("log_cost", [np.zeros(6), np.full(6, -9.0), np.array([0, 0, 0, 0, 0, 30.0])])
def test_constant_costs_duplicates_and_outliers(name: str, log_cost: Array) -> None:
    features = np.repeat(receipts(2)[0], 3, axis=0)
    mean, std = fit_cost_model(name, features, log_cost).predict(receipts(20, seed=1)[0])
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std) & (std > 0))
    if np.ptp(log_cost) == 0:
        np.testing.assert_allclose(mean, log_cost[0], atol=0.2)


@pytest.mark.parametrize("name", NAMES)
def test_the_unit_of_cost_only_shifts_the_logs(name: str) -> None:
    features, log_cost = receipts(10)
    new = receipts(8, seed=1)[0]
    mean, std = fit_cost_model(name, features, log_cost).predict(new)
    shifted_mean, shifted_std = fit_cost_model(name, features, log_cost + math.log(3600)).predict(new)
    # Two fits may stop at slightly different points.
    np.testing.assert_allclose(shifted_mean - math.log(3600), mean, atol=2e-3)
    np.testing.assert_allclose(shifted_std, std, rtol=2e-2)


def test_predictions_are_clipped_to_the_observed_range_and_floored() -> None:
    features = np.array([[0.0], [1.0], [2.0]])
    model = fit_linear(features, np.array([0.0, 1.0, 2.0]), (0,))
    np.testing.assert_allclose(model.predict(np.array([[-100.0], [-1.5], [3.5], [100.0]]))[0], [-2.0, -1.5, 3.5, 4.0])
    outlier = fit_linear(np.zeros((5, 1)), np.array([-60.0, 0.0, 0.0, 0.0, 0.0]), ())
    assert outlier.limits.low == pytest.approx(math.log(1e-12))
    gp = fit_gp_cost(features, np.array([0.0, 1.0, 2.0]), (0,), base=model)
    assert gp.predict(np.array([[100.0]]))[0].tolist() == [4.0]


@pytest.mark.parametrize(("name", "columns"), [("lv1", (3,)), ("lv2", (3, 1)), ("lv3", (3, 1, 0))])
def test_linear_models_use_the_first_features_given(name: str, columns: tuple[int, ...]) -> None:
    model = fit_cost_model(name, *receipts(15), columns=(3, 1, 0))
    assert isinstance(model, LinearCost)
    assert model.columns == columns


@pytest.mark.parametrize(
    ("name", "columns", "based"),
    [("gp", (0, 1, 2, 3, 4), False), ("gp3", (3, 1, 0), False), ("gplv", (0, 1, 2, 3, 4), True)],
)
def test_gp_models_use_the_features_of_their_names(name: str, columns: tuple[int, ...], based: bool) -> None:
    model = fit_cost_model(name, *receipts(15), columns=(3, 1, 0))
    assert isinstance(model, GPCost)
    assert model.columns == columns
    assert (model.base is not None) == based
    assert len(model.gp.memo()["log_lengthscales"]) == len(columns)


@pytest.mark.parametrize("name", ["gp", "gplv"])
def test_gp_models_learn_nonlinear_costs(name: str) -> None:
    rng = np.random.default_rng(0)
    features = rng.random((40, 2))
    log_cost = 3 * features[:, 0] + np.sin(6 * features[:, 1])
    new = rng.random((200, 2))
    truth = 3 * new[:, 0] + np.sin(6 * new[:, 1])

    def rmse(model: str) -> float:
        return float(np.sqrt(np.mean((fit_cost_model(model, features, log_cost).predict(new)[0] - truth) ** 2)))

    assert rmse(name) < 0.1 < rmse("lv3")


def test_gplv_is_linear_plus_a_gp_of_the_residuals() -> None:
    features, log_cost = receipts(20, noise=0.5)
    line = fit_linear(features, log_cost, (1,))
    both = fit_gp_cost(features, log_cost, range(5), base=line)
    residual = fit_gp_cost(features, log_cost - line.line(features), range(5))
    new = receipts(10, seed=1)[0]
    left_over, _ = residual.gp.predict((new - both.low) / both.width)
    want = line.line(new) + residual.shift + residual.scale * left_over
    want = np.clip(want, log_cost.min() - 2, log_cost.max() + 2)
    np.testing.assert_allclose(both.predict(new)[0], want, rtol=1e-12)
    np.testing.assert_allclose(both.predict(new)[1], residual.predict(new)[1], rtol=1e-12)


def test_the_reserve_suffices_about_nine_times_in_ten() -> None:
    covered = []
    for seed in range(60):
        features, log_cost = receipts(30, seed, noise=0.4)
        mean, std = fit_cost_model("lv2", features[:25], log_cost[:25], columns=(1, 3)).predict(features[25:])
        covered.append(np.exp(log_cost[25:]) <= cost_quantile(mean, std, 0.9))
    assert 0.85 < np.mean(covered) < 0.95


def test_transfer_is_one_linear_model_of_all_tasks() -> None:
    tasks = [receipts(8, seed) for seed in range(3)]
    naive = fit_transfer(tasks, (1, 3))
    stacked = fit_linear(np.vstack([f for f, _ in tasks]), np.concatenate([c for _, c in tasks]), (1, 3))
    new = receipts(6, seed=9)[0]
    np.testing.assert_allclose(naive.predict(new), stacked.predict(new), rtol=1e-13)


def test_transfer_uses_the_description_of_the_tasks() -> None:
    rows = [2.0, 4.0, 5.0]  # log rows: the cost is proportional to them
    tasks = [(f, c + r) for r, (f, c) in zip(rows, [receipts(8, seed, 0.01) for seed in range(3)], strict=True)]
    model = fit_transfer(tasks, (1, 3), task_meta=[[r] for r in rows], meta=[3.0])
    new, truth = receipts(20, seed=9, noise=0.0)
    np.testing.assert_allclose(model.predict(new)[0], truth + 3.0, atol=0.05)
    with pytest.raises(ValueError, match="must describe each of the 3 tasks with 1 numbers"):
        fit_transfer(tasks, (1, 3), meta=[3.0])


def test_a_transferred_model_survives_packing() -> None:
    rng = np.random.default_rng(0)
    tasks = [(rng.random((8, 3)), rng.normal(size=8)) for _ in range(2)]
    model = fit_transfer(tasks, [2, 0], task_meta=[[1.0], [2.0]], meta=[1.5])
    x = rng.random((5, 3))
    for want, got in zip(model.predict(x), unpack(pack(model)).predict(x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_log_costs_replace_zeros_and_refuse_other_values() -> None:
    np.testing.assert_allclose(log_costs(np.array([0.0, 0.5, 2.0])), np.log([0.5, 0.5, 2.0]))
    assert log_costs(np.zeros(2)).tolist() == [0.0, 0.0]
    assert log_costs(np.empty(0)).shape == (0,)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="must be finite and >= 0"):
            log_costs(np.array([1.0, wrong]))


def test_wrong_arguments_are_errors() -> None:
    features, log_cost = receipts(4)
    with pytest.raises(ValueError, match="unknown: use one of auto, lv1"):
        fit_cost_model("lv4", features, log_cost)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        cost_quantile(np.zeros(1), np.ones(1), 1.0)
    with pytest.raises(ValueError, match="at least one other task"):
        fit_transfer([], (1,))
    with pytest.raises(ValueError, match="different indices below 5"):
        fit_linear(features, log_cost, (1, 1))
    with pytest.raises(ValueError, match="different indices below 5"):
        fit_linear(features, log_cost, (7,))
    with pytest.raises(ValueError, match=r"\(n, d\) and \(n,\), n >= 1"):
        fit_linear(features[:0], log_cost[:0], (1,))
    with pytest.raises(ValueError, match="NaN or infinity"):
        fit_linear(features, np.array([0.0, 1.0, -np.inf, 2.0]), (1,))


# few receipts, and many ----------------------------------------------------------------------------------------------


@given(n=st.integers(1, 40), seed=st.integers(0, 20), named=st.booleans())
@examples(14, thorough=40)
def test_a_linear_model_uses_a_feature_for_every_four_receipts(n: int, seed: int, named: bool) -> None:
    features, log_cost = receipts(n, seed)
    for name, most in (("lv1", 1), ("lv2", 2), ("lv3", 3)):
        model = fit_cost_model(name, features, log_cost, columns=(3, 1, 0) if named else None)
        allowed = min(most, max(1, n // 4))
        if named:
            assert model.columns == (3, 1, 0)[:allowed]
        else:
            assert model.columns == choose_columns(features, log_cost, allowed)


@pytest.mark.parametrize("n", [2, 15, 16, 40])
def test_auto_predicts_like_the_model_that_it_means(n: int) -> None:
    features, log_cost = receipts(n)
    at = receipts(9, seed=1)[0]
    named = fit_cost_model("auto", features, log_cost, columns=(3, 1, 0))
    want = fit_cost_model("lv3" if n <= 15 else "gp", features, log_cost, columns=(3, 1, 0))
    np.testing.assert_array_equal(named.predict(at), want.predict(at))
    unnamed = fit_cost_model("auto", features, log_cost)
    np.testing.assert_array_equal(unnamed.predict(at), fit_cost_model("gp", features, log_cost).predict(at))


def test_a_gp_uses_300_receipts_spread_over_time() -> None:
    features, log_cost = receipts(601)
    log_cost[1] = 20.0  # expensive, and not among the 300
    model = fit_gp_cost(features, log_cost, range(5))
    assert model.gp.y.size == 300
    np.testing.assert_allclose(model.shift + model.scale * model.gp.y, log_cost[np.linspace(0, 600, 300).astype(int)])
    assert model.limits.high == 22.0


def test_without_a_refit_the_parameters_stay() -> None:
    features, log_cost = receipts(30)
    before = fit_cost_model("gp", features[:20], log_cost[:20])
    assert isinstance(before, GPCost)
    memo = before.gp.memo()
    unchanged = fit_cost_model("gp", features, log_cost, memo=memo, refit=False)
    again = fit_cost_model("gp", features, log_cost, memo=memo)
    assert isinstance(unchanged, GPCost)
    assert isinstance(again, GPCost)
    assert unchanged.gp.memo() == memo != again.gp.memo()
    assert unchanged.gp.y.size == 30
