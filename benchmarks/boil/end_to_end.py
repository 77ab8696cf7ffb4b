"""BOIL on the real CartPole agent, under a budget of real seconds: no table, no simulation.

    python -m benchmarks boil.end_to_end                   three minutes on one core
    python -m benchmarks boil.end_to_end --quick           half a minute
    python -m benchmarks boil.end_to_end --policy hyperband

A step is ten episodes, and its value is their mean return, at most 200; a full training is 300 episodes. The generator stays
alive between orders, so a run that is continued does not start again. Last line: one JSON object; exit 1 if no run keeps the pole
up for 100 steps on average over the second half of a full training.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch

from benchmarks.boil.tasks import TASKS
from shoestring import Study, tune
from shoestring.core.ledger.state import Trial

EPISODES, MAX_STEPS = 10, 30
TARGET = 100.0


def train(config: Mapping[str, Any]) -> Iterator[float]:
    torch.set_num_threads(1)
    episodes = TASKS["cartpole"].train(config, seed=0)
    while True:
        yield float(np.mean(list(islice(episodes, EPISODES))))


def narrate(study: Study, trial: Trial) -> None:
    """Print a line for each run that has reached the ordered step."""
    ledger = study.ledger
    if trial.open_order is None:
        config = ", ".join(f"{name} {value:.3g}" for name, value in trial.config.items())
        why = ledger.orders[-1].why
        print(
            f"{ledger.spent:6.1f} s  run {trial.number:2d}  {config:24s}  {trial.steps:2d} steps, last {trial.values[-1]:5.1f}  "
            f"{why.get('phase', '')}",
            file=sys.stderr,
        )


def best_run(study: Study) -> tuple[float, Mapping[str, Any]]:
    """Return the largest mean over the second half of the longest runs, and the config of that run."""
    trials = study.ledger.trials
    longest = max(trial.steps for trial in trials)
    ended = {t.number: float(np.mean(t.values[longest // 2 :])) for t in trials if t.steps == longest}  # type: ignore[arg-type]
    best = max(ended, key=ended.__getitem__)
    return ended[best], trials[best].config


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="boil")
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    budget = 30 if chosen.quick else chosen.seconds
    began = time.perf_counter()
    study = tune(
        train,
        TASKS["cartpole"].space,
        budget=f"{budget}s",
        max_steps=MAX_STEPS,
        direction="max",
        policy=chosen.policy,
        seed=chosen.seed,
        callbacks=[narrate],
    )
    reached, config = best_run(study)
    measured = {
        "second_half": round(reached, 1),
        "config": {name: float(f"{value:.4g}") for name, value in config.items()},
        "runs": len(study.ledger.trials),
        "spent_s": round(study.spent, 1),
        "passed_s": round(time.perf_counter() - began, 1),
    }
    ok = reached >= TARGET
    print(json.dumps({"name": "boil_end_to_end", "measured": measured, "target": TARGET, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
