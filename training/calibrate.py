"""Calibration of predictions: coverage of intervals and the order of arms, on sources that the weights have not seen.

Studies are half finished, as in training, but on recorded curves without variations, for each source on which the weights are
judged. The networks run as in the package, in NumPy, from the file that it would read. `order` is the rank correlation of the
predictions with the outcomes, `order_by_last` that of the newest losses, which sequential halving uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shoestring.models.thrift.features import Arms, Scale
from shoestring.models.thrift.lowest_losses import predict_lowest_losses
from shoestring.models.thrift.network import Network, read
from shoestring.models.thrift.shapes import BINS, HIGH, LOW
from training.export import facts_of
from training.network import Studies
from training.sources import judged_on
from training.studies import Tables, answer, batch

STUDIES = 512  # studies of each source
_ARMS = 128  # arms of a study, at most
_FEWEST_ARMS = 5  # needed for a rank correlation
_CPU = torch.device("cpu")
Floats = NDArray[np.float64]


def calibrate(path: Path, packs: Sequence[Path], studies: int = STUDIES) -> Iterator[dict[str, Any]]:
    """Yield one row for each source in the packs that these weights have not seen."""
    networks, facts = read(path), facts_of(path)
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    for source in judged_on(facts["fold"]):
        tables = Tables(packs, [source], _CPU)
        if len(tables.count):
            drawn = batch(tables, studies, _ARMS, 0.0, _CPU, varied=False)
            training = {"fold": facts["fold"], "seed": facts["trainings"][0]["seed"]}
            yield {**training, "source": source, **_judge(networks, drawn, rng)}


def arms_of(s: Studies, study: int) -> Arms:
    """Return one of many studies, as the package represents it."""
    valid = s.valid[study].numpy()
    floats = {name: getattr(s, name)[study].numpy()[valid].astype(float) for name in ("losses", "price", "x")}
    n, reach = (getattr(s, name)[study].numpy()[valid] for name in ("n", "reach"))
    return Arms(n=n, reach=reach, left=float(s.left[study]), steps=int(s.steps[study]), **floats)


def _judge(networks: tuple[Network, ...], s: Studies, rng: np.random.Generator) -> dict[str, Any]:
    """Return how often outcomes lie in their intervals, the log loss and the rank correlations, on studies of one source."""
    lowest, has_value = (part.numpy() for part in answer(s))
    below, log_losses, orders = [], [], []
    for study in range(len(lowest)):
        arms = arms_of(s, study)
        there = s.valid[study].numpy()
        opened = has_value[study][there] & arms.is_started
        reached = lowest[study][there][opened].astype(float)
        prediction = predict_lowest_losses(networks, arms)
        chance, under = place(prediction.scale, prediction.chances[opened], reached, rng)
        below.append(under)
        log_losses.append(-np.log(chance + 1e-9))
        if len(reached) >= _FEWEST_ARMS:
            forecast = prediction.chances[opened] @ np.arange(BINS)
            newest = arms.losses[opened, arms.n[opened] - 1]
            orders.append((rank_correlation(forecast, reached), rank_correlation(newest, reached)))
    under = np.concatenate(below)
    order, order_by_last = np.mean(orders, axis=0) if orders else (np.nan, np.nan)
    return {
        "studies": len(lowest),
        "arms": len(under),
        "inside_50": round(float((np.abs(under - 0.5) < 0.25).mean()), 3),
        "inside_90": round(float((np.abs(under - 0.5) < 0.45).mean()), 3),
        "log_loss": round(float(np.concatenate(log_losses).mean()), 3),
        "order": round(float(order), 3),
        "order_by_last": round(float(order_by_last), 3),
    }


def place(scale: Scale, chances: Floats, reached: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return, for each outcome (k,), the probability of its bin and that of a lower value, at random within the bin."""
    bins = ((scale.to_u(reached) - LOW) / (HIGH - LOW) * BINS).astype(int).clip(0, BINS - 1)
    rows = np.arange(len(bins))
    own = chances[rows, bins]
    return own, np.cumsum(chances, axis=1)[rows, bins] - own * rng.random(len(own))


def rank_correlation(a: Floats, b: Floats) -> float:
    """Return Spearman's rank correlation, with equal values at the mean of their ranks; 0 where a or b does not vary."""
    x, y = (_ranks(v) - (len(v) - 1) / 2 for v in (a, b))
    size = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / size if size > 0 else 0.0


def _ranks(values: Floats) -> Floats:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count) - 1
    return np.asarray((last - (count - 1) / 2)[place], dtype=float)
