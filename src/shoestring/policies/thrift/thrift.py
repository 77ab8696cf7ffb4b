"""Thrift: sequential halving and, where it helps, buying of what promises most by a belief learned from many other studies.

A small network (`models.thrift`) reads the whole study, candidates that were not opened included, and says for each arm how
low it can still get within a few times what it has had, and with the money that is left. The index of an arm is its expected
improvement on the best so far, times (a power of) its standing, the share of arms that were no better at its step, over (a
power of) the steps it takes. The arm with the largest index is trained as far again as it was; a candidate with the largest
index is opened. How many are opened, and which, follows from the belief; `candidates` says where they come from.

    here                   meaning                                                                     unit
    opening                share of the budget that sequential halving spends first; None: see below   —
    growth                 an arm gets this share of what it has had, at least one step                —
    caution                power of an arm's standing; 0: the network alone                            —
    horizon                the network is asked about so many times the steps that an arm has had      —
    thirst                 power of the number of those steps by which the improvement is divided      —
    sureness               power of the network's chances: above 1, surer of itself than it was taught —
    race                   leave out arms for which halving would have no money                        —
    look_back              leave the study to halving while forecasts are not borne out                —
    orders_per_look        orders decided by one pass of the network; None: see below                  orders
    most_curves            the network is not asked where the budget buys more full trainings          —
    quickest_step_s        nor, under a budget of time, where steps are quicker                        s
    candidates_per_curve   configs to choose newcomers from, for each full training in the budget      —
    arms_per_curve         of the halving

The network has seen other studies, never this one, so it does not decide alone. It is asked where it was shown to help
(docs/explanation/learned-belief.md): with budgets of seven to forty full trainings and, where time is what is paid with, steps
of a second or more. Everything else is left to halving, order for order, and of such a budget halving spends the first part
(75 % over the root of the number of trainings). Who gives `opening` has the network asked in any study.

Standing keeps arms that are far behind from being bought for a small chance of a miracle. Expected improvement does not see
that a gain far ahead takes many steps: where all arms look alike it would give each a few steps and none enough, so only as
many arms are kept going as halving would have money for.

Where prices differ, reach is what the money left buys of that arm, and the improvement is divided by its price over the mean.
Trials of one step are left to halving, which is quasi-random search then.

Under a budget of time the network's own time is paid for. A look that is dear beside what orders cost decides several of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.comparison import compare_scores
from shoestring.core.deciding.decision import Decision, Memo, Train, Wait, Why
from shoestring.core.deciding.policy import train_further, train_new
from shoestring.core.deciding.prediction import BEST_BY_THEN, Believed, put_first
from shoestring.core.deciding.reproducible import sort_best_first
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.arrays import Floats
from shoestring.core.values.checks import require_at_least, require_between, require_share
from shoestring.models.thrift.belief import Belief, believe
from shoestring.models.thrift.features import in_race, standing
from shoestring.models.thrift.network import Network, in_single_precision, shipped
from shoestring.policies import make
from shoestring.policies.thrift.arms import Scene, look
from shoestring.policies.thrift.candidates import FEWEST
from shoestring.policies.thrift.plan import count_due, is_clear, next_choice, pick, remember
from shoestring.policies.thrift.trust import check_trust

_BASE_RULE = "sequential_halving"
_MOST = 100  # candidates
_OPENING = 0.75  # over the root of the number of curves: share of the budget that goes to halving first
_FEWEST_CURVES = 7.0  # with less money halving is as good, and surely so
_KEPT = ("trust", "trust_at")  # of the memo
_SCORE = "improvement to expect for its price, weighed by how the trial stands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thrift:
    opening: float | None = None
    growth: float = 1.0
    caution: float = 0.5
    horizon: float = 2.0
    thirst: float = 0.5
    sureness: float = 1.4
    race: bool = True
    look_back: bool = False
    orders_per_look: int | None = None
    most_curves: float = 40.0
    quickest_step_s: float = 1.0
    candidates_per_curve: float = 25.0
    arms_per_curve: float = 12.5
    name: ClassVar[str] = "thrift"

    def __post_init__(self) -> None:
        if self.opening is not None:
            require_share(self, "opening", "it is a share of the budget", "Leave it out.")
        require_between(self, "growth", 0.0, math.inf, "an order must buy something", "Try 1.")
        require_at_least(self, "caution", 0.0, "an arm that is behind must not be preferred for it", "Try 1.")
        require_between(self, "horizon", 0.0, math.inf, "a forecast must be about something", "Try 2.")
        require_at_least(self, "thirst", 0.0, "more steps for the same improvement must not be preferred", "Try 0.5.")
        require_between(self, "sureness", 0.0, math.inf, "it is a power of chances", "Try 1.4.")
        if self.orders_per_look is not None:
            require_at_least(self, "orders_per_look", 1, "a look must decide something", "Leave it out.")
        require_at_least(self, "most_curves", 0.0, "it is a number of full trainings", "Try 40.")
        require_at_least(self, "quickest_step_s", 0.0, "it is the time of a step in seconds", "Try 1.")
        because = "it is how many configs there are to choose from for each full training that the budget buys"
        require_between(self, "candidates_per_curve", 0.0, math.inf, because, "Try 25.")
        because = "it is how many trials halving opens for each full training that the budget buys"
        require_between(self, "arms_per_curve", 0.0, math.inf, because, "Try 12.5.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        is_asked = ledger.max_steps > 1 and self._is_in_scope(ledger)
        if not is_asked or ledger.queue or not self._is_opening_over(ledger):
            decision = self._halve(ledger, rng, _kept(ledger))
            if not (is_asked and isinstance(decision, Wait)):  # who would wait is put to use by the belief
                return decision
        return self._ask(ledger, rng)

    def _halve(self, ledger: Ledger, rng: np.random.Generator, memo: Memo) -> Decision:
        decision = make(_BASE_RULE, {"arms_per_curve": self.arms_per_curve}).decide(ledger, rng)
        if isinstance(decision, Train) and memo:
            return replace(decision, memo={**decision.memo, **memo})
        return decision

    def _is_in_scope(self, ledger: Ledger) -> bool:
        """Whether the belief was shown to help in studies like this one."""
        if self.opening is not None:
            return True
        books = ledger.books
        is_quick = books.budget.unit != "epochs" and books.step_seconds < self.quickest_step_s * len(books.step_costs)
        return not is_quick and _FEWEST_CURVES <= self._curves(ledger) <= self.most_curves

    def _is_opening_over(self, ledger: Ledger) -> bool:
        share = _OPENING / math.sqrt(self._curves(ledger)) if self.opening is None else self.opening
        return ledger.spent + ledger.reserved >= share * ledger.budget.total

    def _curves(self, ledger: Ledger) -> float:
        """Full trainings that the budget buys; 1 before a price is known."""
        price = ledger.step_price()
        return ledger.budget.total / (price * ledger.max_steps) if price > 0 else 1.0

    def _ask(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        """What the belief would buy; left to halving where it has nothing to say or is not to be trusted."""
        if (planned := next_choice(ledger)) is not None:
            return planned
        scene = self._look(ledger)
        if not scene.is_told or not scene.can_buy.any():
            return self._halve(ledger, rng, _kept(ledger))
        networks = self._networks()
        memo: Memo = {}
        if self.look_back:
            is_trusted, memo = check_trust(ledger, networks, scene.arms)
            if not is_trusted and not isinstance(decision := self._halve(ledger, rng, memo), Wait):
                return decision
        near = scene.within(self.horizon)
        return self._buy(ledger, near, networks, memo)

    def _look(self, ledger: Ledger) -> Scene:
        wanted = round(self.candidates_per_curve * self._curves(ledger)) - len(ledger.trials)
        return look(ledger, min(_MOST, max(FEWEST, wanted)))

    def _networks(self) -> tuple[Network, ...]:
        return shipped()

    def _weigh(self, scene: Scene, belief: Belief) -> Floats:
        """(K,): the index of each arm, -inf where it is not to be bought."""
        share, can_buy = standing(scene.arms), scene.can_buy
        if self.race and (racing := can_buy & in_race(scene.arms, np.where(can_buy, share, -1.0))).any():
            can_buy = racing
        cost = scene.arms.price * np.maximum(scene.arms.reach, 1) ** self.thirst
        return np.where(can_buy, belief.gain * share**self.caution / cost, -math.inf)

    def _buy(self, ledger: Ledger, scene: Scene, networks: tuple[Network, ...], memo: Memo) -> Train:
        belief = believe(in_single_precision(networks), scene.arms, self.sureness)
        index, count = self._weigh(scene, belief), self.orders_per_look or count_due(ledger)
        if not is_clear(index, count):  # too close to be told apart in single precision
            belief = believe(networks, scene.arms, self.sureness)
            index = self._weigh(scene, belief)
        (chosen, until), *others = [(arm, self._until(scene, arm)) for arm in pick(index, count)]
        memo = {**memo, **remember(ledger, scene, others, count)}
        why = _say(ledger, scene, belief, index, chosen)
        if chosen < scene.trials:
            return train_further(ledger.trials[chosen], until, why=why, memo=memo)
        return train_new(ledger, scene.config(chosen), until, why=why, memo=memo)

    def _until(self, scene: Scene, arm: int) -> int:
        """As far again as it was trained, as far as its reach allows."""
        bought = int(scene.steps[arm])
        more = max(math.ceil(scene.curves.block), int(self.growth * bought))
        return bought + min(more, int(scene.reach[arm]))

    def believe(self, ledger: Ledger, order: Order) -> Believed | None:
        """How low the arms with the largest index can get, the longer they are trained."""
        if "expected_end" not in order.why:
            return None  # halving decided, or an earlier look
        networks, near = self._networks(), self._look(ledger).within(self.horizon)
        if (bought := near.find(order)) is None:
            return None
        index = self._weigh(near, believe(networks, near.arms, self.sureness))
        ranked = sort_best_first(index, "highest", int(np.count_nonzero(index > -math.inf)))
        return Believed(near.tell(ledger, put_first(ranked, bought), networks, self.sureness), BEST_BY_THEN)


def _kept(ledger: Ledger) -> Memo:
    """The verdict of the last look back: an order that halving makes must not lose it."""
    return {name: numbers for name, numbers in ledger.memo.items() if name in _KEPT}


def _say(ledger: Ledger, scene: Scene, belief: Belief, index: Floats, chosen: int) -> Why:
    """Index, expected end and chance to beat the best. Rounded: the last digits differ from machine to machine."""

    def name(arm: int) -> int | Config:
        return arm if arm < scene.trials else scene.config(arm)

    compared = compare_scores(_SCORE, "highest", index, chosen, name, in_unit=_round)
    return compared | {
        "expected_end": _round(ledger.opened.sign * float(belief.middle[chosen])),
        "chance_to_beat_best": round(float(belief.chance_better[chosen]), 2),
        "expected_gain": _round(float(belief.gain[chosen])),
        "reach": int(scene.reach[chosen]),
    }


def _round(number: float) -> float:
    return float(f"{number:.3g}")
