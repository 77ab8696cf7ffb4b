"""The four tasks of the BOIL benchmark: hyperparameters, length of a full training, and training code.

    task                 agent and environment                               a step is     steps   configs recorded
    cartpole             Dueling DQN, prioritised replay, CartPole-v1        an episode      500   128
    inverted_pendulum    A2C, MuJoCo's InvertedPendulum-v5                   an episode    1,000   128
    reacher              A2C, MuJoCo's Reacher-v5                            an episode      500   128
    cnn                  small convolutional network, Fashion-MNIST          an epoch         40    64

Ranges are those of the paper's tables; learning rates and batch sizes are searched on a logarithmic scale. Agents are imported
when training begins, so that tables can be read without torch or gymnasium.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoestring.core.space.parameters import Float, Int
from shoestring.core.space.space import Space
from shoestring.core.values import randomness as quasi_random

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # the folder of Debian's package dataset-fashion-mnist
RATE = Float(1e-6, 1e-2, log=True)
DISCOUNT = Float(0.8, 1.0)


@dataclass(frozen=True)
class Task:
    name: str
    space: Space
    steps: int
    n_configs: int
    objective: str
    unit: str  # what a step is

    def configs(self) -> list[dict[str, Any]]:
        """Return the quasi-random configs of the task, always the same; the first n are those of a task with n configs."""
        cube = quasi_random.points(0, self.name, self.space.dims, np.arange(1, self.n_configs + 1))
        return [self.space.from_cube(u) for u in cube]

    def train(
        self, config: Mapping[str, Any], seed: int, data: Path = FASHION_MNIST, device: str = "cpu"
    ) -> Iterator[float]:
        """Yield one number per step, larger is better, without end."""
        if self.name == "cartpole":
            from benchmarks.boil import dueling_dqn

            return dueling_dqn.train(config, seed)
        if self.name == "cnn":
            from benchmarks.boil import fashion_cnn

            return fashion_cnn.train(config, seed, data, device)
        from benchmarks.boil import a2c

        return a2c.train(config, seed, {"reacher": "Reacher-v5", "inverted_pendulum": "InvertedPendulum-v5"}[self.name])


ACTOR_CRITIC = Space({"gamma": DISCOUNT, "lr_actor": RATE, "lr_critic": RATE})
IMAGES = Space(
    {
        "filter_size": Int(1, 8),
        "pool_size": Int(1, 5),
        "batch_size": Int(16, 1000, log=True),
        "lr": RATE,
        "momentum": Float(0.8, 0.999),
        "decay": Float(0.9, 0.999),
    }
)
TASKS = {
    task.name: task
    for task in (
        Task("cartpole", Space({"gamma": DISCOUNT, "lr": RATE}), 500, 128, "episode_return", "episode"),
        Task("inverted_pendulum", ACTOR_CRITIC, 1000, 128, "episode_return", "episode"),
        Task("reacher", ACTOR_CRITIC, 500, 128, "episode_return", "episode"),
        Task("cnn", IMAGES, 40, 64, "valid_accuracy", "epoch"),
    )
}
