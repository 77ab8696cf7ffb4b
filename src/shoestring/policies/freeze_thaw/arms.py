"""The arms of a curve-based policy: a fixed set of configs, and a table of every loss seen on them.

An arm is a config that can be paused and gone on with. The arms are drawn once for a study (quasi-random, a stream of
their own), or are the rows of a listed space. A config that the user enqueued, or that another policy trained before, is
one arm more. The table is an exact fold over the receipts, so a decision does not walk through the whole past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shoestring.core.decision import Decision, Finish, Memo, Train, Wait, Why
from shoestring.core.encoding import Encoding, Points
from shoestring.core.entries import Entry, Opened, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config
from shoestring.core.quasi_random import points
from shoestring.core.space import Config, Space
from shoestring.core.streams import stream

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Flags = NDArray[np.bool_]
DEFAULT_ARMS = 100
_DRAWS_PER_ARM = 20  # in a coarse space draws repeat: so many tries before fewer arms must do


@dataclass(slots=True)
class Arms:
    """Read it, never write it: it belongs to the ledger."""

    space: Space
    sign: float
    configs: list[Config]
    losses: Floats  # (n_arms, max_steps), smaller is better; nan: not seen, inf: diverged
    trained: Integers  # (n_arms,) steps seen, validated or not
    trial_of: list[int | None]
    arm_of_trial: list[int] = field(default_factory=list)
    arm_of_key: dict[str, int] = field(default_factory=dict)
    _kernels: dict[tuple[float, ...], Floats] = field(default_factory=dict)  # by length-scales; arms are rarely added

    def coordinates(self) -> Floats:
        """(n_arms, d): the unit cube, and beside it which parameters are active."""
        space = self.space
        return np.array([np.concatenate([space.to_cube(c), space.activity(c)]) for c in self.configs])

    def kernel(self, lengthscale: float | Sequence[float]) -> Floats:
        """Squared-exponential similarity (n_arms, n_arms), by one length-scale or one for each dimension of the cube."""
        scales = np.broadcast_to(np.asarray(lengthscale, dtype=np.float64), self.space.dims)
        kept = self._kernels.get(key := tuple(scales.tolist()))
        if kept is None or len(kept) != len(self.configs):
            encoding = Encoding(self.space)
            kept = self._kernels[key] = compare(encoding, encoding.points(self.configs), scales)
        return kept


@dataclass(frozen=True, slots=True)
class ArmsView:
    """`count`: how many arms; None: 100 of a space with ranges, every row of a listed one."""

    count: int | None

    def start(self, opened: Opened) -> Arms:
        configs = _candidates(opened.space, opened.seed, self.count)
        return Arms(
            space=opened.space,
            sign=1.0 if opened.direction == "min" else -1.0,
            configs=configs,
            losses=np.full((len(configs), opened.max_steps), np.nan),
            trained=np.zeros(len(configs), dtype=np.intp),
            trial_of=[None] * len(configs),
            arm_of_key={opened.space.key(config): arm for arm, config in enumerate(configs)},
        )

    def absorb(self, arms: Arms, entry: Entry) -> Arms:
        if isinstance(entry, Order) and entry.trial == len(arms.arm_of_trial):
            arm = arms.arm_of_key.get(arms.space.key(entry.config))
            if arm is None or arms.trial_of[arm] is not None:
                arm = len(arms.configs)
                arms.configs.append(entry.config)
                arms.trial_of.append(None)
                arms.losses = np.vstack([arms.losses, np.full((1, arms.losses.shape[1]), np.nan)])
                arms.trained = np.append(arms.trained, 0)
            arms.trial_of[arm] = entry.trial
            arms.arm_of_trial.append(arm)
        elif isinstance(entry, Receipt) and entry.status in ("ok", "diverged"):
            arm = arms.arm_of_trial[entry.trial]
            if entry.step > arms.trained[arm]:  # a step that was run again keeps its first value
                arms.trained[arm] = entry.step
                if entry.status == "diverged":
                    arms.losses[arm, entry.step - 1] = math.inf
                elif entry.value is not None:
                    arms.losses[arm, entry.step - 1] = arms.sign * entry.value
        return arms


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """What can be bought now; each array is (n_arms,)."""

    free: Flags  # neither busy nor stuck
    buys: Integers  # steps that all the money left would buy of this arm alone
    room: Integers  # steps it could really take: those, up to the end of its curve; 0 when it is busy or stuck


def choices(ledger: Ledger, arms: Arms) -> Choices:
    """Steps are priced at the arm's own mean price if it has run, else at the mean over the arms that have."""
    trials = [None if t is None else ledger.trials[t] for t in arms.trial_of]
    ends = np.array([ledger.max_steps if t is None else t.limit for t in trials])
    free = np.array([t is None or (t.open_order is None and not t.is_stuck) for t in trials])
    left, in_epochs = ledger.left, ledger.budget.unit == "epochs"
    if in_epochs:
        # rounding of fractional validation prices must not lose the last step
        buys = np.full(len(trials), math.floor(left / ledger.step_price() + 1e-9))
    else:
        prices = np.array([ledger.step_price(t.number) if t and t.step_costs else np.nan for t in trials])
        known = ~np.isnan(prices)
        price = np.where(known, prices, prices[known].mean() if known.any() else 0.0)
        lost = np.array([0 if t is None else t.steps - t.held for t in trials])  # to be trained again first
        with np.errstate(divide="ignore", invalid="ignore"):
            affordable = np.where(price > 0.0, np.floor(left / price), np.inf)
        # a price not known yet is no reason to commit: more than any curve is long
        buys = np.maximum(np.minimum(affordable, ledger.max_steps + 1) - lost, 0)
    room = np.where(free, np.minimum(buys, ends - arms.trained), 0)
    return Choices(free=free, buys=buys.astype(np.intp), room=room.astype(np.intp))


def forced(ledger: Ledger, arms: Arms, now: Choices) -> Decision | None:
    """The decision where there is nothing to weigh: the user's own configs first, and what to do when no arm is left."""
    fresh = len(ledger.trials)
    if ledger.queue:
        return Train(trial=fresh, config=ledger.queue[0], until=1, why={"queued": True}, memo=ledger.memo)
    if now.room.any():
        return None
    if ledger.open_orders:
        return Wait()
    if now.free.any():  # but too dear: the ledger refuses, and the study ends because its budget does
        return step_of(ledger, arms, int(np.argmax(now.free)), why={}, memo=ledger.memo)
    config = fresh_config(ledger)
    if config is None:
        return Finish("every config of the space was trained to its end")
    return Train(trial=fresh, config=config, until=1, why={"beyond_the_arms": True}, memo=ledger.memo)


def step_of(ledger: Ledger, arms: Arms, arm: int, *, why: Why, memo: Memo, steps: int = 1) -> Train:
    """The order for the next steps of an arm."""
    trial = arms.trial_of[arm]
    return Train(
        trial=len(ledger.trials) if trial is None else trial,
        config=arms.configs[arm] if trial is None else ledger.trials[trial].config,
        until=int(arms.trained[arm]) + steps,
        why=why,
        memo=memo,
    )


def _candidates(space: Space, seed: int, count: int | None) -> list[Config]:
    if space.rows is not None:
        rows = space.rows
        if count is None or count >= len(rows):
            return list(rows)
        return [rows[i] for i in sorted(stream(seed, "arms").choice(len(rows), count, replace=False))]
    wanted = DEFAULT_ARMS if count is None else count
    if space.size <= wanted:
        return list(space.grid(wanted))
    drawn = points(seed, "arms", space.dims, np.arange(_DRAWS_PER_ARM * wanted))
    found: dict[str, Config] = {}
    for point in drawn:
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
