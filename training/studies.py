"""Half-finished studies made from tasks: the training so far, the remaining budget, and the values that the network must predict.

A batch mixes synthetic tasks (`prior`) with recorded tables. All are varied: only some of the arms are used; curves are cut or
read at fewer steps; losses are changed by a power, and noise is added; hyperparameters are reordered, mirrored or hidden.
Histories are those of races with random settings, stopped at a random moment. Which arms stay depends on the newest loss, on
chance, and in part on the final loss, as under a rule that predicts well. The value to predict is the lowest loss of an arm
within its reach.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.network import Studies
from training.prior import COLUMNS, Draw, T, draw_tasks

_ROUNDS = 8  # rounds of a race, at most
_WIDE = 32  # columns of hyperparameters in a packed table
_MOST_CURVES = 20.0  # remaining budget: log-uniform from one step to this many curves


class Tables:
    """The packed curves of some sources on a device."""

    def __init__(self, paths: Sequence[Path], sources: Collection[str], device: torch.device) -> None:
        packs = [dict(np.load(path)) for path in paths]
        meta = [table for pack in packs for table in json.loads(str(pack["meta"]))]
        joined = {
            name: np.concatenate([pack[name] for pack in packs]).astype(np.float32) for name in ("Y", "X", "price")
        }
        self.losses, self.x, self.price = (torch.tensor(array, device=device) for array in joined.values())
        first = np.cumsum([0, *(table["n"] for table in meta)])
        chosen = [i for i, table in enumerate(meta) if table["source"] in sources]
        tables = Counter(meta[i]["source"] for i in chosen)
        weight = [_weight(meta[i], tables[meta[i]["source"]]) for i in chosen]
        self.first = torch.tensor([int(first[i]) for i in chosen], device=device)
        self.count = torch.tensor([meta[i]["n"] for i in chosen], device=device)
        self.steps = torch.tensor([meta[i]["steps"] for i in chosen], device=device)
        self.weight = torch.tensor(weight, device=device)
        self.sources = sorted(tables)

    def draw(self, b: int, arms: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return b draws of some arms of a table: losses, hyperparameters (all 32 columns), prices, existing arms, steps."""
        device = self.losses.device
        which = torch.multinomial(self.weight, b, replacement=True)
        count = self.count[which]
        most = int(self.count.max())
        keys = torch.rand(b, most, device=device)
        keys = torch.where(torch.arange(most, device=device)[None] < count[:, None], keys, keys + 2)
        order = keys.argsort(1)[:, :arms]
        if order.shape[1] < arms:
            order = torch.cat([order, order[:, :1].expand(b, arms - order.shape[1])], 1)
        there = torch.minimum(count, torch.full_like(count, arms))
        rows = torch.where(torch.arange(arms, device=device)[None] < there[:, None], order, order[:, :1])
        rows = rows + self.first[which][:, None]
        return self.losses[rows], self.x[rows], self.price[rows], there, self.steps[which]


def _weight(table: dict[str, Any], tables: int) -> float:
    """Return the weight of a table in draws: smaller if its source has many tables, or if it has few arms."""
    ours = 0.4 if table["source"] == "small_trainings" else 1.0  # they are less regular than the tasks that people tune
    return ours * math.sqrt(min(1.0, table["n"] / 40) / tables)


def vary_curves(draw: Draw, y: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Return curves that are cut, or read at fewer and unevenly spaced steps."""
    device = y.device
    length = steps.float()
    whole = torch.where(draw.chance(0.4)[:, 0], length * draw.uniform(0.25, 1.0)[:, 0], length)
    fewer = torch.where(draw.chance(0.3)[:, 0], whole * draw.uniform(0.08, 0.6)[:, 0], whole)
    shorter = fewer.round().clamp(min=3)
    whole = torch.maximum(whole, shorter)
    bend = torch.where(shorter < 0.65 * whole, torch.exp(0.25 * draw.normal()[:, 0]), torch.ones_like(whole))
    step = torch.arange(1, T + 1, device=device)[None].float()
    share = (step / shorter[:, None]).clamp(max=1.0)
    at = torch.ceil(whole[:, None] * share ** bend[:, None] - 1e-4).long().clamp(min=1)
    at = torch.minimum(at, steps[:, None]) - 1
    return y.gather(2, at[:, None].expand_as(y)), shorter.long()


def vary_losses(draw: Draw, y: Tensor, steps: Tensor) -> Tensor:
    """Return losses as a share of the typical first loss above the lowest; a power keeps their order, and some get noise."""
    within = torch.arange(T, device=y.device)[None, None] < steps[:, None, None]
    far = torch.full((), 1e30, device=y.device)
    lowest = torch.where(within, y, far).amin((1, 2), keepdim=True)
    typical = y[:, :, 0].median(1).values[:, None, None]
    v = ((y - lowest) / (typical - lowest).clamp(min=1e-4)).clamp(min=0, max=1e4) + 1e-3
    power = torch.exp(0.35 * draw.normal(1, 1))
    v = torch.where(draw.chance(0.5, 1, 1), v**power, v)
    loud = torch.exp(draw.uniform(-6.0, -1.2, 1, 1)) * draw.chance(0.25, 1, 1)
    return v + loud * torch.randn_like(v)


def vary_columns(draw: Draw, x: Tensor) -> Tensor:
    """Return 16 of the columns in random order, (b, K, 16), some of them mirrored or hidden."""
    here = (x >= 0).any(1)
    key = draw.uniform(0.0, 1.0, x.shape[2]) + (~here).float()
    hidden = draw.chance(0.15) | draw.chance(0.08, x.shape[2])
    key = key + hidden.float()
    order = key.argsort(1)[:, :COLUMNS]
    x = torch.where(hidden[:, None], torch.full_like(x, -1.0), x)
    x = x.gather(2, order[:, None].expand(-1, x.shape[1], -1))
    return torch.where(draw.chance(0.5, 1, COLUMNS) & (x >= 0), 1 - x, x)


def history(draw: Draw, y: Tensor, steps: Tensor, valid: Tensor, quality: Tensor) -> Tensor:
    """Return the trained steps of each arm, (b, K). `quality` (b, K): standard scores of the final losses, large is bad."""
    device, (b, arms) = y.device, valid.shape
    there = valid.sum(1, keepdim=True)
    foresight = torch.where(draw.chance(0.5), torch.zeros((), device=device), draw.uniform(0.0, 0.8))
    luck = draw.uniform(0.0, 1.0) ** 3 * 2
    # arms are started in random order, or preferably those with low final losses first
    preference = draw.chance(0.35) * draw.uniform(0.0, 1.5)
    key = torch.where(valid, preference * quality + draw.normal(arms), torch.full_like(quality, 1e9))
    turn = key.argsort(1).argsort(1)
    opened = (1 + draw.uniform(0.0, 1.0) ** 1.7 * there).long().clamp(min=1)
    alive = (turn < torch.minimum(opened, there)) & valid
    n = torch.zeros(b, arms, dtype=torch.long, device=device)
    keep, growth = draw.uniform(1.2, 4.0), draw.uniform(1.15, 3.2)
    goal = 1 + draw.uniform(0.0, 1.0) ** 3 * 5
    last_round = draw.uniform(0.0, 1.0) * _ROUNDS
    uneven, newcomers = draw.chance(0.4), draw.chance(0.4) * draw.uniform(0.0, 0.15)
    for i in range(_ROUNDS):
        on, partly = last_round >= i, (last_round < i + 1) & (last_round >= i)
        takes_part = torch.where(partly, draw.uniform(0.0, 1.0, arms) < draw.uniform(0.0, 1.0), valid)
        scatter = torch.where(uneven, torch.exp(0.5 * draw.normal(arms)), torch.ones((), device=device))
        target = torch.minimum((goal * scatter).round().long().clamp(min=1), steps[:, None])
        n = torch.where(alive & on & takes_part, torch.maximum(n, target), n)
        newest = y.gather(2, (n.clamp(min=1) - 1)[..., None])[..., 0]
        count = alive.sum(1, keepdim=True).clamp(min=1)
        mean = (newest * alive).sum(1, keepdim=True) / count
        spread = (((newest - mean) ** 2) * alive).sum(1, keepdim=True).div(count).sqrt() + 1e-9
        score = (1 - foresight) * (newest - mean) / spread + foresight * quality + luck * draw.normal(arms)
        rank = torch.where(alive, score, torch.full_like(score, 1e9)).argsort(1).argsort(1)
        survivors = alive & (rank < (count / keep).clamp(min=1))
        joining = valid & (n == 0) & (draw.uniform(0.0, 1.0, arms) < newcomers)
        alive = torch.where(last_round >= i + 1, survivors | joining, alive)
        goal = goal * growth
    n = torch.where((n.sum(1, keepdim=True) == 0) & (turn == 0), torch.ones_like(n), n)
    return torch.minimum(n, steps[:, None]) * valid


def answer(s: Studies) -> tuple[Tensor, Tensor]:
    """Return the lowest loss within reach, (b, K), and whether there is one to predict."""
    step = torch.arange(1, T + 1, device=s.n.device)
    end = torch.minimum(s.n + s.reach, s.steps[:, None])
    window = (step > s.n[..., None]) & (step <= end[..., None])
    lowest = torch.where(window, s.losses, torch.full_like(s.losses, 1e30)).amin(2)
    return lowest, (end > s.n) & s.valid


def _draw_tasks(b: int, arms: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return b synthetic tasks, as `Tables.draw` does; prices depend on one hyperparameter and on chance."""
    y, x = draw_tasks(b, arms, device)
    lean = torch.where(x[..., 0] >= 0, x[..., 0] - 0.5, torch.zeros((), device=device))
    log_price = torch.randn(b, arms, device=device) * torch.rand(b, 1, device=device)
    price = torch.exp(log_price + 4 * lean * torch.randn(b, 1, device=device))
    x = torch.cat([x, torch.full((b, arms, _WIDE - COLUMNS), -1.0, device=device)], 2)
    return y, x, price, torch.full((b,), arms, device=device), torch.full((b,), T, device=device)


def split(s: Studies, parts: int) -> list[Studies]:
    """Divide studies that were drawn together into parts of equal size, in random order."""
    order = torch.randperm(len(s.n), device=s.n.device)
    return [Studies(*(value[rows] for value in s)) for rows in order.chunk(parts)]


def batch(
    tables: Tables | None, b: int, arms: int, synthetic: float, device: torch.device, varied: bool = True
) -> Studies:
    """Return b studies, the share `synthetic` of them from synthetic tasks; `varied`: change curves, losses and columns."""
    made = b if tables is None else round(b * synthetic)
    parts = [_draw_tasks(made, arms, device)] if made else []
    if tables is not None and made < b:
        parts.append(tables.draw(b - made, arms))
    y, x, price, there, steps = (torch.cat(part) for part in zip(*parts, strict=True))
    draw = Draw(b, device)
    if varied:
        y, steps = vary_curves(draw, y, steps)
        y, x = vary_losses(draw, y, steps), vary_columns(draw, x)
    else:
        x = x[..., :COLUMNS]
    wanted = (torch.exp(draw.uniform(math.log(4.0), math.log(arms))))[:, 0].round().long()
    valid = torch.arange(arms, device=device)[None] < torch.minimum(wanted, there)[:, None]
    step = torch.arange(T, device=device)
    ends = torch.where(step[None, None] < steps[:, None, None], y, torch.full_like(y, 1e30)).amin(2)
    rank = torch.where(valid, ends, torch.full_like(ends, 1e30)).argsort(1).argsort(1).float()
    quality = (rank / valid.sum(1, keepdim=True).clamp(min=1) - 0.5) * 3.46
    n = history(draw, y, steps, valid, quality)
    price = torch.where(draw.chance(0.5), torch.ones_like(price), price.clamp(0.1, 10.0))
    paid = (price * (n > 0)).sum(1, keepdim=True) / (n > 0).sum(1, keepdim=True).clamp(min=1)
    price = price / paid
    left = torch.exp(draw.uniform(0.0, 1.0)[:, 0] * torch.log(_MOST_CURVES * steps)).round().clamp(min=1)
    reach = torch.minimum(steps[:, None] - n, (left[:, None] / price).floor().long()).clamp(min=0)
    return Studies(y, x, n, reach, price, left, steps, valid)
