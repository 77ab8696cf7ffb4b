"""Augmentation probabilities of contrastive pre-training, tuned while it runs: Table 1 of arXiv:2101.06590 in small.

A small residual network learns Fashion-MNIST without labels (SimCLR: two augmented views of an image should be alike). The
probabilities of eight augmentations are the hyperparameters. A round is a fixed number of steps. After it the tuner may order a
validation pass: features of 20,000 training images, a least-squares read-out, its accuracy on the 10,000 validation images.
The reward is the gain in percentage points since the last pass, clipped to [-2, 2]. Every tuned run begins with all
probabilities at 0.5, which is also the baseline. At the end a linear read-out, trained to convergence on all 50,000 training
images, is tested on the 10,000 test images; it is not used in tuning.

    python -m benchmarks online.contrastive              all methods, three seeds (an accelerator, --workers 4: 12 minutes)
    python -m benchmarks online.contrastive --quick      small images, few rounds, one seed: a minute or two on one processor
    python -m benchmarks online.contrastive --show       table and figure of the runs in -o DIR again

`online.factorial` first measures whether one round shows what is good in the end, and then repeats the comparison without
inversion.

The paper does not state the process's length-scale, variance and noise; SETTINGS has ours. "expert" is a fixed choice by a
person who knows clothes: they are not upside down, rotated or negatives.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: the processes share the machine

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.online.augmentations import NAMES, augment
from benchmarks.online.contrastive_report import effects, figure, judge, table
from benchmarks.online.fashion import DEBIAN, Fashion, load, pick_device, synchronise
from benchmarks.online.networks import Encoder, contrastive_loss, features, logistic_accuracy, ridge_accuracy
from benchmarks.online.runs import arguments, gather, run_all
from shoestring import OnlineTuner, Schedule

HALF = dict.fromkeys(NAMES, 0.5)
EXPERT = HALF | {"crop": 1.0, "tone": 0.8, "blur": 0.2, "flip_vertical": 0.0, "rotation": 0.0, "inversion": 0.0}
# Without crops the network learns nothing.
SPACE = {name: {"float": [0.5 if name == "crop" else 0.0, 1.0]} for name in NAMES}
SETTINGS = {"forgetting_rate": 0.01, "beta": 1.0, "kernel": "matern52", "unit": 0.01, "clip": 2.0}
SETTINGS |= {"lengthscale": 0.4, "variance": 0.1, "noise_variance": 0.05}
SETTINGS |= {"query": "kappa", "unvalidated": "acquisition"}  # the paper's rule, whatever the default
METHODS: dict[str, dict[str, Any] | Schedule] = {
    "TV-GP-UCB": {"query": "always"},
    "baseline": Schedule((HALF,)),
    "CE@0.9": {"kappa": 0.9},
    "CE@0.8": {"kappa": 0.8},
    "CE@0.7": {"kappa": 0.7},
    "CE@0.6": {"kappa": 0.6},
    "Ber(0.6)": {"query": "bernoulli", "query_probability": 0.6},
    "expert": Schedule((EXPERT,)),
}


@dataclass(frozen=True)
class Plan:
    rounds: int = 120
    steps: int = 40  # of a round
    batch: int = 512
    width: int = 32  # channels of the stem
    size: int = 28  # pixels
    n_train: int = 50_000
    n_readout: int = 20_000  # training images of the quick read-out
    n_held_out: int = 10_000
    lr: float = 2e-3
    watch: int = 10  # rounds between measurements that no method pays for or uses
    without: tuple[str, ...] = ()  # augmentations that are left out: never applied, not tuned
    lengthscale: float = SETTINGS["lengthscale"]
    correction: float = 0.0  # share of a run's lead over its trend that it is expected to lose in a round


QUICK = Plan(rounds=16, steps=20, batch=64, width=8, size=14, n_train=10_000, n_readout=2000, n_held_out=2000, watch=4)


class Pretraining:
    """The network, its optimizer and its two read-outs."""

    def __init__(self, data: Fashion, plan: Plan, seed: int) -> None:
        self.data, self.plan, self.done_steps = data, plan, 0
        torch.manual_seed(seed)
        cuda = data.device.type == "cuda"
        torch.backends.cudnn.benchmark = cuda
        self.encoder = Encoder(plan.width).to(data.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.encoder.parameters(), lr=plan.lr, weight_decay=1e-4, fused=cuda)
        self.generator = torch.Generator(data.device).manual_seed(seed)
        self.autocast = torch.autocast(data.device.type, dtype=torch.bfloat16, enabled=cuda)

    def train_round(self, config: dict[str, float]) -> None:
        shares = [0.0 if name in self.plan.without else config[name] for name in NAMES]
        probabilities = torch.tensor(shares, device=self.data.device)
        for _ in range(self.plan.steps):
            self._step(probabilities)
        synchronise(self.data.device)

    def _step(self, probabilities: Tensor) -> None:
        share = self.done_steps / (self.plan.rounds * self.plan.steps)
        for group in self.optimizer.param_groups:  # a short warm-up, then a cosine down to zero
            group["lr"] = self.plan.lr * min(1.0, share / 0.05 + 0.01) * 0.5 * (1.0 + math.cos(math.pi * share))
        x = self.data.train_x
        rows = torch.randint(len(x), (self.plan.batch,), generator=self.generator, device=x.device)
        views = augment(x[rows].repeat(2, 1, 1, 1), probabilities, self.generator)
        with self.autocast:
            projections = self.encoder(views)
        self.optimizer.zero_grad()
        contrastive_loss(projections).backward()
        self.optimizer.step()
        self.done_steps += 1

    def validate(self) -> float:
        d, n = self.data, self.plan.n_readout
        train, held_out = self._features(d.train_x[:n]), self._features(d.validation_x)
        return ridge_accuracy(train, d.train_y[:n], held_out, d.validation_y)

    def test(self) -> dict[str, float]:
        d = self.data
        sets = self._features(d.train_x), d.train_y, self._features(d.test_x), d.test_y
        return {"test_quick": ridge_accuracy(*sets), "test": logistic_accuracy(*sets, steps=300)}

    def _features(self, x: Tensor) -> Tensor:
        return features(self.encoder, x, self.autocast)


def run_one(method: str, seed: int, plan: Plan, data: Path, device: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    images = load(data, device, plan.size, plan.n_train, plan.n_held_out)
    pretraining = Pretraining(images, plan, seed)
    how = METHODS[method]
    tuner = None if isinstance(how, Schedule) else make_tuner(how, plan, seed)
    level = CorrectedLevel(plan.correction)
    configs, validated, watched = [], [], []
    seconds = {"decide": 0.0, "train": 0.0, "validate": 0.0}

    def time_call(kind: str, work: Callable[..., Any], *inputs: Any) -> Any:
        began = time.perf_counter()
        result = work(*inputs)
        seconds[kind] += time.perf_counter() - began
        return result

    for round in range(1, plan.rounds + 1):
        config = how.config(round) if tuner is None else time_call("decide", tuner.next)
        time_call("train", pretraining.train_round, config)
        value = None
        if tuner is not None and tuner.should_validate:
            value = time_call("validate", pretraining.validate)
            tuner.tell(level.correct(round, value))
            validated.append([round, value])
        if round % plan.watch == 0:
            watched.append([round, pretraining.validate() if value is None else value])
        configs.append([round_to(0.0 if name in plan.without else config[name]) for name in NAMES])
    return {
        "passes": len(validated),
        **{f"{kind}_s": round_to(spent, 2) for kind, spent in seconds.items()},
        "validation": pretraining.validate(),
        **pretraining.test(),
        "validated": validated,
        "watched": watched,
        "names": NAMES,
        "configs": configs,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }


class CorrectedLevel:
    """The accuracy that the tuner gets, corrected for the run's lead over its own trend.

    A run that is above its trend gains less in the next round, whatever its config, and a run below it gains more. So the
    expected change, `share` of the lead per round, is taken out of the gain. With `share` at 0 there is no correction.
    """

    _WEIGHT = 0.3  # weight of the newest pass in the trend

    def __init__(self, share: float) -> None:
        self.share, self.corrected = share, 0.0
        self.round, self.level, self.trend = 0, 0.0, 0.0

    def correct(self, round: int, level: float) -> float:
        if self.round == 0:
            self.corrected = self.trend = level
        else:
            loses = min(1.0, self.share * (round - self.round))
            self.corrected += level - self.level + loses * (self.level - self.trend)
            self.trend += self._WEIGHT * (level - self.trend)
        self.round, self.level = round, level
        return self.corrected


def make_tuner(settings: dict[str, Any], plan: Plan, seed: int) -> OnlineTuner:
    space = {name: of for name, of in SPACE.items() if name not in plan.without}
    half = {name: HALF[name] for name in space}
    settings = SETTINGS | {"lengthscale": plan.lengthscale} | settings
    return OnlineTuner(space, plan.rounds, settings=settings, direction="max", store=None, initial=[half], seed=seed)


def recompute_confidence(run: dict[str, Any]) -> list[float | None]:
    """Return the Pr(better) of each decision of a recorded run, computed by deciding again; None if there was no competitor.

    A decision that differs from the recorded one is an error.
    """
    plan = Plan(**run["plan"] | {"without": tuple(run["plan"]["without"])})
    tuner, level = make_tuner(METHODS[run["method"]], plan, run["seed"]), CorrectedLevel(plan.correction)
    validated, sure = dict(run["validated"]), []
    for round, recorded in enumerate(run["configs"], start=1):
        config = tuner.next()
        decided = [round_to(0.0 if name in plan.without else config[name]) for name in run["names"]]
        if any(abs(a - b) > 2e-3 for a, b in zip(decided, recorded, strict=True)):
            raise SystemExit(
                f"{run['method']}, seed {run['seed']}: round {round} is decided as {decided}, not {recorded}"
            )
        sure.append(tuner.why.get("pr_better"))
        if tuner.should_validate:
            tuner.tell(level.correct(round, validated[round]))
    return sure


def round_to(value: float, digits: int = 3) -> float:
    return round(float(value), digits)


def main() -> None:
    plans = {"rounds": "default: 120, quick 16", "steps": "of a round; default: 40, quick 20"}
    options = arguments(__doc__ or "", DEBIAN, list(METHODS), plans)
    if options.show:
        runs = gather(options.o, "contrastive")
    else:
        plan = QUICK if options.quick else Plan()
        plan = replace(plan, **{name: value for name in ("rounds", "steps") if (value := getattr(options, name))})
        methods = options.methods or (["baseline", "TV-GP-UCB", "CE@0.8"] if options.quick else list(METHODS))
        inputs = (plan, options.data, pick_device(options.device))
        runs = run_all("contrastive", methods, options.seeds, asdict(plan), run_one, inputs, options.o, options.workers)
    print(table(runs))
    if not options.quick:
        print("", effects(runs), sep="\n")
    figure(runs, options.o / "contrastive.svg")
    verdict = judge(runs)
    print(json.dumps(verdict))
    sys.exit(0 if verdict["ok"] or options.quick else 1)


if __name__ == "__main__":
    main()
