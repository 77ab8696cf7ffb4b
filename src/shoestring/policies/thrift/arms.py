"""Trials and candidates as the network sees them, and what the money left buys of each.

Reach is in real steps what the money left pays for, at the trial's own mean price (of a candidate: the mean price), and no
further than its end; under a budget of time a state that was lost must first be trained again. Where trainings end by
themselves before `max_steps`, others are expected to end there too, until one gets as far and goes on. A trial under way cannot
be bought; its reserve is gone from what is left. A trial that diverged or failed has no reach, and says where not to look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shoestring.core.deciding.prediction import BelievedCurve
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.arrays import Flags, Floats
from shoestring.models.thrift.belief import believe_with_reach
from shoestring.models.thrift.features import Arms, rank_columns, standing
from shoestring.models.thrift.network import Network
from shoestring.models.thrift.shapes import STEPS
from shoestring.policies.config_table import ConfigsView, ConfigTable, Pool
from shoestring.policies.thrift.candidates import draw
from shoestring.policies.thrift.curves import CURVES, SeenCurves

CONFIGS = ConfigsView()
_ROUNDING = 1e-9
Steps = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """The study at one moment: its trials in their order, then the candidates."""

    arms: Arms
    trials: int
    steps: Steps  # (K,): real steps bought
    reach: Steps  # (K,): real steps that the money left buys
    affordable: Steps  # (K,): those that it would buy of an arm without an end
    can_buy: Flags  # (K,)
    curves: SeenCurves
    table: ConfigTable
    pool: Pool

    @property
    def is_told(self) -> bool:
        """Whether any trial has a loss."""
        return bool(self.arms.is_opened.any())

    def within(self, horizon: float) -> Scene:
        """The same with arms that reach no further than so many times what they have had, at least one step of the network."""
        if math.isinf(horizon):
            return self
        far = np.maximum(math.ceil(self.curves.block), np.ceil(horizon * self.steps))
        reach = np.minimum(self.reach, far).astype(np.int64)
        return replace(self, reach=reach, arms=replace(self.arms, reach=_seen(self.curves, self.steps, reach)))

    def config(self, arm: int) -> Config:
        """Of a candidate."""
        return self.table.config(self.pool, self.pool.points, arm - self.trials)

    def find(self, order: Order) -> int | None:
        """The arm that this order bought of; None: a candidate that another version of this package drew."""
        arms = [order.trial] if order.trial < self.trials else range(self.trials, len(self.steps))
        return next((arm for arm in arms if arm < self.trials or self.config(arm) == order.config), None)

    def tell(
        self, ledger: Ledger, listed: Sequence[int], networks: tuple[Network, ...], sureness: float
    ) -> list[BelievedCurve]:
        """The best that the network expects of these arms, by how many of the steps to their ends they would get."""
        to_come = [np.arange(1, max(1, self.arms.steps - self.arms.n[arm]) + 1) for arm in listed]
        of_arm = np.repeat(listed, [len(one) for one in to_come])
        belief = believe_with_reach(networks, self.arms, of_arm, np.concatenate(to_come), sureness)
        told = []
        for arm, seen in zip(listed, to_come, strict=True):
            last = np.floor((self.arms.n[arm] + seen) * self.curves.block + _ROUNDING)  # of a block of real steps
            steps = np.maximum(last, self.steps[arm] + 1).astype(np.intp)
            is_trial, own = arm < self.trials, replace(belief, chances=belief.chances[of_arm == arm])
            config = ledger.trials[arm].config if is_trial else self.config(arm)
            number = arm if is_trial else None
            told.append(BelievedCurve.of(number, config, steps, own.quantile, ledger.opened.sign))
        return told


def look(ledger: Ledger, candidates: int) -> Scene:
    """The study with about so many candidates; which they are: `candidates`."""
    curves, table = ledger.view(CURVES), ledger.view(CONFIGS)
    pool = draw(ledger, table, candidates)
    new = len(pool.points)
    price = _prices(ledger, curves, new)
    length = expected_length(ledger)
    steps, lag, limit, can_buy = _progress(ledger, new, length)
    mean_price = _mean_price(ledger)
    left = ledger.left
    affordable = np.floor(left / (price * mean_price) * (1 + _ROUNDING)) - lag
    reach = np.clip(np.minimum(limit - steps, affordable), 0, None).astype(np.int64)
    losses, n = _curves(curves, steps)
    arms = Arms(
        losses=losses,
        n=n,
        reach=_seen(curves, steps, reach),
        price=price,
        x=np.empty((len(n), 0)),
        left=left / mean_price / curves.block,
        steps=curves.seen(length),
    )
    # Newest losses of different steps do not compare; standings do.
    badness = np.where(arms.is_opened, 1.0 - standing(arms), math.nan)
    arms = replace(arms, x=rank_columns(_columns(ledger, table, pool), badness))
    can_buy &= reach >= 1
    buys = np.clip(affordable, 0, 2**31).astype(np.int64)
    return Scene(arms, len(ledger.trials), steps, reach, buys, can_buy, curves, table, pool)


def _seen(curves: SeenCurves, steps: Steps, reach: Steps) -> Steps:
    """A reach in real steps as the network sees it; what can be bought at all is at least one."""
    further = curves.seen_all(steps + reach) - curves.seen_all(steps)
    return np.asarray(np.maximum(further, np.minimum(1, reach)))


def expected_length(ledger: Ledger) -> int:
    """Steps of a full training: those of the longest that ended by itself, unless another has come as far and goes on."""
    ended = [t.steps for t in ledger.trials if t.steps >= t.limit and t.limit < ledger.max_steps and not t.failure]
    going = [t.steps for t in ledger.trials if t.steps < t.limit]
    longest = max(ended, default=0)
    return longest if longest > max(going, default=0) else ledger.max_steps


def _progress(ledger: Ledger, new: int, length: int) -> tuple[Steps, Steps, Steps, Flags]:
    """(K,) each: steps bought, steps to train again first, the last step there is, and whether more can be bought."""
    timed = ledger.budget.unit != "epochs"
    facts = [
        (t.steps, t.steps - t.held if timed else 0, t.steps if t.is_stuck else min(t.limit, length), t.can_go_on)
        for t in ledger.trials
    ]
    facts += [(0, 0, length, True)] * new
    steps, lag, limit, can_go_on = (np.array(column) for column in zip(*facts, strict=True))
    return steps, lag, limit, can_go_on.astype(bool)


def _mean_price(ledger: Ledger) -> float:
    price = ledger.step_price()
    return price if price > 0 else 1.0  # nan before the first step, 0 where steps take no time


def _prices(ledger: Ledger, curves: SeenCurves, new: int) -> Floats:
    """(K,): of a step, relative to the mean over trials; 1 where it is not known."""
    relative = np.ones(len(ledger.trials) + new)
    if ledger.budget.unit == "epochs":
        return relative
    rows = min(len(ledger.trials), len(curves.finished))
    paid = np.flatnonzero((curves.finished[:rows] > 0) & (curves.seconds[:rows] > 0))
    if len(paid):
        own = curves.seconds[paid] / curves.finished[paid]
        relative[paid] = own / (curves.seconds[paid].sum() / curves.finished[paid].sum())
    return relative


def _curves(curves: SeenCurves, steps: Steps) -> tuple[Floats, Steps]:
    """Losses (K, 50) without gaps or infinities, and how much of them is known (K,)."""
    losses = np.full((len(steps), STEPS), np.nan)
    rows = min(len(steps), len(curves.losses))
    losses[:rows] = curves.losses[:rows]
    known = ~np.isnan(losses[:, 0])
    n = np.where(known, STEPS - np.isnan(losses).sum(axis=1), 0)
    first = losses[known & np.isfinite(losses[:, 0]), 0]
    worst = float(first.max()) if len(first) else 0.0
    losses = np.where(np.isinf(losses), worst, losses)
    return np.where(np.isnan(losses), 0.0, losses), n.astype(np.int64)


def _columns(ledger: Ledger, table: ConfigTable, pool: Pool) -> Floats:
    """(K, dims): every hyperparameter of trials and candidates, nan where it is inactive."""
    points = pool.points
    if ledger.trials:
        points = table.stack(range(len(table.trials))).join(points)
    columns = points.cube.copy()
    names = ledger.space.cube_names
    for k, name in enumerate(table.encoding.optional):
        if name in names:
            columns[~points.active[:, k], names.index(name)] = np.nan
    return columns
