"""Real trainings of small networks on made-up data, all configs of a table at once on an accelerator.

The dynamics are real (optimisers, schedules, overfitting, divergence, exploration), the data are drawn from a seed, so no
licence binds them. A table has 96 configs and 50 reports a run; its hyperparameters, their ranges, its data and its network
are drawn anew for each.

    classify, regress     random teachers, clusters, spirals; noisy labels; small validation sets
    language              the next letter of a random grammar from the letters before it
    modular               sums modulo a prime, half of them shown: memorised first, understood late or never
    remember              recurrent networks that must recall what they saw first: long plateaus
    act                   agents by policy gradients: a pole, a corridor with its reward at the far end, a moving target

`python -m training record --out training/data/small_trainings` takes about two minutes.
"""

from __future__ import annotations

import itertools
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

CONFIGS, REPORTS = 96, 50
Hp = dict[str, Tensor]  # name -> (n,)


class Lottery:
    """Hyperparameters of one table: which are tuned, and in which range."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.rng, self.device, self.hp = np.random.default_rng(seed), device, {}  # type: ignore[var-annotated]
        self.tuned: dict[str, np.ndarray] = {}

    def log(self, name: str, low: float, high: float, usual: float, chance: float = 1.0) -> Tensor:
        """Tuned on a log scale in a range that is moved a little from table to table, or fixed."""
        shift = math.exp(0.7 * self.rng.standard_normal())
        values = np.exp(self.rng.uniform(math.log(low * shift), math.log(high * shift), CONFIGS))
        return self._keep(name, values, usual, chance)

    def even(self, name: str, low: float, high: float, usual: float, chance: float = 1.0) -> Tensor:
        return self._keep(name, self.rng.uniform(low, high, CONFIGS), usual, chance)

    def pick(self, name: str, options: list[float], usual: float, chance: float = 1.0) -> Tensor:
        return self._keep(name, self.rng.choice(options, CONFIGS), usual, chance)

    def _keep(self, name: str, values: np.ndarray, usual: float, chance: float) -> Tensor:
        if self.rng.random() < chance:
            self.tuned[name] = values
        else:
            values = np.full(CONFIGS, usual)
        return torch.tensor(values, dtype=torch.float32, device=self.device)


class Optimiser:
    """Momentum or Adam, each config with its own settings; `rate(progress)` is the schedule."""

    def __init__(self, parameters: list[Tensor], told: Lottery) -> None:
        self.parameters = parameters
        self.first = [torch.zeros_like(p) for p in parameters]
        self.second = [torch.zeros_like(p) for p in parameters]
        self.count = 0
        is_adam = told.pick("adam", [0.0, 1.0], float(told.rng.integers(2)), 0.5)
        self.is_adam = is_adam > 0.5
        lr = told.log("lr", 1e-4, 3e-1, 0.01)
        self.lr = torch.where(self.is_adam, lr * 0.1, lr)
        self.momentum = told.even("momentum", 0.0, 0.99, 0.9, 0.5)
        self.decay = told.log("weight_decay", 1e-6, 1e-1, 1e-4, 0.5)
        self.schedule = told.pick("schedule", [0.0, 1.0, 2.0], float(told.rng.integers(3)), 0.4)
        self.warm = told.even("warm_up", 0.0, 0.3, 0.0, 0.2)
        self.drop_at = told.rng.uniform(0.3, 0.8)

    def rate(self, progress: float) -> Tensor:
        steps = 0.1 ** ((progress > self.drop_at) + (progress > (1 + self.drop_at) / 2))
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        factor = torch.where(self.schedule < 0.5, 1.0, torch.where(self.schedule < 1.5, steps, cosine))
        return self.lr * factor * (progress / self.warm.clamp(min=1e-3)).clamp(max=1.0)

    def step(self, gradients: tuple[Tensor, ...], progress: float) -> None:
        self.count += 1
        for i, (p, g) in enumerate(zip(self.parameters, gradients, strict=True)):
            shape = (-1,) + (1,) * (p.dim() - 1)
            adam, beta = self.is_adam.view(shape), self.momentum.view(shape)
            lr, decay = self.rate(progress).view(shape), self.decay.view(shape)
            self.first[i] = beta * self.first[i] + torch.where(adam, 1 - beta, 1.0) * g
            self.second[i] = 0.99 * self.second[i] + 0.01 * g * g
            corrected = self.first[i] / (1 - beta**self.count)
            scaled = corrected / ((self.second[i] / (1 - 0.99**self.count)).sqrt() + 1e-8)
            p.data -= lr * (torch.where(adam, scaled, self.first[i]) + decay * p.data)


def network(told: Lottery, sizes: list[int], masks: dict[int, Tensor]) -> list[Tensor]:
    """Weights and biases (n, in, out), (n, 1, out) of stacked networks."""
    gain = told.log("init", 0.2, 3.0, 1.0, 0.25)
    parameters = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        w = torch.randn(CONFIGS, a, b, device=told.device) * gain[:, None, None] * math.sqrt(1.5 / a)
        if i in masks:
            w = w * masks[i][:, None, :]
        parameters += [w.requires_grad_(), torch.zeros(CONFIGS, 1, b, device=told.device, requires_grad=True)]
    return parameters


def forward(
    parameters: list[Tensor], x: Tensor, keep: Tensor | None, masks: dict[int, Tensor], act: Callable[[Tensor], Tensor]
) -> Tensor:
    for i in range(0, len(parameters), 2):
        x = torch.baddbmm(parameters[i + 1], x, parameters[i])
        if i + 2 < len(parameters):
            x = act(x)
            if i // 2 in masks:
                x = x * masks[i // 2][:, None, :]
            if keep is not None:
                x = x * (torch.rand_like(x) < keep[:, None, None]) / keep[:, None, None]
    return x


# supervised ----------------------------------------------------------------------------------------------------------


def make_data(kind: str, told: Lottery) -> tuple[Tensor, Tensor, int, bool]:
    """Inputs (N, d), targets (N,) of classes or (N, k) of numbers, outputs, and whether they are classes."""
    rng, device = told.rng, told.device
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


def supervised(kind: str, told: Lottery) -> tuple[Tensor, Tensor]:
    """(n, REPORTS) losses or errors on validation data, and (n,) costs of a run."""
    x, y, outputs, is_classes = make_data(kind, told)
    order = torch.randperm(len(x), device=told.device)
    held_out = min(len(x) // 2, int(told.rng.choice([100, 300, 1000])))
    valid, train = order[:held_out], order[held_out:]
    depth, widest = int(told.rng.integers(1, 4)), int(told.rng.choice([32, 64, 128]))
    width = told.log("width", 4, widest, widest, 0.5).clamp(2, widest).round()
    mask = (torch.arange(widest, device=told.device)[None] < width[:, None]).float()
    masks = dict.fromkeys(range(depth), mask)
    parameters = network(told, [x.shape[1], *[widest] * depth, outputs], masks)
    optimiser = Optimiser(parameters, told)
    dropout = told.even("dropout", 0.0, 0.7, 0.0, 0.35)
    keep = 1 - dropout if "dropout" in told.tuned else None
    largest = 64
    size = told.log("batch_size", 2, largest, 32, 0.5).clamp(1, largest).round()
    share = (torch.arange(largest, device=told.device)[None] < size[:, None]).float()
    act = [torch.relu, torch.tanh, F.gelu][int(told.rng.integers(3))]
    updates = int(told.rng.choice([4, 12, 30]))
    report_error = is_classes and told.rng.random() < 0.6
    reports = []
    xv, yv = x[valid].expand(CONFIGS, -1, -1), y[valid]
    for report in range(REPORTS):
        for update in range(updates):
            rows = train[torch.randint(len(train), (CONFIGS, largest), device=told.device)]
            out = forward(parameters, x[rows], keep, masks, act)
            if is_classes:
                each = F.cross_entropy(out.flatten(0, 1), y[rows].flatten(), reduction="none").view(CONFIGS, largest)
            else:
                each = ((out - y[rows]) ** 2).mean(-1)
            loss = ((each * share).sum(1) / size).sum()
            gradients = torch.autograd.grad(loss, parameters)
            optimiser.step(gradients, (report + update / updates) / REPORTS)
        with torch.no_grad():
            out = forward(parameters, xv, None, masks, act)
            if report_error:
                value = (out.argmax(-1) != yv).float().mean(1)
                value = torch.where(torch.isfinite(out).all(-1).all(-1), value, torch.nan)
            elif is_classes:
                targets = yv.expand(CONFIGS, -1).flatten()
                value = F.cross_entropy(out.flatten(0, 1), targets, reduction="none").view(CONFIGS, -1).mean(1)
            else:
                value = ((out - y[valid]) ** 2).mean((1, 2))
        reports.append(value)
    return torch.stack(reports, 1), (width * 4 + 40) * (size + 4)


def remember(told: Lottery) -> tuple[Tensor, Tensor]:
    """Recurrent networks: which of a few symbols came first, after a delay."""
    symbols, delay, units = int(told.rng.integers(3, 9)), int(told.rng.integers(4, 16)), 48
    width = told.log("width", 6, units, units, 0.6).clamp(4, units).round()
    mask = (torch.arange(units, device=told.device)[None] < width[:, None]).float()
    masks = {0: mask}
    parameters = network(told, [symbols + units, units, symbols], masks)
    optimiser = Optimiser(parameters, told)
    leak = told.even("leak", 0.0, 0.95, 0.5, 0.6)[:, None, None]
    clip = told.log("clip", 0.1, 10.0, 1.0, 0.4)
    updates = int(told.rng.choice([4, 10]))

    def run(batch: int) -> tuple[Tensor, Tensor]:
        seen = torch.randint(symbols, (CONFIGS, batch, delay), device=told.device)
        h = torch.zeros(CONFIGS, batch, units, device=told.device)
        for t in range(delay):
            given = torch.cat([F.one_hot(seen[..., t], symbols).float(), h], -1)
            new = torch.tanh(torch.baddbmm(parameters[1], given, parameters[0])) * mask[:, None]
            h = leak * h + (1 - leak) * new
        out = torch.baddbmm(parameters[3], h, parameters[2])
        each = F.cross_entropy(out.flatten(0, 1), seen[..., 0].flatten(), reduction="none")
        return out, each.view(CONFIGS, batch).mean(1)

    reports = []
    for report in range(REPORTS):
        for update in range(updates):
            gradients = torch.autograd.grad(run(32)[1].sum(), parameters)
            norm = sum((g.flatten(1) ** 2).sum(1) for g in gradients)
            assert isinstance(norm, Tensor)
            factor = (clip / (norm.sqrt() + 1e-9)).clamp(max=1.0)
            scaled = tuple(g * factor.view((-1,) + (1,) * (g.dim() - 1)) for g in gradients)
            optimiser.step(scaled, (report + update / updates) / REPORTS)
        with torch.no_grad():
            reports.append(run(128)[1])
    return torch.stack(reports, 1), width + 10


# agents --------------------------------------------------------------------------------------------------------------


def world(kind: str, s: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step of an environment: states (n, e, 4), actions (n, e) of three -> states, rewards, and whether it is over."""
    a = action.float() - 1  # -1, 0, 1
    if kind == "pole":  # position, speed, angle, turning
        turn = s[..., 3] + 0.02 * (12 * torch.sin(s[..., 2]) - 14 * a * torch.cos(s[..., 2]))
        speed = s[..., 1] + 0.02 * 9 * a
        s = torch.stack([s[..., 0] + 0.02 * speed, speed, s[..., 2] + 0.02 * turn, turn], -1)
        over = (s[..., 2].abs() > 0.25) | (s[..., 0].abs() > 2)
        return s, torch.ones_like(a), over
    if kind == "corridor":  # place, what was done last; the reward is at its far end
        place = (s[..., 0] + 0.1 * a + 0.03 * torch.randn_like(a)).clamp(min=-0.2)
        over = place > 1
        return torch.stack([place, a, s[..., 2], s[..., 3]], -1), over.float() * 10 - 0.02, over
    target = s[..., 2] + 0.1 * torch.randn_like(a)  # place, speed, target, its speed
    speed = 0.9 * s[..., 1] + 0.1 * a
    place = s[..., 0] + speed
    s = torch.stack([place, speed, target, s[..., 3]], -1)
    return s, -(place - target).abs().clamp(max=3), torch.zeros_like(a, dtype=torch.bool)


def act(told: Lottery) -> tuple[Tensor, Tensor]:
    kind = ["pole", "corridor", "target"][int(told.rng.integers(3))]
    envs, horizon, units = int(told.rng.choice([2, 6, 16])), int(told.rng.choice([40, 90])), 24
    parameters = network(told, [4, units, 4], {})  # three actions and a value
    optimiser = Optimiser(parameters, told)
    gamma = 1 - told.log("one_less_gamma", 3e-3, 0.3, 0.03)
    entropy = told.log("entropy", 1e-4, 0.3, 0.01, 0.7)
    critic = told.log("value_weight", 0.03, 3.0, 0.5, 0.7)
    updates = int(told.rng.choice([1, 3]))
    reports = []
    for report in range(REPORTS):
        returns = torch.zeros(CONFIGS, device=told.device)
        for update in range(updates):
            s = 0.05 * torch.randn(CONFIGS, envs, 4, device=told.device)
            alive = torch.ones(CONFIGS, envs, device=told.device)
            logs, entropies, values, rewards, there = [], [], [], [], []
            for _ in range(horizon):
                hidden = torch.tanh(torch.baddbmm(parameters[1], s, parameters[0]))
                out = torch.baddbmm(parameters[3], hidden, parameters[2])
                log = torch.log_softmax(out[..., :3].nan_to_num(0.0), -1)
                action = (log - torch.log(-torch.log(torch.rand_like(log).clamp(1e-9, 1 - 1e-7)))).argmax(-1)
                s, reward, over = world(kind, s, action)
                logs.append(log.gather(-1, action[..., None])[..., 0])
                entropies.append(-(log.exp() * log).sum(-1))
                values.append(out[..., 3])
                rewards.append(reward * alive)
                there.append(alive)
                alive = alive * (~over).float()
            gain = torch.zeros_like(alive)
            gains = []
            for reward in reversed(rewards):
                gain = reward + gamma[:, None] * gain
                gains.append(gain)
            g, v, m = torch.stack(gains[::-1], 2), torch.stack(values, 2), torch.stack(there, 2)
            advantage = (g - v).detach()
            actor = -(torch.stack(logs, 2) * advantage + entropy[:, None, None] * torch.stack(entropies, 2))
            loss = ((actor + critic[:, None, None] * (g - v) ** 2) * m).sum((1, 2)) / (envs * horizon)
            gradients = torch.autograd.grad(loss.sum(), parameters)
            gradients = tuple(x.nan_to_num(0.0).clamp(-10, 10) for x in gradients)
            optimiser.step(gradients, (report + update / updates) / REPORTS)
            returns += torch.stack(rewards, 2).sum(2).mean(1) / updates
        reports.append(-returns)
    return torch.stack(reports, 1), torch.ones(CONFIGS, device=told.device)


KINDS = ("classify", "regress", "language", "modular", "remember", "act")
SHARES = (0.3, 0.12, 0.13, 0.1, 0.12, 0.23)


def record(out: Path, tables: int, device: torch.device, seed: int = 0, seconds: float = math.inf) -> int:
    """Write up to so many tables; stops when the seconds are over. Tables that are there already are left."""
    out.mkdir(parents=True, exist_ok=True)
    began, written = time.monotonic(), 0
    for number in range(tables):
        path = out / f"table_{seed}_{number:03d}.npz"
        if path.exists() or time.monotonic() - began > seconds:
            continue
        torch.manual_seed(seed * 100_003 + number)
        told = Lottery(seed * 100_003 + number, device)
        kind = str(told.rng.choice(KINDS, p=SHARES))
        makers: dict[str, Callable[[Lottery], tuple[Tensor, Tensor]]] = {"remember": remember, "act": act}
        values, cost = makers[kind](told) if kind in makers else supervised(kind, told)
        losses = values.detach().cpu().numpy().astype(np.float32)
        names = sorted(told.tuned)
        hp = np.stack([told.tuned[name] for name in names], 1)
        meta = {"task": kind, "objective": "loss", "direction": "min", "fidelity": "report", "hp_categories": {}}
        relative = (cost / cost.mean()).cpu().numpy().astype(np.float32)
        np.savez_compressed(
            path, hp=hp.astype(np.float32), hp_names=np.array(names), meta=json.dumps(meta), loss=losses, cost=relative
        )
        written += 1
        took = time.monotonic() - began
        print(f"{path.name} {kind} {len(names)} hyperparameters {took:.0f}s", file=sys.stderr, flush=True)
    return written
