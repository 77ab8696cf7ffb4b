"""Dueling DQN with prioritised replay, on CartPole.

Wang et al., "Dueling Network Architectures for Deep Reinforcement Learning", ICML 2016, arXiv:1511.06581. The value of a state
and the advantages of its actions are two heads of one body, Q = V + A - mean A. The settings are those of the BOIL paper's
table of agents; those that it does not give (how often to learn, the target network, the optimiser) are ours.

    q, replay    [50, 50], 10,000 transitions, batches of 64, alpha 1, beta from 1 to 0.6 in 1,000 updates
    exploration  epsilon from 1 to 0.05 in 10,000 steps
    ours         Adam; one update every 4 steps; the target network is replaced every 100 updates

Most of the time is overhead of small operations, so the actor computes the network in numpy, on arrays that share memory with
the parameters that torch changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from benchmarks.boil.replay import PrioritisedReplay

UNITS = 50
CAPACITY, BATCH = 10_000, 64
ALPHA = 1.0
BETA = (1.0, 0.6, 1_000)  # from, to, updates
EPSILON = (1.0, 0.05, 10_000)  # from, to, steps
LEARN_EVERY_STEPS, LEARN_FROM_STEP = 4, 200
TARGET_EVERY_UPDATES = 100
MAX_STEPS = 200  # of an episode


class DuelingQ(nn.Module):
    def __init__(self, n_observed: int, n_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_observed, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.ReLU())
        self.heads = nn.Linear(UNITS, 1 + n_actions)  # value, then advantages

    def forward(self, observed: torch.Tensor) -> torch.Tensor:
        out = self.heads(self.body(observed))
        advantage = out[:, 1:]
        return out[:, :1] + advantage - advantage.mean(dim=1, keepdim=True)


class NumpyNetwork:
    """The same network in numpy: with the present parameters of `network`, or with a copy of them."""

    def __init__(self, network: DuelingQ, *, copied: bool = False) -> None:
        arrays = [p.detach().numpy() for p in network.parameters()]
        self.w1, self.b1, self.w2, self.b2, self.w3, self.b3 = [a.copy() for a in arrays] if copied else arrays

    def q(self, observed: Any) -> Any:
        """Return Q, (n, actions), for observations (n, observed), or one row for one."""
        hidden = np.maximum(observed @ self.w1.T + self.b1, 0.0)
        hidden = np.maximum(hidden @ self.w2.T + self.b2, 0.0)
        out = hidden @ self.w3.T + self.b3
        advantage = out[..., 1:]
        return out[..., :1] + advantage - advantage.mean(axis=-1, keepdims=True)

    def best(self, observed: Any) -> int:
        """Return the action with the largest advantage."""
        hidden = np.maximum(self.w1 @ observed + self.b1, 0.0)
        hidden = np.maximum(self.w2 @ hidden + self.b2, 0.0)
        return int((self.w3[1:] @ hidden + self.b3[1:]).argmax())


def train(config: Mapping[str, Any], seed: int) -> Iterator[float]:
    """Yield the return of one episode after the other, without end."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gymnasium.make("CartPole-v1", disable_env_checker=True).unwrapped  # the time limit is applied below
    observed, _ = env.reset(seed=seed)
    network = DuelingQ(observed.size, 2)
    optimiser = torch.optim.Adam(network.parameters(), lr=config["lr"], fused=True)
    replay = PrioritisedReplay(CAPACITY, observed.size, ALPHA, rng)
    actor, target = NumpyNetwork(network), NumpyNetwork(network, copied=True)
    steps = updates = 0
    while True:
        total = 0.0
        for step in range(1, MAX_STEPS + 1):
            explores = rng.random() < _schedule(EPSILON, steps)
            action = int(rng.integers(2)) if explores else actor.best(observed)
            after, reward, is_last, _, _ = env.step(action)
            # At the time limit the episode has not failed: the value of the next state still counts.
            replay.add(observed, action, float(reward), after, bool(is_last))
            total, steps, observed = total + float(reward), steps + 1, after
            if steps % LEARN_EVERY_STEPS == 0 and steps >= LEARN_FROM_STEP:
                if updates % TARGET_EVERY_UPDATES == 0:
                    target = NumpyNetwork(network, copied=True)
                _update(network, optimiser, target, replay, config["gamma"], _schedule(BETA, updates))
                updates += 1
            if is_last or step == MAX_STEPS:
                observed, _ = env.reset()
                break
        yield total


def _update(
    network: DuelingQ,
    optimiser: torch.optim.Optimizer,
    target: NumpyNetwork,
    replay: PrioritisedReplay,
    gamma: float,
    beta: float,
) -> None:
    places, weights = replay.draw(BATCH, beta)
    later = target.q(replay.observed_after[places]).max(axis=1)
    goal = replay.rewards[places] + gamma * (1.0 - replay.is_last[places]) * later
    actions = torch.from_numpy(replay.actions[places])[:, None]
    q = network(torch.from_numpy(replay.observed[places])).gather(1, actions)[:, 0]
    errors = torch.from_numpy(goal.astype(np.float32)) - q
    optimiser.zero_grad()
    (torch.from_numpy(weights) * errors.square()).mean().backward()
    optimiser.step()
    replay.update(places, errors.detach().numpy())


def _schedule(line: tuple[float, float, int], now: int) -> float:
    first, last, length = line
    return first + (last - first) * min(1.0, now / length)
