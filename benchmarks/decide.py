"""How long a decision takes: 20 consecutive ones on a study that is well under way, refits included.

    python -m benchmarks decide --policy bhpt
    OMP_NUM_THREADS=1 python -m benchmarks decide          every policy that has a case

Each case is a policy with settings, a ledger to begin from, a source of receipts, and a target for the mean; median and
95 % quantile are printed beside it. Peers are timed on the same data in the same run. Last line of each case: one JSON
object; exit 1 when a target is missed. To add a policy, write a function that returns its cases and name it in CASES.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from shoestring import policies
from shoestring.core.decision import Train
from shoestring.core.entries import Cost, Opened, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget
from shoestring.core.parameters import Float
from shoestring.core.policy import Policy
from shoestring.core.space import Config, Space
from shoestring.runners.blas import OneThread
from shoestring.runners.runner import write_receipt
from shoestring.runners.simulated import Source, StepOutcome
from shoestring.testing.curves import WrittenCurves

DECISIONS = 20


@dataclass(frozen=True)
class Case:
    name: str
    policy: Policy
    begin: Callable[[], Ledger]
    source: Source
    target_ms: float  # of the mean
    peers: dict[str, Callable[[], None]] = field(default_factory=dict)  # one decision's worth of another library's work


def milliseconds(case: Case) -> tuple[list[float], list[float]]:
    """Wall and processor time of each decision; the first, made to have a memo as any running study has, is not counted.

    On a machine that is busy with other things only the processor time says anything; the target is for the wall.
    """
    ledger, times, busy = case.begin(), [], []
    one_thread = OneThread()
    for _ in range(DECISIONS + 1):
        began, at_work = time.perf_counter(), time.process_time()
        with one_thread:  # as the loop asks it
            decision = case.policy.decide(ledger, ledger.decision_rng())
        times.append(1000.0 * (time.perf_counter() - began))
        busy.append(1000.0 * (time.process_time() - at_work))
        assert isinstance(decision, Train), f"{case.name}: {decision}"
        order = ledger.accept(decision)
        assert order is not None
        ledger = ledger.append(order)
        for step in range(ledger.trials[order.trial].held + 1, order.until + 1):
            outcome = case.source.step(order.config, step)
            assert outcome is not None
            ledger = ledger.append(write_receipt(order, step, outcome.value, outcome.cost, at=0.0, saved=step))
    return times[1:], busy[1:]


def bhpt() -> list[Case]:
    """100 arms of 50 epochs with 2500 observations, unequally spread; scikit-learn's dense process on the same data."""
    rng = np.random.default_rng(0)
    arms, steps, seen = 100, 50, 2500
    ends = rng.uniform(0.1, 0.6, arms)
    curves = ends[:, None] + rng.uniform(0.3, 0.9, (arms, 1)) / np.arange(1.0, steps + 1) ** 0.7
    curves += 0.002 * rng.standard_normal(curves.shape)
    trained = np.full(arms, seen // arms)
    for _ in range(2000):  # some far, some hardly begun, all able to go on
        i, j = rng.choice(arms, 2, replace=False)
        if trained[i] > 1 and trained[j] < steps - 5:
            trained[i], trained[j] = trained[i] - 1, trained[j] + 1
    assert trained.sum() == seen
    space = Space.listed([{"name": f"arm {i}"} for i in range(arms)])
    source = WrittenCurves({f"arm {i}": list(curve) for i, curve in enumerate(curves)})

    def begin(policy: Policy) -> Callable[[], Ledger]:
        def made() -> Ledger:
            opened = Opened(
                space=space,
                budget=Budget(f"{seen + 500} epochs"),
                policy=policy.name,
                settings=policies.settings_of(policy),
                seed=0,
                max_steps=steps,
            )
            ledger = Ledger([opened])
            for arm, n in enumerate(trained):
                order = Order(number=arm, trial=arm, config=space.rows[arm], until=int(n), reserve=float(n))  # type: ignore[index]
                ledger = ledger.append(order)
                for step in range(1, int(n) + 1):
                    told = Receipt(
                        order=arm, trial=arm, step=step, value=float(curves[arm, step - 1]), cost=Cost(train=1.0)
                    )
                    ledger = ledger.append(told)
            return ledger

        return made

    def dense() -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, WhiteKernel

        # Arms as one-hot columns: independent curves, as in the belief. Parameters fixed: one fit, one prediction.
        where = np.array([(arm, step) for arm, n in enumerate(trained) for step in range(n)])
        ahead = np.array([(arm, step) for arm, n in enumerate(trained) for step in range(n, steps)])

        def inputs(pairs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return np.column_stack([100.0 * np.eye(arms)[pairs[:, 0]], pairs[:, 1] / 10.0])

        model = GaussianProcessRegressor(RBF(1.0) + WhiteKernel(1e-3), optimizer=None)
        model.fit(inputs(where), curves[where[:, 0], where[:, 1]])
        model.predict(inputs(ahead), return_std=True)

    fixed = policies.make("bhpt", {"parameters": [1.0, 5.0, 1.0, 0.01, 1.0, 0.0]})
    sampled = policies.make("bhpt")
    return [
        Case("bhpt_fixed", fixed, begin(fixed), source, 2.0, {"scikit-learn, dense, fixed parameters": dense}),
        Case("bhpt_sampled", sampled, begin(sampled), source, 40.0, {"scikit-learn, dense, fixed parameters": dense}),
    ]


@dataclass(frozen=True)
class Drifting:
    """Two humps that move slowly along an interval, seen with some noise."""

    noise: tuple[float, ...]

    def step(self, config: Config, step: int) -> StepOutcome:
        x = float(config["x"])
        value = np.sin(6.0 * x + step / 50.0) + 0.7 * np.cos(17.0 * x - step / 80.0) + self.noise[step - 1]
        return StepOutcome(float(value), Cost(train=1.0))


def ce_gp_ucb() -> list[Case]:
    """1000 points, rounds 481 to 501 of 520: sparing with validation, and validating every round."""
    rounds, begun = 520, 480
    space = Space.listed([{"x": float(x)} for x in np.linspace(0.0, 1.0, 1000)])
    source = Drifting(tuple(0.1 * np.random.default_rng(0).standard_normal(rounds)))

    def begin(policy: Policy) -> Callable[[], Ledger]:
        def made() -> Ledger:
            opened = Opened(
                space=space,
                budget=Budget(f"{rounds} epochs"),
                policy=policy.name,
                settings=policies.settings_of(policy),
                seed=0,
                direction="max",
                max_steps=rounds,
            )
            ledger = Ledger([opened])
            for step in range(1, begun + 1):
                decision = policy.decide(ledger, ledger.decision_rng())
                assert isinstance(decision, Train)
                order = ledger.accept(decision)
                assert order is not None
                value = source.step(order.config, step).value
                ledger = ledger.append(order).append(
                    write_receipt(order, step, value, Cost(train=1.0), at=0.0, saved=step)
                )
            return ledger

        return made

    told = {"reward": "value", "clip": None, "kernel": "matern32"}
    sparing, full = policies.make("ce_gp_ucb", told), policies.make("tv_gp_ucb", told)
    return [
        Case("ce_gp_ucb", sparing, begin(sparing), source, 0.5),
        Case("tv_gp_ucb", full, begin(full), source, 0.5),
    ]


@dataclass(frozen=True)
class Forgetful:
    """BO-BOS that solves its stopping problem at every decision, as after every resume."""

    policy: Policy

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Any:
        from shoestring.policies.stopping.bo_bos import solve_rule

        solve_rule.cache_clear()
        return self.policy.decide(ledger, rng)


def bo_bos() -> list[Case]:
    """100,000 paths, N = 50, N0 = 8, 100 cells, 12 runs begun: decisions as they come, and each with its problem solved anew."""
    rng = np.random.default_rng(0)
    steps, rows = 50, 100
    ends = rng.uniform(0.1, 0.6, rows)
    curves = ends[:, None] + (0.9 - ends[:, None]) / np.arange(1.0, steps + 1) ** rng.uniform(0.5, 1.0, (rows, 1))
    space = Space.listed([{"x": float(end), "y": float(y)} for end, y in zip(ends, rng.random(rows), strict=True)])
    source = WrittenCurves({str(end): list(curve) for end, curve in zip(ends, curves, strict=True)})  # type: ignore[arg-type]

    @dataclass(frozen=True)
    class ByEnd:
        def step(self, config: Config, step: int) -> StepOutcome | None:
            return source.step({"name": str(config["x"])}, step)

    def begin(policy: Policy) -> Callable[[], Ledger]:
        def made() -> Ledger:
            opened = Opened(
                space=space,
                budget=Budget("5000 epochs"),
                policy=policy.name,
                settings=policies.settings_of(policy),
                seed=0,
                max_steps=steps,
            )
            ledger = Ledger([opened])
            while len(ledger.trials) < 12 or ledger.trials[-1].steps < 9:
                decision = policy.decide(ledger, ledger.decision_rng())
                assert isinstance(decision, Train)
                order = ledger.accept(decision)
                assert order is not None
                ledger = ledger.append(order)
                for step in range(ledger.trials[order.trial].held + 1, order.until + 1):
                    value = ByEnd().step(order.config, step)
                    assert value is not None
                    ledger = ledger.append(write_receipt(order, step, value.value, value.cost, at=0.0, saved=step))
            return ledger

        return made

    policy = policies.make("bo_bos")
    anew = cast(Policy, Forgetful(policy))

    def plain_loops() -> None:
        from shoestring.models.stopping.curve_paths import curve_posterior, draw_paths, fit_curve

        seen = curves[0, :8]
        paths = draw_paths(*curve_posterior(seen, range(9, 51), fit_curve(seen)), 100_000, np.random.default_rng(0))
        induction_by_loops(paths.tolist(), 0.1)

    return [
        Case("bo_bos_rule", anew, begin(policy), ByEnd(), 250.0, {"the same induction by plain loops": plain_loops}),
        Case("bo_bos", policy, begin(policy), ByEnd(), 250.0),
    ]


def induction_by_loops(paths: list[list[float]], incumbent: float, k1: float = 100.0, k2: float = 99.0) -> None:
    """Algorithm 2 of BO-BOS as one would first write it: 100 cells, one more step costs 1."""
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


@dataclass(frozen=True)
class Priced:
    """Hartmann's six-dimensional function, at prices that differ by a factor of 150."""

    def step(self, config: Config, step: int) -> StepOutcome:
        from benchmarks.cost_aware.functions import hartmann6

        u = np.array([config[f"x{j}"] for j in range(6)])
        return StepOutcome(hartmann6(u), Cost(train=float(np.exp(3 * u[0] + 2 * u[5]))))


def cost_aware_ei() -> list[Case]:
    """Around 30, 100 and 200 finished trials in six dimensions; one decision of each installed peer on as many random points.

    `benchmarks cost_aware.speed` races them on the trials of the study itself, 20 decisions each.
    """
    from benchmarks.cost_aware.functions import HARTMANN6
    from benchmarks.cost_aware.peers import Grid, botorch_gp, optuna_gp, sklearn_gp

    space, source, policy = HARTMANN6.space, Priced(), policies.make("cost_aware_ei")
    known = {"scikit-learn GP, EI": (sklearn_gp, "sklearn"), "Optuna GPSampler": (optuna_gp, "torch")}
    known["BoTorch SingleTaskGP, LogEI"] = (botorch_gp, "botorch")
    installed = {name: make for name, (make, needs) in known.items() if find_spec(needs)}

    def begin(trials: int) -> Callable[[], Ledger]:
        def made() -> Ledger:
            settings = policies.settings_of(policy)
            opened = Opened(space=space, budget=Budget("1e9s"), policy=policy.name, settings=settings, seed=0)
            ledger, rng = Ledger([opened]), np.random.default_rng(0)
            for number in range(trials - DECISIONS // 2 - 1):
                order = Order(number=number, trial=number, config=space.from_cube(rng.random(6)), until=1)
                outcome = source.step(order.config, 1)
                ledger = ledger.append(order)
                ledger = ledger.append(write_receipt(order, 1, outcome.value, outcome.cost, at=0.0, saved=0))
            return ledger

        return made

    def peer(make: Callable[[Grid, int], Any], trials: int) -> Callable[[], None]:
        x = np.random.default_rng(0).random((trials, 6))
        y = np.array([cast(float, source.step({f"x{j}": v for j, v in enumerate(row)}, 1).value) for row in x])
        decide = make(Grid.box(6), 0)
        decide(x[:-1], y[:-1])  # imports, and an optimum to start from, as a running study has
        return lambda: cast(None, decide(x, y))

    return [
        Case(
            f"cost_aware_ei_{n}", policy, begin(n), source, target, {k: peer(make, n) for k, make in installed.items()}
        )
        for n, target in ((30, 50.0), (100, 50.0), (200, 150.0))
    ]


@dataclass(frozen=True)
class Iterative:
    """Rewards that rise like a logistic, to a height and at a pace that six numbers set; cost grows with the first."""

    steps: int

    def step(self, config: Config, step: int) -> StepOutcome:
        u = np.array([config[f"x{j}"] for j in range(6)])
        height = 100.0 * np.exp(-2.0 * ((u - 0.6) ** 2).sum())
        reward = height / (1.0 + np.exp(6.0 - (6.0 + 10.0 * u[1]) * step / self.steps))
        wobble = 3.0 * np.sin(step * (1.0 + 7.0 * u[2]))
        return StepOutcome(float(reward + wobble), Cost(train=0.5 + float(u[0])))


def boil() -> list[Case]:
    """Six dimensions, up to 100 steps, around 500 points in the model: runs' ends and the prefixes added for them."""
    steps, points = 100, 500
    space = Space({f"x{j}": Float(0.0, 1.0) for j in range(6)})
    source, policy = Iterative(steps), policies.make("boil")

    def begin() -> Ledger:
        settings = policies.settings_of(policy)
        opened = Opened(
            space=space,
            budget=Budget("1e9s"),
            policy=policy.name,
            settings=settings,
            seed=0,
            direction="max",
            max_steps=steps,
        )
        ledger, rng = Ledger([opened]), np.random.default_rng(0)
        while len(ledger.trials) % 10 or stored(ledger) < points - DECISIONS:
            number, until = len(ledger.trials), int(rng.integers(60, steps + 1))
            order = Order(number=number, trial=number, config=space.from_cube(rng.random(6)), until=until)
            ledger = ledger.append(order)
            for step in range(1, until + 1):
                outcome = source.step(order.config, step)
                ledger = ledger.append(write_receipt(order, step, outcome.value, outcome.cost, at=0.0, saved=step))
        return ledger

    def stored(ledger: Ledger) -> int:
        decision = policy.decide(ledger, ledger.decision_rng())
        return int(decision.why.get("points", 0)) if isinstance(decision, Train) else 0  # type: ignore[arg-type]

    return [Case("boil_500", policy, begin, source, 500.0)]


CASES: dict[str, Callable[[], list[Case]]] = {
    "ce_gp_ucb": ce_gp_ucb,
    "bhpt": bhpt,
    "boil": boil,
    "bo_bos": bo_bos,
    "cost_aware_ei": cost_aware_ei,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", choices=sorted(CASES), action="append", help="default: all")
    asked = parser.parse_args()
    good = True
    for name in asked.policy or sorted(CASES):
        for case in CASES[name]():
            times, busy = (np.array(each) for each in milliseconds(case))
            peers = {}
            for peer, work in case.peers.items():
                began, at_work = time.perf_counter(), time.process_time()
                with OneThread():  # peers too: all are measured on one core
                    work()
                peers[peer] = {
                    "ms": round(1000.0 * (time.perf_counter() - began), 1),
                    "processor_ms": round(1000.0 * (time.process_time() - at_work), 1),
                }
            told = {
                "name": f"decide_{case.name}",
                "measured": {
                    "mean_ms": round(float(times.mean()), 3),
                    "median_ms": round(float(np.median(times)), 3),
                    "p95_ms": round(float(np.quantile(times, 0.95)), 3),
                    "processor_mean_ms": round(float(busy.mean()), 3),
                    "decisions": DECISIONS,
                },
                "target": {"mean_ms": case.target_ms},
                "peers": peers,
                "ok": bool(times.mean() <= case.target_ms),
            }
            good &= bool(told["ok"])
            print(json.dumps(told))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
