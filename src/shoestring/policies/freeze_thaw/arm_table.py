"""The arms of a freeze-thaw policy: a fixed set of configurations, their losses, and how far each can be trained.

An arm is a configuration whose training can be paused and resumed. The arms are drawn once for a study (quasi-random, from
their own random stream), or they are the rows of a listed space. A configuration that the user queued, or that another
policy trained before, becomes an additional arm. The table is updated with each receipt, so a decision does not read the
whole history again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shoestring.core.values.arrays import Flags, Floats, Indices, first_true
from shoestring.core.values.randomness import points, stream
from shoestring.errors import PolicyError
from shoestring.policy import (
    NO_WHY,
    Config,
    Decision,
    Encoding,
    Entry,
    Ledger,
    Memo,
    Order,
    Points,
    Receipt,
    Refits,
    Space,
    StudyDefinition,
    Train,
    Wait,
    Why,
    continue_trial,
    find_untried_config,
    nothing_to_train,
    start_trial,
)

_DEFAULT_ARMS = 100  # the decision times in the documentation hold for this number
# Refits are due by number of receipts: early losses change the parameters most; later a fit costs more and changes them less.
REFITS = Refits(dense_until=50, every=5, key="receipts")
# A single sample is cheap, and decisions that share one would explore together, so each receipt calls for a new sample.
SINGLE_SAMPLE_REFITS = Refits(every=1, key="receipts")
ARM_LABELS = {
    "arm": "arm (number)",
    "beyond_the_arms": "whether all arms are at their end and this configuration is an additional one",
    "queued": "whether you asked for this configuration",
}
_DRAWS_PER_ARM = 20  # in a coarse space draws repeat: the number of draws per arm before fewer arms are accepted


# table ---------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ArmTable:
    """Configurations and losses of all arms. The table belongs to the ledger: read it, never change it."""

    encoding: Encoding
    sign: float
    configs: list[Config]
    points: Points  # the same configurations as numbers
    losses: Floats  # (n_arms, max_steps), smaller is better; nan: not observed, inf: diverged
    trained: Indices  # (n_arms,) finished steps, validated or not
    trial_of: list[int | None]
    arm_of_trial: list[int] = field(default_factory=list)
    arm_of_key: dict[str, int] = field(default_factory=dict)
    _similarities: dict[tuple[float, ...], Floats] = field(default_factory=dict)  # by length-scales

    def similarity(self, lengthscale: float | Sequence[float]) -> Floats:
        """Return squared-exponential similarities (n_arms, n_arms), for one length-scale or one per dimension of the cube."""
        dims, given = self.encoding.space.dims, np.asarray(lengthscale, dtype=np.float64)
        if given.shape not in ((), (1,), (dims,)):
            raise PolicyError(f"lengthscale={lengthscale!r} must be one number, or {dims}: one per parameter")
        scales = np.broadcast_to(given, dims)
        known = self._similarities.get(key := tuple(scales.tolist()))
        if known is None or len(known) != len(self.configs):  # an arm was added, which is rare
            known = self._similarities[key] = compute_similarity(self.encoding, self.points, scales)
        return known

    def identify(self, arm: int) -> int | Config:
        """Return the trial number of an arm, or its configuration if it has no trial yet."""
        trial = self.trial_of[arm]
        return self.configs[arm] if trial is None else trial

    def add(self, config: Config) -> int:
        """Add an arm and return its number."""
        self.configs.append(config)
        self.points = self.points.join(self.encoding.points([config]))
        self.trial_of.append(None)
        self.losses = np.vstack([self.losses, np.full((1, self.losses.shape[1]), np.nan)])
        self.trained = np.append(self.trained, 0)
        return len(self.configs) - 1


@dataclass(frozen=True, slots=True)
class ArmsView:
    """View of the arms. `count` is their number; None means 100, or every row of a listed space."""

    count: int | None

    def start(self, definition: StudyDefinition) -> ArmTable:
        space = definition.space
        configs = draw_configs(space, definition.seed, self.count)
        encoding = Encoding(space)
        return ArmTable(
            encoding=encoding,
            sign=definition.sign,
            configs=configs,
            points=encoding.points(configs),
            losses=np.full((len(configs), definition.max_steps), np.nan),
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
    """Return `count` distinct configurations, or fewer if the space has fewer; those of a listed space in row order."""
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


def compute_similarity(encoding: Encoding, configs: Points, scales: Floats) -> Floats:
    """Return exp(-R/2) for all pairs of n configurations, (n, n).

    R is the sum of squared differences over squared length-scales, (dims,). Two options of a choice differ by 1. An active
    and an inactive parameter also differ by 1, on the length-scale of that parameter.
    """
    space, features = encoding.space, encoding.features(configs)
    scale_of = dict(zip(space.cube_names, scales, strict=True))
    # a constant has no length-scale and does not count
    switches = [scale_of.get(name, math.inf) for name in encoding.optional]
    squared = np.zeros((len(configs), len(configs)))
    for j, scale in enumerate([*scales[encoding.numbers], *switches, *np.delete(scales, encoding.numbers)]):
        differ = features[:, None, j] - features[:, j]
        squared += (differ != 0.0 if j in encoding.option_columns else differ**2) / scale**2
    return np.exp(-0.5 * squared)


# training limits -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ArmLimits:
    """How far each arm can be trained now; each array is (n_arms,)."""

    free: Flags  # not being trained, and not ended
    affordable: Indices  # steps that the rest of the budget pays for if it all goes to this arm
    room: Indices  # affordable steps up to the end of its curve; 0 if the arm is not free
    total: float  # steps that the whole budget pays for, including finished ones; inf while no price is known

    def without_new_arms_below(self, arms: ArmTable, steps_per_arm: float) -> ArmLimits:
        """Return the limits without new arms if the budget is too small for one more arm.

        It must have `steps_per_arm` steps for each started arm and for the new one. New arms stay allowed while no started arm
        can be continued.
        """
        started = np.array([trial is not None for trial in arms.trial_of])
        if steps_per_arm * (1 + started.sum()) <= self.total or not self.room[started].any():
            return self
        return replace(self, room=np.where(started, self.room, 0))


def compute_limits(ledger: Ledger, arms: ArmTable) -> ArmLimits:
    """Return the limits of all arms. The price of a step is the arm's mean price, or the mean over all arms if it has none."""
    trials = [None if t is None else ledger.trials[t] for t in arms.trial_of]
    ends = np.array([ledger.max_steps if t is None else t.limit for t in trials])
    free = np.array([t is None or t.can_continue for t in trials])
    left = ledger.left
    if ledger.budget.unit == "epochs":
        # the rounding of fractional validation prices must not lose the last step
        affordable = np.full(len(trials), math.floor(left / ledger.step_price() + 1e-9))
        total = float(affordable[0])
    else:
        prices = np.array([ledger.step_price(t.number) if t and t.step_costs else np.nan for t in trials])
        known = ~np.isnan(prices)
        usual = float(prices[known].mean()) if known.any() else 0.0
        price = np.where(known, prices, usual)
        total = left / usual if usual > 0.0 else math.inf
        lost = np.array([0 if t is None else t.steps - t.resumable_step for t in trials])  # steps to train again first
        with np.errstate(divide="ignore", invalid="ignore"):
            affordable = np.where(price > 0.0, np.floor(left / price), np.inf)
        # An unknown price is no reason to commit, so the limit is then longer than any curve.
        affordable = np.maximum(np.minimum(affordable, ledger.max_steps + 1) - lost, 0)
    room = np.where(free, np.minimum(affordable, ends - arms.trained), 0)
    total += float(arms.trained.sum())
    return ArmLimits(free=free, affordable=affordable.astype(np.intp), room=room.astype(np.intp), total=total)


def decide_without_choice(ledger: Ledger, arms: ArmTable, limits: ArmLimits) -> Decision | None:
    """Return the decision for a queued configuration, or if no arm can be trained; None if arms must be compared."""
    memo = ledger.memo
    if ledger.queue:
        return start_trial(ledger, ledger.queue[0], 1, why={"queued": True}, memo=memo)
    if limits.room.any():
        return None
    if ledger.open_orders:
        return Wait()
    if limits.free.any():  # too expensive: the ledger refuses the order, and the study ends because its budget is spent
        return train_arm(ledger, arms, int(first_true(limits.free)), memo=memo)
    config = find_untried_config(ledger)
    if config is None:
        return nothing_to_train(ledger, "every configuration of the space was trained to its end")
    return start_trial(ledger, config, 1, why={"beyond_the_arms": True}, memo=memo)


def train_arm(ledger: Ledger, arms: ArmTable, arm: int, steps: int = 1, *, why: Why = NO_WHY, memo: Memo) -> Train:
    """Return the order for the next steps of an arm."""
    until, trial = int(arms.trained[arm]) + steps, arms.trial_of[arm]
    if trial is None:
        return start_trial(ledger, arms.configs[arm], until, why=why, memo=memo)
    return continue_trial(ledger.trials[trial], until, why=why, memo=memo)
