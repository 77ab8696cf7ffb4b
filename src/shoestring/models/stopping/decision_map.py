"""Actions for each step of a training and mean error so far: the stopping problem solved backwards on simulated curves.

Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019 (PMLR 97, no arXiv
version known to us): losses (3), (4), Bellman equation (2), Algorithm 2 (appendix B).

    paper       here              meaning                                                          unit
    N0, N       -                 paths have a column for each step N0+1..N                        steps
    M           n_cells           equal cells of the statistic, cell i is (i / M, (i + 1) / M]     -
    y* + xi_t   incumbent_error   best error so far, with an allowance for noise                   error
    theta_1     -                 it does not end better: final error > incumbent_error            -
    theta_2     better            it ends better                                                   -
    d0 d1 d2    CONTINUE, STOP,   train one more step; stop ("it will not win"); train to the      -
                FINISH            end ("it will win")
    K1          k1                loss of stopping a training that would have won                  loss
    K2          k2                loss of finishing a training that does not win                   loss
    c_d0        cost              loss of one more step                                            loss
    rho_n       value             least expected loss from step n on                               loss

Equation (2): rho_n = min{ K1 Pr(theta_2), K2 Pr(theta_1), E[rho_{n+1}] + c }, without the last term at N.

Differences from the paper:
- In a cell with at most `min_paths` paths the action is always CONTINUE, and the value of the cell is the loss of
  continuing. (The authors' code leaves that value at 0, so continuing looks free one step earlier.)
- With fewer than `min_survivors` paths the action is CONTINUE everywhere, because the curve model does not fit this curve.
- Losses that are equal up to the tolerance of `core.deciding.reproducible` are ties; ties prefer d0, then d1, then d2.
- In a cell where no path wins K1 Pr = 0, even for k1 = inf.
- Line 19 of Algorithm 2 prints rho_{n+1} of y_n; it must be of y_{n+1}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoestring.core.deciding.reproducible import reaches
from shoestring.core.values.arrays import Flags, Floats, Indices

CONTINUE, STOP, FINISH = 0, 1, 2
_EDGE_SLACK = 1e-9  # share of a cell: a mean that equals an edge in exact arithmetic may round to just above it


@dataclass(frozen=True, slots=True, eq=False)
class DecisionMap:
    """Actions and losses for each step and cell of the statistic; row 0 is step N0+1. NaN where no path goes."""

    decision: Indices  # (steps, n_cells), CONTINUE, STOP or FINISH
    value: Floats  # (steps, n_cells), least expected loss
    loss_continue: Floats  # (steps, n_cells), NaN in the last row, after which no step is left
    loss_stop: Floats  # (steps, n_cells)
    loss_finish: Floats  # (steps, n_cells)
    prob_better: Floats  # (steps, n_cells), Pr(theta_2)
    count: Indices  # (steps, n_cells), paths through the cell
    n_paths: int  # number of paths, all of them inside (0, 1)
    enough_paths: bool  # False: the decision is CONTINUE everywhere


def statistic_cell(statistic: Floats, n_cells: int) -> Indices:
    """Return the cell of each statistic: (i / M, (i + 1) / M] has index i; values outside [0, 1] get the nearest cell."""
    cell = np.ceil(statistic * n_cells - _EDGE_SLACK)
    return np.clip(cell, 1.0, n_cells).astype(np.intp) - 1


def solve_backwards(
    paths: Floats,
    incumbent_error: float,
    *,
    k1: float,
    k2: float = 99.0,
    cost: float = 1.0,
    n_cells: int = 100,
    min_paths: int = 30,
    min_survivors: int = 1000,
    head: Floats | Sequence[float] = (),
) -> DecisionMap:
    """Return the solution of Algorithm 2 on simulated errors `paths`, (n_paths, steps) for steps N0+1..N.

    The last column decides which paths win. `incumbent_error` includes the noise correction. `head` (n0,) holds errors that are
    averaged with the simulated ones: empty for a statistic over N0+1..n, the first N0 errors for a statistic over 1..n.
    """
    by_step = np.ascontiguousarray(np.asarray(paths, dtype=np.float64).T)  # (steps, n_paths)
    if by_step.ndim != 2 or by_step.shape[0] == 0:
        raise ValueError(f"paths of shape {np.shape(paths)} must be (n_paths, steps) with at least one step.")
    require_losses(k1, k2, cost)
    if n_cells < 1 or min_paths < 0:
        raise ValueError(f"n_cells={n_cells} must be at least 1 and min_paths={min_paths} at least 0. Try 100 and 30.")
    steps, n_paths = by_step.shape
    better = by_step[-1] <= incumbent_error  # (n_paths,)
    bins = _bins_of_paths(by_step, better, np.asarray(head, dtype=np.float64), n_cells)
    split = np.stack([np.bincount(row, minlength=2 * n_cells) for row in bins])  # (steps, 2 n_cells)
    lost, won = split[:, ::2], split[:, 1::2]  # (steps, n_cells)
    count = lost + won
    visited = count > 0
    paths_here = np.maximum(count, 1)  # divisor; where it is not the count, the result is NaN
    prob_better = np.where(visited, won / paths_here, np.nan)
    loss_stop = np.where(visited, _times(k1, won) / paths_here, np.nan)
    loss_finish = np.where(visited, _times(k2, lost) / paths_here, np.nan)

    final_loss = np.minimum(loss_stop, loss_finish)
    final_decision = np.where(reaches(loss_finish, loss_stop, spread=loss_stop), STOP, FINISH)
    sparse = count <= min_paths  # unvisited cells included
    loss_continue = np.full_like(final_loss, np.nan)
    value = final_loss.copy()
    # right for the last step; the loop below replaces the rows of all earlier steps
    decision = np.where(sparse, CONTINUE, final_decision)
    for row in reversed(range(steps - 1)):
        next_value = np.repeat(value[row + 1], 2)[bins[row + 1]]  # (n_paths,)
        total = np.bincount(bins[row], weights=next_value, minlength=2 * n_cells).reshape(n_cells, 2).sum(axis=1)
        loss_continue[row] = np.where(visited[row], total / paths_here[row] + cost, np.nan)
        is_continued = sparse[row] | reaches(final_loss[row], loss_continue[row], spread=loss_continue[row])
        value[row] = np.where(is_continued, loss_continue[row], final_loss[row])
        decision[row] = np.where(is_continued, CONTINUE, final_decision[row])
    enough = n_paths >= min_survivors
    if not enough:
        decision[:] = CONTINUE
    return DecisionMap(decision, value, loss_continue, loss_stop, loss_finish, prob_better, count, n_paths, enough)


def _bins_of_paths(by_step: Floats, better: Flags, head: Floats, n_cells: int) -> Indices:
    """Return bins (steps, n_paths): 2 i + 1 for a winner in cell i, 2 i for a loser, so that one count gives both."""
    bins = np.empty(by_step.shape, dtype=np.intp)
    total = np.full(by_step.shape[1], head.sum())
    for row, errors in enumerate(by_step):
        total += errors
        bins[row] = 2 * statistic_cell(total / (head.size + row + 1), n_cells) + better
    return bins


def _times(loss: float, count: Indices) -> Floats:
    """Return loss * count with inf * 0 = 0."""
    return np.multiply(loss, count, out=np.zeros(count.shape), where=count > 0)


def require_losses(k1: float, k2: float, cost: float) -> None:
    """Raise ValueError if a loss of the stopping problem is out of its range."""
    if not (k1 > 0.0 and 0.0 < k2 < math.inf and 0.0 <= cost < math.inf):
        raise ValueError(
            f"k1={k1}, k2={k2}, cost={cost}: k1 must be positive (inf allowed), k2 positive and finite, "
            "cost finite and not negative. Try 100, 99, 1."
        )
