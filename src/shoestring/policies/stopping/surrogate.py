"""Surrogate of the loss of a configuration: a Gaussian process, whose input may include the length of training.

Srinivas, Krause, Kakade and Seeger, "Gaussian Process Optimization in the Bandit Setting", arXiv:0912.3995, with the length
of training as a further input as in Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping",
ICML 2019 (PMLR 97), section 2 and appendix C.

    paper    here         meaning                                                                  unit
    z        -            [x, n / N]: columns of the configuration, and the length of training     -
    n / N    share        length of training, a share of a full training                           -
    y        loss         best loss up to that length                                              loss

Differences from the papers:
- Losses are scaled by `models.loss_scaling`, and each is the best so far at its length. A study keeps this value of a trial, and
  it makes curves monotone, as the theory requires.
- The length enters as ln(1 + n) / ln(1 + N), because curves change with the logarithm of training. With n / N the first steps
  dominate the fit, the length-scales of the configuration shrink, and the search becomes random. `PRINTED_FORM` is the
  paper's form.
- A trial that diverged, or failed before its first loss, counts as bad at full training.
- The kernel is a product over numbers, choices and length, with one length-scale per column; its parameters have weak priors.
- If there are more than 300 observations, the parameters are fitted to those of trials spread over the study. The posterior
  uses all observations.
- A trial that is being trained counts as if its result were the predicted one (several workers).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from shoestring.core.deciding.memo import Lists
from shoestring.core.values.arrays import Floats
from shoestring.models.gp.fit import carry_gp, pick_rows_to_fit
from shoestring.models.gp.kernels import Block, Family, Kernel, kernel_for
from shoestring.models.gp.posterior import GP, GP_MEMO, condition
from shoestring.models.loss_scaling import Scaling, fit_scaling
from shoestring.policies.config_table import ConfigTable
from shoestring.policy import Encoding, Ledger, Points, Refits

_FITTED_AT = "fitted_at"
LengthAxis = Literal["log", "linear"]
FIT_POINTS = 300  # limit on the observations of a fit, see `pick_rows_to_fit`
SURROGATE_MEMO = (*GP_MEMO, _FITTED_AT)  # names of the lists that a surrogate stores in the memo


@dataclass(frozen=True, slots=True)
class SurrogateForm:
    """The kernel on configurations and lengths, and how its parameters are fitted."""

    family: Family = "matern52"
    length_axis: LengthAxis = "log"
    tied: bool = False  # one length-scale for all numbers, including the length of training
    n_starts: int = 1  # starting points of a fit in addition to the last optimum
    with_priors: bool = True

    def kernel(self, encoding: Encoding, *, lengths: bool) -> Kernel:
        kernel = kernel_for(encoding, self.family, tied=self.tied)
        if not lengths:
            return kernel
        last = (encoding.n_columns,)
        if not self.tied:
            return Kernel((*kernel.blocks, Block(self.family, last)))
        others = [block for block in kernel.blocks if block.family == "hamming"]
        numbers = tuple(j for block in kernel.blocks if block.family != "hamming" for j in block.dims)
        return Kernel((Block(self.family, (*numbers, *last), tied=True), *others))


DEFAULT_FORM = SurrogateForm()
PRINTED_FORM = SurrogateForm(length_axis="linear", tied=True, n_starts=10, with_priors=False)


# observations --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Observation:
    """Loss of a trial after some training."""

    trial: int
    share: float  # length as a share of a full training
    loss: float  # inf: the trial diverged or failed


def observe(
    ledger: Ledger, *, intermediate: bool, idle_only: bool, predicted: Mapping[int, float] | None = None
) -> list[Observation]:
    """Return the observations of all trials.

    Each trial gives the best loss at its last step and, if `intermediate`, at the first step and at every fifth of N. With
    `idle_only` a trial that is being trained gives nothing. `predicted` are losses at full training that replace observed ones.
    """
    marks = {1, *(math.ceil(i * ledger.max_steps / 5) for i in range(1, 5))} if intermediate else set()
    found: list[Observation] = []
    for trial in ledger.trials:
        if idle_only and trial.open_order is not None:
            continue
        best_so_far = _best_so_far(trial.losses)
        at_end = (predicted or {}).get(trial.number)
        if trial.diverged or (trial.failure and not best_so_far):
            at_end = math.inf
        for number, (step, loss) in enumerate(best_so_far, 1):
            is_last = number == len(best_so_far)
            if step in marks or (is_last and (at_end is None or intermediate)):
                share = 1.0 if step >= trial.limit else step / ledger.max_steps
                found.append(Observation(trial.number, share, loss))
        if at_end is not None:
            found.append(Observation(trial.number, 1.0, at_end))
    return found


def _best_so_far(losses: Sequence[float | None]) -> list[tuple[int, float]]:
    """Return (step, best loss up to it) for each step with a finite loss."""
    best, found = math.inf, []
    for step, loss in enumerate(losses, 1):
        if loss is not None and math.isfinite(loss):
            best = min(best, loss)
            found.append((step, best))
    return found


# the fitted surrogate ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """Gaussian process of the scaled loss of a configuration, perhaps also of the length of training."""

    table: ConfigTable
    gp: GP
    scale: Scaling
    max_steps: int  # 0: the length of training is not an input
    memo: Lists  # the parameters of the kernel, and the number of trials to which they were fitted
    length_axis: LengthAxis = "log"

    def inputs(self, points: Points, share: float | Floats = 1.0) -> Floats:
        return _inputs(self.table.encoding, points, share, self.max_steps, self.length_axis)

    def predict(self, points: Points, share: float | Floats = 1.0) -> tuple[Floats, Floats]:
        """Return scaled mean and standard deviation of the latent loss, (m,) each."""
        mean, variance = self.gp.predict(self.inputs(points, share))
        return mean, np.sqrt(variance)

    def with_predicted(self, points: Iterable[Points]) -> Surrogate:
        """Return the surrogate as if the full trainings of these points had given the predicted losses."""
        gp = self.gp
        for point in points:
            gp = gp.append_predicted(self.inputs(point))
        return replace(self, gp=gp)


def fit_surrogate(
    ledger: Ledger,
    table: ConfigTable,
    seen: Sequence[Observation],
    *,
    lengths: bool,
    refit_every: int,
    form: SurrogateForm = DEFAULT_FORM,
    prefix: str = "",
) -> Surrogate:
    """Return a surrogate of one or more observations.

    Its parameters come from the memo until `refit_every` more trials are known. With `lengths` the length of training is an
    input. `prefix` is put before the names in the memo, for a policy with two surrogates.
    """
    encoding = table.encoding
    max_steps = ledger.max_steps if lengths else 0
    shares = np.array([o.share for o in seen])
    x = _inputs(encoding, table.stack([o.trial for o in seen]), shares, max_steps, form.length_axis)
    kernel = form.kernel(encoding, lengths=lengths)
    scale = _fit_scale(seen)
    y = scale.apply(np.array([o.loss for o in seen]))
    known = len({o.trial for o in seen})
    fit = Refits(every=refit_every, key=prefix + _FITTED_AT).check_fit(ledger.memo, known)
    some = pick_rows_to_fit([o.trial for o in seen], FIT_POINTS)
    gp, memo = carry_gp(
        kernel,
        x[some],
        y[some],
        ledger.memo,
        fit,
        n_starts=form.n_starts,
        prefix=prefix,
        with_priors=form.with_priors,
    )
    if len(some) < len(seen):
        gp = condition(kernel, gp.theta, x, y)
    return Surrogate(table, gp, scale, max_steps, memo, form.length_axis)


def scale_length(share: float | Floats, max_steps: int, axis: LengthAxis = "log") -> Floats:
    """Return the input of the kernel, in [0, 1], for a share of a full training."""
    if axis == "linear":
        return np.asarray(share)
    return np.asarray(np.log1p(max_steps * np.asarray(share)) / np.log1p(max_steps))


def _inputs(encoding: Encoding, points: Points, share: float | Floats, max_steps: int, axis: LengthAxis) -> Floats:
    features = encoding.features(points)
    if not max_steps:
        return features
    return np.column_stack([features, np.broadcast_to(scale_length(share, max_steps, axis), len(points))])


def _fit_scale(seen: Sequence[Observation]) -> Scaling:
    """Return the scaling of the losses, with one row per trial in the order of its observations: the limit uses first losses."""
    rows: dict[int, list[float]] = {}
    for o in seen:
        rows.setdefault(o.trial, []).append(o.loss)
    losses = np.full((len(rows), max(len(row) for row in rows.values())), np.nan)
    for place, row in enumerate(rows.values()):
        losses[place, : len(row)] = row
    return fit_scaling(losses, ~np.isnan(losses))
