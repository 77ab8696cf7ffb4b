"""Boosting in steps: each step grows the model of the step before by some rounds, with a seed of its own.

A booster that is simply continued has forgotten where its random generators stood, so rows, columns and dropped trees are
sampled otherwise than in a run without a stop. A step whose seed is its number depends on nothing but the model before it:
frozen or not, it is the same step. That makes it another (equally good) run than one long `train`, but always the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from shoestring.runners.training import Context, Report

M = TypeVar("M")
Parameters = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]  # of a step, counted from 1


def grow_in_steps(
    grow: Callable[[M | None, int], M],
    loss: Callable[[M], float],
    write: Callable[[M, Path], Any],
    read: Callable[[Path], M],
    context: Context,
) -> Iterator[Report]:
    """Reports without end: `grow(model, step)` makes the next model, of which None is the first one's predecessor."""
    model = None if context.checkpoint is None else read(context.checkpoint)
    step = context.step
    while True:
        step += 1
        model = grow(model, step)
        yield Report(loss(model) if context.should_validate else None, save=partial(write, model))


def parameters_at(parameters: Parameters, step: int, **defaults: Any) -> dict[str, Any]:
    """What this step is trained with: the user's own words over ours."""
    given = parameters(step) if callable(parameters) else parameters
    return {**defaults, **given}
