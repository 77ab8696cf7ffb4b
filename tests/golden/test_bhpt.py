"""Golden numbers of the freeze-thaw posterior and the action value, from dense Gaussians and quadrature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoestring import policies
from shoestring.core.ledger.entries import Cost
from shoestring.core.space.space import Config, Space
from shoestring.core.values.strict_json import dumps
from shoestring.models.freeze_thaw.action_value import plan_values, value_actions
from shoestring.models.freeze_thaw.arm_curves import CurveParameters, Curves, whiten
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawPosterior, log_likelihood, sum_arms
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import make_definition, simulate

Floats = NDArray[np.float64]


def parameters_of(hyper: Mapping[str, float]) -> CurveParameters:
    return CurveParameters(
        alpha=hyper["alpha"],
        beta=hyper["beta"],
        s2=hyper["curve_variance"],
        noise=hyper["noise_variance"],
        sx2=hyper["x_variance"],
        mean=hyper["mean"],
    )


def arm_kernel_of(inputs: Mapping[str, Any]) -> Floats:
    x = np.array(inputs["X"])
    squared = ((x[:, None] - x) ** 2).sum(axis=-1)
    return np.asarray(np.exp(-0.5 * squared / inputs["hyper"]["x_lengthscale"] ** 2))


def table_of(curves: list[list[float]], n_steps: int) -> Floats:
    losses = np.full((len(curves), n_steps), np.nan)
    for arm, curve in enumerate(curves):
        losses[arm, : len(curve)] = curve
    return losses


@pytest.mark.golden("bhpt", "freeze_thaw_posterior")
def test_posterior(case: Any) -> None:
    arms, at = zip(*case.inputs["queries"], strict=True)
    curves = Curves.of(table_of(case.inputs["curves"], max(at)))
    parameters, arm_kernel = parameters_of(case.inputs["hyper"]), arm_kernel_of(case.inputs)
    posterior = FreezeThawPosterior.from_curves(curves, parameters, arm_kernel)
    sums = sum_arms(curves, parameters, whiten(curves, parameters, parameters.mean, len(curves.order)))
    mean, cov = posterior.predict_joint(arms, at)
    case.check(
        {
            "log_marginal_likelihood": log_likelihood(sums, parameters, arm_kernel),
            "asymptote_mean": posterior.asymptote_mean,
            "asymptote_cov": posterior.asymptote_cov,
            "query_latent_mean": mean,
            "query_latent_cov": cov,
        },
        rtol=1e-8,
    )
    grid_mean, grid_variance = posterior.predict()
    steps = np.array(at) - 1
    case.check_part({"query_latent_mean": grid_mean[arms, steps]}, rtol=1e-8)
    np.testing.assert_allclose(grid_variance[arms, steps], np.diag(cov), rtol=1e-8)


@pytest.mark.golden("bhpt", "action_value")
def test_action_value(case: Any) -> None:
    value = value_actions(np.array(case.inputs["mean"]), np.array(case.inputs["std"]))
    case.check(
        {
            "Q": value.q,
            "top_arm": int(value.top_arm),
            "value_of_information": value.gain,
            "argmin": int(np.argmin(value.q)),
        }
    )


def run_trace(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run the whole tuning on known curves, with each decision from the posterior given all losses so far."""
    table, budget, length = np.array(inputs["curves"]), inputs["budget"], inputs["curve_length"]
    parameters, arm_kernel = parameters_of(inputs["hyper"]), arm_kernel_of(inputs)
    losses = np.full((len(table), length), np.nan)
    trained = np.zeros(len(table), dtype=np.intp)
    steps = []
    for n in range(1, budget + 1):
        remaining = budget - n + 1
        mean, variance = FreezeThawPosterior.from_curves(Curves.of(losses), parameters, arm_kernel).predict()
        plan = plan_values(mean[None], variance[None], trained, np.minimum(remaining, length - trained))
        committed = plan.tau_star >= remaining
        arm = plan.top_arm if committed else plan.choose_arm(np.random.default_rng(n))
        loss = table[arm, trained[arm]]
        steps.append(
            {
                "step": n,
                "remaining": remaining,
                "top_arm": plan.top_arm,
                "tau_star": plan.tau_star,
                "committed": committed,
                "action": arm,
                "loss": loss,
                "Q": plan.q,
            }
        )
        losses[arm, trained[arm]] = loss
        trained[arm] += 1
    return {
        "actions": [step["action"] for step in steps],
        "output": min(step["loss"] for step in steps),
        "allocation": trained,
        "steps": steps,
    }


@pytest.mark.golden("bhpt", "trace")
def test_trace(case: Any) -> None:
    result = run_trace(case.inputs)
    steps = result.pop("steps")
    for got, want in zip(steps, case.records("steps") or [{}] * len(steps), strict=True):
        replace(case, expected=want).check(got)
    case.check_part(result)
    assert set(case.expected) <= {*result, "steps"}


@pytest.mark.golden("bhpt", "trace")
def test_trace_through_the_policy(case: Any) -> None:
    """Run the same tuning with the registered policy under the real loop, on a simulated clock."""
    inputs, hyper = case.inputs, case.inputs["hyper"]
    x = np.array(inputs["X"])
    names = [f"x{j}" for j in range(x.shape[1])]
    space = Space.from_configs([dict(zip(names, map(float, row), strict=True)) for row in x])
    policy = policies.make(
        "bhpt",
        {
            "printed": True,
            "parameters": list(astuple(parameters_of(hyper))),
            "scale": "none",
            # the unit cube is stretched over the rows, the golden length-scale is not
            "lengthscale": (hyper["x_lengthscale"] / (x.max(axis=0) - x.min(axis=0))).tolist(),
        },
    )
    start = make_definition(policy, space=space, budget=f"{inputs['budget']} epochs", max_steps=inputs["curve_length"])
    curves = {space.key(row): curve for row, curve in zip(space.rows or (), inputs["curves"], strict=True)}
    ledger = simulate(policy, CurvesByKey(curves), start).ledger
    losses = [ledger.trials[o.trial].losses[o.until - 1] for o in ledger.orders]
    actions = [space.row_number(o.config) for o in ledger.orders]
    assert ledger.best is not None
    allocation = [actions.count(arm) for arm in range(len(x))]
    got = {"actions": actions, "output": ledger.best.best_loss, "allocation": allocation}
    case.check_part(got)
    wanted = case.records("steps") or [{}] * len(losses)
    for order, loss, want in zip(ledger.orders, losses, wanted, strict=True):
        why = order.why
        numbers = {
            "step": order.number + 1,
            "remaining": why["r"],
            "top_arm": why["c_hat"],
            "tau_star": why["tau_star"],
            "committed": why["committed"],
            "action": why["arm"],
            "loss": loss,
            "Q": why["Q"],
        }
        replace(case, expected={**want, "Q": want["Q"][want["action"]]}).check(numbers)


@dataclass(frozen=True)
class CurvesByKey:
    """Curves by the text of their configuration."""

    curves: Mapping[str, list[float]]

    def step(self, config: Config, step: int) -> StepOutcome:
        return StepOutcome(self.curves[dumps(config)][step - 1], Cost(train=1.0))
