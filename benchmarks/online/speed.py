"""How long an online decision takes: 1000 points, 500 rounds, once through the models alone and once through the policy.

    python -m benchmarks online.speed [--repeats 5]

The models: predict, choose, compare, observe, move on. The policy: the same from a ledger of receipts, with everything that
a decision records. The policy's figures are the mean, median and 95 % quantile over 20 consecutive decisions from the 480th
on, when the posterior rests on most observations. Other programs on the machine only ever add time, so the quietest of the
repeats counts. The last line is one JSON object; the exit code is 1 when a target is missed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

from shoestring import policies
from shoestring.core.decision import Train
from shoestring.core.entries import Cost, Opened
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget
from shoestring.core.space import Space
from shoestring.models.gp.kernels import Kernel
from shoestring.models.online import query_rules
from shoestring.models.online.time_varying import TimeVaryingGP
from shoestring.runners.runner import write_receipt

POINTS, ROUNDS, LAST = 1000, 500, 20
RATE, KAPPA = 0.01, 0.9
X = np.linspace(0.0, 1.0, POINTS)


def truth(t: int, x: Any) -> Any:
    return np.sin(6.0 * x + t / 50.0) + 0.7 * np.cos(17.0 * x - t / 80.0)


def through_models(query: str, noise: Any) -> tuple[float, int]:
    """Seconds for all rounds, and looks."""
    kernel = Kernel.ard("matern32", 1).matrix(np.log([1.0, 0.2]), X[:, None], X[:, None])
    began = time.perf_counter()
    gp = TimeVaryingGP(kernel.__getitem__, kernel.diagonal(), forgetting_rate=RATE, noise_variance=0.01)
    looks = 0
    for t in range(1, ROUNDS + 1):
        mean, variance = gp.mean, gp.variance
        ucb = query_rules.upper_confidence(mean, variance, query_rules.beta_schedule(t))
        chosen = query_rules.choose(ucb)
        look = query == "always" or t == 1
        if not look:
            rivals = query_rules.other_maxima(ucb, chosen)
            better = query_rules.probability_better(mean, variance, chosen, rivals)
            look = query_rules.query_by_confidence(better, KAPPA)
        if look:
            gp.observe(chosen, float(truth(t, X[chosen]) + noise[t - 1]))
            looks += 1
        gp.advance()
    return time.perf_counter() - began, looks


def through_policy(name: str, noise: Any) -> list[float]:
    """Seconds of each decision."""
    space = Space.listed([{"x": float(x)} for x in X])
    policy = policies.make(
        name,
        {"reward": "value", "clip": None, "kernel": "matern32", "forgetting_rate": RATE, "kappa": KAPPA},
    )
    opened = Opened(
        space=space,
        budget=Budget(f"{ROUNDS} epochs"),
        policy=name,
        settings={},
        seed=0,
        direction="max",
        max_steps=ROUNDS,
    )
    ledger, seconds = Ledger([opened]), []
    for t in range(1, ROUNDS + 1):
        rng = ledger.decision_rng()
        began = time.perf_counter()
        decision = policy.decide(ledger, rng)
        seconds.append(time.perf_counter() - began)
        assert isinstance(decision, Train)
        order = ledger.accept(decision)
        assert order is not None
        value = float(truth(t, order.config["x"]) + noise[t - 1]) if order.validates(t) else None
        ledger = ledger.append(order).append(write_receipt(order, t, value, Cost(), at=0.0))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    noise = np.random.default_rng(0).normal(0.0, 0.1, ROUNDS)
    found: dict[str, Any] = {}
    full, looks = min((through_models("always", noise) for _ in range(repeats)), key=lambda run: run[0])
    found["tv_gp_ucb models, 500 rounds (s)"] = full
    sparing, looks = min((through_models("kappa", noise) for _ in range(repeats)), key=lambda run: run[0])
    found["ce_gp_ucb models (ms a round)"] = 1e3 * sparing / ROUNDS
    for name in ("ce_gp_ucb", "tv_gp_ucb"):
        runs = [through_policy(name, noise) for _ in range(repeats)]
        last = min((run[-LAST:] for run in runs), key=sum)
        everywhere = min(runs, key=sum)
        found[f"{name} policy (ms a decision)"] = {
            "mean": 1e3 * float(np.mean(last)),
            "median": 1e3 * float(np.median(last)),
            "p95": 1e3 * float(np.quantile(last, 0.95)),
            "mean of all 500": 1e3 * float(np.mean(everywhere)),
        }
    own = found["ce_gp_ucb policy (ms a decision)"]["mean of all 500"] - found["ce_gp_ucb models (ms a round)"]
    found["ce_gp_ucb policy's own part (ms a round)"] = own
    for what, value in found.items():
        print(f"{what}: {json.dumps(value)}")
    print(f"looks of ce_gp_ucb: {looks} of {ROUNDS}")
    ok = (
        full <= 0.4
        and found["ce_gp_ucb models (ms a round)"] <= 0.5
        and found["ce_gp_ucb policy (ms a decision)"]["mean"] <= 0.5
    )
    target = {"tv_gp_ucb models, 500 rounds (s)": 0.4, "ce_gp_ucb (ms a round)": 0.5}
    print(json.dumps({"name": "ce_gp_ucb", "measured": found, "target": target, "peers": {}, "ok": ok}))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
