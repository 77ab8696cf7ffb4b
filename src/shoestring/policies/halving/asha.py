"""Asynchronous successive halving: promote early, never wait for a full rung.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, arXiv:1810.05934, Algorithm 2.

    paper   here               meaning                                          unit
    r       min_steps          training bought for a newcomer                   steps
    R       max_steps          training bought for a finalist                   steps
    eta     reduction_factor   one in eta is promoted                           —
    k       rung               rung k has trained min_steps * eta**k, the top one max_steps

Departs from the paper: s (early-stopping rate) is fixed at 0; trials that diverged or failed below a rung do not count
in it; a trial that was cut short between two rungs is brought to the next one before anything else. When the space is
used up and nobody is due for promotion, the best unfinished trial goes on.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from shoestring.core.comparing import compare_race
from shoestring.core.decision import Decision, Train, Wait, Why
from shoestring.core.entries import Entry, Opened, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.policy import (
    find_cut_short,
    fresh_config,
    nothing_to_buy,
    train_best_unfinished,
    train_further,
    train_new,
)
from shoestring.policies.halving.ladder import Ladder, rung_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ASHA(Ladder):
    name: ClassVar[str] = "asha"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        rungs = rung_steps(ledger.max_steps, self.min_steps, self.reduction_factor)
        if not ledger.queue:
            if trial := find_cut_short(ledger, rungs):
                why: Why = {"was": "cut short", "at": trial.steps}
                return train_further(trial, _rung_above(rungs, trial.steps), why=why)
            if promotion := self._promote(ledger, rungs):
                return promotion
        config = fresh_config(ledger)
        if config is not None:
            return train_new(ledger, config, rungs[0], why={"rung": 0})
        if ledger.open_orders:
            return Wait()  # a receipt may make somebody due for promotion
        order = train_best_unfinished(ledger, "no config is left: the best goes on", stops=rungs)
        return order or nothing_to_buy(ledger)

    def _promote(self, ledger: Ledger, rungs: tuple[int, ...]) -> Train | None:
        for k in reversed(range(len(rungs) - 1)):  # highest rung first, Algorithm 2, get_job
            waiting = ledger.view(Waiting(rungs[k])).waiting
            if not waiting:
                continue
            ranked = ledger.losses_at(rungs[k])
            promoted = len(ranked) // self.reduction_factor
            for candidate in waiting:  # best first, so the first is promoted or nobody is
                rank = bisect_left(ranked, candidate)
                if rank >= promoted:
                    break
                trial = ledger.trials[candidate[1]]
                if trial.can_go_on:
                    last_kept, left = ranked[promoted - 1][0], ranked[promoted]  # at most half are promoted
                    sign, among, loss = ledger.opened.sign, len(ranked), candidate[0]
                    why = {"rung": k + 1, **compare_race(rungs[k], sign, among, rank, loss, last_kept, left)}
                    return train_further(trial, rungs[k + 1], why=why)
        return None


def _rung_above(rungs: tuple[int, ...], steps: int) -> int:
    return next(rung for rung in rungs if rung > steps)


@dataclass(slots=True)
class Standing:
    sign: float
    waiting: list[tuple[float, int]] = field(default_factory=list)  # (loss, trial), best first
    losses: dict[int, float] = field(default_factory=dict)  # of all trials that came by; inf: none was told
    ordered: dict[int, int] = field(default_factory=dict)  # the furthest step asked for


@dataclass(frozen=True, slots=True)
class Waiting:
    """Trials that reported a loss at `step` and were never ordered beyond it, best first."""

    step: int

    def start(self, opened: Opened) -> Standing:
        return Standing(opened.sign)

    def absorb(self, state: Standing, entry: Entry) -> Standing:
        if isinstance(entry, Order):
            was = state.ordered.get(entry.trial, 0)
            state.ordered[entry.trial] = max(was, entry.until)
            if was <= self.step < entry.until and math.isfinite(loss := state.losses.get(entry.trial, math.inf)):
                del state.waiting[bisect_left(state.waiting, (loss, entry.trial))]
        elif isinstance(entry, Receipt) and entry.step == self.step and entry.is_finished:
            if entry.trial in state.losses:
                return state  # a step that was run again keeps its first value
            has_loss = entry.status == "ok" and entry.value is not None
            state.losses[entry.trial] = state.sign * (entry.value or 0.0) if has_loss else math.inf
            if has_loss and state.ordered[entry.trial] <= self.step:
                insort(state.waiting, (state.losses[entry.trial], entry.trial))
        return state
