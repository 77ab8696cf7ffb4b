"""Cases of `ce_gp_ucb` and `tv_gp_ucb`: 1000 points, compared with the same rounds of their models alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.speed.measure import Case, Peer, begin_study, decide_and_carry_out
from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Cost
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.models.gp.kernels import Kernel
from shoestring.models.online import query_rules
from shoestring.models.online.time_varying import TimeVaryingGP
from shoestring.runners.simulated.simulated_runner import StepOutcome

POINTS = np.linspace(0.0, 1.0, 1000)
KAPPA = 0.9


@dataclass(frozen=True)
class DriftingMaxima:
    """Two maxima that move slowly along an interval, observed with noise."""

    noise: tuple[float, ...]

    def step(self, config: Config, step: int) -> StepOutcome:
        x = float(config["x"])
        value = np.sin(6.0 * x + step / 50.0) + 0.7 * np.cos(17.0 * x - step / 80.0) + self.noise[step - 1]
        return StepOutcome(float(value), Cost(train=1.0))


def cases() -> list[Case]:
    """Return the cases: 1000 points, rounds 481 to 501 of 520, with few validations and with one in every round."""
    rounds, begun = 520, 480
    space = Space.from_configs([{"x": float(x)} for x in POINTS])
    source = DriftingMaxima(tuple(0.1 * np.random.default_rng(0).standard_normal(rounds)))

    def begin(policy: Policy) -> Callable[[], Ledger]:
        def open_ledger() -> Ledger:
            ledger = begin_study(policy, space, f"{rounds} epochs", direction="max", max_steps=rounds)
            for _ in range(begun):
                ledger = decide_and_carry_out(ledger, policy, source)
            return ledger

        return open_ledger

    def alone(*, sparingly: bool) -> dict[str, Peer]:
        work = partial(through_models, source, rounds, sparingly=sparingly)
        return {"its models alone": Peer(lambda: work, rounds)}

    settings = {"reward": "value", "clip": None, "kernel": "matern32", "forgetting_rate": 0.01, "noise_variance": 0.01}
    sparing, full = policies.make("ce_gp_ucb", settings), policies.make("tv_gp_ucb", settings)
    return [
        Case("ce_gp_ucb", sparing, begin(sparing), source, 0.5, alone(sparingly=True)),
        Case("tv_gp_ucb", full, begin(full), source, 0.5, alone(sparingly=False)),
    ]


def through_models(source: DriftingMaxima, rounds: int, *, sparingly: bool) -> None:
    """Run the rounds of the models alone: predict, choose, compare, observe, without ledger or policy."""
    kernel = Kernel.ard("matern32", 1).matrix(np.log([1.0, 0.2]), POINTS[:, None], POINTS[:, None])
    gp = TimeVaryingGP(kernel.__getitem__, kernel.diagonal(), forgetting_rate=0.01, noise_variance=0.01)
    for t in range(1, rounds + 1):
        mean, variance = gp.mean, gp.variance
        ucb = query_rules.upper_confidence(mean, variance, query_rules.beta_schedule(t))
        chosen = query_rules.choose(ucb)
        look = not sparingly or t == 1
        if not look:
            better = query_rules.probability_better(mean, variance, chosen, query_rules.other_maxima(ucb, chosen))
            look = query_rules.query_by_confidence(better, KAPPA)
        if look:
            value = source.step({"x": float(POINTS[chosen])}, t).value
            assert value is not None
            gp.observe(chosen, value)
        gp.advance()
