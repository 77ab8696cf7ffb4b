"""A network that tunes itself while it trains, in rounds; `online.few_images` runs it: Table A3 of arXiv:2101.06590 in small.

The network of self_tuning_network.py tunes its dropout and augmentation by gradient steps on validation images. How often to do
that must be decided: with too few steps the hyperparameters lag behind; with too many, time is lost and they follow noise. A
round is a fixed number of training steps; arm "tune" takes a tuning step before each of them, arm "train" none. The reward is the
gain in accuracy on the whole validation set since the last pass; the policy decides which rounds have a pass.

Methods: "a:b" are fixed schedules of a training steps to b tuning steps, "1:1 > 2:1" changes after two thirds of the run, "never"
keeps the initial values. The learning rate falls tenfold after 40, 67 and 80 % of the run, as in the paper; during the first
thirtieth of the rounds it rises, and nothing is tuned. Time is the sum of training, tuning, deciding and validation, each at its
mean price over all runs (they share the machine unevenly), divided by the time of 1:1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.online.fashion import Fashion, batches, load, synchronise
from benchmarks.online.self_tuning_network import HYPER, Ways, evaluate, start_model, training_loss, tuning_loss
from shoestring import OnlineTuner

ARMS = {"mode": {"choice": ["train", "tune"]}}
DECAYS = (60 / 150, 100 / 150, 120 / 150)
WARM_UP = 1 / 30
# The paper's rule, whatever the default.
GP = {"forgetting_rate": 0.03, "noise_variance": 0.3, "query": "kappa", "unvalidated": "acquisition"}
FIXED: dict[str, tuple[int | None, int | None]] = {  # training steps per tuning step, before and after two thirds
    "1:1": (1, 1),
    "never": (None, None),
    "2:1": (2, 2),
    "5:1": (5, 5),
    "1:1 > 2:1": (1, 2),
}
AT_RANDOM = {"query": "bernoulli", "query_probability": 0.2}
TUNED: dict[str, tuple[str, dict[str, Any]]] = {
    "EXP3.S, Ber(0.2)": ("exp3s", AT_RANDOM),
    "UCB1, Ber(0.2)": ("ucb1", AT_RANDOM),
    "GP-UCB, Ber(0.2)": ("tv_gp_ucb", GP | AT_RANDOM),
    "CE@0.7": ("ce_gp_ucb", GP | {"kappa": 0.7}),
    "CE@0.8": ("ce_gp_ucb", GP | {"kappa": 0.8}),
}
METHODS = [*FIXED, *TUNED]


@dataclass(frozen=True)
class Plan:
    rounds: int = 150
    steps: int = 23  # training steps of a round: an epoch
    batch: int = 128
    width: int = 32  # channels of the first block
    size: int = 28  # pixels
    n_train: int = 3000
    n_held_out: int = 10_000
    lr: float = 0.1
    hyper_lr: float = 3e-3
    watch: int = 10  # rounds between measurements that no method pays for or uses
    ways: Ways = field(default_factory=Ways)


class SelfTuning:
    """The network, its two optimizers, and the order of the images."""

    def __init__(self, data: Fashion, plan: Plan, seed: int) -> None:
        self.data, self.plan, self.done_steps, self.tuning_steps = data, plan, 0, 0
        cuda = data.device.type == "cuda"
        torch.backends.cudnn.benchmark = cuda
        self.model = start_model(data, plan.width, seed, plan.ways)
        trained, self.tuned = self.model.parts()
        self.optimizer = torch.optim.SGD(
            trained, lr=plan.lr, momentum=0.9, nesterov=True, weight_decay=1e-4, fused=cuda or None
        )
        self.hyper_optimizer = torch.optim.Adam(self.tuned, lr=plan.hyper_lr, fused=cuda)
        self.generator = torch.Generator(data.device).manual_seed(seed)
        self.autocast = torch.autocast(data.device.type, dtype=torch.bfloat16, enabled=cuda)
        self._queues: dict[str, list[torch.Tensor]] = {"train": [], "validation": []}

    def round(self, tune_every: int | None) -> None:
        share = self.done_steps / (self.plan.rounds * self.plan.steps)
        for group in self.optimizer.param_groups:
            rising = min(1.0, 0.1 + share / WARM_UP)
            group["lr"] = self.plan.lr * rising * 0.1 ** sum(share >= decay for decay in DECAYS)
        for _ in range(self.plan.steps):
            if tune_every is not None and self.done_steps % tune_every == 0:
                self._tune()
            self._train()
            self.done_steps += 1
        synchronise(self.data.device)

    def _train(self) -> None:
        rows = self._next("train", len(self.data.train_x))
        with self.autocast:
            loss = training_loss(self.model, self.data.train_x[rows], self.data.train_y[rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def _tune(self) -> None:
        rows = self._next("validation", len(self.data.validation_x))
        self.model.eval()  # as in use: running statistics, no dropout
        with self.autocast:
            loss = tuning_loss(self.model, self.data.validation_x[rows], self.data.validation_y[rows])
        for parameter, gradient in zip(self.tuned, torch.autograd.grad(loss, self.tuned), strict=True):
            parameter.grad = gradient
        self.hyper_optimizer.step()
        self.model.train()
        self.tuning_steps += 1

    def _next(self, kind: str, n: int) -> torch.Tensor:
        if not self._queues[kind]:
            self._queues[kind] = list(batches(n, min(self.plan.batch, n), self.generator))
        return self._queues[kind].pop()

    def validate(self) -> tuple[float, float]:
        return evaluate(self.model, self.data.validation_x, self.data.validation_y, self.autocast)

    def test(self) -> tuple[float, float]:
        return evaluate(self.model, self.data.test_x, self.data.test_y, self.autocast)

    def hyper(self) -> list[float]:
        return [round(value, 4) for value in self.model.values(self.model.hyper.detach()).tolist()]


def run_one(method: str, seed: int, plan: Plan, data: Path, device: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    training = SelfTuning(load(data, device, plan.size, plan.n_train, plan.n_held_out), plan, seed)
    warm_up = max(1, round(WARM_UP * plan.rounds))
    for _ in range(3):  # the first calls of a process are slow, and must not count in the times below
        training.validate()
    tuner = None
    if method in TUNED:
        policy, settings = TUNED[method]
        rounds = plan.rounds - warm_up
        tuner = OnlineTuner(ARMS, rounds, policy=policy, settings=settings, direction="max", store=None, seed=seed)
    seconds = {"decide": 0.0, "train": 0.0, "validate": 0.0}
    arms, passes, watched, hyper = "", 0, [], []

    def time_call(kind: str, work: Callable[..., Any], *inputs: Any) -> Any:
        began = time.perf_counter()
        result = work(*inputs)
        seconds[kind] += time.perf_counter() - began
        return result

    for i in range(plan.rounds):
        if i < warm_up:
            tune_every = None
        elif tuner is not None:
            tune_every = 1 if time_call("decide", tuner.next)["mode"] == "tune" else None
        else:
            tune_every = FIXED[method][i >= DECAYS[1] * plan.rounds]
        time_call("train", training.round, tune_every)
        validates = i >= warm_up and tuner is not None and tuner.should_validate
        if validates:
            tuner.tell(time_call("validate", training.validate)[1])
            passes += 1
        arms += (".t", ":T")[validates][tune_every is not None]  # validated rounds as ":" and "T"
        if (i + 1) % plan.watch == 0:
            watched.append([i + 1, *training.validate()])
            hyper.append(training.hyper())
    validation, test = training.validate(), training.test()
    return {
        "passes": passes,
        "tuning_steps": training.tuning_steps,
        **{f"{kind}_s": round(spent, 2) for kind, spent in seconds.items()},
        "validation_loss": validation[0],
        "validation": validation[1],
        "test_loss": test[0],
        "test": test[1],
        "arms": arms,
        "watched": watched,
        "hyper_names": [name for name, _ in HYPER],
        "hyper": hyper,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
