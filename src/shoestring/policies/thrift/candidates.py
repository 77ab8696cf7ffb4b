"""Configs that might be opened: untried ones from all over the space, and some around the best trials.

A listed space, or one small enough to list, offers its untried rows. Any other has no end of configs, and the best of those
drawn all over it is rarely the best there is: half of the candidates are steps away from the best trials, near and far, since
nobody knows how fine the optimum is. Whether one of them is worth opening is the belief's to say. All are drawn once, those
around a trial with that trial, so that a candidate stays one until it is tried or its trial is among the best no more.
"""

from __future__ import annotations

import math

import numpy as np

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.encoding import Points
from shoestring.core.values.arrays import Floats
from shoestring.policies.config_table import ConfigTable, Pool, best_trials, perturb

BEST = 3  # trials that are looked around
AROUND = 16  # candidates for each of them
_SPREADS = (0.01, 0.3)  # of a step away from a trial, in the unit cube: between these, drawn for each
FEWEST = 8  # candidates from all over the space


def draw(ledger: Ledger, table: ConfigTable, count: int) -> Pool:
    """At most `count` of them, or few more: those around the best trials and at least a few others."""
    rng = ledger.rng("thrift candidates")
    if table.rows is None:
        around = _around_the_best(ledger, table)
        pool = table.pool(ledger, max(FEWEST, count - len(around)), rng, near=())
        return Pool(table.untried(around.join(pool.points)), pool.rows)
    pool = table.pool(ledger, count, rng, near=())
    if pool.rows.size > count:
        order = rng.permutation(len(table.unused))
        chosen = np.zeros(len(table.unused), dtype=bool)
        chosen[order[table.unused[order]][:count]] = True
        return pool.take(chosen[pool.rows])
    return pool


def _around_the_best(ledger: Ledger, table: ConfigTable) -> Points:
    best = [number for number in best_trials(ledger, BEST) if math.isfinite(ledger.trials[number].best_loss)]
    steps = [_step_away(ledger, table, number) for number in best]
    return table.untried(table.encoding.snap(np.vstack([np.empty((0, ledger.space.dims)), *steps])))


def _step_away(ledger: Ledger, table: ConfigTable, trial: int) -> Floats:
    """(AROUND, dims): places in the cube."""
    rng = ledger.rng(f"thrift candidates around trial {trial}")
    least, most = _SPREADS
    spread = least * (most / least) ** rng.random((AROUND, 1))
    return perturb(table.encoding, np.repeat(table.trials[trial].cube, AROUND, axis=0), spread, rng)
