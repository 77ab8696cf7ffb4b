"""How a policy records what it compared: these keys are in the `why` of every order, whatever the policy.

    compared          the number of candidates that were compared; if it is 0, the keys below are left out
    score_name        what they were compared by, with its unit
    best_is           "highest" or "lowest": which score wins; "drawn": one was drawn, and the scores are probabilities
    score             the score of the chosen candidate
    runner_up         the best of the others: a trial's number, a config as text, or another action in words
    runner_up_score   its score; both keys are left out if there was no other candidate

A decision that promotes several trials adds `rank`, the rank of the chosen one (0 is the best), and `last_kept_score`, the score
of the last trial that was promoted. Its runner-up is the best trial that was not promoted. A policy may add keys of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from shoestring.core.deciding.decision import Why
from shoestring.core.deciding.reproducible import find_best
from shoestring.core.space.parameters import Scalar
from shoestring.core.space.space import Config
from shoestring.core.values.arrays import Flags, Floats
from shoestring.core.values.strict_json import dumps

BestIs = Literal["highest", "lowest", "drawn"]
NEAR = 0.01  # two points of the unit cube that are closer than this in every dimension count as the same candidate


def compare(
    score_name: str,
    best_is: BestIs,
    compared: int,
    score: float,
    runner_up: int | str | None = None,
    runner_up_score: float = math.nan,
) -> dict[str, Scalar]:
    """Describe one comparison for `why`: the score of the chosen candidate, and the runner-up with its score.

    Parameters
    ----------
    score_name : str
        What the candidates were compared by, with its unit.
    best_is : {"highest", "lowest", "drawn"}
        Which score wins.
    compared : int
        Number of candidates.
    score : float
        The score of the chosen one.
    runner_up : int or str, optional
        The best of the others.
    runner_up_score : float
        Its score.

    Returns
    -------
    dict
        The entries for the `why` of the decision.
    """
    why: dict[str, Scalar] = {"compared": compared, "score_name": score_name, "best_is": best_is, "score": score}
    if runner_up is not None:
        why["runner_up"], why["runner_up_score"] = runner_up, runner_up_score
    return why


def compare_scores(
    score_name: str,
    best_is: BestIs,
    scores: Floats,
    chosen: int,
    describe: Callable[[int], int | str | Config],
    *,
    competitors: Flags | None = None,
    in_unit: Callable[[float], Any] = float,
) -> dict[str, Scalar]:
    """Describe a choice by scores for `why`: the chosen candidate, the runner-up and their scores.

    Parameters
    ----------
    score_name, best_is
        As for `compare`.
    scores : array (n,)
        The scores. A candidate with an infinitely bad score does not count.
    chosen : int
        Index of the chosen candidate.
    describe : callable
        Returns the name of a candidate: a trial's number, a text, or its config.
    competitors : array of bool (n,), optional
        The candidates that may be the runner-up. Without it, all others.
    in_unit : callable
        Turns a score into the number to be shown.

    Returns
    -------
    dict
        The entries for the `why` of the decision.
    """
    heights = -scores if best_is == "lowest" else scores.copy()
    compared = max(1, int(np.count_nonzero(heights > -np.inf)))
    heights[chosen] = -np.inf
    if competitors is not None:
        heights[~competitors] = -np.inf
    second = find_best(heights, "highest")
    score = float(in_unit(float(scores[chosen])))
    if heights[second] == -np.inf:
        return compare(score_name, best_is, compared, score)
    return compare(
        score_name,
        best_is,
        compared,
        score,
        _as_text_or_number(describe(second)),
        float(in_unit(float(scores[second]))),
    )


def _as_text_or_number(name: int | str | Config) -> int | str:
    return name if isinstance(name, int | str) else dumps(name)


def find_runner_up(why: Why, among: Iterable[int], describe: Callable[[int], int | str | Config]) -> int | None:
    """Return the candidate that a comparison names as the runner-up.

    Parameters
    ----------
    why : mapping
        The `why` of an order.
    among : iterable of int
        The candidates.
    describe : callable
        As for `compare_scores`.

    Returns
    -------
    int or None
        The candidate; None if it is not among these.
    """
    runner_up = why.get("runner_up")
    if runner_up is None:
        return None
    return next((one for one in among if _as_text_or_number(describe(one)) == runner_up), None)


def compare_losses(
    score_name: str,
    losses: Floats,
    chosen: int,
    describe: Callable[[int], int | str | Config],
    *,
    competitors: Flags | None = None,
    sign: float,
    undo: Callable[[Floats], Floats] = np.asarray,
) -> dict[str, Scalar]:
    """Describe a choice by losses for `why`; the losses are shown as values of the study.

    Parameters
    ----------
    score_name, chosen, describe, competitors
        As for `compare_scores`.
    losses : array (n,)
        The losses; the lowest is the best.
    sign : float
        1 if values are losses, -1 if larger values are better: `ledger.definition.sign`.
    undo : callable
        Takes losses from a model's scale to the scale of the training code.

    Returns
    -------
    dict
        The entries for the `why` of the decision.
    """
    why = compare_scores(
        score_name,
        "lowest",
        losses,
        chosen,
        describe,
        competitors=competitors,
        in_unit=lambda loss: sign * undo(np.array(loss)),
    )
    return why | {"best_is": "lowest" if sign > 0.0 else "highest"}


def are_apart(cube: Floats, chosen: int) -> Flags:
    """Return flags (m,): which points of the cube, (m, dims), are far enough from the chosen one to be other candidates."""
    return np.asarray((np.abs(cube - cube[chosen]) > NEAR).any(axis=1))
