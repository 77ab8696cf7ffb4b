"""Many small networks that are trained at once, each with its own hyperparameters; all recorded trainings use them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

CONFIGS, REPORTS = 96, 50  # configs of a table, reports of each


class Sampler:
    """Draws the hyperparameters of one table: which are tuned, and in which range."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.rng, self.device = np.random.default_rng(seed), device
        self.tuned: dict[str, np.ndarray] = {}

    def log(self, name: str, low: float, high: float, usual: float, chance: float = 1.0) -> Tensor:
        """Return values drawn on a log scale, in a range that shifts slightly from table to table, or one fixed value."""
        shift = math.exp(0.7 * self.rng.standard_normal())
        values = np.exp(self.rng.uniform(math.log(low * shift), math.log(high * shift), CONFIGS))
        return self._keep(name, values, usual, chance)

    def even(self, name: str, low: float, high: float, usual: float, chance: float = 1.0) -> Tensor:
        """Return values drawn uniformly, or one fixed value."""
        return self._keep(name, self.rng.uniform(low, high, CONFIGS), usual, chance)

    def pick(self, name: str, options: list[float], usual: float, chance: float = 1.0) -> Tensor:
        """Return values drawn from the options, or one fixed value."""
        return self._keep(name, self.rng.choice(options, CONFIGS), usual, chance)

    def _keep(self, name: str, values: np.ndarray, usual: float, chance: float) -> Tensor:
        if self.rng.random() < chance:
            self.tuned[name] = values
        else:
            values = np.full(CONFIGS, usual)
        return torch.tensor(values, dtype=torch.float32, device=self.device)


class Optimiser:
    """SGD with momentum, or Adam; each config has its own settings."""

    def __init__(self, parameters: list[Tensor], sampler: Sampler) -> None:
        self.parameters = parameters
        self.first = [torch.zeros_like(p) for p in parameters]
        self.second = [torch.zeros_like(p) for p in parameters]
        self.count = 0
        is_adam = sampler.pick("adam", [0.0, 1.0], float(sampler.rng.integers(2)), 0.5)
        self.is_adam = is_adam > 0.5
        lr = sampler.log("lr", 1e-4, 3e-1, 0.01)
        self.lr = torch.where(self.is_adam, lr * 0.1, lr)
        self.momentum = sampler.even("momentum", 0.0, 0.99, 0.9, 0.5)
        self.decay = sampler.log("weight_decay", 1e-6, 1e-1, 1e-4, 0.5)
        self.schedule = sampler.pick("schedule", [0.0, 1.0, 2.0], float(sampler.rng.integers(3)), 0.4)
        self.warm = sampler.even("warm_up", 0.0, 0.3, 0.0, 0.2)
        self.drop_at = sampler.rng.uniform(0.3, 0.8)

    def rate(self, progress: float) -> Tensor:
        """Return the learning rates, (n,), at a share of the training."""
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


def network(sampler: Sampler, sizes: list[int], masks: dict[int, Tensor]) -> list[Tensor]:
    """Return weights (n, in, out) and biases (n, 1, out) of stacked networks."""
    gain = sampler.log("init", 0.2, 3.0, 1.0, 0.25)
    parameters = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        w = torch.randn(CONFIGS, a, b, device=sampler.device) * gain[:, None, None] * math.sqrt(1.5 / a)
        if i in masks:
            w = w * masks[i][:, None, :]
        parameters += [w.requires_grad_(), torch.zeros(CONFIGS, 1, b, device=sampler.device, requires_grad=True)]
    return parameters


def forward(
    parameters: list[Tensor], x: Tensor, keep: Tensor | None, masks: dict[int, Tensor], act: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the outputs of the networks, (n, rows, out); `keep` has the probabilities of keeping a unit, for dropout."""
    for i in range(0, len(parameters), 2):
        x = torch.baddbmm(parameters[i + 1], x, parameters[i])
        if i + 2 < len(parameters):
            x = act(x)
            if i // 2 in masks:
                x = x * masks[i // 2][:, None, :]
            if keep is not None:
                x = x * (torch.rand_like(x) < keep[:, None, None]) / keep[:, None, None]
    return x
