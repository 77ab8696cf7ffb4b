"""Cases of `bo_bos`: the stopping rule on 100,000 paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from benchmarks.speed.measure import Case, Peer, begin_study, decide_and_carry_out
from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.curves import ListedCurves


@dataclass(frozen=True)
class WithoutCache:
    """BO-BOS that solves its stopping problem again at every decision, as after every resume."""

    policy: Policy

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Any:
        from shoestring.policies.stopping.bo_bos import solve_rule

        solve_rule.cache_clear()
        return self.policy.decide(ledger, rng)


def cases() -> list[Case]:
    """Return the cases: 100,000 paths, N = 50, N0 = 8, 100 cells, 12 runs, with and without stored plans."""
    rng = np.random.default_rng(0)
    steps, rows = 50, 100
    ends = rng.uniform(0.1, 0.6, rows)
    curves = ends[:, None] + (0.9 - ends[:, None]) / np.arange(1.0, steps + 1) ** rng.uniform(0.5, 1.0, (rows, 1))
    space = Space.from_configs(
        [{"x": float(end), "y": float(y)} for end, y in zip(ends, rng.random(rows), strict=True)]
    )
    source = ListedCurves({str(end): list(curve) for end, curve in zip(ends, curves, strict=True)})  # type: ignore[arg-type]

    @dataclass(frozen=True)
    class ByEnd:
        def step(self, config: Config, step: int) -> StepOutcome | None:
            return source.step({"name": str(config["x"])}, step)

    def begin(policy: Policy) -> Callable[[], Ledger]:
        def open_ledger() -> Ledger:
            ledger = begin_study(policy, space, "5000 epochs", max_steps=steps)
            while len(ledger.trials) < 12 or ledger.trials[-1].steps < 9:
                ledger = decide_and_carry_out(ledger, policy, ByEnd())
            return ledger

        return open_ledger

    policy = policies.make("bo_bos")
    without_cache = cast(Policy, WithoutCache(policy))

    def plain_loops() -> None:
        from shoestring.models.stopping.curve_paths import curve_posterior, draw_paths, fit_curve

        seen = curves[0, :8]
        paths = draw_paths(*curve_posterior(seen, range(9, 51), fit_curve(seen)), 100_000, np.random.default_rng(0))
        induction_by_loops(paths.tolist(), 0.1)

    return [
        Case(
            "bo_bos_rule",
            without_cache,
            begin(policy),
            ByEnd(),
            250.0,
            {"the same induction by plain loops": Peer(lambda: plain_loops)},
        ),
        Case("bo_bos", policy, begin(policy), ByEnd(), 250.0),
    ]


def induction_by_loops(paths: list[list[float]], incumbent: float, k1: float = 100.0, k2: float = 99.0) -> None:
    """Solve Algorithm 2 of BO-BOS with plain loops: 100 cells, one more step costs 1."""
    steps, cells = len(paths[0]), 100
    means = [[path[0]] for path in paths]
    for path, mean in zip(paths, means, strict=True):
        total = path[0]
        for n in range(1, steps):
            total += path[n]
            mean.append(total / (n + 1))
    value: dict[int, float] = {}
    for n in reversed(range(steps)):
        here: dict[int, list[int]] = {}
        for i, mean in enumerate(means):
            here.setdefault(min(cells - 1, int(mean[n] * cells)), []).append(i)
        before, value = value, {}
        for cell, members in here.items():
            better = sum(paths[i][-1] <= incumbent for i in members) / len(members)
            stop = min(k1 * better, k2 * (1.0 - better))
            if n == steps - 1:
                value[cell] = stop
            else:
                ahead = sum(before[min(cells - 1, int(means[i][n + 1] * cells))] for i in members) / len(members) + 1.0
                value[cell] = ahead if len(members) <= 30 else min(stop, ahead)
