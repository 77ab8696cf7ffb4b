"""Asynchronous successive halving: promote trials early, without waiting for a full rung.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, arXiv:1810.05934, Algorithm 2.

    paper   here               meaning                                          unit
    r       min_steps          steps of a new trial                             steps
    R       max_steps          steps of a full training                         steps
    eta     reduction_factor   one in eta is promoted                           —
    k       rung               trials of rung k have min_steps * eta**k steps, those of the top rung max_steps

Differences from the paper: s (early-stopping rate) is fixed at 0. Trials that diverged or failed below a rung do not count in it.
A trial that was interrupted between two rungs is trained to the next rung before anything else. When the space is used up and no
trial is due for promotion, the best idle trial continues, so that no worker waits for the last trainings.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.policies.halving.newcomers import find_newcomer
from shoestring.policies.halving.rungs import NotPromoted, RungSettings, compare_race, rung_steps
from shoestring.policy import (
    Decision,
    Ledger,
    Train,
    Why,
    continue_trial,
    find_interrupted,
    nothing_to_train,
    train_best_unfinished,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ASHA(RungSettings):
    name: ClassVar[str] = "asha"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        rungs = rung_steps(ledger.max_steps, self.min_steps, self.reduction_factor)
        if not ledger.queue:
            if trial := find_interrupted(ledger, rungs):
                why: Why = {"was": "interrupted", "at": trial.steps}
                return continue_trial(trial, _rung_above(rungs, trial.steps), why=why)
            if promotion := self._promote(ledger, rungs):
                return promotion
        if newcomer := find_newcomer(ledger, self.newcomers):
            return newcomer.start(ledger, rungs[0], {"rung": 0})
        order = train_best_unfinished(
            ledger, "no configuration is left: the best trial is trained further", stops=rungs
        )
        return order or nothing_to_train(ledger)

    def _promote(self, ledger: Ledger, rungs: tuple[int, ...]) -> Train | None:
        for k in reversed(range(len(rungs) - 1)):  # highest rung first, Algorithm 2, get_job
            waiting = ledger.view(NotPromoted(rungs[k])).waiting
            if not waiting:
                continue
            ranked = ledger.losses_at(rungs[k])
            promoted = len(ranked) // self.reduction_factor
            for candidate in waiting:  # best first, so the first is promoted or none is
                rank = bisect_left(ranked, candidate)
                if rank >= promoted:
                    break
                trial = ledger.trials[candidate[1]]
                if trial.can_continue:
                    last, first_out = ranked[promoted - 1][0], ranked[promoted]  # at most half are promoted
                    sign, compared, loss = ledger.definition.sign, len(ranked), candidate[0]
                    why = {"rung": k + 1, **compare_race(rungs[k], sign, compared, rank, loss, last, first_out)}
                    return continue_trial(trial, rungs[k + 1], why=why)
        return None


def _rung_above(rungs: tuple[int, ...], steps: int) -> int:
    return next(rung for rung in rungs if rung > steps)
