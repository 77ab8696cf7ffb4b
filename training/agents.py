"""Agents trained by policy gradients, for `record`: a pole, a corridor with its reward at the far end, a moving target."""

from __future__ import annotations

import torch
from torch import Tensor

from training import stacked
from training.stacked import Optimiser, Sampler, network


def world(kind: str, s: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return states, rewards and whether an episode ended, one step after states (n, e, 4) with actions (n, e) of 0, 1 or 2."""
    a = action.float() - 1  # -1, 0, 1
    if kind == "pole":  # position, speed, angle, turning
        turn = s[..., 3] + 0.02 * (12 * torch.sin(s[..., 2]) - 14 * a * torch.cos(s[..., 2]))
        speed = s[..., 1] + 0.02 * 9 * a
        s = torch.stack([s[..., 0] + 0.02 * speed, speed, s[..., 2] + 0.02 * turn, turn], -1)
        over = (s[..., 2].abs() > 0.25) | (s[..., 0].abs() > 2)
        return s, torch.ones_like(a), over
    if kind == "corridor":  # position, last action; the reward is at the far end
        place = (s[..., 0] + 0.1 * a + 0.03 * torch.randn_like(a)).clamp(min=-0.2)
        over = place > 1
        return torch.stack([place, a, s[..., 2], s[..., 3]], -1), over.float() * 10 - 0.02, over
    target = s[..., 2] + 0.1 * torch.randn_like(a)  # position, speed, target, speed of the target
    speed = 0.9 * s[..., 1] + 0.1 * a
    place = s[..., 0] + speed
    s = torch.stack([place, speed, target, s[..., 3]], -1)
    return s, -(place - target).abs().clamp(max=3), torch.zeros_like(a, dtype=torch.bool)


def act(sampler: Sampler) -> tuple[Tensor, Tensor]:
    """Return losses (n, stacked.REPORTS), which are negative returns, and costs of a run, (n,)."""
    kind = ["pole", "corridor", "target"][int(sampler.rng.integers(3))]
    envs, horizon, units = int(sampler.rng.choice([2, 6, 16])), int(sampler.rng.choice([40, 90])), 24
    parameters = network(sampler, [4, units, 4], {})  # three actions and a value
    optimiser = Optimiser(parameters, sampler)
    gamma = 1 - sampler.log("one_less_gamma", 3e-3, 0.3, 0.03)
    entropy = sampler.log("entropy", 1e-4, 0.3, 0.01, 0.7)
    critic = sampler.log("value_weight", 0.03, 3.0, 0.5, 0.7)
    updates = int(sampler.rng.choice([1, 3]))
    reports = []
    for report in range(stacked.REPORTS):
        returns = torch.zeros(stacked.CONFIGS, device=sampler.device)
        for update in range(updates):
            s = 0.05 * torch.randn(stacked.CONFIGS, envs, 4, device=sampler.device)
            alive = torch.ones(stacked.CONFIGS, envs, device=sampler.device)
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
            optimiser.step(gradients, (report + update / updates) / stacked.REPORTS)
            returns += torch.stack(rewards, 2).sum(2).mean(1) / updates
        reports.append(-returns)
    return torch.stack(reports, 1), torch.ones(stacked.CONFIGS, device=sampler.device)
