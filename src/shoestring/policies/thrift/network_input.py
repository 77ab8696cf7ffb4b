"""Trials and candidates as input of the network, and the steps that the remaining budget pays for.

The reach of a trial is the number of steps that the remaining budget pays for at the trial's own mean price (for a candidate:
the mean price over trials), but not beyond the trial's end. Under a budget of time, a lost state must first be trained again. If
trainings end by themselves before `max_steps`, others are expected to end there too, until one reaches that step and continues.
A trial with an open order cannot be trained; its reserve is not part of the remaining budget. A trial that diverged or failed
has no reach, but it shows the network which configurations are bad.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shoestring.core.values.arrays import Flags, Floats
from shoestring.models.thrift.features import Arms, rank_columns, rank_share
from shoestring.models.thrift.lowest_losses import predict_with_reach
from shoestring.models.thrift.network import Network
from shoestring.models.thrift.shapes import STEPS
from shoestring.policies.config_table import ConfigsView, ConfigTable, Pool
from shoestring.policies.thrift.block_curves import BLOCK_CURVES, BlockCurves
from shoestring.policies.thrift.candidates import draw_pool
from shoestring.policy import Config, CurvePrediction, Ledger, Order

CONFIGS = ConfigsView()
_ROUNDING = 1e-9  # relative tolerance: the budget may pay for a whole number of steps exactly
Steps = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NetworkInput:
    """The study at one moment: its trials in their order, then the candidates."""

    arms: Arms
    trials: int
    steps: Steps  # (K,): steps trained
    reach: Steps  # (K,): further steps that the remaining budget pays for, up to the end of the trial
    affordable: Steps  # (K,): the same, also beyond the end of the trial
    can_train: Flags  # (K,): neither ended, failed nor under way, and at least one step is affordable
    curves: BlockCurves
    table: ConfigTable
    pool: Pool

    @property
    def has_losses(self) -> bool:
        return bool(self.arms.is_started.any())

    def within(self, horizon: float) -> NetworkInput:
        """Return this input with reaches of at most `horizon` times the steps trained, or one block of steps if that is more."""
        if math.isinf(horizon):
            return self
        far = np.maximum(math.ceil(self.curves.steps_per_block), np.ceil(horizon * self.steps))
        reach = np.minimum(self.reach, far).astype(np.int64)
        return replace(self, reach=reach, arms=replace(self.arms, reach=_in_blocks(self.curves, self.steps, reach)))

    def config(self, arm: int) -> Config:
        """Return the configuration of a candidate."""
        return self.table.config(self.pool, self.pool.points, arm - self.trials)

    def find(self, order: Order) -> int | None:
        """Return the arm of an order; None if it is a candidate that another version of this package drew."""
        arms = [order.trial] if order.trial < self.trials else range(self.trials, len(self.steps))
        return next((arm for arm in arms if arm < self.trials or self.config(arm) == order.config), None)

    def predict_curves(
        self, ledger: Ledger, arms: Sequence[int], networks: tuple[Network, ...], chance_power: float
    ) -> list[CurvePrediction]:
        """Return the best value that the network expects of these arms, by the number of steps up to their end."""
        blocks_to_end = [np.arange(1, max(1, self.arms.steps - self.arms.n[arm]) + 1) for arm in arms]
        arm_of_row = np.repeat(arms, [len(blocks) for blocks in blocks_to_end])
        lowest = predict_with_reach(networks, self.arms, arm_of_row, np.concatenate(blocks_to_end), chance_power)
        predictions = []
        for arm, blocks in zip(arms, blocks_to_end, strict=True):
            last = np.floor((self.arms.n[arm] + blocks) * self.curves.steps_per_block + _ROUNDING)  # step of each block
            steps = np.maximum(last, self.steps[arm] + 1).astype(np.intp)
            is_trial, own = arm < self.trials, replace(lowest, chances=lowest.chances[arm_of_row == arm])
            config = ledger.trials[arm].config if is_trial else self.config(arm)
            number = arm if is_trial else None
            predictions.append(CurvePrediction.of(number, config, steps, own.quantile, ledger.definition.sign))
        return predictions


def make_network_input(ledger: Ledger, candidates: int) -> NetworkInput:
    """Return the trials of the study and about `candidates` candidates."""
    curves, table = ledger.view(BLOCK_CURVES), ledger.view(CONFIGS)
    pool = draw_pool(ledger, table, candidates)
    new = len(pool.points)
    price = _prices(ledger, curves, new)
    length = expected_length(ledger)
    steps, lost_steps, limit, can_train = _progress(ledger, new, length)
    mean_price = _mean_price(ledger)
    left = ledger.left
    affordable = np.floor(left / (price * mean_price) * (1 + _ROUNDING)) - lost_steps
    reach = np.clip(np.minimum(limit - steps, affordable), 0, None).astype(np.int64)
    losses, n = _losses(curves, steps)
    arms = Arms(
        losses=losses,
        n=n,
        reach=_in_blocks(curves, steps, reach),
        price=price,
        x=np.empty((len(n), 0)),
        left=left / mean_price / curves.steps_per_block,
        steps=curves.block_of(length),
    )
    # Newest losses at different steps cannot be compared; shares of better trials can.
    share_better = np.where(arms.is_started, 1.0 - rank_share(arms), math.nan)
    arms = replace(arms, x=rank_columns(_columns(ledger, table, pool), share_better))
    can_train &= reach >= 1
    without_end = np.clip(affordable, 0, 2**31).astype(np.int64)
    return NetworkInput(arms, len(ledger.trials), steps, reach, without_end, can_train, curves, table, pool)


def _in_blocks(curves: BlockCurves, steps: Steps, reach: Steps) -> Steps:
    """Return a reach in blocks of steps; a reach of one step or more is at least one block."""
    blocks = curves.blocks_of(steps + reach) - curves.blocks_of(steps)
    return np.asarray(np.maximum(blocks, np.minimum(1, reach)))


def expected_length(ledger: Ledger) -> int:
    """Return the expected number of steps of a full training.

    If trainings ended by themselves, it is the length of the longest of them, unless another trial has as many steps and has not
    ended. Otherwise it is `max_steps`.
    """
    ended = [t.steps for t in ledger.trials if t.steps >= t.limit and t.limit < ledger.max_steps and not t.failure]
    going = [t.steps for t in ledger.trials if t.steps < t.limit]
    longest = max(ended, default=0)
    return longest if longest > max(going, default=0) else ledger.max_steps


def _progress(ledger: Ledger, new: int, length: int) -> tuple[Steps, Steps, Steps, Flags]:
    """Return, (K,) each: steps trained, lost steps to train again, the last possible step, and whether the trial can continue."""
    is_timed = ledger.budget.unit != "epochs"
    facts = [
        (
            t.steps,
            t.steps - t.resumable_step if is_timed else 0,
            t.steps if t.is_ended else min(t.limit, length),
            t.can_continue,
        )
        for t in ledger.trials
    ]
    facts += [(0, 0, length, True)] * new
    steps, lost_steps, limit, can_continue = (np.array(column) for column in zip(*facts, strict=True))
    return steps, lost_steps, limit, can_continue.astype(bool)


def _mean_price(ledger: Ledger) -> float:
    price = ledger.step_price()
    return price if price > 0 else 1.0  # nan before the first step, 0 where steps take no time


def _prices(ledger: Ledger, curves: BlockCurves, new: int) -> Floats:
    """Return the price of a step, (K,), relative to the mean over trials; 1 where it is not known."""
    relative = np.ones(len(ledger.trials) + new)
    if ledger.budget.unit == "epochs":
        return relative
    rows = min(len(ledger.trials), len(curves.finished))
    priced = np.flatnonzero((curves.finished[:rows] > 0) & (curves.seconds[:rows] > 0))
    if len(priced):
        own = curves.seconds[priced] / curves.finished[priced]
        relative[priced] = own / (curves.seconds[priced].sum() / curves.finished[priced].sum())
    return relative


def _losses(curves: BlockCurves, steps: Steps) -> tuple[Floats, Steps]:
    """Return losses (K, 50) without gaps or infinities, and the number of known blocks (K,)."""
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
    """Return every hyperparameter of trials and candidates, (K, dims), nan where it is inactive."""
    points = pool.points
    if ledger.trials:
        points = table.stack(range(len(table.trials))).join(points)
    columns = points.cube.copy()
    names = ledger.space.cube_names
    for k, name in enumerate(table.encoding.optional):
        if name in names:
            columns[~points.active[:, k], names.index(name)] = np.nan
    return columns
