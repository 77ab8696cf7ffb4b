"""Thrift: always buy of the arm that promises most, by a belief that was learned from many other studies.

A small network (`models.thrift`) reads the whole study, candidates that were not opened included, and says for each arm how
low it can still get with the money that is left. The arm with the largest expected improvement on the best so far gets a
few steps more, a quarter of what it has had; a candidate whose expected improvement is the largest is opened. There are no
rungs and no schedule: how many arms are opened, and which, follows from the belief.

    here               meaning                                                                            unit
    opening            share of the budget that sequential halving spends first; None: by the budget      —
    growth             an arm gets this share of what it has had, at least one step                       —
    candidates_per_curve   configs to choose newcomers from, for each full training that the budget buys  —
    arms_per_curve     of the halving

Where prices differ, reach is what the money left buys of that arm, and the improvement is divided by what getting there costs
over the same at the mean price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.decision import Decision, Wait, Why
from shoestring.core.ledger import Ledger
from shoestring.core.policy import train_further, train_new
from shoestring.core.settings import require_between, require_share
from shoestring.models.thrift.belief import Belief, believe
from shoestring.models.thrift.network import Network, shipped
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.policies.thrift.arms import Scene, look

_FEWEST, _MOST = 8, 200  # candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Thrift:
    opening: float | None = None
    growth: float = 0.25
    candidates_per_curve: float = 25.0
    arms_per_curve: float = 12.5
    temper: float = 1.0
    name: ClassVar[str] = "thrift"

    def __post_init__(self) -> None:
        if self.opening is not None:
            require_share(self, "opening", "it is a share of the budget", "Leave it out.")
        require_between(self, "growth", 0.0, math.inf, "an order must buy something", "Try 0.25.")
        because = "it is how many configs there are to choose from for each full training that the budget buys"
        require_between(self, "candidates_per_curve", 0.0, math.inf, because, "Try 25.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.max_steps == 1 or ledger.queue or not self._is_opening_over(ledger):
            decision = self._halve(ledger, rng)
            if not isinstance(decision, Wait):
                return decision
        return self._ask(ledger) or self._halve(ledger, rng)

    def _halve(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        return SequentialHalving(arms_per_curve=self.arms_per_curve).decide(ledger, rng)

    def _networks(self) -> tuple[Network, ...]:
        return shipped()

    def _is_opening_over(self, ledger: Ledger) -> bool:
        if not any(trial.losses for trial in ledger.trials):
            return False
        return ledger.spent + ledger.reserved >= self._opening_share(ledger) * ledger.budget.total

    def _opening_share(self, ledger: Ledger) -> float:
        if self.opening is not None:
            return self.opening
        return 0.25 if self._curves(ledger) < 7.5 else 0.02

    def _curves(self, ledger: Ledger) -> float:
        """Full trainings that the budget buys."""
        price = ledger.step_price()
        return ledger.budget.total / (price * ledger.max_steps) if price > 0 else 1.0

    def _ask(self, ledger: Ledger) -> Decision | None:
        """What the belief would buy; None: it has nothing to say, or nothing can be bought."""
        wanted = round(self.candidates_per_curve * self._curves(ledger)) - len(ledger.trials)
        scene = look(ledger, min(_MOST, max(_FEWEST, wanted)))
        if not scene.is_told or not scene.can_buy.any():
            return None
        belief = believe(self._networks(), scene.arms, self.temper)
        gain = belief.gain
        score = np.where(scene.can_buy, gain / np.maximum(scene.cost, 1e-9), -math.inf)
        chosen = int(np.argmax(score))
        until = self._how_far(ledger, scene, chosen)
        why = _say(ledger, scene, belief, gain, score, chosen)
        if chosen < scene.trials:
            return train_further(ledger.trials[chosen], until, why=why)
        return train_new(ledger, scene.config(chosen), until, why=why)

    def _how_far(self, ledger: Ledger, scene: Scene, arm: int) -> int:
        bought = ledger.trials[arm].steps if arm < scene.trials else 0
        more = max(math.ceil(scene.block), int(self.growth * bought))
        return bought + min(more, int(scene.reach[arm]))


def _say(ledger: Ledger, scene: Scene, belief: Belief, gain: np.ndarray, score: np.ndarray, chosen: int) -> Why:
    sign = ledger.opened.sign
    why: dict[str, float | int | str] = {
        "expected_end": round(sign * float(belief.middle[chosen]), 6),
        "chance_to_beat_best": round(float(belief.chance_better[chosen]), 3),
        "expected_gain": float(f"{gain[chosen]:.3g}"),
        "reach": int(scene.reach[chosen]),
    }
    others = np.where(np.arange(len(score)) == chosen, -math.inf, score)
    second = int(np.argmax(others))
    if math.isfinite(others[second]):
        why["runner_up"] = f"trial {second}" if second < scene.trials else "a new config"
        why["its_gain"] = float(f"{gain[second]:.3g}")
    return why


