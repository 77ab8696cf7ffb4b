"""The curves of a study in at most 50 steps each, and what a step of each trial cost: one view, carried with the ledger.

A longer curve is seen in 50 blocks of steps, each by its newest loss. A step that was not validated has the loss before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shoestring.core.ledger.entries import Entry, Opened, Receipt
from shoestring.core.values.arrays import Floats
from shoestring.models.thrift.shapes import STEPS


@dataclass(slots=True)
class SeenCurves:
    """Row i belongs to trial i; rows beyond the newest trial are empty."""

    max_steps: int
    sign: float
    losses: Floats = field(default_factory=lambda: np.full((64, STEPS), np.nan))  # (rows, 50); inf: diverged
    seconds: Floats = field(default_factory=lambda: np.zeros(64))
    finished: Floats = field(default_factory=lambda: np.zeros(64))  # steps that `seconds` paid for

    @property
    def steps(self) -> int:
        """Of a full curve as it is seen."""
        return min(self.max_steps, STEPS)

    @property
    def block(self) -> float:
        """Real steps in one that is seen."""
        return self.max_steps / self.steps

    def seen(self, step: int) -> int:
        """The step as it is seen, counted from 1; 0 for none."""
        return step if self.max_steps <= STEPS else math.ceil(step * STEPS / self.max_steps - 1e-9)

    def seen_all(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same for many."""
        if self.max_steps <= STEPS:
            return steps
        return np.ceil(steps * STEPS / self.max_steps - 1e-9).astype(np.int64)

    def make_room(self, trial: int) -> None:
        while trial >= len(self.losses):
            self.losses = np.vstack([self.losses, np.full_like(self.losses, np.nan)])
            self.seconds = np.concatenate([self.seconds, np.zeros_like(self.seconds)])
            self.finished = np.concatenate([self.finished, np.zeros_like(self.finished)])

    def write(self, trial: int, step: int, loss: float) -> None:
        """A block that was jumped over is seen by the loss before it."""
        row, place = self.losses[trial], self.seen(step) - 1
        if 0 <= place < STEPS:
            before = np.flatnonzero(~np.isnan(row[:place]))
            fill = row[before[-1]] if len(before) else loss
            row[:place] = np.where(np.isnan(row[:place]), fill, row[:place])
            row[place] = loss


@dataclass(frozen=True, slots=True)
class CurvesView:
    def start(self, opened: Opened) -> SeenCurves:
        return SeenCurves(opened.max_steps, opened.sign)

    def absorb(self, state: SeenCurves, entry: Entry) -> SeenCurves:
        if not isinstance(entry, Receipt) or entry.status == "interrupted":
            return state
        state.make_room(entry.trial)
        if entry.status == "failed":  # as bad as one that diverged, until it is run again and works
            state.write(entry.trial, entry.step, math.inf)
            return state
        if entry.step <= state.finished[entry.trial]:  # run again because its state was lost: the first value stands
            return state
        state.seconds[entry.trial] += entry.cost.total
        state.finished[entry.trial] = entry.step
        loss = math.inf if entry.status == "diverged" else None if entry.value is None else state.sign * entry.value
        if loss is not None:
            state.write(entry.trial, entry.step, loss)
        return state


CURVES = CurvesView()
