"""Several orders of one look: where time is money, thinking is paid for, so one pass of the network decides more than one order.

A look takes as long as some quick steps. If it is dear beside what orders cost, its next best choices are bought too, before
the network is asked again: as many as keep thinking below a twentieth of what is bought. The order that was decided by a
look carries its other choices in its memo, and the orders after it say which look they are from. A choice that is no longer
open, because its trial failed, ended or is under way, is passed over.

    plan        the other choices, best first, in the memo of the look's order; each is
                (trial or -1, until, place...): the place of a newcomer is its row of a listed space, else its point of the cube
    looked_at   number of that order, in the memo of all orders that were decided by the look
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from shoestring.core.deciding.decision import Memo, Train
from shoestring.core.deciding.policy import train_further, train_new
from shoestring.core.deciding.reproducible import reaches, sort_best_first
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.arrays import Floats
from shoestring.policies.config_table import ConfigTable
from shoestring.policies.thrift.arms import CONFIGS, Scene

_SHARE = 0.05  # of what is bought: thinking may cost so much
_MOST = 8  # choices of one look: the last of them know nothing of what came of the first
_NEARLY = 0.5  # of the best index: a choice that promises less is not bought unasked
_SINGLE = 1e-5  # of the spread of the index: ten times what single precision differs by between processors


def count_due(ledger: Ledger) -> int:
    """Orders that the next look should decide; 1 where thinking is free, or nobody knows yet what it costs."""
    books, last = ledger.books, ledger.memo.get("looked_at")
    if books.budget.unit == "epochs" or not last:
        return 1
    bought_s = sum(books.by_kind[kind] for kind in ("setup", "train", "validate"))
    if not bought_s > 0:
        return 1
    order_s = bought_s / len(books.orders)
    return max(1, min(_MOST, math.ceil(ledger.orders[int(last[0])].thinking_s / (_SHARE * order_s))))


def remember(ledger: Ledger, scene: Scene, choices: Sequence[tuple[int, int]], count: int) -> Memo:
    """What the order of a look leaves: `choices` are (arm, until) beside its own, `count` the orders it was to decide."""
    if count == 1 and ledger.budget.unit == "epochs":
        return {}
    memo: dict[str, list[float]] = {"looked_at": [float(len(ledger.orders))]}
    if choices:
        memo["plan"] = [number for arm, until in choices for number in _written(scene, arm, until)]
    return memo


def _written(scene: Scene, arm: int, until: int) -> list[float]:
    at = arm - scene.trials
    rows, cube = scene.pool.rows, scene.pool.points.cube
    width = 1 if scene.table.rows is not None else cube.shape[1]
    if at < 0:
        return [float(arm), float(until), *[0.0] * width]
    return [-1.0, float(until), *([float(rows[at])] if scene.table.rows is not None else cube[at].tolist())]


def next_choice(ledger: Ledger) -> Train | None:
    """The best choice of the last look that is still open; None: look again."""
    last = ledger.memo.get("looked_at")
    if not last:
        return None
    number = int(last[0])
    memo = {name: list(told) for name, told in ledger.memo.items() if name != "plan"}
    table = ledger.view(CONFIGS)
    choices = list(_choices(ledger.orders[number].memo.get("plan", ()), table))
    for place, (arm, until, where) in enumerate(choices, 2):
        why = {"stage": f"choice {place} of {len(choices) + 1} of the look that decided order {number}"}
        if arm >= 0:
            trial = ledger.trials[arm]
            if trial.can_go_on and trial.steps < until:
                return train_further(trial, min(until, trial.limit), why=why, memo=memo)
        elif table.rows is not None:
            if table.unused[int(where[0])]:
                return train_new(ledger, table.rows[int(where[0])], until, why=why, memo=memo)
        elif not table.is_tried(table.encoding.points([config := ledger.space.from_cube(np.array(where))]))[0]:
            return train_new(ledger, config, until, why=why, memo=memo)
    return None


def _choices(plan: Sequence[float], table: ConfigTable) -> Iterator[tuple[int, int, Sequence[float]]]:
    width = 2 + (1 if table.rows is not None else table.encoding.space.dims)
    for start in range(0, len(plan), width):
        arm, until, *where = plan[start : start + width]
        yield int(arm), int(until), where


def is_clear(index: Floats, count: int) -> bool:
    """Return whether `pick` would choose the same from any index that is within the error of single precision of this one.

    The choices, the runner-up, the next best arm and the least that is bought must lie apart. At least one arm has a finite
    index.
    """
    finite = np.sort(index[np.isfinite(index)])[::-1]
    edges = np.append(finite[: count + 2], _NEARLY * max(float(finite[0]), 0.0))
    return bool(np.all(np.diff(np.sort(edges)) > _SINGLE * float(np.ptp(finite))))


def pick(index: Floats, count: int) -> list[int]:
    """The arms of the largest indices, best first: at most `count`, and none that promises far less than the best."""
    best = sort_best_first(index, "highest", count)
    least = _NEARLY * max(float(index[best[0]]), 0.0)
    return [int(arm) for arm in best if arm == best[0] or not reaches(least, index[arm], spread=least)]
