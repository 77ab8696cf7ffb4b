"""Comparison of studies: the steps that a method needs to reach the result of GP-UCB, and the share of wrong stops.

    ratio of means    first step at which the mean best error over seeds is as low as GP-UCB's at the end, divided by the first
                      such step of GP-UCB
    ratio of seeds    the same for each seed, and the median. A seed that never reaches it counts as infinite. A seed is left out
                      if GP-UCB has its final result in the initial design.
    slower, never     number of seeds with a ratio above 1, and of those that never reach it
    ratio of runs     for each seed, the number of runs until one is (or, if stopped, would have been) as good, divided by that of
                      GP-UCB: the quality of the search, whatever a run costs
    mistakes          share of stopped runs that would have beaten their incumbent in a full training
    winners lost      these mistakes as a share of all runs after the design that beat their incumbent, or would have
    epochs            shares of the budget: the initial design, finished runs after it, the first steps of stopped runs (which no
                      rule can save), and the further steps of stopped runs

Intervals are 90 % bootstrap intervals over seeds; null: never reached.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bo_bos.studies import METHODS

Array = NDArray[np.float64]
TARGET_RATIO, TARGET_MISTAKES = 0.75, 0.05
GROWTHS = ("k1 fixed", "k1 small", "bo_bos", "k1 large")  # from no growth to much


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines; incomplete lines of a killed process are skipped."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def best_by_epoch(row: dict[str, Any]) -> Array:
    best = np.empty(row["epochs"])
    for epoch, loss, _ in row["improved"]:
        best[epoch - 1 :] = loss
    return best


def first_at(best: Array, goal: float) -> float:
    there = np.flatnonzero(best <= goal + 1e-12)
    return float(there[0] + 1) if there.size else np.inf


def ratio_of_means(ours: Array, theirs: Array) -> float:
    """Return the ratio of means of two arrays (seeds, steps)."""
    mean, reference = ours.mean(axis=0), theirs.mean(axis=0)
    return first_at(mean, reference[-1]) / first_at(reference, reference[-1])


def runs_until(row: dict[str, Any], goal: float) -> float:
    there = [place for place, (_, lowest) in enumerate(row["runs"], 1) if lowest <= goal + 1e-12]
    return float(there[0]) if there else np.inf


def number(ratio: float) -> float | None:
    """Return the ratio rounded, or None if it is infinite."""
    return round(ratio, 4) if ratio < np.inf else None


def interval(draw: Callable[[NDArray[np.intp]], float], n: int, rounds: int = 1000) -> list[float | None]:
    rng = np.random.default_rng(0)
    values = np.array([draw(rng.integers(n, size=n)) for _ in range(rounds)])
    return [number(float(v)) for v in np.quantile(values, (0.05, 0.95), method="nearest")]


def compare(rows: list[dict[str, Any]], method: str) -> dict[str, Any] | None:
    """Compare a method with GP-UCB on one table; None if there are no common seeds."""
    by = {(row["method"], row["seed"]): row for row in rows}
    seeds = sorted(seed for name, seed in by if name == method and ("gp_ucb", seed) in by)
    if not seeds:
        return None
    ours = np.array([best_by_epoch(by[method, seed]) for seed in seeds])
    theirs = np.array([best_by_epoch(by["gp_ucb", seed]) for seed in seeds])
    single, runs = [], []
    for seed, mine, other in zip(seeds, ours, theirs, strict=True):
        theirs_at = first_at(other, other[-1])
        if theirs_at > by["gp_ucb", seed]["design"]:
            single.append(first_at(mine, other[-1]) / theirs_at)
            runs.append(runs_until(by[method, seed], other[-1]) / runs_until(by["gp_ucb", seed], other[-1]))
    each = np.array(single)
    stops = [stop for seed in seeds for stop in by[method, seed]["stopped"]]
    wrong = [final < best for _, best, final, _ in stops]
    on_the_way = [lowest < best for _, best, _, lowest in stops]
    return {
        "seeds": len(seeds),
        "ratio_of_means": number(ratio_of_means(ours, theirs)),
        "ratio_of_means_90": interval(lambda pick: ratio_of_means(ours[pick], theirs[pick]), len(seeds), 300),
        "ratio_of_seeds": number(float(np.median(each))) if each.size else None,
        "ratio_of_seeds_90": interval(lambda pick: float(np.median(each[pick])), each.size) if single else [None, None],
        "ratio_of_runs": number(float(np.median(runs))) if runs else None,
        "slower": int((each > 1.0).sum()),
        "never": int(np.isinf(each).sum()),
        "in_design": len(seeds) - each.size,
        "final": float(ours[:, -1].mean()),
        "final_gp_ucb": float(theirs[:, -1].mean()),
        "runs": float(np.mean([len(by[method, seed]["runs"]) for seed in seeds])),
        "stops": len(stops) / len(seeds),
        "stopped_at": float(np.mean([stop[0] for stop in stops])) if stops else None,
        "mistakes": float(np.mean(wrong)) if stops else 0.0,
        "winners_lost": winners_lost([by[method, seed] for seed in seeds]) if stops else 0.0,
        "epochs": epochs_spent([by[method, seed] for seed in seeds]),
        "mistakes_on_the_way": float(np.mean(on_the_way)) if stops else 0.0,
        "decide_s": float(np.mean([by[method, seed]["decide_s"] for seed in seeds])),
    }


def winners_lost(rows: list[dict[str, Any]]) -> float:
    """Return the share of stopped runs among the runs after the design that were, or would have been, the best so far."""
    lost = sum(final < best for row in rows for _, best, final, _ in row["stopped"])
    finished = sum(
        1
        for row in rows
        for epoch in {epoch for epoch in _ends(row) if epoch > row["design"]}
        if any(epoch - _length(row) < at <= epoch for at, _, _ in row["improved"])
    )
    return lost / (lost + finished) if lost + finished else 0.0


def _length(row: dict[str, Any]) -> int:
    """Return the steps of a full training."""
    return max(steps for steps, _ in row["runs"])


def _ends(row: dict[str, Any]) -> list[int]:
    """Return the steps of the study at which full runs ended; runs come one after another."""
    ends, epoch = [], 0
    for steps, _ in row["runs"]:
        epoch += steps
        if steps == _length(row):
            ends.append(epoch)
    return ends


def epochs_spent(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the shares of the budget by purpose."""
    spent = sum(steps for row in rows for steps, _ in row["runs"])
    design = sum(row["design"] for row in rows)
    stopped = sum(stop[0] for row in rows for stop in row["stopped"])
    first = sum(min(stop[0], row["first_stop"]) for row in rows for stop in row["stopped"])
    parts = {
        "design": design,
        "finished": spent - design - stopped,
        "first_steps": first,
        "further_steps": stopped - first,
    }
    return {name: round(part / spent, 3) for name, part in parts.items()}


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return {table: {method: comparison with GP-UCB}}."""
    summary: dict[str, Any] = {}
    for name in dict.fromkeys(row["table"] for row in rows):
        mine = [row for row in rows if row["table"] == name]
        found = {method: compare(mine, method) for method in METHODS}
        summary[name] = {method: result for method, result in found.items() if result is not None}
    return summary


def show(summary: dict[str, Any], name: str = "bo_bos_curves") -> tuple[dict[str, Any], bool]:
    """Print the tables; return the object of the last line, and whether every target was met."""
    ratios, mistakes, fewer = {}, {}, {}
    for table, methods in summary.items():
        print(f"\n{table}")
        print(
            "method           seeds  ratio of means [90 %]  ratio of seeds [90 %]  never  "
            "of runs    final  runs stops  at    mistakes"
        )
        for method, found in methods.items():
            print(_line(method, found))
        if "bo_bos" in methods:
            ratios[table], mistakes[table] = methods["bo_bos"]["ratio_of_means"], methods["bo_bos"]["mistakes"]
        counts = [methods[method]["stops"] for method in GROWTHS if method in methods]
        if len(counts) > 1:
            fewer[table] = bool(counts[0] > counts[-1])
    reached = sum(ratio is not None and ratio <= TARGET_RATIO for ratio in ratios.values())
    most = reached > len(ratios) / 2
    few = all(share <= TARGET_MISTAKES for share in mistakes.values())
    ok = bool(most and few and all(fewer.values()))
    result = {
        "name": name,
        "measured": {
            "tables_at_target": f"{reached} of {len(ratios)}",
            "of_each_method": {method: found for method in METHODS if (found := meets(summary, method))},
            "slower_than_gp_ucb": slower(summary),
            "ratio": ratios,
            "mistakes": mistakes,
            "larger_growth_fewer_stops": fewer,
        },
        "target": {"ratio": f"<= {TARGET_RATIO} on most tables", "mistakes": TARGET_MISTAKES},
        "peers": {"gp_ucb": 1.0},
        "ok": ok,
    }
    return result, ok


def meets(summary: dict[str, Any], method: str) -> dict[str, Any] | None:
    """Return the number of tables on which a method meets the target, and its median ratios, by means and by seeds."""
    mine = [methods[method] for methods in summary.values() if method in methods]
    if not mine or method == "gp_ucb":
        return None
    found: dict[str, Any] = {"tables": len(mine), "seeds": max(one["seeds"] for one in mine)}
    for kind in ("ratio_of_means", "ratio_of_seeds"):
        ratios = np.array([np.inf if one[kind] is None else one[kind] for one in mine])
        found[kind] = {"at_target": int((ratios <= TARGET_RATIO).sum()), "median": number(float(np.median(ratios)))}
    return found


def slower(summary: dict[str, Any]) -> dict[str, str]:
    """Return by method, over all tables, how many of the counted studies needed more steps than GP-UCB."""
    found: dict[str, str] = {}
    for method in METHODS:
        mine = [methods[method] for methods in summary.values() if method in methods]
        if mine and method != "gp_ucb":
            count = sum(one["seeds"] - one["in_design"] for one in mine)
            found[method] = f"{sum(one['slower'] for one in mine)} of {count}"
    return found


def format_ratio(ratio: float | None) -> str:
    return "never" if ratio is None else f"{ratio:.2f}"


def _line(method: str, found: dict[str, Any]) -> str:
    def ratio(name: str) -> str:
        low, high = found[f"{name}_90"]
        return f"{format_ratio(found[name]):>5s} [{format_ratio(low)}, {format_ratio(high)}]".ljust(22)

    at = "-" if found["stopped_at"] is None else f"{found['stopped_at']:.1f}"
    return (
        f"{method:16s} {found['seeds']:4d}   {ratio('ratio_of_means')}  {ratio('ratio_of_seeds')}  {found['never']:4d}  "
        f"{format_ratio(found['ratio_of_runs']):>6s} {found['final']:9.4f} {found['runs']:5.1f} {found['stops']:5.1f}  {at:5s} "
        f"{100 * found['mistakes']:5.1f} %"
    )
