"""`CostAwareSampler` passes Optuna's own tests for samplers, spends less on expensive trials, and stops the study."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

optuna = pytest.importorskip("optuna")
from optuna.testing.pytest_samplers import (  # noqa: E402
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from shoestring.errors import BudgetError  # noqa: E402
from shoestring.integrations.optuna import CostAwareSampler  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


class TestOptunaSuite(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], CostAwareSampler]:
        return lambda: CostAwareSampler("1h", seed=0)


def test_an_expensive_region_gets_few_trials() -> None:
    study = optuna.create_study(sampler=CostAwareSampler("90s", seed=0))

    def objective(trial: optuna.Trial) -> float:  # type: ignore[name-defined]
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.set_user_attr("cost", 10.0 if x > 0.5 else 1.0)
        return abs(x - 0.3)  # type: ignore[no-any-return]

    study.optimize(objective, n_trials=500)
    expensive = [trial for trial in study.trials if trial.params["x"] > 0.5]
    assert len(expensive) < 0.3 * len(study.trials)
    spent = sum(trial.user_attrs["cost"] for trial in study.trials)
    assert 90 <= spent < 101, "the trial that spends the rest is the last one"
    assert study.best_value < 0.05


def test_the_same_seed_gives_the_same_trials() -> None:
    def run() -> list[dict[str, float]]:
        study = optuna.create_study(sampler=CostAwareSampler("1h", seed=4))
        for _ in range(6):
            trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
            trial.set_user_attr("cost", 1.0)
            study.tell(trial, trial.params["x"])
        return [trial.params for trial in study.trials]

    assert run() == run()


def test_the_sampler_warns_that_its_budget_is_not_a_hard_limit(caplog: pytest.LogCaptureFixture) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    optuna.logging.enable_propagation()
    CostAwareSampler("1h")
    optuna.logging.disable_propagation()
    assert "not a hard limit" in caplog.text
    with pytest.raises(BudgetError, match="must be time or money"):
        CostAwareSampler("10 epochs")
