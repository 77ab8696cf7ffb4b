"""Recorded tables as problems: several runs of every config, thinned to steps that are means of neighbouring episodes.

The utility of a config is the weighted mean of its full training, over all its recorded runs. The weights are logistic ones,
averaged over m0 in -3..1 and g0 in 0.1, 1, 2, 3, as in the authors' score of Hyperband's runs: a step at the start counts 0.1, in
the middle 0.6, at the end 0.9. A study uses one recorded run of each config, drawn by its seed, so that studies have independent
luck. "…, even price" is a table whose steps all cost the same.

    smooth          made up, see `smooth`: a table on which a model of full trainings clearly beats random search
    rl_curves       the tables of `record.py`: further seeds in `..._again`
    hpo_rl_bench    `seed` is a column; rows that differ only in it are runs of one config
    algoperf        runs are measured at irregular times: a step is a 50th of the longest run's seconds; one that ended by itself
                    keeps its last value and costs nothing more. Repeats (`study`) are runs of one config
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring.core.values import randomness as quasi_random
from shoestring.models.boil.compression import preference_weights
from shoestring.runners.simulated.recorded_table import Table

Floats = NDArray[np.float64]
OWN = Path(__file__).parents[1] / "data" / "rl_curves"
STEPS = 50
SMOOTH = "smooth"
EVEN = ", even price"
NOT_TUNED = ("seed", "study")
OTHERS = {
    "pong": "hpo_rl_bench/ppo_Pong-v0_static.npz",
    "wmt": "algoperf/wmt.npz",
    "librispeech": "algoperf/librispeech_conformer.npz",
}
OTHERS_LOG = {  # searched on a logarithmic scale there; the files do not say so
    "pong": ("lr",),
    "wmt": ("learning_rate", "weight_decay"),
    "librispeech": ("learning_rate", "weight_decay"),
}


@dataclass(frozen=True)
class Problem:
    name: str
    configs: Sequence[Mapping[str, Any]]
    values: Floats  # (runs, configs, steps), larger is better
    costs_s: Floats  # (runs, configs, steps), of each step
    log: Sequence[str] = ()  # parameters on a log scale

    @cached_property
    def utility(self) -> Floats:
        """Return the utility of each config, (configs,)."""
        weights = average_preference(self.values.shape[2])
        return np.asarray(self.values.mean(axis=0) @ weights / weights.sum())

    @property
    def full_cost_s(self) -> float:
        """Return the mean cost of a full training."""
        return float(self.costs_s.sum(axis=2).mean())

    def table(self, seed: int) -> Table:
        """Return a table with one recorded run of each config."""
        run = np.random.default_rng(seed).integers(len(self.values), size=len(self.configs))
        rows = np.arange(len(self.configs))
        return Table(self.configs, self.values[run, rows], self.costs_s[run, rows], "max", name=self.name, log=self.log)


@cache
def average_preference(steps: int) -> Floats:
    """Return the weights of the steps of a full training, (steps,)."""
    grid = product((-3.0, -2.0, -1.0, 0.0, 1.0), (0.1, 1.0, 2.0, 3.0))
    weights = [preference_weights(steps, midpoint=m0, growth=g0)[:, 0] for m0, g0 in grid]
    return np.asarray(np.mean(weights, axis=0))


def table_paths(data: Path | None) -> dict[str, Path]:
    """Return paths of tables by name: our own, and known ones below `data`; the made-up table has no file."""
    paths = {path.stem: path for path in sorted(OWN.glob("*.npz"))} | {SMOOTH: OWN}
    if data is not None:
        paths |= {path.stem: path for path in sorted(data.glob("*.npz"))}
        paths |= {name: data / path for name, path in OTHERS.items() if (data / path).exists()}
    return paths


def smooth(configs: int = 400, seed: int = 0) -> Problem:
    """Return a table of rewards that rise like a logistic to a height that is a wide hill in three numbers.

    There are two runs of each config, with noise that is correlated over some steps, like that of an agent. Steps cost more
    towards one side of the cube.
    """
    u = quasi_random.points(seed, SMOOTH, 3, np.arange(1, configs + 1))  # (configs, 3)
    rng, t = np.random.default_rng(seed), np.arange(1, STEPS + 1) / STEPS
    height = 100.0 * np.exp(-8.0 * ((u - (0.3, 0.6, 0.7)) ** 2).sum(axis=1))
    pace = 8.0 + 6.0 * u[:, 1]
    risen = height[:, None] / (1.0 + np.exp(4.0 - pace[:, None] * t))  # (configs, STEPS)
    steps = rng.standard_normal((2, configs, STEPS + 4))
    lasting = np.stack([steps[:, :, i : i + STEPS] for i in range(5)]).mean(axis=0)
    costs = np.broadcast_to((0.5 + u[:, :1]) * np.ones(STEPS), (2, configs, STEPS))
    names = ("a", "b", "c")
    return Problem(
        SMOOTH, [dict(zip(names, row, strict=True)) for row in u.tolist()], risen + 2.0 * lasting, costs.copy()
    )


def load(name: str, path: Path) -> Problem:
    if name == SMOOTH:
        return smooth()
    if name.endswith(EVEN):
        problem = load(name.removesuffix(EVEN), path)
        even = np.full_like(problem.costs_s, problem.costs_s.mean())
        return Problem(name, problem.configs, problem.values, even, problem.log)
    with np.load(path, allow_pickle=False) as arrays:
        meta = json.loads(str(arrays["meta"]))
        objective, hp, names = (
            arrays[meta["objective"]].astype(float),
            arrays["hp"],
            [str(n) for n in arrays["hp_names"]],
        )
        sign = 1.0 if meta["direction"] == "max" else -1.0
        since_start = arrays["cost"].astype(float)
        if f"{meta['objective']}_again" in arrays:
            values = np.concatenate([objective[None], arrays[f"{meta['objective']}_again"]])
            costs = np.concatenate([since_start[None], arrays["cost_again"]])
            configs = [dict(zip(names, row, strict=True)) for row in hp.tolist()]
            return Problem(name, _whole(configs), *_blocks(sign * values, costs), meta.get("log", ()))
    if np.isnan(objective).any():
        there = np.isfinite(objective).any(axis=1)
        hp, objective, since_start = hp[there], *_resample(objective[there], since_start[there])
    values, costs = _blocks(sign * objective, since_start)
    configs, runs = _group_runs(hp, names, meta.get("hp_categories") or {})
    return Problem(name, configs, values[runs.T], costs[runs.T], meta.get("log", OTHERS_LOG.get(name, ())))


def _blocks(values: Floats, since_start: Floats) -> tuple[Floats, Floats]:
    """Return the mean value and the seconds of each of STEPS blocks of steps, along the last axis."""
    steps = min(STEPS, values.shape[-1])
    ends = np.ceil(np.arange(1, steps + 1) * values.shape[-1] / steps).astype(int)
    begins = np.concatenate([[0], ends[:-1]])
    sums = np.add.reduceat(values, begins, axis=-1)
    return sums / (ends - begins), np.diff(since_start[..., ends - 1], axis=-1, prepend=0.0)


def _resample(values: Floats, since_start: Floats) -> tuple[Floats, Floats]:
    """Return curves at even times up to the longest run's end, and the seconds since the start, both (n, STEPS)."""
    times = np.arange(1, STEPS + 1) * (np.nanmax(since_start) / STEPS)
    out, spent = np.empty((len(values), STEPS)), np.empty((len(values), STEPS))
    for i, (curve, seconds) in enumerate(zip(values, since_start, strict=True)):
        there = np.isfinite(curve) & np.isfinite(seconds)
        at = np.searchsorted(seconds[there], times, side="right") - 1
        out[i] = curve[there][np.maximum(at, 0)]
        spent[i] = np.minimum(times, seconds[there][-1])
    return out, spent


def _group_runs(
    hp: Floats, names: Sequence[str], categories: Mapping[str, Sequence[str]]
) -> tuple[list[Any], NDArray[np.intp]]:
    """Return configs, and the rows of the runs of each, (configs, runs): as many runs as every config has."""
    tuned = [j for j, name in enumerate(names) if name not in NOT_TUNED]
    rows: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(hp[:, tuned].tolist()):
        rows.setdefault(tuple(None if math.isnan(v) else v for v in row), []).append(i)
    runs = min(len(rows_of_one) for rows_of_one in rows.values())
    configs = [
        {
            names[j]: categories[names[j]][int(v)] if names[j] in categories else v
            for j, v in zip(tuned, key, strict=True)
            if v is not None
        }
        for key in rows
    ]
    return _whole(configs), np.array([rows_of_one[:runs] for rows_of_one in rows.values()])


def _whole(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the configs with numbers as ints if they are whole in every config."""
    names = {name for config in configs for name in config}
    ints = {n for n in names if all(isinstance(c[n], float) and c[n].is_integer() for c in configs if n in c)}
    return [{name: int(v) if name in ints else v for name, v in config.items()} for config in configs]
