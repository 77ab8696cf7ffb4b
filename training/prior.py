"""Synthetic tasks: random maps from hyperparameters to learning curves, varied enough to include curves like the real ones.

Each task has its own random response surface: a network of the hyperparameters, bowls around an optimum, cliffs, and a share that
the hyperparameters do not explain. Its outputs are standard normal over the arms. They determine for each arm where its curve
starts and ends, how fast it falls, when a late fall begins, how noisy it is, and its events:

    power, exponential, logarithmic decay      plateau, then a late fall (rewards that come late, grokking)
    warm-up hump, double descent               drops at steps that all arms share (learning-rate schedules)
    overfitting, slow forgetting               divergence, sudden or with recovery
    noise: white or with memory, larger for some arms, growing or shrinking, with heavy tails
    bounds: a floor that many reach, a worst where many stay, values on a coarse grid (few validation examples)

Everything is drawn on the device, in batches: b tasks of K arms and T steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

T = 50
COLUMNS = 16
_OUTPUTS = 12  # outputs of the response surface
_HIDDEN = 24  # units of its random network


class Draw:
    """Random numbers for b tasks; a scalar of a task has the shape (b, 1)."""

    def __init__(self, b: int, device: torch.device) -> None:
        self.b, self.device = b, device

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(self.b, *(shape or (1,)), device=self.device) * (high - low) + low

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(self.b, *(shape or (1,)), device=self.device)

    def chance(self, share: float, *shape: int) -> Tensor:
        return torch.rand(self.b, *(shape or (1,)), device=self.device) < share


def surface(draw: Draw, x: Tensor, there: Tensor) -> Tensor:
    """Return the effect of hyperparameters x (b, K, columns), in [0, 1], on curves, (b, K, outputs), normal over arms."""
    _b, arms, columns = x.shape
    centred = torch.where(there[:, None], x * 2 - 1, torch.zeros((), device=x.device))
    matters = torch.exp(draw.normal(columns, 1) * draw.uniform(0.2, 1.2, 1, 1))  # few hyperparameters matter much
    weights = draw.normal(columns, _HIDDEN) * matters * torch.exp(draw.normal(1, 1) * 0.5)
    hidden = torch.tanh(centred @ weights + draw.normal(1, _HIDDEN))
    out = hidden @ (draw.normal(_HIDDEN, _OUTPUTS) * (1.5 / math.sqrt(_HIDDEN)))
    # A bowl in some hyperparameters, as in a learning rate: the best value lies inside, and both ends are bad.
    optimum, width = draw.uniform(-0.8, 0.8, 1, columns), matters[..., 0][:, None]
    bowl = (((centred - optimum) ** 2) * width * there[:, None]).sum(-1, keepdim=True)
    out = out + bowl * draw.normal(1, _OUTPUTS) * draw.uniform(0.0, 1.2, 1, 1)
    # A cliff: everything changes beyond a value along one direction.
    direction = (centred @ draw.normal(columns, 1))[..., 0]
    beyond = torch.sigmoid((direction - draw.uniform(-1.0, 1.5)) * 20)[..., None]
    out = out + beyond * draw.normal(1, _OUTPUTS) * 1.5 * draw.chance(0.3, 1, 1)
    spread = out.std(1, keepdim=True) + 1e-3
    out = (out - out.mean(1, keepdim=True)) / spread
    unexplained = draw.uniform(0.0, 1.0, 1, 1) ** 2
    out = out * (1 - unexplained) + unexplained * draw.normal(arms, _OUTPUTS)
    return (out - out.mean(1, keepdim=True)) / (out.std(1, keepdim=True) + 1e-3)


def falls(draw: Draw, o: Tensor, t: Tensor) -> Tensor:
    """Return the share of the fall that remains, (b, K, T), from 1 at the start towards 0; one family per task, sometimes two."""
    rate = torch.exp(o[..., 2] * draw.uniform(0.05, 0.6) + draw.uniform(-1.2, 0.8))[..., None]
    scale = torch.exp(o[..., 3] * draw.uniform(0.05, 0.9) + draw.uniform(-1.5, 2.0))[..., None]
    power = (1 + t / scale) ** -rate
    exponential = torch.exp(-((t / (scale * 2)) ** torch.clamp(rate, max=2.0)))
    logarithmic = torch.clamp(1 - rate * 0.3 * torch.log1p(t / scale), min=0.0)
    wait = torch.exp(o[..., 4] * draw.uniform(0.1, 0.9) + draw.uniform(0.5, 3.9))[..., None]
    steep = torch.exp(draw.uniform(-1.5, 1.0))[..., None]
    late = torch.sigmoid((wait - t) * steep) * (1 - 0.15 * draw.uniform(0, 1)[..., None] * torch.log1p(t) / 4)
    late = late / late.amax((1, 2), keepdim=True).clamp(min=1e-3)
    kind = draw.uniform(0.0, 1.0)[..., None]
    first = torch.where(
        kind < 0.5, power, torch.where(kind < 0.72, exponential, torch.where(kind < 0.84, logarithmic, late))
    )
    second = torch.where(kind < 0.84, late, power)
    share = draw.uniform(0.0, 0.6)[..., None] * draw.chance(0.15)[..., None]
    return first * (1 - share) + second * share


def events(draw: Draw, o: Tensor, t: Tensor, y: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Return the curves y, (b, K, T), with events: humps, drops at common steps, overfitting."""
    at = draw.uniform(0.03, 0.5)[..., None] * T
    size = torch.exp(o[..., 5] * 0.7 + draw.uniform(-2.5, 0.0))[..., None] * (start - end)
    hump = size * torch.exp(-0.5 * ((t - at) / (draw.uniform(0.02, 0.12)[..., None] * T)) ** 2)
    y = torch.where(draw.chance(0.08)[..., None], y + hump, y)  # a warm-up if it is early, else double descent
    for _ in range(3):  # drops of the learning rate: a part of the distance to the end disappears at once
        drop = draw.uniform(0.2, 0.98)[..., None] * T
        gain = torch.sigmoid(o[..., 6] + draw.normal())[..., None] * 0.6
        fallen = y - gain * (y - end) - 0.08 * gain * (start - end)
        y = torch.where(draw.chance(0.1)[..., None] & (t > drop), fallen, y)
    harm = torch.exp(o[..., 7] * draw.uniform(0.3, 1.2) + draw.uniform(-4.0, -0.5))[..., None] * (start - end)
    onset = torch.exp(o[..., 8] * 0.5 + draw.uniform(-1.5, 0.3))[..., None] * T
    rise = harm * torch.clamp((t - onset) / T, min=0.0) ** draw.uniform(0.5, 2.0)[..., None]
    return torch.where(draw.chance(0.3)[..., None], y + rise, y)


def noise(draw: Draw, o: Tensor, t: Tensor, span: Tensor) -> Tensor:
    """Return the noise of validations, (b, K, T). `span` (b, 1) is the range of losses of a task."""
    _b, arms, steps = o.shape[0], o.shape[1], t.shape[-1]
    loud = draw.chance(0.12)
    level = torch.where(loud, draw.uniform(-3.0, -0.7), draw.uniform(-8.0, -3.2))
    sigma = torch.exp(o[..., 9] * draw.uniform(0.0, 1.0) + level)[..., None] * span[..., None]
    white = draw.normal(arms, steps)
    heavy = white / torch.sqrt(torch.clamp(draw.uniform(0.0, 1.0, arms, steps), min=0.02))
    white = torch.where(draw.chance(0.2)[..., None], heavy, white)
    memory = draw.uniform(0.3, 0.95)[..., None]
    lag = torch.arange(steps, device=o.device)
    kernel = (memory ** (lag[:, None] - lag[None]).clamp(min=0)) * (lag[:, None] >= lag[None])  # (b, T, T)
    wander = torch.einsum("bts,bks->bkt", kernel * torch.sqrt(1 - memory**2), white)
    shape = torch.where(draw.chance(0.5)[..., None], (1 + t) ** draw.uniform(-0.8, 0.5)[..., None], torch.ones_like(t))
    return sigma * shape * torch.where(draw.chance(0.35)[..., None], wander, white)


def broken(draw: Draw, o: Tensor, t: Tensor, y: Tensor) -> Tensor:
    """Return the curves with some that diverge, at once or later; some recover. A diverged loss is the worst of the task."""
    worst = torch.quantile(y[:, :, 0], 0.95, dim=1)[:, None, None]
    share = draw.uniform(0.0, 0.5) * draw.chance(0.4)
    diverges = torch.sigmoid(2 * (o[..., 10] + 0.3 * draw.normal(o.shape[1]))) > 1 - share
    when = torch.where(draw.chance(0.6), torch.zeros((), device=o.device), draw.uniform(0.0, 1.0)) * T
    when = (when * torch.exp(0.4 * draw.normal(o.shape[1])))[..., None]
    back = when + torch.exp(draw.uniform(0.0, 3.0, o.shape[1]))[..., None]
    recovers = (draw.chance(0.1) & draw.chance(0.5, o.shape[1]))[..., None]
    is_diverged = diverges[..., None] & (t > when) & ~(recovers & (t > back))
    return torch.where(is_diverged, torch.maximum(worst * torch.ones_like(y), y), y)


def bounds(draw: Draw, y: Tensor) -> Tensor:
    """Return the curves with a floor, a ceiling or a coarse grid in some tasks."""
    flat = y.reshape(y.shape[0], -1)
    low, high = torch.quantile(flat[:, ::7], 0.02, dim=1), torch.quantile(flat[:, ::7], 0.9, dim=1)
    span = (high - low).clamp(min=1e-6)
    floor = (low + span * draw.uniform(0.0, 0.3)[:, 0])[:, None, None]
    ceiling = (high - span * draw.uniform(0.0, 0.3)[:, 0])[:, None, None]
    y = torch.where(draw.chance(0.08)[..., None], torch.maximum(y, floor), y)
    y = torch.where(draw.chance(0.25)[..., None], torch.minimum(y, ceiling), y)
    cell = (span / torch.exp(draw.uniform(2.5, 7.0)[:, 0]))[:, None, None]
    return torch.where(draw.chance(0.25)[..., None], torch.round(y / cell) * cell, y)


def draw_tasks(b: int, arms: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return b tasks: losses (b, K, T), and hyperparameters (b, K, columns) in [0, 1] or -1."""
    draw = Draw(b, device)
    count = torch.clamp(torch.exp(draw.uniform(0.0, math.log(COLUMNS + 0.99))).long(), 1, COLUMNS)
    there = torch.arange(COLUMNS, device=device)[None] < count
    x = draw.uniform(0.0, 1.0, arms, COLUMNS)
    levels = torch.exp(draw.uniform(0.7, 3.0, 1, COLUMNS)).floor()  # some are choices or short grids
    x = torch.where(draw.chance(0.35, 1, COLUMNS), torch.floor(x * levels) / (levels - 1).clamp(min=1), x)
    x = x.clamp(max=1.0)
    o = surface(draw, x, there)
    t = torch.arange(1, T + 1, device=device).float()[None, None].expand(b, 1, T)
    end = torch.exp(o[..., 0] * draw.uniform(0.15, 1.3))[..., None]
    tied = 1 - draw.uniform(0.0, 1.0) ** 2  # how much the start depends on the end
    mixed = tied * o[..., 0] + (1 - tied.abs()) * o[..., 1]
    rise = torch.exp(mixed * draw.uniform(0.05, 1.0) + draw.uniform(-1.5, 3.0))
    common = draw.chance(0.3)[..., None]  # all arms start at the same loss: chance level, an untrained agent
    start = torch.where(common, (end + rise[..., None]).amax(1, keepdim=True), end + rise[..., None])
    y = events(draw, o, t, end + (start - end) * falls(draw, o, t), start, end)
    stuck = draw.chance(0.1) & (o[..., 11] > draw.uniform(-1.0, 1.5))  # arms that never learn
    y = torch.where(stuck[..., None], start, y)
    span = torch.quantile(start[..., 0], 0.5, dim=1, keepdim=True)
    span = span - torch.quantile(y[..., -1], 0.1, dim=1, keepdim=True)
    y = y + noise(draw, o, t, span.clamp(min=1e-3))
    y = broken(draw, o, t, y)
    worst = torch.quantile(y[:, :, 0], 0.95, dim=1)[:, None, None]
    y = torch.where(draw.chance(0.5)[..., None], torch.minimum(y, worst), y)
    return bounds(draw, y), torch.where(there[:, None], x, -torch.ones((), device=device))
