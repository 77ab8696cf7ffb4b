"""Several orders from one pass of the network, where a pass is expensive compared with the orders.

A pass takes as long as some quick steps, and under a budget of time it is charged. If a pass is expensive compared with an order,
its next best choices are ordered too, before the network runs again: as many as keep the time for deciding below a twentieth of
the time for training. The order of the pass carries the other choices in its memo, and the orders after it name that order. A
choice that is no longer possible, because its trial failed, ended or is under way, is skipped.

    plan      the other choices, best first, in the memo of the pass's order; each is
              (trial or -1, until, place...): the place of a new trial is its row in a listed space, else its point in the cube
    pass_of   number of the pass's order, in the memos of all orders from that pass
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from shoestring.core.values.arrays import Floats
from shoestring.policies.config_table import ConfigTable
from shoestring.policies.thrift.network_input import CONFIGS, NetworkInput
from shoestring.policy import Ledger, Memo, Train, continue_trial, reaches, sort_best_first, start_trial

_THINKING_SHARE = 0.05  # most time for deciding, as a share of the time for training
_MAX_ORDERS = 8  # orders of one pass: the last of them are chosen without the results of the first
_MIN_INDEX_SHARE = 0.5  # share of the best index: a choice below it waits for the next pass
_SINGLE_PRECISION_ERROR = 1e-5  # share of the spread of the index: ten times the difference between processors


def count_orders_due(ledger: Ledger) -> int:
    """Return the number of orders for the next pass; 1 where deciding is free or its time is not known yet."""
    state, last = ledger.state, ledger.memo.get("pass_of")
    if state.budget.unit == "epochs" or not last:
        return 1
    training_s = sum(state.by_kind[kind] for kind in ("setup", "train", "validate"))
    if not training_s > 0:
        return 1
    order_s = training_s / len(state.orders)
    return max(1, min(_MAX_ORDERS, math.ceil(ledger.orders[int(last[0])].thinking_s / (_THINKING_SHARE * order_s))))


def make_plan_memo(ledger: Ledger, inputs: NetworkInput, choices: Sequence[tuple[int, int]], count: int) -> Memo:
    """Return the memo of a pass's order.

    `choices` has the (arm, until) of the other orders, and `count` is the number of orders that the pass may decide.
    """
    if count == 1 and ledger.budget.unit == "epochs":
        return {}
    memo: dict[str, list[float]] = {"pass_of": [float(len(ledger.orders))]}
    if choices:
        memo["plan"] = [number for arm, until in choices for number in _encode_choice(inputs, arm, until)]
    return memo


def _encode_choice(inputs: NetworkInput, arm: int, until: int) -> list[float]:
    at = arm - inputs.trials
    rows, cube = inputs.pool.rows, inputs.pool.points.cube
    width = 1 if inputs.table.rows is not None else cube.shape[1]
    if at < 0:
        return [float(arm), float(until), *[0.0] * width]
    return [-1.0, float(until), *([float(rows[at])] if inputs.table.rows is not None else cube[at].tolist())]


def next_planned_order(ledger: Ledger) -> Train | None:
    """Return the best choice of the last pass that is still possible; None if the network must run again."""
    last = ledger.memo.get("pass_of")
    if not last:
        return None
    number = int(last[0])
    memo = {name: list(numbers) for name, numbers in ledger.memo.items() if name != "plan"}
    table = ledger.view(CONFIGS)
    choices = list(_decode_choices(ledger.orders[number].memo.get("plan", ()), table))
    for place, (arm, until, where) in enumerate(choices, 2):
        why = {"stage": f"choice {place} of {len(choices) + 1} from the network pass of order {number}"}
        if arm >= 0:
            trial = ledger.trials[arm]
            if trial.can_continue and trial.steps < until:
                return continue_trial(trial, min(until, trial.limit), why=why, memo=memo)
        elif table.rows is not None:
            if table.unused[int(where[0])]:
                return start_trial(ledger, table.rows[int(where[0])], until, why=why, memo=memo)
        elif not table.is_tried(table.encoding.points([config := ledger.space.from_cube(np.array(where))]))[0]:
            return start_trial(ledger, config, until, why=why, memo=memo)
    return None


def _decode_choices(plan: Sequence[float], table: ConfigTable) -> Iterator[tuple[int, int, Sequence[float]]]:
    width = 2 + (1 if table.rows is not None else table.encoding.space.dims)
    for start in range(0, len(plan), width):
        arm, until, *where = plan[start : start + width]
        yield int(arm), int(until), where


def is_clear(index: Floats, count: int) -> bool:
    """Return whether `choose_arms` would choose the same arms if the index changed by at most the error of single precision.

    The choices, the runner-up, the next best arm and the smallest index that is accepted must lie apart. At least one arm must
    have a finite index.
    """
    finite = np.sort(index[np.isfinite(index)])[::-1]
    edges = np.append(finite[: count + 2], _MIN_INDEX_SHARE * max(float(finite[0]), 0.0))
    return bool(np.all(np.diff(np.sort(edges)) > _SINGLE_PRECISION_ERROR * float(np.ptp(finite))))


def choose_arms(index: Floats, count: int) -> list[int]:
    """Return at most `count` arms with the largest indices, best first, without those far below the best."""
    best = sort_best_first(index, "highest", count)
    least = _MIN_INDEX_SHARE * max(float(index[best[0]]), 0.0)
    return [int(arm) for arm in best if arm == best[0] or not reaches(least, index[arm], spread=least)]
