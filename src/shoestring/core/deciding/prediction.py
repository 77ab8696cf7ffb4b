"""What a policy's model predicted when it placed an order: the result of `predict`, an optional method of a policy.

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None

`ledger` is the study as it was before `order`. The parameters fitted for the order are in `order.memo`, and the scores by which
it was chosen are in `order.why`, so nothing has to be fitted or chosen again. None means that no model was used for the order
(it belongs to the initial design, or the user queued its config). Reports draw predictions; no decision is made with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.arrays import Floats, Indices

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # levels of quantiles: ends of the 90 % and the 50 % interval, and the median
MAX_CURVES = 6  # curves in one prediction; a reader cannot compare more
# What a curve predicts: values with their noise, as they will be reported, or the best of the values still to come.
VALUE_AT_STEP = "the value expected after each step"
BEST_VALUE_BY_STEP = "the best value expected up to each step"


@dataclass(frozen=True, slots=True, eq=False)
class CurvePrediction:
    """What was predicted for one trial, or for a config that could have been started.

    Parameters
    ----------
    trial : int or None
        Number of the trial; None for a config that was not started.
    config : Config
        Its configuration.
    steps : array (n,)
        The steps, ascending.
    quantiles : array (5, n)
        Quantiles of the value at each step, at `LEVELS`.
    """

    trial: int | None
    config: Config
    steps: Indices  # (n,)
    quantiles: Floats  # (5, n)

    @classmethod
    def of(
        cls,
        trial: int | None,
        config: Config,
        steps: Indices | Sequence[int],
        quantile: Callable[[float], Floats],
        sign: float,
    ) -> CurvePrediction:
        """Return the prediction that has these quantiles of losses.

        Parameters
        ----------
        trial, config, steps
            As for the class.
        quantile : callable
            Returns the losses at the steps, (n,), for a level.
        sign : float
            1 if values are losses, -1 if larger values are better: `ledger.definition.sign`.

        Returns
        -------
        CurvePrediction
            The prediction, in values.
        """
        losses = np.array([quantile(level) for level in LEVELS])
        return cls(trial, config, np.asarray(steps, dtype=np.intp), losses if sign > 0.0 else -losses[::-1])


@dataclass(frozen=True, slots=True, eq=False)
class CandidateScores:
    """The m candidates of a decision, with their expected improvement and their predicted cost.

    Parameters
    ----------
    gain : array (m,)
        Expected improvement, in the unit of the values.
    cost : array (m,)
        Predicted cost, in the budget's unit.
    front : array of int
        The candidates that are Pareto-optimal in gain and cost.
    chosen : int
        The candidate that was chosen.
    runner_up : int or None
        The second best candidate.
    least : float or None
        The smallest gain that was allowed, if the policy has such a rule.
    config : callable
        Returns the config of a candidate by its number.
    """

    gain: Floats
    cost: Floats
    front: Indices
    chosen: int
    runner_up: int | None
    least: float | None
    config: Callable[[int], Config]


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """What a stopping policy would do with a trial, by its step and by the mean of its values since the plan was made.

    Parameters
    ----------
    trial : int
        Number of the trial.
    steps : array of int (n,)
        Steps, ascending.
    edges : array (m + 1,)
        Edges of the cells of the mean, ascending, in the unit of the values.
    action : array of int (n, m)
        An index into `STOPPING_ACTIONS` for each cell; -1 where too few simulated futures pass.
    means : array (k,)
        The means of the trial at the first k of the steps.
    """

    trial: int
    steps: Indices
    edges: Floats
    action: Indices
    means: Floats


STOPPING_ACTIONS = ("continue", "stop", "train to the end")


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What a policy's model predicted for one decision.

    Parameters
    ----------
    curves : sequence of CurvePrediction
        The curve of the order first, then curves of candidates that were not chosen.
    quantity : str
        What the curves predict: `VALUE_AT_STEP` or `BEST_VALUE_BY_STEP`.
    candidate_scores : CandidateScores, optional
        Scores of all candidates.
    regions : Regions, optional
        What a stopping policy would do with the trial.
    """

    curves: Sequence[CurvePrediction] = ()
    quantity: str = VALUE_AT_STEP
    candidate_scores: CandidateScores | None = None
    regions: Regions | None = None


@runtime_checkable
class PredictingPolicy(Protocol):
    """A policy that can return what its model predicted."""

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return what the model predicted when this order was placed.

        Parameters
        ----------
        ledger : Ledger
            The study as it was before the order.
        order : Order
            The order.

        Returns
        -------
        Prediction or None
            The prediction; None if no model was used.
        """
        ...


def put_first(numbers: Sequence[int] | Indices, *wanted: int | None) -> list[int]:
    """Return at most `MAX_CURVES` of these numbers, each once, with those in `wanted` first.

    Parameters
    ----------
    numbers : sequence of int
        Numbers of trials or candidates.
    *wanted : int or None
        The numbers to put first; None is ignored.

    Returns
    -------
    list of int
        The numbers.
    """
    first = [one for one in wanted if one is not None]
    return list(dict.fromkeys([*first, *(int(one) for one in numbers)]))[:MAX_CURVES]
