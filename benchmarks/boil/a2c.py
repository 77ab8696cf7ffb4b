"""Advantage actor-critic (A2C) with a Gaussian actor, on MuJoCo's InvertedPendulum and Reacher.

After Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning", ICML 2016, arXiv:1602.01783, with one worker: the
actor follows the gradient of log pi times (return - value), the critic that of its squared error to the return, once in every
`HORIZON` steps and at the end of an episode. The networks and the entropy's weight are those of the BOIL paper's table of agents;
the horizon, Adam and the bound on the gradient are ours.

    actor, critic    [32, 32] each, tanh; the actor's deviation is one learned number per action
    loss             -log pi(a) (R - V) - 0.01 entropy, with lr_actor;  (R - V)^2, with lr_critic
    R                rewards up to the horizon, discounted by gamma, then the critic's value of the state that follows

As in `dueling_dqn`, the actor is computed in numpy, on arrays that share memory with torch's parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

UNITS = 32
ENTROPY_WEIGHT = 0.01
HORIZON = 32  # steps
MAX_GRADIENT = 0.5
EPISODE_STEPS = {"InvertedPendulum-v5": 200, "Reacher-v5": 50}  # at most

Floats = NDArray[np.float32]


def network(n_in: int, n_out: int, last_gain: float) -> nn.Sequential:
    layers = nn.Linear(n_in, UNITS), nn.Tanh(), nn.Linear(UNITS, UNITS), nn.Tanh(), nn.Linear(UNITS, n_out)
    for layer, gain in zip(layers[::2], (math.sqrt(2.0), math.sqrt(2.0), last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class NumpyNetwork:
    """A network in numpy whose arrays share memory with the parameters of `model`."""

    def __init__(self, model: nn.Sequential) -> None:
        self.w1, self.b1, self.w2, self.b2, self.w3, self.b3 = [p.detach().numpy() for p in model.parameters()]

    def __call__(self, observed: Any) -> Any:
        hidden = np.tanh(self.w1 @ observed + self.b1)
        return self.w3 @ np.tanh(self.w2 @ hidden + self.b2) + self.b3


class Agent:
    def __init__(self, n_observed: int, n_actions: int, config: Mapping[str, Any]) -> None:
        self.gamma = config["gamma"]
        self.actor, self.critic = network(n_observed, n_actions, 0.01), network(n_observed, 1, 1.0)
        self.log_std = nn.Parameter(torch.full((n_actions,), -0.5))
        acting = [*self.actor.parameters(), self.log_std]
        self.parts = (acting, list(self.critic.parameters()))
        groups = [{"params": acting, "lr": config["lr_actor"]}, {"params": self.parts[1], "lr": config["lr_critic"]}]
        self.optimiser = torch.optim.Adam(groups, fused=True)
        self.mean, self.value = NumpyNetwork(self.actor), NumpyNetwork(self.critic)
        self.log_std_now = self.log_std.detach().numpy()

    def act(self, observed: Floats, rng: np.random.Generator) -> Floats:
        noise = rng.standard_normal(self.log_std_now.size, dtype=np.float32)
        action: Floats = self.mean(observed) + np.exp(self.log_std_now) * noise
        return action

    def learn(self, observed: list[Floats], actions: list[Floats], rewards: list[float], value_after: float) -> None:
        returns = np.empty(len(rewards), dtype=np.float32)
        following = value_after
        for i in range(len(rewards) - 1, -1, -1):
            returns[i] = following = rewards[i] + self.gamma * following
        states, goal = torch.from_numpy(np.stack(observed)), torch.from_numpy(returns)
        values = self.critic(states)[:, 0]
        advantage = (goal - values).detach()
        z = (torch.from_numpy(np.stack(actions)) - self.actor(states)) * (-self.log_std).exp()
        log_likelihood = -0.5 * z.square().sum(dim=1) - self.log_std.sum()  # up to a constant
        entropy = self.log_std.sum()  # likewise
        loss = -(log_likelihood * advantage).mean() - ENTROPY_WEIGHT * entropy + (goal - values).square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        for part in self.parts:
            nn.utils.clip_grad_norm_(part, MAX_GRADIENT)
        self.optimiser.step()


def train(config: Mapping[str, Any], seed: int, task: str) -> Iterator[float]:
    """Yield the return of one episode after the other, without end."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gymnasium.make(task, disable_env_checker=True).unwrapped
    low, high = env.action_space.low, env.action_space.high
    observed, _ = env.reset(seed=seed)
    observed = observed.astype(np.float32)
    agent = Agent(observed.size, low.size, config)
    while True:
        total, seen, actions, rewards = 0.0, [], [], []
        for step in range(1, EPISODE_STEPS[task] + 1):
            action = agent.act(observed, rng)
            after, reward, is_last, _, _ = env.step(np.minimum(np.maximum(action, low), high))
            seen.append(observed)
            actions.append(action)
            rewards.append(float(reward))
            total, observed = total + float(reward), after.astype(np.float32)
            is_over = is_last or step == EPISODE_STEPS[task]
            if is_over or len(rewards) == HORIZON:
                agent.learn(seen, actions, rewards, 0.0 if is_last else float(agent.value(observed)[0]))
                seen, actions, rewards = [], [], []
            if is_over:
                break
        yield total
        observed = env.reset()[0].astype(np.float32)
