"""Does one round of contrastive pre-training show which augmentations are good in the end? Only then can they be tuned.

    python -m benchmarks online.factorial --workers 4        16 whole runs, branches of three, then the race if they agree
    python -m benchmarks online.factorial --quick            small images, few rounds: does it run? Two minutes on one processor
    python -m benchmarks online.factorial --show             effects and tables of the runs in -o DIR again

Seven augmentations are set low or high in 16 combinations, from which all main effects can be computed without being mixed with
effects of pairs (2^(7-3), resolution IV). Inversion, which explains two thirds of the final variance and nothing of a round, is
left out.

    final       each of the 16 for a whole run, fixed: the effect on test accuracy of a high instead of a low probability
    one round   from one run at 0.5, at several moments: each of the 16 for one round; its effect then

The two agree if the effects of one round, averaged over the moments, rank like the final ones (Spearman, at least
`MIN_CORRELATION`), and no final effect beyond two standard errors has the other sign. Then the race of `online.contrastive` is
repeated without inversion, with longer length-scales and with a reward that is corrected for the run's lead over its trend.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: the processes share the machine

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks import markdown
from benchmarks.online import contrastive
from benchmarks.online.augmentations import NAMES
from benchmarks.online.contrastive import HALF, SPACE, Plan, Pretraining
from benchmarks.online.contrastive_report import figure, table
from benchmarks.online.contrastive_report import judge as judge_race
from benchmarks.online.fashion import DEBIAN, load, pick_device
from benchmarks.online.runs import arguments, finished_runs, gather, run_all

Array = NDArray[np.float64]
TASK, RACE = "factorial", "factorial_race"
FACTORS = NAMES[:7]
LOW, HIGH = 0.2, 0.8  # of a probability's range
MOMENTS = (1 / 24, 1 / 8, 1 / 4, 1 / 2, 3 / 4)  # of the run, at which a round is trained with each combination
MIN_CORRELATION = 0.6
BRANCHES = "branches"
RACE_METHODS = ["baseline", "TV-GP-UCB", "CE@0.8", "CE@0.7", "CE@0.6", "Ber(0.6)", "expert"]
RACE_PLAN = {"without": ("inversion",), "lengthscale": 1.2, "correction": 0.25}


def design() -> Array:
    """Return (16, 7) of -1 and 1: four full columns; each other one is the product of three of them."""
    base = np.array([[1.0 if number >> bit & 1 else -1.0 for bit in range(4)] for number in range(16)])
    a, b, c, d = base.T
    return np.column_stack([a, b, c, d, a * b * c, b * c * d, a * c * d])


def config(number: int) -> dict[str, float]:
    """Return the probabilities of one of the 16 combinations."""
    probabilities = dict(HALF) | {"inversion": 0.0}
    for name, sign in zip(FACTORS, design()[number], strict=True):
        least, most = SPACE[name]["float"]
        probabilities[name] = least + (HIGH if sign > 0 else LOW) * (most - least)
    return probabilities


WHOLE = {f"config {number}": number for number in range(16)}


def run_one(method: str, seed: int, plan: Plan, data: Path, device: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    run = Pretraining(load(data, device, plan.size, plan.n_train, plan.n_held_out), plan, seed)
    if method == BRANCHES:
        return {"branches": _branch(run, plan)}
    fixed, watched = config(WHOLE[method]), []
    for number in range(1, plan.rounds + 1):
        run.train_round(fixed)
        if number % plan.watch == 0:
            watched.append([number, run.validate()])
    return {"validation": run.validate(), **run.test(), "watched": watched}


def _branch(run: Pretraining, plan: Plan) -> list[dict[str, Any]]:
    """Return the accuracy at each moment of a run at 0.5, and the gain of one round with each combination."""
    moments = {max(1, round(share * plan.rounds)) for share in MOMENTS}
    branches = []
    for number in range(1, max(moments) + 1):
        run.train_round(HALF)
        if number not in moments:
            continue
        stored = [copy.deepcopy(part.state_dict()) for part in (run.encoder, run.optimizer)]
        draws, steps = run.generator.get_state(), run.done_steps
        before, gains = run.validate(), []
        for combination in range(16):
            run.train_round(config(combination))
            gains.append(100.0 * (run.validate() - before))
            # loading does not copy, and the next round would train the stored state
            run.encoder.load_state_dict(stored[0])
            run.optimizer.load_state_dict(copy.deepcopy(stored[1]))
            run.generator.set_state(draws)
            run.done_steps = steps
        branches.append({"round": number, "before": before, "gains": gains})
    return branches


def effects(values: Array) -> tuple[Array, Array]:
    """Return the effects, low to high (7,), and their standard errors from 16 values; the eight other contrasts are the noise."""
    signs = design()
    low_to_high = signs.T @ values / 8.0
    residual = values - values.mean() - 0.5 * signs @ low_to_high
    return low_to_high, np.full(len(FACTORS), np.sqrt(residual @ residual / 8.0) / 2.0)


def measure(runs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Array, Array]]:
    """Return the effects "final", from whole runs, and "round N", from the branches of all seeds."""
    whole = {WHOLE[run["method"]]: 100.0 * run["test"] for run in runs if run["method"] in WHOLE and run["seed"] == 0}
    measured = {"final": effects(np.array([whole[number] for number in range(16)]))} if len(whole) == 16 else {}
    branched: dict[int, list[Array]] = {}
    for run in runs:
        for one in run.get("branches", []):
            branched.setdefault(one["round"], []).append(np.array(one["gains"]))
    return measured | {f"round {number}": effects(np.mean(some, axis=0)) for number, some in sorted(branched.items())}


def judge(measured: Mapping[str, tuple[Array, Array]]) -> dict[str, Any]:
    once = [effect for name, (effect, _) in measured.items() if name != "final"]
    if "final" not in measured or not once:
        return {"name": TASK, "measured": None, "target": {"rank_correlation": MIN_CORRELATION}, "ok": False}
    final, error = measured["final"]
    mean = np.mean(once, axis=0)
    rank = float(spearmanr(mean, final).statistic)
    against = [
        name for name, f, e, m in zip(FACTORS, final, error, mean, strict=True) if abs(f) > 2.0 * e and f * m < 0.0
    ]
    found_effects = {"rank_correlation": round(rank, 3), "other_sign": against}
    ok = bool(rank >= MIN_CORRELATION and not against)
    target = {"rank_correlation": MIN_CORRELATION, "other_sign": []}
    return {"name": TASK, "measured": found_effects, "target": target, "ok": ok}


def show(measured: Mapping[str, tuple[Array, Array]]) -> str:
    rows = [
        [name, *(f"{effect[i]:+.2f} ± {error[i]:.2f}" for effect, error in measured.values())]
        for i, name in enumerate(FACTORS)
    ]
    return markdown.table(["points, low to high", *measured], rows)


def show_confidence(race: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of CE's Pr(better) in the rounds that had a competitor; below kappa it validates."""
    heads = ("run", "rounds with nothing to compare", "median Pr(better)", "greatest", "passes")
    rows = []
    for run in race:
        if run["method"].startswith("CE"):
            sure = contrastive.recompute_confidence(dict(run))
            known = [one for one in sure if one is not None]
            cells = [f"{run['method']}, seed {run['seed']}", str(len(sure) - len(known))]
            cells += [f"{value:.3f}" for value in (np.median(known), max(known))]
            rows.append([*cells, str(run["passes"])])
    return markdown.table(heads, rows)


def main() -> None:
    about = {"rounds": "default: 120, quick 16", "steps": "of a round; default: 40, quick 20"}
    options = arguments(__doc__ or "", DEBIAN, [*WHOLE, BRANCHES], about)
    plan = contrastive.QUICK if options.quick else Plan()
    changes = {name: value for name in about if (value := getattr(options, name))}
    plan = replace(plan, **changes, without=("inversion",))
    inputs = (options.data, pick_device(options.device))
    if options.quick:
        plan = replace(plan, rounds=options.rounds or 4, steps=options.steps or 3)
    if not options.show:
        for methods, seeds in (([BRANCHES], options.seeds), (list(WHOLE), 1)):
            run_all(TASK, methods, seeds, asdict(plan), run_one, (plan, *inputs), options.o, options.workers)
    measured = measure(gather(options.o, TASK))
    verdict = judge(measured)
    print(show(measured))
    if verdict["ok"] and not options.show and not options.quick:
        plan = replace(plan, **RACE_PLAN)
        run_all(
            RACE,
            RACE_METHODS,
            options.seeds,
            asdict(plan),
            contrastive.run_one,
            (plan, *inputs),
            options.o,
            options.workers,
        )
    if finished_runs(options.o, RACE):
        race = gather(options.o, RACE)
        print("", table(race), sep="\n")
        if options.show:
            figure(race, options.o / f"{RACE}.svg")
            print("", show_confidence(race), sep="\n")  # 15 s per run
        verdict["race"] = judge_race(race) | {"name": RACE}
    print(json.dumps(verdict))
    sys.exit(0 if options.quick or (verdict["ok"] and verdict.get("race", {}).get("ok")) else 1)


if __name__ == "__main__":
    main()
