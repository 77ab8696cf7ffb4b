"""Features and network in PyTorch, for training; `shoestring.models.thrift` computes the same in NumPy.

Arrays hold b studies of K arms. Losses are (b, K, T) with T = 50, and known up to step n of each arm. For what each feature
means, see `shoestring.models.thrift.features`: the two files must be changed together, and a golden file ensures that they agree.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoestring.models.thrift.shapes import (
    BINS,
    COLUMNS,
    FEATURE_STEPS,
    FEATURES,
    HIGH,
    LOW,
    SHARPNESS,
    STEPS,
)

_FAR = 1e30


class Studies(NamedTuple):
    """Half-finished studies; a curve has at most 50 steps."""

    losses: Tensor  # (b, K, T): the whole curve; the features do not use what lies beyond n
    x: Tensor  # (b, K, columns): in [0, 1], or -1
    n: Tensor  # (b, K): steps trained
    reach: Tensor  # (b, K): further steps that the remaining budget pays for
    price: Tensor  # (b, K): price of a step, relative to the study's mean
    left: Tensor  # (b,): remaining budget, in steps at the mean price
    steps: Tensor  # (b,): steps of a full curve
    valid: Tensor  # (b, K): false for padding


def hide_budget(s: Studies) -> Studies:
    """Return the studies as if every arm could be trained to its end, to measure the value of knowing the budget."""
    return s._replace(reach=s.steps[:, None] - s.n, left=s.steps.to(s.left.dtype))


class Scale(NamedTuple):
    """The scale u of losses, see `shoestring.models.thrift.shapes`."""

    best: Tensor  # (b,): lowest loss seen
    unit: Tensor  # (b,): median first loss above it

    def to_u(self, losses: Tensor) -> Tensor:
        """Return losses (b, …) as u: 0 is the best so far, below 0 better, 1 the median first loss."""
        shape = (-1,) + (1,) * (losses.dim() - 1)
        z = (losses - self.best.view(shape)) / self.unit.view(shape)
        return (torch.asinh(SHARPNESS * z) / math.asinh(SHARPNESS)).clamp(LOW, HIGH)


def lower_quantile(values: Tensor, there: Tensor, share: float) -> Tensor:
    """Return, (b,), the value at floor(share * (count - 1)) in ascending order, of the existing values (b, K)."""
    ordered = torch.where(there, values, torch.full_like(values, _FAR)).sort(1).values
    place = ((there.sum(1) - 1).clamp(min=0) * share + 1e-6).long()
    return ordered.gather(1, place[:, None])[:, 0]


def scale_of(s: Studies) -> Scale:
    """Return the scale of each study; at least one of its arms must have been trained."""
    opened = (s.n > 0) & s.valid
    far = torch.full((), _FAR, device=s.n.device)
    seen = _seen(s)
    best = torch.where(seen, s.losses, far).amin((1, 2))
    highest = torch.where(seen, s.losses, -far).amax((1, 2))
    first = s.losses[:, :, 0]
    unit = torch.maximum(lower_quantile(first, opened, 0.5) - best, 0.05 * (lower_quantile(first, opened, 0.75) - best))
    unit = torch.where(unit > 0, unit, highest - best)
    return Scale(best, torch.where(unit > 0, unit, torch.ones_like(unit)))


def _seen(s: Studies) -> Tensor:
    step = torch.arange(1, STEPS + 1, device=s.n.device)
    return (step <= s.n[..., None]) & s.valid[..., None]


def features(s: Studies, scale: Scale) -> Tensor:
    """Return the features, (b, K, FEATURES)."""
    device, (b, arms) = s.n.device, s.n.shape
    zero = torch.zeros((), device=device)
    opened = (s.n > 0) & s.valid
    o = opened.float()
    seen = _seen(s)
    u = torch.where(seen, scale.to_u(s.losses), zero)
    feature_steps = torch.tensor(FEATURE_STEPS, device=device)
    known = (feature_steps <= s.n[..., None]) & s.valid[..., None]
    at_feature_steps = torch.where(known, u[:, :, feature_steps - 1], zero)

    newest = (s.n.clamp(min=1) - 1)[..., None]
    middle = ((s.n + 1) // 2).clamp(min=1)[..., None] - 1
    last, mid = u.gather(2, newest)[..., 0], u.gather(2, middle)[..., 0]
    lows = torch.where(seen, u, torch.full_like(u, _FAR))
    low, low_at = lows.min(2)
    low = torch.where(opened, low, zero)
    change = u[:, :, 1:] - u[:, :, :-1]
    both = seen[:, :, 1:]
    changes = both.sum(2).clamp(min=1)
    rough = torch.where(both, change.abs(), zero).sum(2) / changes
    rises = torch.where(both, change.clamp(min=0), zero).sum(2) / changes

    # the share, among arms with as many steps, of those with a larger loss at this arm's newest step
    others = u.gather(2, newest.transpose(1, 2).expand(b, arms, arms))  # [b, other, arm]
    as_far = (s.n[:, :, None] >= s.n[:, None, :]) & opened[:, :, None] & opened[:, None, :]
    count = as_far.sum(1)
    ahead = ((others > last[:, None, :]) & as_far).sum(1) / count.clamp(min=1)
    beaten = ((low[:, :, None] > low[:, None, :]) & opened[:, :, None]).sum(1)
    beaten = beaten / opened.sum(1, keepdim=True).clamp(min=1)

    n, steps, reach = s.n.float(), s.steps[:, None].float(), s.reach.float()
    scalars = [
        o,
        last * o,
        low * o,
        (last - mid) * o,
        rough * o,
        rises * o,
        (n - 1 - low_at) * o / steps,
        torch.where(opened, ahead, zero + 0.5),
        torch.where(opened, beaten, zero + 0.5),
        torch.log1p(count * o) / 5,
        torch.log1p(n) / 4,
        n / steps,
        reach / steps,
        torch.log1p(reach) / 4,
        (reach <= 0).float(),
        torch.log(s.price).clamp(-3, 3) / 3,
    ]
    has = s.x >= 0
    study = torch.stack(
        [
            torch.log(s.left.float() / s.steps + 0.02) / 3,
            torch.log((n * s.valid).sum(1) / s.steps + 0.02) / 3,
            torch.log1p(o.sum(1)) / 5,
            torch.log(s.steps.float()) / 4,
            (rough * o).sum(1) / o.sum(1).clamp(min=1),
        ],
        -1,
    )
    parts = [
        at_feature_steps,
        known.float(),
        torch.stack(scalars, -1),
        torch.where(has, s.x * 2 - 1, zero),
        has.float(),
    ]
    return torch.cat([*parts, study[:, None].expand(b, arms, study.shape[1])], -1)


class Block(nn.Module):
    """Attention and a small network, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.kv, self.o = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, mask: Tensor, dropout: float) -> Tensor:
        b, arms, width = x.shape
        a = self.norm_1(x)
        q = self.q(a).view(b, arms, self.heads, -1).transpose(1, 2)
        k, v = self.kv(a).view(b, arms, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + F.dropout(self.o(found.transpose(1, 2).reshape(b, arms, width)), dropout, self.training)
        return x + F.dropout(self.down(F.silu(self.up(self.norm_2(x)))), dropout, self.training)


class Network(nn.Module):
    """A transformer over arms without positions. All arms attend to the trained arms only."""

    def __init__(self, width: int = 128, layers: int = 6, heads: int = 4) -> None:
        super().__init__()
        self.shape = (width, layers, heads)
        self.enter = nn.Linear(FEATURES, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.bins = nn.Linear(width, BINS)

    def forward(self, f: Tensor, trained: Tensor, dropout: float = 0.0) -> Tensor:
        """Return log odds of the bins of u for the lowest loss within reach, (b, K, BINS). `trained` (b, K) is the context."""
        x = self.enter(f)
        mask = trained[:, None, None, :].expand(-1, 1, f.shape[1], -1)
        for block in self.blocks:
            x = block(x, mask, dropout)
        return self.bins(self.norm(x))


assert COLUMNS == 16
