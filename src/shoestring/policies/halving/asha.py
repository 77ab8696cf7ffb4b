"""Asynchronous successive halving: promote early, never wait for a full rung.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, arXiv:1810.05934, Algorithm 2.

    paper   here               meaning                                          unit
    r       min_steps          training bought for a newcomer                   steps
    R       max_steps          training bought for a finalist                   steps
    eta     reduction_factor   one in eta is promoted                           —
    k       rung               rung k has trained min_steps * eta**k, the top one max_steps

Departs from the paper: s (early-stopping rate) is fixed at 0; trials that diverged or failed below a rung do not count
in it; a trial that was cut short between two rungs is brought to the next one before anything else. When the space is
used up and nobody is due for promotion, the best idle trial goes on, so that no worker waits for the last trainings.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.comparison import compare_race
from shoestring.core.deciding.decision import Decision, Train, Why
from shoestring.core.deciding.policy import (
    find_cut_short,
    fresh_config,
    nothing_to_buy,
    train_best_unfinished,
    train_further,
    train_new,
)
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.views import Waiting
from shoestring.policies.halving.brackets import Ladder, rung_steps


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
