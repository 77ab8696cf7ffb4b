"""The policy itself, through the real loop, on tables of sources that its weights were not trained on.

    regret = (best found - l*) / (median first loss - l*)      l*: the best loss of any drawn config within the budget

Per seed up to 200 configs of a table are drawn; curves are thinned to at most 50 steps; wild losses and steps that diverged
count as the 95 % quantile of first losses. A budget of 1 buys one full curve. `weights` is a folder with a file for each fold
and training seed (`a-0.npz` …); of each source the first few tables with 40 configs and 8 steps or more are taken.

A row of the result is one study; `summarise` pairs them with those of `sequential_halving` and draws sources, then tables,
then seeds anew for its intervals.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring import policies
from shoestring.models.thrift.network import read
from shoestring.runners.tables import Table
from shoestring.testing.policies import opened, simulate
from training.pack import STEPS, losses_of
from training.sources import FOLDS, JUDGED_ONLY, fold_of

BASE = "sequential_halving"
FEWEST_CONFIGS, FEWEST_STEPS, MOST_CONFIGS = 40, 8, 200
CURVES = (1.0, 2.0, 5.0, 10.0, 20.0)
DRAWS = 4000  # of a bootstrap
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    source: str
    path: str
    seed: int
    rules: Mapping[str, tuple[str, Mapping[str, Any]]]  # name of a row -> policy and settings
    curves: Sequence[float]
    weights: str  # folder
    training: int  # seed of the training
    unit: str = "epochs"


def judged_sources() -> list[str]:
    return sorted({*JUDGED_ONLY, *(source for left_out in FOLDS.values() for source in left_out)})


def find_judged(roots: Sequence[Path], per_source: int) -> Iterator[tuple[str, Path]]:
    wanted, found = set(judged_sources()), dict.fromkeys(judged_sources(), 0)
    seen: set[tuple[str, str]] = set()
    for root in roots:
        for path in sorted(root.glob("*/*.npz")):
            source = path.parent.name
            if source not in wanted or (source, path.stem) in seen or found[source] == per_source:
                continue
            seen.add((source, path.stem))
            with np.load(path, allow_pickle=False) as arrays:
                if "hp" not in arrays or "objective" not in json.loads(str(arrays["meta"])):
                    continue
                if len(arrays["hp"]) < FEWEST_CONFIGS:
                    continue
            if Table.load(path, max_steps=STEPS).max_steps >= FEWEST_STEPS:
                found[source] += 1
                yield source, path


def drawn(path: str, seed: int) -> Table:
    """Some configs of a table as losses to be minimised, none of them wild."""
    table = Table.load(path, max_steps=STEPS)
    rows = np.random.default_rng(1000 + seed).permutation(len(table.configs))[:MOST_CONFIGS]
    part = table.subset(rows)
    within = np.arange(part.max_steps) < part.lengths[:, None]
    return replace(part, values=np.where(within, losses_of(part), np.nan), direction="min")


def run(task: Task) -> list[dict[str, Any]]:
    """All rules and budgets on one draw of one table."""
    from shoestring.policies.thrift import thrift

    networks = read(Path(task.weights) / f"{fold_of(task.source)}-{task.training}.npz")
    thrift.shipped = lambda: networks  # type: ignore[assignment]
    table = drawn(task.path, task.seed)
    rows = []
    for curves in task.curves:
        steps = max(1, round(curves * table.max_steps))
        budget = f"{steps} epochs"
        if task.unit == "seconds":
            mean_s = float(np.nansum(table.costs_s) / table.lengths.sum())
            budget = f"{steps * mean_s!r}s"
        optimum = float(np.nanmin(table.values[:, :steps]))
        typical = float(np.median(table.values[:, 0]))
        span = typical - optimum if typical > optimum else float(np.nanmax(table.values)) - optimum
        for name, (rule, settings) in task.rules.items():
            policy = policies.make(rule, settings)
            start = opened(policy, space=table.space(), budget=budget, max_steps=table.max_steps, seed=task.seed)
            ledger = simulate(policy, table, start).ledger
            best = ledger.best.best_loss if ledger.best else typical
            told = {"source": task.source, "table": Path(task.path).stem, "seed": task.seed, "curves": curves}
            told |= {"rule": name, "training": task.training, "regret": (best - optimum) / span if span > 0 else 0.0}
            rows.append(told | {"arms": len(ledger.trials), "orders": len(ledger.orders), "unit": task.unit})
    return rows


def judge(tasks: Sequence[Task], jobs: int, out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w") as file, ProcessPoolExecutor(jobs) as pool:
        for done, told in enumerate(pool.map(run, tasks), 1):
            rows += told
            file.writelines(json.dumps(row) + "\n" for row in told)
            if done % 50 == 0:
                print(f"{done} of {len(tasks)}", file=sys.stderr, flush=True)
    return rows


# what came out -------------------------------------------------------------------------------------------------------


def by_source(rows: Sequence[Mapping[str, Any]], rule: str, curves: float) -> dict[str, dict[str, Floats]]:
    """source -> table -> regrets by seed (and training), in one order for all rules."""
    found: dict[str, dict[str, dict[Any, float]]] = {}
    for row in rows:
        if row["rule"] == rule and row["curves"] == curves:
            runs = found.setdefault(row["source"], {}).setdefault(row["table"], {})
            runs[row["training"], row["seed"]] = row["regret"]
    return {
        source: {table: np.array([runs[key] for key in sorted(runs)]) for table, runs in tables.items()}
        for source, tables in found.items()
    }


def interval(differences: Mapping[str, Mapping[str, Floats]], seed: int = 0) -> tuple[float, float, float]:
    """Mean over sources of paired differences and its 95 % interval, sources, tables and seeds drawn anew."""
    rng = np.random.default_rng(seed)
    names = sorted(differences)
    drawn_means = {name: _draw_source(differences[name], rng) for name in names}
    mean = float(np.mean([np.mean([runs.mean() for runs in differences[name].values()]) for name in names]))
    picks = rng.integers(len(names), size=(DRAWS, len(names)))
    stacked = np.stack([drawn_means[name] for name in names])  # (sources, DRAWS)
    means = np.take_along_axis(stacked.T, picks, axis=1).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return mean, float(low), float(high)


def _draw_source(tables: Mapping[str, Floats], rng: np.random.Generator) -> Floats:
    """(DRAWS,): means of one source with its tables and their seeds drawn anew."""
    names = sorted(tables)
    runs = [
        tables[name][rng.integers(len(tables[name]), size=(DRAWS, len(tables[name])))].mean(axis=1) for name in names
    ]
    picks = rng.integers(len(names), size=(DRAWS, len(names)))
    return np.asarray(np.take_along_axis(np.stack(runs).T, picks, axis=1).mean(axis=1))


def summarise(rows: Sequence[Mapping[str, Any]], base: str = BASE) -> str:
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    curves = sorted({row["curves"] for row in rows})
    lines = ["rule".ljust(22) + "".join(f"{c:>9g}" for c in curves) + "   mean over sources"]
    means: dict[str, list[float]] = {}
    for rule in rules:
        per = [by_source(rows, rule, c) for c in curves]
        means[rule] = [float(np.mean([np.mean([r.mean() for r in t.values()]) for t in one.values()])) for one in per]
        lines.append(rule.ljust(22) + "".join(f"{mean:9.4f}" for mean in means[rule]))
    lines.append(f"paired difference to {base}, 95 % interval")
    for rule in rules:
        if rule == base:
            continue
        told = []
        for c in curves:
            ours, theirs = by_source(rows, rule, c), by_source(rows, base, c)
            mean, low, high = interval({s: {t: ours[s][t] - theirs[s][t] for t in ours[s]} for s in ours})
            told.append(f"{mean:+.4f} [{low:+.4f},{high:+.4f}]")
        lines.append(rule.ljust(22) + "  ".join(told))
    for rule in rules:
        lines.append(f"by source: {rule}")
        per = [by_source(rows, rule, c) for c in curves]
        for source in sorted(per[0]):
            own = [float(np.mean([r.mean() for r in one[source].values()])) for one in per]
            lines.append("  " + source.ljust(24) + "".join(f"{mean:9.4f}" for mean in own))
    return "\n".join(lines)
