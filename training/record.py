"""Real trainings of small networks on synthetic data, all configurations of a table at once on an accelerator.

The dynamics are real (optimisers, schedules, overfitting, divergence, exploration). The data are drawn from a seed, so no
licence applies to them. A table has 96 configs and 50 reports for each. The hyperparameters, their ranges, the data and the
network are drawn anew for each table.

    classify, regress     random teachers, clusters, spirals; noisy labels; small validation sets
    language              predict the next letter of a random grammar from the letters before it
    modular               sums modulo a prime, at least half of them shown: memorised first, generalised late or never
    remember              recurrent networks that must recall their first input: long plateaus
    act                   agents by policy gradients: a pole, a corridor with its reward at the far end, a moving target

`python -m training record --out training/data/small_trainings` takes about two minutes.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import stacked
from training.agents import act
from training.stacked import Optimiser, Sampler, forward, network


def make_data(kind: str, sampler: Sampler) -> tuple[Tensor, Tensor, int, bool]:
    """Return inputs (N, d), targets (N,) of classes or (N, k) of numbers, the number of outputs, and whether they are classes."""
    rng, device = sampler.rng, sampler.device
    total = int(rng.choice([600, 1500, 4000]))
    if kind == "modular":
        prime = int(rng.choice([11, 17, 23, 29]))
        a, b = torch.meshgrid(torch.arange(prime), torch.arange(prime), indexing="ij")
        x = torch.cat([F.one_hot(a.flatten(), prime), F.one_hot(b.flatten(), prime)], 1).float()
        return x.to(device), ((a + b) % prime).flatten().to(device), prime, True
    if kind == "language":
        letters, window = int(rng.integers(8, 28)), int(rng.integers(2, 5))
        table = torch.softmax(torch.randn(letters, letters, letters) * float(rng.uniform(1.0, 3.0)), -1)
        text = [0, 1]
        for _ in range(total + window):
            text.append(int(torch.multinomial(table[text[-2], text[-1]], 1)))
        t = torch.tensor(text)
        x = torch.stack([F.one_hot(t[i : i + total], letters) for i in range(window)], 1).flatten(1).float()
        return x.to(device), t[window : window + total].to(device), letters, True
    d = int(rng.integers(3, 40))
    x = torch.randn(total, d, device=device)
    hidden = torch.tanh(x @ torch.randn(d, 32, device=device) * float(rng.uniform(0.3, 1.5)))
    noise = float(rng.uniform(0.0, 0.6))
    if kind == "regress":
        y = hidden @ torch.randn(32, 3, device=device) / 3 + x[:, :3] * float(rng.uniform(0, 0.5))
        heavy = torch.randn_like(y) / torch.rand_like(y).clamp(min=0.1).sqrt()
        return x, y + noise * heavy, 3, False
    classes = int(rng.integers(2, 12))
    if rng.random() < 0.4:  # clusters
        centres = torch.randn(classes * 3, d, device=device) * float(rng.uniform(0.8, 2.0))
        which = torch.randint(classes * 3, (total,), device=device)
        x, y = centres[which] + x, which % classes
    else:
        y = (hidden @ torch.randn(32, classes, device=device)).argmax(1)
    wrong = torch.rand(total, device=device) < noise * 0.5
    return x, torch.where(wrong, torch.randint(classes, (total,), device=device), y), classes, True


def supervised(kind: str, sampler: Sampler) -> tuple[Tensor, Tensor]:
    """Return losses or errors on validation data, (n, stacked.REPORTS), and costs of a run, (n,)."""
    x, y, outputs, is_classes = make_data(kind, sampler)
    order = torch.randperm(len(x), device=sampler.device)
    held_out = min(len(x) // 2, int(sampler.rng.choice([100, 300, 1000])))
    valid, train = order[:held_out], order[held_out:]
    depth, widest = int(sampler.rng.integers(1, 4)), int(sampler.rng.choice([32, 64, 128]))
    width = sampler.log("width", 4, widest, widest, 0.5).clamp(2, widest).round()
    mask = (torch.arange(widest, device=sampler.device)[None] < width[:, None]).float()
    masks = dict.fromkeys(range(depth), mask)
    parameters = network(sampler, [x.shape[1], *[widest] * depth, outputs], masks)
    optimiser = Optimiser(parameters, sampler)
    dropout = sampler.even("dropout", 0.0, 0.7, 0.0, 0.35)
    keep = 1 - dropout if "dropout" in sampler.tuned else None
    largest = 64
    size = sampler.log("batch_size", 2, largest, 32, 0.5).clamp(1, largest).round()
    share = (torch.arange(largest, device=sampler.device)[None] < size[:, None]).float()
    act = [torch.relu, torch.tanh, F.gelu][int(sampler.rng.integers(3))]
    updates = int(sampler.rng.choice([4, 12, 30]))
    report_error = is_classes and sampler.rng.random() < 0.6
    reports = []
    xv, yv = x[valid].expand(stacked.CONFIGS, -1, -1), y[valid]
    for report in range(stacked.REPORTS):
        for update in range(updates):
            rows = train[torch.randint(len(train), (stacked.CONFIGS, largest), device=sampler.device)]
            out = forward(parameters, x[rows], keep, masks, act)
            if is_classes:
                each = F.cross_entropy(out.flatten(0, 1), y[rows].flatten(), reduction="none")
                each = each.view(stacked.CONFIGS, largest)
            else:
                each = ((out - y[rows]) ** 2).mean(-1)
            loss = ((each * share).sum(1) / size).sum()
            gradients = torch.autograd.grad(loss, parameters)
            optimiser.step(gradients, (report + update / updates) / stacked.REPORTS)
        with torch.no_grad():
            out = forward(parameters, xv, None, masks, act)
            if report_error:
                value = (out.argmax(-1) != yv).float().mean(1)
                value = torch.where(torch.isfinite(out).all(-1).all(-1), value, torch.nan)
            elif is_classes:
                targets = yv.expand(stacked.CONFIGS, -1).flatten()
                value = F.cross_entropy(out.flatten(0, 1), targets, reduction="none").view(stacked.CONFIGS, -1).mean(1)
            else:
                value = ((out - y[valid]) ** 2).mean((1, 2))
        reports.append(value)
    return torch.stack(reports, 1), (width * 4 + 40) * (size + 4)


def remember(sampler: Sampler) -> tuple[Tensor, Tensor]:
    """Return losses and costs of recurrent networks that must recall, after a delay, which of a few symbols came first."""
    symbols, delay, units = int(sampler.rng.integers(3, 9)), int(sampler.rng.integers(4, 16)), 48
    width = sampler.log("width", 6, units, units, 0.6).clamp(4, units).round()
    mask = (torch.arange(units, device=sampler.device)[None] < width[:, None]).float()
    masks = {0: mask}
    parameters = network(sampler, [symbols + units, units, symbols], masks)
    optimiser = Optimiser(parameters, sampler)
    leak = sampler.even("leak", 0.0, 0.95, 0.5, 0.6)[:, None, None]
    clip = sampler.log("clip", 0.1, 10.0, 1.0, 0.4)
    updates = int(sampler.rng.choice([4, 10]))

    def run(batch: int) -> tuple[Tensor, Tensor]:
        seen = torch.randint(symbols, (stacked.CONFIGS, batch, delay), device=sampler.device)
        h = torch.zeros(stacked.CONFIGS, batch, units, device=sampler.device)
        for t in range(delay):
            given = torch.cat([F.one_hot(seen[..., t], symbols).float(), h], -1)
            new = torch.tanh(torch.baddbmm(parameters[1], given, parameters[0])) * mask[:, None]
            h = leak * h + (1 - leak) * new
        out = torch.baddbmm(parameters[3], h, parameters[2])
        each = F.cross_entropy(out.flatten(0, 1), seen[..., 0].flatten(), reduction="none")
        return out, each.view(stacked.CONFIGS, batch).mean(1)

    reports = []
    for report in range(stacked.REPORTS):
        for update in range(updates):
            gradients = torch.autograd.grad(run(32)[1].sum(), parameters)
            norm = sum((g.flatten(1) ** 2).sum(1) for g in gradients)
            assert isinstance(norm, Tensor)
            factor = (clip / (norm.sqrt() + 1e-9)).clamp(max=1.0)
            scaled = tuple(g * factor.view((-1,) + (1,) * (g.dim() - 1)) for g in gradients)
            optimiser.step(scaled, (report + update / updates) / stacked.REPORTS)
        with torch.no_grad():
            reports.append(run(128)[1])
    return torch.stack(reports, 1), width + 10


KINDS = ("classify", "regress", "language", "modular", "remember", "act")
SHARES = (0.3, 0.12, 0.13, 0.1, 0.12, 0.23)  # probability of each kind


def record(out: Path, tables: int, device: torch.device, seed: int = 0, seconds: float = math.inf) -> int:
    """Write up to `tables` tables within `seconds`, and return their number. Existing files are not written again."""
    out.mkdir(parents=True, exist_ok=True)
    began, written = time.monotonic(), 0
    for number in range(tables):
        path = out / f"table_{seed}_{number:03d}.npz"
        if path.exists() or time.monotonic() - began > seconds:
            continue
        torch.manual_seed(seed * 100_003 + number)
        sampler = Sampler(seed * 100_003 + number, device)
        kind = str(sampler.rng.choice(KINDS, p=SHARES))
        makers: dict[str, Callable[[Sampler], tuple[Tensor, Tensor]]] = {"remember": remember, "act": act}
        values, cost = makers[kind](sampler) if kind in makers else supervised(kind, sampler)
        losses = values.detach().cpu().numpy().astype(np.float32)
        names = sorted(sampler.tuned)
        hp = np.stack([sampler.tuned[name] for name in names], 1)
        meta = {"task": kind, "objective": "loss", "direction": "min", "fidelity": "report", "hp_categories": {}}
        relative = (cost / cost.mean()).cpu().numpy().astype(np.float32)
        np.savez_compressed(
            path, hp=hp.astype(np.float32), hp_names=np.array(names), meta=json.dumps(meta), loss=losses, cost=relative
        )
        written += 1
        took = time.monotonic() - began
        print(f"{path.name} {kind} {len(names)} hyperparameters {took:.0f}s", file=sys.stderr, flush=True)
    return written
