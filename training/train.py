"""One training: the weights of one fold and one seed. It takes a few minutes on an accelerator.

An interrupted training continues from its checkpoint. (The random generator starts again from the seed, so the result differs
from that of a training without interruption.) The result is a moving average of the weights over the last steps. Errors on
trained arms weigh more than errors on the many arms that were not started.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from shoestring.models.thrift.shapes import BINS, HIGH, LOW
from training.network import Network, Studies, features, hide_budget, scale_of
from training.sources import FOLDS, trained_on
from training.studies import Tables, answer, batch, split

_UNOPENED_WEIGHT = 0.3  # weight of an arm that was not started
_AVERAGE_DECAY = 0.998  # decay of the moving average of weights
_WARM_UP = 300  # steps in which the learning rate rises
_STEPS_PER_DRAW = 4  # steps whose studies are drawn together, because that is cheaper
_CHECKPOINT_S = 60.0


@dataclass(frozen=True)
class Settings:
    """The settings of a training; each of them is an option of `python -m training train`."""

    fold: str = "all"
    seed: int = 0
    steps: int = 4000
    seconds: float = 300.0  # time limit: the learning rate falls with the larger share of steps and seconds
    studies: int = 384  # studies of one step
    arms: int = 128
    width: int = 128
    layers: int = 6
    heads: int = 4
    synthetic: float = 0.4  # share of synthetic tasks; 1: no recorded tables, 0: no synthetic tasks
    rate: float = 1e-3
    dropout: float = 0.0
    decay: float = 0.02
    blind: bool = False  # hide the budget: every arm is predicted to its end


def loss_of(network: Network, s: Studies, settings: Settings) -> Tensor:
    """Return the weighted mean cross-entropy of the predicted bins."""
    device = s.n.device
    s = hide_budget(s) if settings.blind else s
    with torch.no_grad():
        scale = scale_of(s)
        f = features(s, scale)
        lowest, has_value = answer(s)
        target = ((scale.to_u(lowest) - LOW) / (HIGH - LOW) * BINS).long().clamp(0, BINS - 1)
        weight = has_value * torch.where(s.n > 0, 1.0, _UNOPENED_WEIGHT)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        odds = network(f, (s.n > 0) & s.valid, settings.dropout)
    each = F.cross_entropy(odds.float().flatten(0, 1), target.flatten(), reduction="none").view_as(weight)
    return (each * weight).sum() / weight.sum().clamp(min=1)


def train(data: Sequence[Path], out: Path, settings: Settings, device: torch.device) -> Network:
    """Return the averaged network and write it to `out`; before the end, checkpoints are in the same file with suffix .part."""
    torch.manual_seed(1000 * settings.seed + list(FOLDS).index(settings.fold))
    torch.backends.cuda.matmul.allow_tf32 = True
    if not data and settings.synthetic == 0:
        raise SystemExit("--synthetic 0 without --tables leaves nothing to train on: name a file that `pack` wrote")
    tables = Tables(data, trained_on(settings.fold), device) if data and settings.synthetic < 1 else None
    network = Network(settings.width, settings.layers, settings.heads).to(device)
    average = Network(settings.width, settings.layers, settings.heads).to(device)
    average.load_state_dict(network.state_dict())
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=settings.rate,
        weight_decay=settings.decay,
        betas=(0.9, 0.98),
        fused=device.type == "cuda",
    )
    part, done, before_s = out.with_suffix(".part"), 0, 0.0
    if part.exists():
        state = torch.load(part, map_location=device, weights_only=True)
        network.load_state_dict(state["network"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        done, before_s = state["done"], state["seconds"]
    began = saved = time.monotonic()
    recent: list[Tensor] = []
    waiting: list[Studies] = []
    while True:
        seconds = before_s + time.monotonic() - began
        progress = max(done / settings.steps, seconds / settings.seconds)
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = settings.rate * min(1.0, done / _WARM_UP) * (0.5 * (1 + math.cos(math.pi * progress)) + 0.01)
        if not waiting:
            with torch.no_grad():
                many = batch(tables, _STEPS_PER_DRAW * settings.studies, settings.arms, settings.synthetic, device)
                waiting = split(many, _STEPS_PER_DRAW)
        loss = loss_of(network, waiting.pop(), settings)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        done += 1
        with torch.no_grad():
            share = min(_AVERAGE_DECAY, done / (done + 10))
            torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - share)
        recent = [*recent[-199:], loss.detach()]
        if done % 500 == 0:
            print(
                f"{out.stem} {done} {seconds:.0f}s {torch.stack(recent).mean().item():.4f}", file=sys.stderr, flush=True
            )
        if time.monotonic() - saved > _CHECKPOINT_S:
            saved = time.monotonic()
            state = {"network": network.state_dict(), "average": average.state_dict(), "done": done, "seconds": seconds}
            torch.save({**state, "optimizer": optimizer.state_dict()}, part)
    mean = torch.stack(recent).mean().item() if recent else math.nan
    facts = {**asdict(settings), "done": done, "took_s": round(seconds, 1), "loss": round(mean, 4)}
    torch.save({"weights": average.state_dict(), "facts": json.dumps(facts)}, out)
    part.unlink(missing_ok=True)
    print(f"{out.stem}: {json.dumps(facts)}", file=sys.stderr, flush=True)
    return average.eval()
