"""Does one round of contrastive pre-training tell which augmentations are good in the end? Only then can one tune them.

    python -m benchmarks online.factorial --workers 4        16 whole runs, branches of three, then the race if they agree
    python -m benchmarks online.factorial --quick            small images, few rounds: does it run? Two minutes on one processor
    python -m benchmarks online.factorial --show             effects and tables of the runs in -o DIR again

Seven augmentations (inversion, which explains two thirds of the final variance and nothing of a round, is left out), each low
or high, in 16 combinations of which all main effects can be read without being mixed with pairs (2^(7-3), resolution IV).

    final       each of the 16 for a whole run, fixed: what a low chance made high is worth in test accuracy
    one round   from one run at 0.5, at several moments: each of the 16 for one round, then back; what it is worth then

The two agree when the effects of one round, averaged over the moments, rank as the final ones do (Spearman, at least `AGREES`),
and no final effect beyond two standard errors has the other sign. Then the race of `online.contrastive` is run once more, without
inversion, with longer length-scales and with a reward that is corrected for where a run stands.
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
from benchmarks.online.runs import arguments, found, gather, run_all

Array = NDArray[np.float64]
TASK, RACE = "factorial", "factorial_race"
FACTORS = NAMES[:7]
LOW, HIGH = 0.2, 0.8  # of a chance's range
MOMENTS = (1 / 24, 1 / 8, 1 / 4, 1 / 2, 3 / 4)  # of the run, at which a round is tried in 16 ways
AGREES = 0.6
BRANCHES = "branches"
RACED = ["baseline", "TV-GP-UCB", "CE@0.8", "CE@0.7", "CE@0.6", "Ber(0.6)", "expert"]
ANEW = {"without": ("inversion",), "lengthscale": 1.2, "correction": 0.25}


def design() -> Array:
    """(16, 7) of -1 and 1: four columns in full, three of them multiplied for each of the others."""
    base = np.array([[1.0 if number >> bit & 1 else -1.0 for bit in range(4)] for number in range(16)])
    a, b, c, d = base.T
    return np.column_stack([a, b, c, d, a * b * c, b * c * d, a * c * d])


def config(number: int) -> dict[str, float]:
    """The chances of one of the 16 combinations."""
    chances = dict(HALF) | {"inversion": 0.0}
    for name, sign in zip(FACTORS, design()[number], strict=True):
        least, most = SPACE[name]["float"]
        chances[name] = least + (HIGH if sign > 0 else LOW) * (most - least)
    return chances


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
    """At each moment of a run at 0.5: its accuracy, and what a round of each combination makes of it."""
    moments = {max(1, round(share * plan.rounds)) for share in MOMENTS}
    told = []
    for number in range(1, max(moments) + 1):
        run.train_round(HALF)
        if number not in moments:
            continue
        kept = [copy.deepcopy(part.state_dict()) for part in (run.encoder, run.optimizer)]
        draws, steps = run.generator.get_state(), run.done_steps
        before, gains = run.validate(), []
        for combination in range(16):
            run.train_round(config(combination))
            gains.append(100.0 * (run.validate() - before))
            # loading does not copy, and the next round would train what is kept
            run.encoder.load_state_dict(kept[0])
            run.optimizer.load_state_dict(copy.deepcopy(kept[1]))
            run.generator.set_state(draws)
            run.done_steps = steps
        told.append({"round": number, "before": before, "gains": gains})
    return told


def effects(values: Array) -> tuple[Array, Array]:
    """Low to high, (7,), and the standard error of each, from 16 values; the eight contrasts left over are the noise."""
    signs = design()
    low_to_high = signs.T @ values / 8.0
    left = values - values.mean() - 0.5 * signs @ low_to_high
    return low_to_high, np.full(len(FACTORS), np.sqrt(left @ left / 8.0) / 2.0)


def measure(runs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Array, Array]]:
    """The effects by what they were read from: "final", and "round N" over the branches of all seeds."""
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
        return {"name": TASK, "measured": None, "target": {"rank_correlation": AGREES}, "ok": False}
    final, error = measured["final"]
    mean = np.mean(once, axis=0)
    rank = float(spearmanr(mean, final).statistic)
    against = [
        name for name, f, e, m in zip(FACTORS, final, error, mean, strict=True) if abs(f) > 2.0 * e and f * m < 0.0
    ]
    told = {"rank_correlation": round(rank, 3), "other_sign": against}
    ok = bool(rank >= AGREES and not against)
    return {"name": TASK, "measured": told, "target": {"rank_correlation": AGREES, "other_sign": []}, "ok": ok}


def show(measured: Mapping[str, tuple[Array, Array]]) -> str:
    rows = [
        [name, *(f"{effect[i]:+.2f} ± {error[i]:.2f}" for effect, error in measured.values())]
        for i, name in enumerate(FACTORS)
    ]
    return markdown.table(["points, low to high", *measured], rows)


def show_sureness(race: Sequence[Mapping[str, Any]]) -> str:
    """How sure CE was of its leader in the rounds that had a competitor: it asks below kappa."""
    heads = ("run", "rounds with nothing to compare", "median Pr(better)", "greatest", "passes")
    rows = []
    for run in race:
        if run["method"].startswith("CE"):
            sure = contrastive.how_sure(dict(run))
            known = [one for one in sure if one is not None]
            cells = [f"{run['method']}, seed {run['seed']}", str(len(sure) - len(known))]
            cells += [f"{value:.3f}" for value in (np.median(known), max(known))]
            rows.append([*cells, str(run["passes"])])
    return markdown.table(heads, rows)


def main() -> None:
    about = {"rounds": "default: 120, quick 16", "steps": "of a round; default: 40, quick 20"}
    asked = arguments(__doc__ or "", DEBIAN, [*WHOLE, BRANCHES], about)
    plan = contrastive.QUICK if asked.quick else Plan()
    changes = {name: value for name in about if (value := getattr(asked, name))}
    plan = replace(plan, **changes, without=("inversion",))
    told = (asked.data, pick_device(asked.device))
    if asked.quick:
        plan = replace(plan, rounds=asked.rounds or 4, steps=asked.steps or 3)
    if not asked.show:
        for methods, seeds in (([BRANCHES], asked.seeds), (list(WHOLE), 1)):
            run_all(TASK, methods, seeds, asdict(plan), run_one, (plan, *told), asked.o, asked.workers)
    measured = measure(gather(asked.o, TASK))
    verdict = judge(measured)
    print(show(measured))
    if verdict["ok"] and not asked.show and not asked.quick:
        plan = replace(plan, **ANEW)
        run_all(RACE, RACED, asked.seeds, asdict(plan), contrastive.run_one, (plan, *told), asked.o, asked.workers)
    if found(asked.o, RACE):
        race = gather(asked.o, RACE)
        print("", table(race), sep="\n")
        if asked.show:
            figure(race, asked.o / f"{RACE}.svg")
            print("", show_sureness(race), sep="\n")  # a quarter of a minute a run
        verdict["race"] = judge_race(race) | {"name": RACE}
    print(json.dumps(verdict))
    sys.exit(0 if asked.quick or (verdict["ok"] and verdict.get("race", {}).get("ok")) else 1)


if __name__ == "__main__":
    main()
