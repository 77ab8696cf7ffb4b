"""Simulation of thousands of studies at once on an accelerator, to choose the constants of the policy.

The result of a study on a table is mostly chance: an important difference is invisible in ten studies and clear in a thousand.
Here all studies take their next decision together, in one pass of the network, in a simplified simulation: budgets in steps, one
worker, configurations opened in a random order, hyperparameters ranked among all drawn configurations. `choose` compares rules;
the policy itself is judged by `python -m benchmarks thrift`, and a test ensures that the two agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from benchmarks.race.problems import ProblemSpec, TableProblem
from numpy.typing import NDArray
from torch import Tensor

from shoestring.models.thrift.shapes import BINS, HIGH, LOW, SHARPNESS
from training.halving import Order
from training.network import Network, Studies, features, hide_budget, scale_of
from training.pack import ranks_of
from training.prior import COLUMNS, T

_PART = 1024  # studies in one pass
_FAR = 1e30  # in place of losses that are not known
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """The constants of `thrift`, and options that were tried and did not help."""

    opening: float = 0.75  # share of the budget that halving spends first, divided by the root of the budget in curves
    growth: float = 1.0  # steps of an order, as a share of the steps that the arm has had
    share_power: float = 0.5  # power of the share of arms that were no better
    race: bool = True  # leave out arms for which sequential halving would have no budget
    candidates_per_curve: float = 25.0  # arms and candidates for each full curve in the budget
    most_candidates: int = 100
    horizon: float = 2.0  # most steps within reach, as a multiple of the steps that an arm has had (at least one)
    steps_power: float = 0.5  # power of the steps within reach, by which the gain is divided
    chance_power: float = 1.4  # power of the probabilities
    newcomers: float = 0.5  # the share of arms that were no better, for a candidate
    ended: bool = True  # where trainings end by themselves, others are expected to end there too
    blind: bool = False  # hide the remaining budget from the network
    hidden: bool = False  # hide the hyperparameters from the network


@dataclass(frozen=True)
class DrawnStudies:
    """The studies: one table with up to 200 configurations each, padded to a common shape."""

    source: list[str]
    table: list[str]
    seed: list[int]
    losses: Floats  # (b, K, T)
    x: Floats  # (b, K, COLUMNS)
    limit: NDArray[np.int64]  # (b, K): steps of an arm; 0: there is none
    steps: NDArray[np.int64]  # (b,)


def draw(tables: Sequence[ProblemSpec], seeds: Sequence[int], arms: int = 200) -> DrawnStudies:
    """Return all studies, with the configurations that the race draws, in the order in which they are started."""
    rows: list[tuple[Any, ...]] = []
    for spec in tables:
        for seed in seeds:
            problem = spec.draw(seed)
            assert isinstance(problem, TableProblem)
            part = problem.table
            count, steps = len(part.configs), part.max_steps
            y, x, limit = np.zeros((arms, T)), np.full((arms, COLUMNS), -1.0), np.zeros(arms, dtype=np.int64)
            last = part.values[np.arange(count), part.lengths - 1]
            y[:count] = last[:, None]
            y[:count, :steps] = np.where(np.isnan(part.values), last[:, None], part.values)
            x[:count] = ranks_of(part)[:, :COLUMNS]
            limit[:count] = part.lengths
            rows.append((spec.source, spec.table, seed, y, x, limit, steps))
    source, table, seed_of, y, x, limit, steps_of = zip(*rows, strict=True)
    return DrawnStudies(
        list(source), list(table), list(seed_of), np.stack(y), np.stack(x), np.stack(limit), np.array(steps_of)
    )


# the surrogate -------------------------------------------------------------------------------------------------------


def gain_of(network: Network, s: Studies, rule: Rule) -> Tensor:
    """Return the expected improvement on the best so far, (b, K), in units of the study's scale."""
    scale = scale_of(s)
    with torch.autocast(s.n.device.type, dtype=torch.bfloat16, enabled=s.n.device.type == "cuda"):
        odds = network(features(s, scale), (s.n > 0) & s.valid)
    chances = torch.softmax(odds.float() * rule.chance_power, -1)
    width = (HIGH - LOW) / BINS
    u = LOW + width * (torch.arange(BINS, device=s.n.device) + 0.5)
    improvement = torch.where(u < 0, -torch.sinh(u * math.asinh(SHARPNESS)) / SHARPNESS, torch.zeros_like(u))
    return chances @ improvement


def rank_share(s: Studies, newcomers: float) -> Tensor:
    """Return what `rank_share` of `shoestring.models.thrift.features` does, (b, K), with `newcomers` for candidates."""
    opened = (s.n > 0) & s.valid
    newest = (s.n.clamp(min=1) - 1)[..., None]
    last = s.losses.gather(2, newest)[..., 0]
    others = s.losses.gather(2, newest.transpose(1, 2).expand(-1, s.n.shape[1], -1))
    as_far = (s.n[:, :, None] >= s.n[:, None]) & opened[:, :, None]
    share = ((others >= last[:, None]) & as_far).sum(1) / as_far.sum(1).clamp(min=1)
    return torch.where(opened, share, torch.full_like(share, newcomers))


def is_in_race(s: Studies, share: Tensor) -> Tensor:
    """Return what `is_in_race` of `shoestring.models.thrift.features` does, (b, K)."""
    m = torch.arange(1, s.n.shape[1] + 1, device=s.n.device).float()
    costs = m * torch.log2(m) / 2
    affordable = torch.searchsorted(costs, (s.left[:, None] / s.n.clamp(min=1)).contiguous(), right=True)
    better = s.n.shape[1] - torch.searchsorted(share.sort(1).values, share.contiguous(), right=True)
    return better < affordable.clamp(min=2)


def expected_length(n: Tensor, limit: Tensor, steps: Tensor) -> Tensor:
    """Return the length of the longest training that ended early, (b,); all steps if none did, or if another one is as long."""
    ended = (n > 0) & (n >= limit) & (limit < steps[:, None])
    longest = torch.where(ended, n, torch.zeros_like(n)).amax(1)
    going = torch.where(ended, torch.zeros_like(n), n).amax(1)
    return torch.where((longest > 0) & (going < longest), longest, steps)


def choose(network: Callable[..., Tensor], s: Studies, can_train: Tensor, curves: float, rule: Rule) -> Tensor:
    """Return the arm to train, (b,)."""
    s = hide_budget(s) if rule.blind else s
    s = s._replace(x=torch.full_like(s.x, -1.0)) if rule.hidden else s
    reach = torch.minimum(s.reach, (rule.horizon * s.n.clamp(min=1)).clamp(max=T).long())
    gain = gain_of(network, s._replace(reach=reach), rule)
    share = rank_share(s, rule.newcomers)
    if rule.race:
        racing = can_train & is_in_race(s, torch.where(can_train, share, torch.full_like(share, -1.0)))
        can_train = torch.where(racing.any(1, keepdim=True), racing, can_train)
    index = gain * share**rule.share_power / reach.clamp(min=1).float() ** rule.steps_power
    return torch.where(can_train, index, torch.full_like(index, -1.0)).argmax(1)


@torch.no_grad()
def race(
    networks: dict[str, Network],
    fold_of: Callable[[str], str],
    drawn: DrawnStudies,
    curves: float,
    rule: Rule,
    device: torch.device,
    openings: Sequence[Sequence[Order]],
) -> NDArray[np.float64]:
    """Return the lowest loss of each study, (b,)."""
    found = np.zeros(len(drawn.source))
    folds = [fold_of(source) for source in drawn.source]
    for fold in sorted(set(folds)):
        rows = np.array([i for i, name in enumerate(folds) if name == fold])
        for part in np.array_split(rows, max(1, math.ceil(len(rows) / _PART))):
            found[part] = _race(networks[fold], drawn, part, curves, rule, device, openings)
    return found


def _race(
    network: Network,
    drawn: DrawnStudies,
    rows: NDArray[Any],
    curves: float,
    rule: Rule,
    device: torch.device,
    openings: Sequence[Sequence[Order]],
) -> NDArray[np.float64]:
    budget = np.maximum(1, np.round(curves * drawn.steps[rows])).astype(np.int64)
    n0 = np.zeros(drawn.limit[rows].shape, dtype=np.int64)
    spent = np.zeros(len(rows), dtype=np.int64)
    for i, row in enumerate(rows):
        for arm, until in openings[row]:
            if spent[i] >= rule.opening / math.sqrt(curves) * budget[i]:
                break
            spent[i] += until - n0[i, arm]
            n0[i, arm] = until
    put = {"device": device}
    y = torch.tensor(drawn.losses[rows], dtype=torch.float32, **put)
    x = torch.tensor(drawn.x[rows], dtype=torch.float32, **put)
    limit, steps = torch.tensor(drawn.limit[rows], **put), torch.tensor(drawn.steps[rows], **put)
    n, left = torch.tensor(n0, **put), torch.tensor(budget - spent, **put)
    alive = torch.arange(len(rows), **put)
    while len(alive):
        a_n, a_left, a_limit, a_steps = n[alive], left[alive], limit[alive], steps[alive]
        opened = a_n > 0
        wanted = (round(rule.candidates_per_curve * curves) - opened.sum(1)).clamp(8, rule.most_candidates)
        fresh = (~opened) & (a_limit > 0)
        valid = opened | (fresh & (fresh.cumsum(1) <= wanted[:, None]))
        if rule.ended:
            a_steps = expected_length(a_n, a_limit, a_steps)
        reach = torch.minimum(a_steps[:, None] - a_n, a_left[:, None]).clamp(min=0) * (a_n < a_limit)
        s = Studies(
            y[alive], x[alive], a_n, reach, torch.ones_like(a_n, dtype=torch.float32), a_left.float(), a_steps, valid
        )
        can_train = valid & (reach > 0)
        going = can_train.any(1)
        chosen = choose(network, s, can_train, curves, rule)
        had = a_n.gather(1, chosen[:, None])[:, 0]
        more = torch.minimum((rule.growth * had).long().clamp(min=1), reach.gather(1, chosen[:, None])[:, 0])
        until = torch.minimum(had + more, a_limit.gather(1, chosen[:, None])[:, 0])
        until = torch.where(going, until, had)
        n[alive, chosen] = until
        left[alive] = a_left - (until - had)
        alive = alive[going & (left[alive] > 0)]
    seen = torch.arange(1, T + 1, **put) <= n[..., None]
    return torch.where(seen, y, torch.full_like(y, _FAR)).amin((1, 2)).cpu().numpy().astype(float)


# the measure --------------------------------------------------------------------------------------------------------


def regrets(drawn: DrawnStudies, curves: float, found: Floats) -> Floats:
    """Return the regret of each lowest loss found, (b,): 0 for the lowest within the budget, 1 for the median first loss."""
    there = drawn.limit > 0
    optimum, typical = np.zeros(len(found)), np.zeros(len(found))
    for i, (y, limit, steps) in enumerate(zip(drawn.losses, drawn.limit, drawn.steps, strict=True)):
        within = np.arange(T) < np.minimum(limit, max(1, round(curves * steps)))[:, None]
        optimum[i] = np.where(within, y, np.inf).min()
        typical[i] = np.median(y[there[i], 0])
    span = np.where(typical > optimum, typical - optimum, 1.0)
    return (found - optimum) / span


def best_of(drawn: DrawnStudies, orders: Sequence[Sequence[Order]]) -> Floats:
    """Return the lowest loss that the orders of each study reach, (b,)."""
    return np.array(
        [min(y[arm, :until].min() for arm, until in one) for y, one in zip(drawn.losses, orders, strict=True)]
    )
