"""How a policy says what it compared: these words are in the `why` of every order, whatever the policy.

    compared          how many candidates were weighed against each other; 0: none, and nothing below is there
    score_name        what they were weighed by, with its unit
    best_is           "highest" or "lowest": which score wins; "drawn": one was drawn, and scores are probabilities
    score             of what was bought
    runner_up         the best of the others: a trial's number, a config as text, or in words what else could be done
    runner_up_score   its score; both are missing where there was nothing else

A race that keeps several adds `rank` (of what was bought, 0 is the best) and `last_kept_score`; its runner-up is the best of
those that were left behind. Whatever else a policy wants to tell stands beside these, under names of its own.
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
NEAR = 0.01  # of the unit cube's side: two points closer than this are one answer found twice


def compare(
    score_name: str,
    best_is: BestIs,
    compared: int,
    score: float,
    runner_up: int | str | None = None,
    runner_up_score: float = math.nan,
) -> dict[str, Scalar]:
    """The words of one comparison."""
    why: dict[str, Scalar] = {"compared": compared, "score_name": score_name, "best_is": best_is, "score": score}
    if runner_up is not None:
        why["runner_up"], why["runner_up_score"] = runner_up, runner_up_score
    return why


def compare_scores(
    score_name: str,
    best_is: BestIs,
    scores: Floats,
    chosen: int,
    say: Callable[[int], int | str | Config],
    *,
    rivals: Flags | None = None,
    in_unit: Callable[[float], Any] = float,
) -> dict[str, Scalar]:
    """Of candidates with these scores, (n,); one with the worst possible score, an infinite one, was no candidate.

    `say` names a candidate; `rivals` are those that may be the runner-up; `in_unit` makes a score what a person reads.
    """
    heights = -scores if best_is == "lowest" else scores.copy()
    compared = max(1, int(np.count_nonzero(heights > -np.inf)))
    heights[chosen] = -np.inf
    if rivals is not None:
        heights[~rivals] = -np.inf
    second = find_best(heights, "highest")
    score = float(in_unit(float(scores[chosen])))
    if heights[second] == -np.inf:
        return compare(score_name, best_is, compared, score)
    return compare(score_name, best_is, compared, score, _as_told(say(second)), float(in_unit(float(scores[second]))))


def _as_told(name: int | str | Config) -> int | str:
    return name if isinstance(name, int | str) else dumps(name)


def find_runner_up(why: Why, among: Iterable[int], say: Callable[[int], int | str | Config]) -> int | None:
    """The candidate that was told of as the runner-up; None: it is not among these."""
    told = why.get("runner_up")
    return next((one for one in among if told is not None and _as_told(say(one)) == told), None)


def compare_losses(
    score_name: str,
    losses: Floats,
    chosen: int,
    say: Callable[[int], int | str | Config],
    *,
    rivals: Flags | None = None,
    sign: float,
    undo: Callable[[Floats], Floats] = np.asarray,
) -> dict[str, Scalar]:
    """Of candidates with these losses, (n,), the lowest being the best: told as values, high where these are to be high.

    `undo` takes them from a model's scale to that of the training code; `sign` is that of the study, `ledger.opened.sign`.
    """
    why = compare_scores(
        score_name, "lowest", losses, chosen, say, rivals=rivals, in_unit=lambda loss: sign * undo(np.array(loss))
    )
    return why | {"best_is": "lowest" if sign > 0.0 else "highest"}


def compare_race(
    step: int, sign: float, compared: int, rank: int, loss: float, last_kept: float, left: tuple[float, int] | None
) -> dict[str, Scalar]:
    """Of a race whose arms were ranked after `step`; `left`: loss and trial of the best that was not kept. Told as values."""
    best_is: BestIs = "lowest" if sign > 0.0 else "highest"
    runner_up = () if left is None else (left[1], sign * left[0])
    why = compare(name_score(step), best_is, compared, sign * loss, *runner_up)
    return why | {"rank": rank, "last_kept_score": sign * last_kept}


def name_score(step: int) -> str:
    """What the arms of a race are ranked by."""
    return f"value after step {step}"


def are_apart(cube: Floats, chosen: int) -> Flags:
    """(m,): which points of the cube, (m, dims), are another answer than the chosen one."""
    return np.asarray((np.abs(cube - cube[chosen]) > NEAR).any(axis=1))
