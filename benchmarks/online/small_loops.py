"""Five small training loops whose hyperparameters may change in every round; NumPy only, a round takes a few milliseconds.

A loop has `train(config)`, one round; `validate()`, the noisy value that a tuner may ask for, lower is better; and
`final_loss()`, by which the run is judged, measured without noise or on other data than `validate`.

    quadratic     two parameters whose best values drift; the loss shrinks by 6 % a round at the best and crawls elsewhere
    network       learning rate and momentum of a small network on noisy labels, mini-batches
    augmentation  strengths of two augmentations (shifts and noise) for a classifier with few training signals
    bandit        ten arms, of which another one becomes the best at three unknown rounds; the value is the sum of
                  rewards so far
    agent         entropy bonus and learning rate of an actor in a maze with a near small reward and a far large one
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Space

Floats = NDArray[np.float64]
Config = Mapping[str, Any]


class Loop(Protocol):
    space: ClassVar[Space]
    rounds: ClassVar[int]
    fixed: ClassVar[Config]  # a usual choice, for comparison

    def train(self, config: Config) -> None: ...
    def validate(self) -> float: ...
    def final_loss(self) -> float: ...


class Quadratic:
    """A loss whose logarithm falls by 0.06 (1 - d^2) in a round, where d is the distance from a drifting optimum.

    Far from the optimum it falls by 0.003, so a run in a bad corner crawls.
    """

    space = Space({"lr": Float(1e-3, 1.0, log=True), "decay": Float(0.0, 1.0)})
    rounds = 60
    fixed: ClassVar[Config] = {"lr": 0.03, "decay": 0.5}

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([1, seed])
        self._start, self._end = self._rng.uniform(0.1, 0.9, (2, 2))
        self._loss, self._round = 10.0, 0

    def train(self, config: Config) -> None:
        best = self._start + (self._end - self._start) * self._round / self.rounds
        place = np.array([math.log10(config["lr"]) / 3.0 + 1.0, config["decay"]])
        distance = float(np.linalg.norm(place - best)) / 0.4
        self._loss *= math.exp(-0.06 * max(1.0 - distance**2, 0.05))
        self._round += 1

    def validate(self) -> float:
        return self._loss * (1.0 + 0.002 * self._rng.normal())

    def final_loss(self) -> float:
        return self._loss


class Network:
    """A network of one hidden layer that imitates a random one from noisy outputs, trained with momentum."""

    space = Space({"lr": Float(1e-3, 0.1, log=True), "momentum": Float(0.0, 0.95)})
    rounds = 60
    fixed: ClassVar[Config] = {"lr": 0.03, "momentum": 0.9}
    _inputs, _hidden, _batch, _batches = 8, 24, 32, 12

    def __init__(self, seed: int) -> None:
        self._rng = rng = np.random.default_rng([2, seed])
        teacher = [rng.normal(0.0, 1.0, (self._inputs, 6)), rng.normal(0.0, 1.0, 6)]

        def draw(n: int, noise: float) -> tuple[Floats, Floats]:
            x = rng.normal(size=(n, self._inputs))
            return x, np.tanh(x @ teacher[0]) @ teacher[1] + noise * rng.normal(size=n)

        self._data, self._validation, self._test = draw(1000, 0.5), draw(400, 0.5), draw(4000, 0.0)
        self._weights = [
            rng.normal(0.0, 0.3, (self._inputs, self._hidden)),
            np.zeros(self._hidden),
            rng.normal(0.0, 0.2, self._hidden),
        ]
        self._speed = [np.zeros_like(w) for w in self._weights]

    def train(self, config: Config) -> None:
        for _ in range(self._batches):
            rows = self._rng.integers(0, len(self._data[0]), self._batch)
            x, y = self._data[0][rows], self._data[1][rows]
            hidden = np.tanh(x @ self._weights[0] + self._weights[1])
            error = 2.0 * (hidden @ self._weights[2] - y) / self._batch
            back = np.outer(error, self._weights[2]) * (1.0 - hidden**2)
            gradient = [x.T @ back, back.sum(axis=0), hidden.T @ error]
            norm = math.sqrt(sum(float((g**2).sum()) for g in gradient))
            for w, v, g in zip(self._weights, self._speed, gradient, strict=True):
                v *= config["momentum"]
                v += g / max(norm, 1.0)  # clipped, so that a rate that is too large is bad and not infinite
                w -= config["lr"] * v

    def _loss(self, data: tuple[Floats, Floats]) -> float:
        hidden = np.tanh(data[0] @ self._weights[0] + self._weights[1])
        return float(np.mean((hidden @ self._weights[2] - data[1]) ** 2))

    def validate(self) -> float:
        return min(self._loss(self._validation), 1e6)

    def final_loss(self) -> float:
        return min(self._loss(self._test), 1e6)


class Augmentation:
    """A classifier of signals that are shifted and noisy, with 60 training signals that hardly are."""

    space = Space({"shift": Float(0.0, 1.0), "noise": Float(0.0, 1.0)})
    rounds = 60
    fixed: ClassVar[Config] = {"shift": 0.5, "noise": 0.5}
    _length, _classes, _hidden = 24, 4, 24

    def __init__(self, seed: int) -> None:
        self._rng = rng = np.random.default_rng([3, seed])
        self._shapes = np.cumsum(rng.normal(size=(self._classes, self._length)), axis=1)
        self._shapes -= self._shapes.mean(axis=1, keepdims=True)
        self._shapes /= self._shapes.std(axis=1, keepdims=True)
        self._train = self._draw(60, 0, 0.4)
        self._validation, self._test = self._draw(500, 3, 0.8), self._draw(4000, 3, 0.8)
        self._weights = [
            rng.normal(0.0, 0.2, (self._length, self._hidden)),
            np.zeros(self._hidden),
            rng.normal(0.0, 0.2, (self._hidden, self._classes)),
        ]

    def _draw(self, n: int, shift: int, noise: float) -> tuple[Floats, NDArray[np.int_]]:
        labels = self._rng.integers(0, self._classes, n)
        return self._distort(self._shapes[labels], shift, noise), labels

    def _distort(self, x: Floats, shift: int, noise: float) -> Floats:
        moves = self._rng.integers(-shift, shift + 1, len(x))
        places = (np.arange(self._length) + moves[:, None]) % self._length
        return np.asarray(np.take_along_axis(x, places, axis=1) + noise * self._rng.normal(size=x.shape))

    def train(self, config: Config) -> None:
        for _ in range(10):
            x = self._distort(self._train[0], round(10 * config["shift"]), 2.0 * config["noise"])
            hidden, chance = self._forward(x)
            error = (chance - np.eye(self._classes)[self._train[1]]) / len(x)
            back = error @ self._weights[2].T * (1.0 - hidden**2)
            for w, g in zip(self._weights, [x.T @ back, back.sum(axis=0), hidden.T @ error], strict=True):
                w -= 0.3 * g

    def _forward(self, x: Floats) -> tuple[Floats, Floats]:
        hidden = np.tanh(x @ self._weights[0] + self._weights[1])
        scores = hidden @ self._weights[2]
        chance = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, chance / chance.sum(axis=1, keepdims=True)

    def _loss(self, data: tuple[Floats, NDArray[np.int_]]) -> float:
        chance = self._forward(data[0])[1]
        return float(-np.log(chance[np.arange(len(chance)), data[1]] + 1e-12).mean())

    def validate(self) -> float:
        return self._loss(self._validation)

    def final_loss(self) -> float:
        return self._loss(self._test)


class Bandit:
    """Ten arms with levels in [0, 1] that are drawn anew at three rounds. The final loss is the mean regret of a round."""

    space = Space({"arm": Choice(list(range(10)))})
    rounds = 120
    fixed: ClassVar[Config] = {"arm": 0}

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([4, seed])
        switches = np.sort(self._rng.choice(np.arange(15, self.rounds - 15), 3, replace=False))
        levels = self._rng.random((4, 10))
        self._levels = levels[np.searchsorted(switches, np.arange(self.rounds), side="right")]
        self._sum, self._regret, self._round = 0.0, 0.0, 0

    def train(self, config: Config) -> None:
        now = self._levels[self._round]
        self._sum += float(now[config["arm"]]) + 0.1 * self._rng.normal()
        self._regret += float(now.max() - now[config["arm"]])
        self._round += 1

    def validate(self) -> float:
        return -self._sum

    def final_loss(self) -> float:
        return self._regret / self.rounds


class Agent:
    """An actor, a softmax over a table, that learns by policy gradients in a maze; the loss is the return that it lacks.

    From the middle of a corridor, two steps to the left is a reward of 0.3 and ten to the right one of 1. Without an entropy
    bonus the actor soon goes left for ever; with too much of one it never goes anywhere.
    """

    space = Space({"entropy": Float(1e-4, 1.0, log=True), "lr": Float(0.03, 3.0, log=True)})
    rounds = 60
    fixed: ClassVar[Config] = {"entropy": 0.01, "lr": 0.3}
    _states, _start, _steps, _episodes, _discount = 10, 3, 30, 24, 0.97

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([5, seed])
        self._logits = 0.1 * self._rng.normal(size=(self._states, 2))
        self._logits[:, 0] += 0.3
        self._baseline = np.zeros(self._states)

    def _chances(self) -> Floats:
        chance = np.exp(self._logits - self._logits.max(axis=1, keepdims=True))
        return np.asarray(chance / chance.sum(axis=1, keepdims=True))

    def _play(self, episodes: int) -> tuple[list[list[tuple[int, int]]], list[float]]:
        chance, paths, returns = self._chances(), [], []
        for _ in range(episodes):
            state, path, reward = self._start, [], 0.0
            for u in self._rng.random(self._steps):
                action = int(u > chance[state, 0])
                path.append((state, action))
                state += 1 if action else -1
                if state < 0 or state >= self._states:
                    reward = 0.3 if state < 0 else 1.0
                    break
            paths.append(path)
            returns.append(reward * self._discount ** len(path))
        return paths, returns

    def train(self, config: Config) -> None:
        paths, returns = self._play(self._episodes)
        chance = self._chances()
        gradient = np.zeros_like(self._logits)
        for path, reward in zip(paths, returns, strict=True):
            for age, (state, action) in enumerate(path):
                target = reward / self._discount**age
                step = np.eye(2)[action] - chance[state]
                gradient[state] += (target - self._baseline[state]) * step / self._episodes
                self._baseline[state] += 0.1 * (target - self._baseline[state])
        logs = np.log(chance + 1e-12)
        entropy = -(chance * logs).sum(axis=1, keepdims=True)
        gradient -= config["entropy"] * chance * (logs + entropy)
        self._logits = np.clip(self._logits + config["lr"] * gradient, -8.0, 8.0)

    def validate(self) -> float:
        return -float(np.mean(self._play(40)[1]))

    def final_loss(self) -> float:
        """Return the best expected return less that of the actor, computed exactly."""
        chance = self._chances()
        best = self._discount ** (self._states - self._start)
        value = np.zeros(self._states + 2)  # the two ends outside
        for _ in range(self._steps):
            padded = np.concatenate([[0.3], value[1:-1], [1.0]])
            value[1:-1] = self._discount * (chance[:, 0] * padded[:-2] + chance[:, 1] * padded[2:])
        return float(best - value[self._start + 1])


LOOPS: dict[str, type[Loop]] = {
    "quadratic": Quadratic,
    "network": Network,
    "augmentation": Augmentation,
    "bandit": Bandit,
    "agent": Agent,
}
