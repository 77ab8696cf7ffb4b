"""Configurations that might be started: untried ones from the whole space, and some around the best trials.

In a listed space, or one small enough to list, candidates are its untried rows. In any other space the best of the
configurations drawn from the whole space is rarely the optimum, so half of the candidates lie around the best trials, at small
and large distances, since the width of the optimum is unknown. The network decides whether one of them is worth starting. The
candidates around a trial are drawn once, so each remains a candidate until it is tried or its trial is no longer among the best.
"""

from __future__ import annotations

import math

import numpy as np

from shoestring.core.values.arrays import Floats
from shoestring.policies.config_table import ConfigTable, Pool, best_trials, perturb
from shoestring.policy import Ledger, Points

BEST = 3  # trials with candidates around them
AROUND = 16  # candidates around each of them
_SPREADS = (0.01, 0.3)  # smallest and largest distance from the trial, in the unit cube; drawn for each candidate
MIN_CANDIDATES = 8  # least number of candidates from the whole space


def draw_pool(ledger: Ledger, table: ConfigTable, count: int) -> Pool:
    """Return about `count` candidates: those around the best trials and at least a few others."""
    rng = ledger.rng("thrift candidates")
    if table.rows is None:
        around = _around_the_best(ledger, table)
        pool = table.pool(ledger, max(MIN_CANDIDATES, count - len(around)), rng, near=())
        return Pool(table.drop_tried(around.join(pool.points)), pool.rows)
    pool = table.pool(ledger, count, rng, near=())
    if pool.rows.size > count:
        order = rng.permutation(len(table.unused))
        chosen = np.zeros(len(table.unused), dtype=bool)
        chosen[order[table.unused[order]][:count]] = True
        return pool.take(chosen[pool.rows])
    return pool


def _around_the_best(ledger: Ledger, table: ConfigTable) -> Points:
    best = [number for number in best_trials(ledger, BEST) if math.isfinite(ledger.trials[number].best_loss)]
    places = [_draw_around(ledger, table, number) for number in best]
    return table.drop_tried(table.encoding.snap(np.vstack([np.empty((0, ledger.space.dims)), *places])))


def _draw_around(ledger: Ledger, table: ConfigTable, trial: int) -> Floats:
    """Return places around a trial in the cube, (AROUND, dims)."""
    rng = ledger.rng(f"thrift candidates around trial {trial}")
    least, most = _SPREADS
    spread = least * (most / least) ** rng.random((AROUND, 1))
    return perturb(table.encoding, np.repeat(table.trials[trial].cube, AROUND, axis=0), spread, rng)
