"""The arms of a curve-based policy: a fixed set of configs, every loss seen on them, and what can be bought of each.

An arm is a config that can be paused and gone on with. The arms are drawn once for a study (quasi-random, a stream of
their own), or are the rows of a listed space. A config that the user enqueued, or that another policy trained before, is
one arm more. The table is an exact fold over the receipts, so a decision does not walk through the whole past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shoestring.core.deciding.decision import NO_WHY, Decision, Memo, Train, Wait, Why
from shoestring.core.deciding.memo import Refits
from shoestring.core.deciding.policy import fresh_config, nothing_to_buy, train_further, train_new
from shoestring.core.ledger.entries import Entry, Opened, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.encoding import Encoding, Points
from shoestring.core.space.space import Config, Space
from shoestring.core.values.arrays import Flags, Floats, Indices, first_true
from shoestring.core.values.randomness import points, stream
from shoestring.errors import PolicyError

_DEFAULT_ARMS = 100  # so many are what the speed of a decision is promised for
# By receipts: early on every loss tells much; later a fit costs more and moves the parameters less.
REFITS = Refits(often=50, every=5, key="receipts")
# A single draw is cheap, and decisions that shared one would explore together: each receipt calls for another.
SINGLE_DRAWS = Refits(every=1, key="receipts")
_DRAWS_PER_ARM = 20  # in a coarse space draws repeat: so many tries before fewer arms must do


# the table -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ArmTable:
    """Read it, never write it: it belongs to the ledger."""

    encoding: Encoding
    sign: float
    configs: list[Config]
    points: Points  # the same configs as numbers
    losses: Floats  # (n_arms, max_steps), smaller is better; nan: not seen, inf: diverged
    trained: Indices  # (n_arms,) steps seen, validated or not
    trial_of: list[int | None]
    arm_of_trial: list[int] = field(default_factory=list)
    arm_of_key: dict[str, int] = field(default_factory=dict)
    _similarities: dict[tuple[float, ...], Floats] = field(default_factory=dict)  # by length-scales

    def similarity(self, lengthscale: float | Sequence[float]) -> Floats:
        """Squared-exponential similarity (n_arms, n_arms), by one length-scale or one for each dimension of the cube."""
        dims, given = self.encoding.space.dims, np.asarray(lengthscale, dtype=np.float64)
        if given.shape not in ((), (1,), (dims,)):
            raise PolicyError(f"lengthscale={lengthscale!r} must be one number, or {dims}: one for each parameter")
        scales = np.broadcast_to(given, dims)
        known = self._similarities.get(key := tuple(scales.tolist()))
        if known is None or len(known) != len(self.configs):  # arms are rarely added
            known = self._similarities[key] = compare(self.encoding, self.points, scales)
        return known

    def say(self, arm: int) -> int | Config:
        """The trial of an arm; its config as long as there is none."""
        trial = self.trial_of[arm]
        return self.configs[arm] if trial is None else trial

    def add(self, config: Config) -> int:
        """One arm more; its number."""
        self.configs.append(config)
        self.points = self.points.join(self.encoding.points([config]))
        self.trial_of.append(None)
        self.losses = np.vstack([self.losses, np.full((1, self.losses.shape[1]), np.nan)])
        self.trained = np.append(self.trained, 0)
        return len(self.configs) - 1


@dataclass(frozen=True, slots=True)
class ArmsView:
    """`count`: how many arms; None: 100 of a space with ranges, every row of a listed one."""

    count: int | None

    def start(self, opened: Opened) -> ArmTable:
        space = opened.space
        configs = draw_configs(space, opened.seed, self.count)
        encoding = Encoding(space)
        return ArmTable(
            encoding=encoding,
            sign=opened.sign,
            configs=configs,
            points=encoding.points(configs),
            losses=np.full((len(configs), opened.max_steps), np.nan),
            trained=np.zeros(len(configs), dtype=np.intp),
            trial_of=[None] * len(configs),
            arm_of_key={space.key(config): arm for arm, config in enumerate(configs)},
        )

    def absorb(self, arms: ArmTable, entry: Entry) -> ArmTable:
        if isinstance(entry, Order) and entry.trial == len(arms.arm_of_trial):
            arm = arms.arm_of_key.get(arms.encoding.space.key(entry.config))
            if arm is None or arms.trial_of[arm] is not None:
                arm = arms.add(entry.config)
            arms.trial_of[arm] = entry.trial
            arms.arm_of_trial.append(arm)
        elif isinstance(entry, Receipt) and entry.is_finished:
            arm = arms.arm_of_trial[entry.trial]
            if entry.step > arms.trained[arm]:  # a step that was run again keeps its first value
                arms.trained[arm] = entry.step
                if entry.status == "diverged":
                    arms.losses[arm, entry.step - 1] = math.inf
                elif entry.value is not None:
                    arms.losses[arm, entry.step - 1] = arms.sign * entry.value
        return arms


def draw_configs(space: Space, seed: int, count: int | None) -> list[Config]:
    """So many distinct configs, or as many as there are; of a listed space in the order of its rows."""
    if space.rows is not None:
        rows = space.rows
        if count is None or count >= len(rows):
            return list(rows)
        return [rows[i] for i in sorted(stream(seed, "arms").choice(len(rows), count, replace=False))]
    wanted = _DEFAULT_ARMS if count is None else count
    if space.size <= wanted:
        return list(space.grid(wanted))
    found: dict[str, Config] = {}
    for point in points(seed, "arms", space.dims, np.arange(_DRAWS_PER_ARM * wanted)):
        config = space.from_cube(point)
        found.setdefault(space.key(config), config)
        if len(found) == wanted:
            break
    return list(found.values())


def compare(encoding: Encoding, configs: Points, scales: Floats) -> Floats:
    """exp(-R/2) of all pairs of n configs, (n, n); R adds up squared differences over squared length-scales, (dims,).

    Two options of a choice are 1 apart; so are on and off, by the length-scale of the parameter that is switched.
    """
    space, features = encoding.space, encoding.features(configs)
    scale_of = dict(zip(space.cube_names, scales, strict=True))
    switches = [scale_of.get(name, math.inf) for name in encoding.optional]  # a constant has none, and does not count
    squared = np.zeros((len(configs), len(configs)))
    for j, scale in enumerate([*scales[encoding.numbers], *switches, *np.delete(scales, encoding.numbers)]):
        differ = features[:, None, j] - features[:, j]
        squared += (differ != 0.0 if j in encoding.option_columns else differ**2) / scale**2
    return np.exp(-0.5 * squared)


# what can be bought --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """How far each arm can be trained now; each array is (n_arms,)."""

    free: Flags  # neither busy nor stuck
    buys: Indices  # steps that all the money left would buy of this arm alone
    room: Indices  # steps it could really take: those, up to the end of its curve; 0 when it is busy or stuck
    total: float  # steps that the whole budget buys, those bought already included; inf while no price is known

    def spread_over(self, arms: ArmTable, steps_per_arm: float) -> Reach:
        """The same without new arms once the whole budget buys only so many steps for each arm begun, if one can go on."""
        begun = np.array([trial is not None for trial in arms.trial_of])
        if steps_per_arm * (1 + begun.sum()) <= self.total or not self.room[begun].any():
            return self
        return replace(self, room=np.where(begun, self.room, 0))


def measure_reach(ledger: Ledger, arms: ArmTable) -> Reach:
    """Steps are priced at the arm's own mean price if it has run, else at the mean over the arms that have."""
    trials = [None if t is None else ledger.trials[t] for t in arms.trial_of]
    ends = np.array([ledger.max_steps if t is None else t.limit for t in trials])
    free = np.array([t is None or t.can_go_on for t in trials])
    left = ledger.left
    if ledger.budget.unit == "epochs":
        # rounding of fractional validation prices must not lose the last step
        buys = np.full(len(trials), math.floor(left / ledger.step_price() + 1e-9))
        total = float(buys[0])
    else:
        prices = np.array([ledger.step_price(t.number) if t and t.step_costs else np.nan for t in trials])
        known = ~np.isnan(prices)
        usual = float(prices[known].mean()) if known.any() else 0.0
        price = np.where(known, prices, usual)
        total = left / usual if usual > 0.0 else math.inf
        lost = np.array([0 if t is None else t.steps - t.held for t in trials])  # to be trained again first
        with np.errstate(divide="ignore", invalid="ignore"):
            affordable = np.where(price > 0.0, np.floor(left / price), np.inf)
        # a price not known yet is no reason to commit: more than any curve is long
        buys = np.maximum(np.minimum(affordable, ledger.max_steps + 1) - lost, 0)
    room = np.where(free, np.minimum(buys, ends - arms.trained), 0)
    total += float(arms.trained.sum())
    return Reach(free=free, buys=buys.astype(np.intp), room=room.astype(np.intp), total=total)


def settle_without_choice(ledger: Ledger, arms: ArmTable, reach: Reach) -> Decision | None:
    """The decision where there is nothing to weigh: the user's own configs first, and what to do when no arm is left."""
    memo = ledger.memo
    if ledger.queue:
        return train_new(ledger, ledger.queue[0], 1, why={"queued": True}, memo=memo)
    if reach.room.any():
        return None
    if ledger.open_orders:
        return Wait()
    if reach.free.any():  # but too dear: the ledger refuses, and the study ends because its budget does
        return buy_steps(ledger, arms, int(first_true(reach.free)), memo=memo)
    config = fresh_config(ledger)
    if config is None:
        return nothing_to_buy(ledger, "every config of the space was trained to its end")
    return train_new(ledger, config, 1, why={"beyond_the_arms": True}, memo=memo)


def buy_steps(ledger: Ledger, arms: ArmTable, arm: int, steps: int = 1, *, why: Why = NO_WHY, memo: Memo) -> Train:
    """The order for the next steps of an arm."""
    until, trial = int(arms.trained[arm]) + steps, arms.trial_of[arm]
    if trial is None:
        return train_new(ledger, arms.configs[arm], until, why=why, memo=memo)
    return train_further(ledger.trials[trial], until, why=why, memo=memo)
