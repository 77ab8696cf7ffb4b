"""Tables of learning curves: synthetic ones as in the paper, and recorded ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring.core.ledger.entries import Cost
from shoestring.core.space.space import Config, Space
from shoestring.models.freeze_thaw.arm_curves import CurveParameters
from shoestring.runners.simulated.recorded_table import Table as RecordedTable
from shoestring.runners.simulated.simulated_runner import StepOutcome

Floats = NDArray[np.float64]

# The paper's generator: asymptotes of variance 1 and length-scale 0.8, curves of magnitude 10, alpha 1.5, beta 5 epochs.
TRUE = CurveParameters(alpha=1.5, beta=5.0, s2=10.0, noise=1e-4, sx2=1.0, mean=0.0)
SLOW = replace(TRUE, beta=50.0)
GENERATORS = ("decay", "raw", "slow")
LENGTHSCALE = 0.8
TEN_CLASS_SOURCES = ("fashion_curves", "klein_cnn_cifar10")  # tasks whose errors begin at 0.9
EPOCHS_PER_STEP = 6
STEPS = 48
ARMS = 84


@dataclass(frozen=True, eq=False)
class Table:
    """Curves of all configurations, a source for the simulated runner. Smaller is better."""

    name: str
    space: Space
    losses: Floats  # (n_arms, n_steps)
    seconds: Floats  # (n_arms, n_steps), time of each step
    start: float  # l_0: loss before training, or a substitute for it
    settings: dict[str, Any]  # settings of policies that model curves
    chance: float | None = None  # loss of random guessing, if the task is known

    def step(self, config: Config, step: int) -> StepOutcome | None:
        row = self.space.row_number(config)
        assert row is not None
        if step > self.losses.shape[1] or np.isnan(self.losses[row, step - 1 :]).all():
            return None
        return StepOutcome(float(self.losses[row, step - 1]), Cost(train=float(self.seconds[row, step - 1])))

    def lowest_within(self, budget: float, in_seconds: bool = False) -> Floats:
        """Return the loss of each arm with the whole budget, (n_arms,); nan if the budget is less than one step."""
        spent = self.seconds.cumsum(axis=1) if in_seconds else np.arange(1.0, self.losses.shape[1] + 1)[None]
        lowest = np.where((spent <= budget) & ~np.isnan(self.losses), self.losses, np.inf).min(axis=1)
        return np.where(np.isfinite(lowest), lowest, np.nan)


def synthetic(seed: int, generator: str = "decay", dims: int = 2) -> Table:
    """Return a set of 84 curves of 288 epochs; a step is 6 epochs.

    - raw: zero-mean curves as printed in the paper. Their variance is largest at the start, so the best loss of an arm is
      often its first.
    - decay: every curve starts at l_0 = sqrt(10) and converges to its own asymptote, which does not depend on l_0. The
      lowest loss of a set is the second to fourth loss of an arm.
    - slow: as decay, with beta = 50 epochs instead of 5. The lowest loss comes after about 24 of the 48 steps.
    """
    true = SLOW if generator == "slow" else TRUE
    rng = np.random.default_rng([seed, 20190532])
    x = rng.random((ARMS, dims))
    kernel = np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(axis=-1) / LENGTHSCALE**2)
    start = None if generator == "raw" else float(np.sqrt(true.s2))
    f = _root(true.sx2 * kernel) @ rng.standard_normal(ARMS)
    t = EPOCHS_PER_STEP * np.arange(1.0, STEPS + 1)
    mean, curve = np.zeros((ARMS, STEPS)), true.decay(t[:, None] + t)
    if start is not None:
        from_start = true.decay(t) / true.s2  # (steps,)
        mean = (start - f)[:, None] * from_start
        curve = curve - true.s2 * np.outer(from_start, from_start)
    losses = f[:, None] + mean + rng.standard_normal((ARMS, STEPS)) @ _root(curve).T
    losses += np.sqrt(true.noise) * rng.standard_normal(losses.shape)
    space = Space.from_configs([{f"x{j}": float(v) for j, v in enumerate(row)} for row in x])
    settings: dict[str, Any] = {
        "parameters": [true.alpha, true.beta / EPOCHS_PER_STEP, true.s2, true.noise, true.sx2, true.mean],
        "scale": "none",
        # the unit cube is stretched to the rows
        "lengthscale": [float(v) for v in LENGTHSCALE / (x.max(axis=0) - x.min(axis=0))],
        "start": start,
    }
    first = float(losses[:, 0].mean()) if start is None else start
    return Table(f"{generator}-{seed}", space, losses, np.ones_like(losses), first, settings)


def load_table(path: Path, arms: int | None = None, most_steps: int = 100, seed: int = 0) -> Table:
    """Return a recorded table with at most `most_steps` steps and `arms` rows; l_0 is the median first loss.

    The order of the rows is random by seed, because a policy takes the first of equal arms.
    """
    whole = RecordedTable.load(path)
    steps = min(most_steps, whole.max_steps)
    rows = np.random.default_rng(seed).permutation(len(whole.configs))[:arms]
    table = RecordedTable.load(path, max_steps=steps, rows=rows)
    losses = table.values if table.direction == "min" else -table.values
    first = losses[:, 0]
    start = float(np.median(first[np.isfinite(first)]))
    chance = 0.9 if path.parent.name in TEN_CLASS_SOURCES and "valid_error" in np.load(path) else None
    return Table(path.stem, table.space(), losses, table.costs_s, start, {}, chance)


def _root(cov: Floats) -> Floats:
    """Return a square root of a covariance that may be singular up to rounding."""
    values, vectors = np.linalg.eigh(cov)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
