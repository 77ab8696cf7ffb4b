"""Measure how much scores and decisions differ between processors.

    python -m benchmarks portability               every kernel that this processor can run, 1 and 2 threads; minutes
    python -m benchmarks portability --quick       one other kernel, one seed

OpenBLAS chooses its routines by the processor. With `OPENBLAS_CORETYPE` it uses those of an older processor, and rounds as
that one does. Each child process runs the same small studies with another kernel and records its orders and all scores that
`core.deciding.reproducible` was given. Scores are compared decision by decision, as long as the orders before were equal.

The last line has the largest difference, as a share of the spread of its scores, and the number of studies with equal orders.
The tolerance of `core.deciding.reproducible` must be well above the largest difference, so that all studies have equal orders.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoestring import policies
from shoestring.core.deciding import reproducible as choosing
from shoestring.core.deciding.policy import Policy
from shoestring.core.deciding.reproducible import TOLERANCE
from shoestring.core.ledger.entries import Cost
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.core.values.arrays import Floats
from shoestring.core.values.strict_json import dumps
from shoestring.policies.halving import guide  # noqa: F401  imported late otherwise, after its functions were replaced
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import make_definition, simulate

# The instructions that the routines of each kernel need, in the words of /proc/cpuinfo.
KERNELS = {
    "Prescott": {"pni"},
    "Nehalem": {"sse4_2"},
    "Sandybridge": {"avx"},
    "Haswell": {"avx2", "fma"},
    "Zen": {"avx2", "fma"},
    "SkylakeX": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
SPACE = Space({"lr": Float(1e-4, 1.0, log=True), "layers": Int(1, 4), "optimizer": Choice(["sgd", "adam"])})
STUDIES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "bhpt": ("bhpt", {"arms": 30}),
    "bhpt, related": ("bhpt", {"arms": 30, "lengthscale": 0.3}),
    "bo_bos": ("bo_bos", {"n0": 2, "paths": 5000}),
    "boca": ("boca", {}),
    "boil": ("boil", {}),
    "ce_gp_ucb": ("ce_gp_ucb", {"forgetting_rate": None}),
    "cost_aware_ei": ("cost_aware_ei", {}),
    "cost_aware_ei, alpha": ("cost_aware_ei", {"acquisition": "ei_alpha"}),
    "fabolas_epochs": ("fabolas_epochs", {"arms": 30}),
    "freeze_thaw_bo": ("freeze_thaw_bo", {"arms": 30}),
    "gp_ucb": ("gp_ucb", {}),
    "guided_halving": ("guided_halving", {}),
    "lc_prediction": ("lc_prediction", {"n0": 2, "forecast": "process"}),
    "rollout": ("rollout", {"arms": 30}),
    "sequential_halving": ("sequential_halving", {}),
}
# Methods of full trainings get a larger budget, so that their model has data.
LONG = {"cost_aware_ei", "gp_ucb", "boil"}
CHOICES = ("find_best", "find_best_of_rows", "are_best", "sort_best_first")


@dataclass(frozen=True)
class SmoothLoss:
    """A loss that depends smoothly on the config, and steps that cost more with more layers."""

    seed: int

    def step(self, config: Config, step: int) -> StepOutcome:
        off = np.log10(config["lr"]) + 2.0 + 0.1 * self.seed
        end = 0.1 * off * off + 0.05 * abs(config["layers"] - 3) + (0.07 if config["optimizer"] == "sgd" else 0.0)
        wobble = 0.02 * np.sin(37.0 * step * (off + config["layers"]))  # noise, but the same on every machine
        return StepOutcome(round(end + step**-0.7 + wobble, 6), Cost(train=0.5 + 0.3 * config["layers"]))


def list_kernels() -> list[str]:
    """Return the kernels whose instructions this processor has; none if it does not list them or belongs to another family."""
    if platform.machine() not in ("x86_64", "AMD64") or not Path("/proc/cpuinfo").exists():
        return []
    line = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    flags = set(line.partition(":")[2].split())
    return [kernel for kernel, needed in KERNELS.items() if needed <= flags]


def list_dispatched() -> list[str]:
    """Return the instruction sets beyond the baseline for which NumPy has routines and which this processor has."""
    core = getattr(np, "_core", None) or np.core
    found = core._multiarray_umath
    return [name for name in found.__cpu_dispatch__ if found.__cpu_features__.get(name)]


# what one kernel does ------------------------------------------------------------------------------------------------


@contextmanager
def recorded_scores() -> Iterator[list[Floats]]:
    """Record all scores of the choices made inside this context, in order, turned so that the largest is the best.

    Scores that are compared exactly, and rows of many choices, are not recorded.
    """
    seen: list[Floats] = []
    replaced: list[tuple[Any, str, Any]] = []

    def watch(plain: Callable[..., Any]) -> Callable[..., Any]:
        def watched(scores: Floats, best_is: choosing.Best, *words: Any, **more: Any) -> Any:
            if not more.get("exact") and np.ndim(scores) == 1:
                seen.append(np.array(scores, dtype=float) * (-1.0 if best_is == "lowest" else 1.0))
            return plain(scores, best_is, *words, **more)

        return watched

    for name in CHOICES:
        plain = getattr(choosing, name)
        wrapped = watch(plain)
        for module in list(sys.modules.values()):
            if module is not choosing and getattr(module, name, None) is plain:
                replaced.append((module, name, plain))
                setattr(module, name, wrapped)
    try:
        yield seen
    finally:
        for module, name, plain in replaced:
            setattr(module, name, plain)


class RecordingPolicy:
    """A policy whose decisions are recorded, each with the scores that it chose among."""

    def __init__(self, policy: Policy, scores: list[Floats]) -> None:
        self.policy, self.scores = policy, scores
        self.name = policy.name
        self.orders: list[str] = []
        self.seen: list[list[Floats]] = []

    def decide(self, ledger: Any, rng: np.random.Generator) -> Any:
        self.scores.clear()
        decision = self.policy.decide(ledger, rng)
        fields = [getattr(decision, part, None) for part in ("trial", "config", "until", "validate")]
        self.orders.append(dumps([type(decision).__name__, *fields]))
        self.seen.append(list(self.scores))
        return decision


def run_studies(seeds: int, folder: Path) -> None:
    """Run every study with every seed, and write orders and scores to one file each."""
    for name in policies.REGISTRY:
        policies.make(name)  # import every module that chooses before its functions are replaced
    with recorded_scores() as scores:
        for label, (name, settings) in STUDIES.items():
            for seed in range(seeds):
                policy = RecordingPolicy(policies.make(name, dict(settings)), scores)
                long = name in LONG
                budget = ("300s" if long else "90s") if seed % 2 else ("180 epochs" if long else "60 epochs")
                start = make_definition(
                    policy.policy, space=SPACE, budget=budget, max_steps=9, workers=1 + seed % 2, seed=seed
                )
                simulate(policy, SmoothLoss(seed), start)
                arrays: dict[str, Any] = {
                    f"{d}.{i}": one for d, many in enumerate(policy.seen) for i, one in enumerate(many)
                }
                np.savez(folder / f"{label}.{seed}.npz", orders=np.array(policy.orders), **arrays)


# comparing the kernels ---------------------------------------------------------------------------------------


def compare(folder: Path, other: Path) -> list[dict[str, Any]]:
    """Return for each study the decisions, those before the first that differs, and the largest difference of scores."""
    rows = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as mine, np.load(other / path.name) as theirs:
            orders = list(zip(mine["orders"].tolist(), theirs["orders"].tolist(), strict=False))
            equal = next((i for i, (a, b) in enumerate(orders) if a != b), len(orders))
            worst = 0.0
            for key in (key for key in mine.files if key != "orders" and int(key.split(".")[0]) <= equal):
                if key in theirs.files and mine[key].shape == theirs[key].shape:
                    worst = max(worst, measure_difference(mine[key], theirs[key]))
        label, seed, _ = path.name.rsplit(".", 2)
        rows.append({"study": label, "seed": int(seed), "decisions": len(orders), "equal": equal, "difference": worst})
    return rows


def measure_difference(a: Floats, b: Floats) -> float:
    """Return by how much the distance of nearly best candidates from the best differs between two machines.

    The result is a share of the spread of the scores or, where that is small, of a hundredth of their size. Candidates that are
    further behind than 1e-5 of the spread do not count: no rounding makes them the best.
    """
    there = np.isfinite(a) & np.isfinite(b)
    if there.sum() < 2:  # there is no choice
        return 0.0
    a, b = a[there], b[there]
    unit = max(float(np.ptp(a)), 1e-2 * float(np.abs(a).max()))
    contenders = a >= a.max() - 1e-5 * unit
    behind = (a.max() - a[contenders]) - (b[int(a.argmax())] - b[contenders])
    return float(np.abs(behind).max()) / unit if unit > 0.0 else 0.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks portability", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="one other kernel, one seed")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    seeds = 1 if chosen.quick else chosen.seeds
    if chosen.child is not None:
        run_studies(seeds, chosen.child)
        return 0
    kernels = list_kernels()
    variants: list[tuple[str, dict[str, str]]] = [
        (f"{kernel}, {n} thread{'s' * (n > 1)}", {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": str(n)})
        for kernel in (kernels[:1] if chosen.quick else kernels)
        for n in ((1,) if chosen.quick else (1, 2))
    ]
    if dispatched := list_dispatched():
        variants.append(("NumPy's own routines of the baseline", {"NPY_DISABLE_CPU_FEATURES": " ".join(dispatched)}))
    rows = []
    with tempfile.TemporaryDirectory() as place:
        reference = _run_child(Path(place) / "here", {"OPENBLAS_NUM_THREADS": "1"}, seeds)
        for number, (label, environment) in enumerate(variants):
            folder = _run_child(Path(place) / str(number), environment, seeds)
            found = compare(reference, folder)
            rows += [{"kernel": label, **row} for row in found]
            same = sum(row["equal"] == row["decisions"] for row in found)
            worst = max(found, key=lambda row: row["difference"])
            print(
                f"{label:<40} {same} of {len(found)} studies equal; scores differ by at most "
                f"{worst['difference']:.1e} of their spread ({worst['study']})",
                flush=True,
            )
    for row in rows:
        if row["equal"] < row["decisions"]:
            print(
                f"  {row['kernel']}: {row['study']}, seed {row['seed']}: decision {row['equal']} of {row['decisions']} differs"
            )
    largest = max((row["difference"] for row in rows), default=0.0)
    equal = sum(row["equal"] == row["decisions"] for row in rows)
    result: dict[str, Any] = {
        "name": "portability",
        "measured": largest,
        "target": TOLERANCE,
        "peers": {},
        "studies": len(rows),
    }
    print(
        json.dumps(
            result
            | {"equal_studies": equal, "decisions": sum(row["decisions"] for row in rows)}
            | {"ok": largest <= TOLERANCE}
        )
    )
    return 0 if largest <= TOLERANCE else 1


def _run_child(folder: Path, environment: Mapping[str, str], seeds: int) -> Path:
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks", "portability", "--child", str(folder), "--seeds", str(seeds)]
    subprocess.run(command, check=True, env={**os.environ, **environment}, cwd=Path(__file__).parents[1])
    return folder
