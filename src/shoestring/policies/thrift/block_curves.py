"""The curves of a study in at most 50 blocks of steps each, and the seconds of each trial: a view that the ledger updates.

A curve of more than 50 steps is divided into 50 blocks, each with its newest loss. A step without validation has the loss of
the step before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shoestring.core.values.arrays import Floats
from shoestring.models.thrift.shapes import STEPS
from shoestring.policy import Entry, Receipt, StudyDefinition


@dataclass(slots=True)
class BlockCurves:
    """Losses and seconds by trial: row i belongs to trial i, and rows beyond the newest trial are empty."""

    max_steps: int
    sign: float
    losses: Floats = field(default_factory=lambda: np.full((64, STEPS), np.nan))  # (rows, 50); inf: diverged
    seconds: Floats = field(default_factory=lambda: np.zeros(64))
    finished: Floats = field(default_factory=lambda: np.zeros(64))  # steps that took these seconds

    @property
    def blocks(self) -> int:
        """Return the number of blocks of a full training."""
        return min(self.max_steps, STEPS)

    @property
    def steps_per_block(self) -> float:
        return self.max_steps / self.blocks

    def block_of(self, step: int) -> int:
        """Return the block of a step, counted from 1; 0 for step 0."""
        return step if self.max_steps <= STEPS else math.ceil(step * STEPS / self.max_steps - 1e-9)

    def blocks_of(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the blocks of many steps."""
        if self.max_steps <= STEPS:
            return steps
        return np.ceil(steps * STEPS / self.max_steps - 1e-9).astype(np.int64)

    def make_room(self, trial: int) -> None:
        while trial >= len(self.losses):
            self.losses = np.vstack([self.losses, np.full_like(self.losses, np.nan)])
            self.seconds = np.concatenate([self.seconds, np.zeros_like(self.seconds)])
            self.finished = np.concatenate([self.finished, np.zeros_like(self.finished)])

    def write(self, trial: int, step: int, loss: float) -> None:
        """Store a loss. Empty blocks before it get the loss before them, or this one if there is none."""
        row, place = self.losses[trial], self.block_of(step) - 1
        if 0 <= place < STEPS:
            before = np.flatnonzero(~np.isnan(row[:place]))
            fill = row[before[-1]] if len(before) else loss
            row[:place] = np.where(np.isnan(row[:place]), fill, row[:place])
            row[place] = loss


@dataclass(frozen=True, slots=True)
class BlockCurvesView:
    """View of the curves; the receipts of a study fill it."""

    def start(self, definition: StudyDefinition) -> BlockCurves:
        return BlockCurves(definition.max_steps, definition.sign)

    def absorb(self, state: BlockCurves, entry: Entry) -> BlockCurves:
        if not isinstance(entry, Receipt) or entry.status == "interrupted":
            return state
        state.make_room(entry.trial)
        if entry.status == "failed":  # as bad as a diverged trial, until it is run again and succeeds
            state.write(entry.trial, entry.step, math.inf)
            return state
        if entry.step <= state.finished[entry.trial]:  # run again because its state was lost: the first value stays
            return state
        state.seconds[entry.trial] += entry.cost.total
        state.finished[entry.trial] = entry.step
        loss = math.inf if entry.status == "diverged" else None if entry.value is None else state.sign * entry.value
        if loss is not None:
            state.write(entry.trial, entry.step, loss)
        return state


BLOCK_CURVES = BlockCurvesView()
