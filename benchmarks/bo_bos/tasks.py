"""Real training tasks: logistic regression, boosted trees with one more feature per step, and linear policies for Swimmer.

Every task is a space and a function from a configuration to a whole run: the validation error after each of 50 steps, and the
processor seconds so far. A run is trained in full and given step by step. For a policy this makes no difference, and the end of
a stopped run is known.

    task                step                                     error                              configuration
    logreg_digits       pass over 1,437 images                   of 360 validation images           learning rate, L2, batch size
    logreg_fashion      pass over 20,000 images                  of 10,000 validation images        the same
    xgboost_spambase    one more feature, trained from scratch   of 1,536 mails                     rate, depth, feature share, L1
    swimmer_discounted  20 steps of each of 5 episodes           1 - discounted return              16 weights of a linear policy
    swimmer             the same                                 1 - return                         the same

Ranges are those of Dai, Yu, Low, Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019, appendix D. Needs
scikit-learn (digits), xgboost, gymnasium with mujoco; each only for its own task.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoestring.core.ledger.entries import Cost
from shoestring.core.space.parameters import Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.runners.simulated.simulated_runner import StepOutcome

Array = NDArray[np.float64]
EPOCHS = 50
FASHION = Path("/usr/share/datasets/fashion-mnist")  # the folder of the Debian package dataset-fashion-mnist
DISCOUNT = 0.9  # per step of Swimmer
REWARD_RANGE = 8.0  # limit of the reward per step, mean over episodes; larger rewards are clipped


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    errors: Array  # (steps,) after each step, in [0, 1]
    seconds: Array  # (steps,) processor time since the start of the run
    score: float  # final objective, lower is better; the last error for most tasks


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    space: Space
    train: Callable[[Config], Curve]


class TaskSource:
    """Source for the simulated runner: a configuration is trained when its first step is needed, and shown step by step."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._curves: dict[str, Curve] = {}

    def curve(self, config: Config) -> Curve:
        key = self.task.space.key(config)
        if key not in self._curves:
            self._curves[key] = self.task.train(config)
        return self._curves[key]

    def step(self, config: Config, step: int) -> StepOutcome | None:
        curve = self.curve(config)
        if step > curve.errors.size:
            return None
        before = curve.seconds[step - 2] if step > 1 else 0.0
        return StepOutcome(float(curve.errors[step - 1]), Cost(train=max(0.0, float(curve.seconds[step - 1] - before))))


# logistic regression -------------------------------------------------------------------------------------------------

LOGREG = Space(
    {"learning_rate": Float(1e-3, 0.1, log=True), "l2": Float(1e-6, 1.0, log=True), "batch_size": Int(20, 500)}
)


def logistic_regression(
    images: NDArray[np.float32], labels: NDArray[np.intp], n_train: int, config: Config, epochs: int = EPOCHS
) -> Curve:
    """Train softmax regression by stochastic gradient descent on the first `n_train` images, (n, pixels) in [0, 1]."""
    x, y = images[:n_train], labels[:n_train]
    wanted = np.eye(int(labels.max()) + 1, dtype=np.float32)[y]
    weights = np.zeros((x.shape[1], wanted.shape[1]), dtype=np.float32)
    bias = np.zeros(wanted.shape[1], dtype=np.float32)
    rate, l2, batch = np.float32(config["learning_rate"]), np.float32(config["l2"]), int(config["batch_size"])
    rng = np.random.default_rng(0)  # runs differ only by their configurations
    errors, seconds, began = np.empty(epochs), np.empty(epochs), time.process_time()
    for epoch in range(epochs):
        order = rng.permutation(n_train)
        for first in range(0, n_train, batch):
            rows = order[first : first + batch]
            images_now = x[rows]
            score = images_now @ weights + bias
            share = np.exp(score - score.max(axis=1, keepdims=True))
            gap = share / share.sum(axis=1, keepdims=True) - wanted[rows]
            weights -= rate * (images_now.T @ gap / np.float32(rows.size) + l2 * weights)
            bias -= rate * gap.mean(axis=0)
        found = (images[n_train:] @ weights + bias).argmax(axis=1)
        errors[epoch], seconds[epoch] = np.mean(found != labels[n_train:]), time.process_time() - began
    return Curve(errors, seconds, float(errors[-1]))


@cache
def digits() -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order] / 16.0).astype(np.float32), labels[order].astype(np.intp)


@cache
def fashion(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Return the 60,000 training images, (n, 28, 28), and labels, from a folder of idx .gz files or an npz file."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return arrays["x_train"], arrays["y_train"].astype(np.intp)
    images = np.frombuffer(gzip.decompress((path / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((path / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    return images.reshape(-1, 28, 28), labels.astype(np.intp)


# boosted trees, one more feature per step ----------------------------------------------------------------------------

BOOSTING = Space(
    {
        "learning_rate": Float(1e-3, 0.5, log=True),
        "max_depth": Int(2, 15),
        "feature_share": Float(0.3, 1.0),
        "l1": Float(0.0, 5.0),
    }
)
MAILS_TO_TRAIN, TREES = 3065, 50


def boosted_features(x: NDArray[np.float32], y: NDArray[np.intp], config: Config, epochs: int = EPOCHS) -> Curve:
    """Train boosted trees on the first n columns for step n, from scratch on the first `MAILS_TO_TRAIN` rows."""
    from xgboost import XGBClassifier

    errors, seconds, began = np.empty(epochs), np.empty(epochs), time.process_time()
    for epoch in range(epochs):
        model = XGBClassifier(
            n_estimators=TREES,
            learning_rate=config["learning_rate"],
            max_depth=config["max_depth"],
            colsample_bytree=config["feature_share"],
            reg_alpha=config["l1"],
            tree_method="hist",
            n_jobs=1,
            random_state=0,
        )
        part = x[:, : epoch + 1]
        model.fit(part[:MAILS_TO_TRAIN], y[:MAILS_TO_TRAIN])
        errors[epoch] = np.mean(model.predict(part[MAILS_TO_TRAIN:]) != y[MAILS_TO_TRAIN:])
        seconds[epoch] = time.process_time() - began
    return Curve(errors, seconds, float(errors[-1]))


@cache
def spambase(path: Path) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return the mails in random order, with the columns sorted by their importance in a model of all columns."""
    from xgboost import XGBClassifier

    with np.load(path) as arrays:
        x, y = arrays["X"], arrays["y"].astype(np.intp)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    ranked = XGBClassifier(n_estimators=TREES, n_jobs=1, random_state=0).fit(x[:MAILS_TO_TRAIN], y[:MAILS_TO_TRAIN])
    return x[:, np.argsort(-ranked.feature_importances_, kind="stable")], y


# linear policies for Swimmer-----------------------------------------------------------------------------------------

SWIMMER = Space({f"w{row}{column}": Float(-1.0, 1.0) for row in range(2) for column in range(8)})
STEPS_OF_AN_EPOCH, EPISODES = 20, 5


def swimmer(config: Config, discount: float, epochs: int = EPOCHS) -> Curve:
    """Return 1 - return of the policy "action = weights @ state" in Swimmer-v5, mean over episodes with different starts.

    The reward of a step is clipped to +-`REWARD_RANGE`, mapped to [0, 1], discounted by the number of steps before it and
    divided by the largest possible sum. So a return is in [0, 1] and never falls. The score is the negative sum of raw rewards.
    """
    import gymnasium

    began = time.process_time()
    weights = np.array([config[name] for name in SWIMMER.parameters]).reshape(2, 8)
    world = gymnasium.make("Swimmer-v5", max_episode_steps=epochs * STEPS_OF_AN_EPOCH)
    rewards = np.zeros((EPISODES, epochs))
    for episode in range(EPISODES):
        state, _ = world.reset(seed=episode)
        for step in range(epochs * STEPS_OF_AN_EPOCH):
            state, reward, _, _, _ = world.step(np.clip(weights @ state, -1.0, 1.0))
            rewards[episode, step // STEPS_OF_AN_EPOCH] += reward
    world.close()
    seconds = (time.process_time() - began) * np.arange(1.0, epochs + 1.0) / epochs
    reward = rewards.mean(axis=0)
    gain = (np.clip(reward, -REWARD_RANGE, REWARD_RANGE) + REWARD_RANGE) / (2.0 * REWARD_RANGE)
    worth = discount ** np.arange(epochs)
    return Curve(1.0 - np.cumsum(gain * worth) / worth.sum(), seconds, -float(reward.sum()))


# by name -------------------------------------------------------------------------------------------------------------


def task(name: str, *, fashion_at: Path = FASHION, data: Path | None = None) -> Task:
    """Return a task by its name; `data` is the folder with ml_datasets/spambase.npz."""
    if name == "logreg_digits":
        images, labels = digits()
        return Task(name, LOGREG, lambda config: logistic_regression(images, labels, 1437, config))
    if name == "logreg_fashion":
        pictures, labels = fashion(fashion_at)
        rows = np.r_[:20_000, 50_000:60_000]  # the last images are for validation, as in benchmarks/data/fashion_curves
        flat = pictures[rows].reshape(len(rows), -1).astype(np.float32) / 255.0
        return Task(name, LOGREG, lambda config: logistic_regression(flat, labels[rows], 20_000, config))
    if name == "xgboost_spambase":
        if data is None:
            raise SystemExit("xgboost_spambase needs --data FOLDER with ml_datasets/spambase.npz below it")
        x, y = spambase(data / "ml_datasets" / "spambase.npz")
        return Task(name, BOOSTING, lambda config: boosted_features(x, y, config))
    if name in ("swimmer", "swimmer_discounted"):
        discount = DISCOUNT if name == "swimmer_discounted" else 1.0
        return Task(name, SWIMMER, lambda config: swimmer(config, discount))
    raise SystemExit(
        f"there is no task {name!r}: logreg_digits, logreg_fashion, xgboost_spambase, swimmer, swimmer_discounted"
    )
