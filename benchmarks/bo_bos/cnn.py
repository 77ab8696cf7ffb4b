"""A small convolutional network on Fashion-MNIST, recorded: up to 128 configs, 50 epochs each, on a graphics card.

    python -m benchmarks bo_bos.cnn -o out/recorded --jobs 2              half an hour on one card that others use too
    python -m benchmarks bo_bos.cnn -o out/recorded --configs 4 --epochs 2 --images 2000      a try on the processor
    python -m benchmarks bo_bos.record cnn_fashion -o out/recorded --table-only               then make the table

Three convolutions, each followed by a pooling layer, and one dense layer, as in Dai, Yu, Low, Jaillet, ICML 2019, appendix D.2,
with fewer filters. 20,000 images to train on, 10,000 to validate. Plain gradient descent with momentum 0.9; after each
epoch the rate is divided by 1 + decay * epochs. Configs come in an order that fills the space, and every finished run is a
JSON line of OUT/cnn_fashion.jsonl: stop whenever you like and start again. `seconds` are those of the clock, with as many
runs side by side as `--jobs` says. A run whose loss is no longer a number ends there with the error 0.9.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.bo_bos.record import CONFIGS, runs_of, spread
from benchmarks.bo_bos.tasks import EPOCHS, FASHION, fashion
from shoestring.core.space.parameters import Float, Int
from shoestring.core.space.space import Config, Space

NAME = "cnn_fashion"
GUESSING = 0.9  # error of ten equal classes
SPACE = Space(
    {
        "batch_size": Int(32, 512, log=True),
        "learning_rate": Float(1e-4, 0.3, log=True),
        "decay": Float(1e-3, 1.0, log=True),
        "l2": Float(1e-7, 1e-2, log=True),
        "filters": Int(8, 64, log=True),
        "units": Int(32, 256, log=True),
        "dropout": Float(0.0, 0.7),
    }
)


def network(config: Config) -> nn.Module:
    filters, layers, before = int(config["filters"]), [], 1
    for _ in range(3):  # 28 -> 14 -> 7 -> 3 pixels
        layers += [nn.Conv2d(before, filters, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        before = filters
    dense = [nn.Flatten(), nn.Linear(9 * filters, int(config["units"])), nn.ReLU(), nn.Dropout(config["dropout"])]
    return nn.Sequential(*layers, *dense, nn.Linear(int(config["units"]), 10))


def train(config: Config, data: tuple[torch.Tensor, ...], epochs: int, seed: int) -> tuple[list[float], list[float]]:
    """Validation error and seconds so far, after each epoch; data: images and labels to train on, then to validate."""
    x, y, x_valid, y_valid = data
    torch.manual_seed(seed)
    model = network(config).to(x.device)
    rate, batch = float(config["learning_rate"]), int(config["batch_size"])
    descent = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=float(config["l2"]))
    errors: list[float] = []
    seconds: list[float] = []
    began = time.perf_counter()
    for epoch in range(epochs):
        model.train()
        for group in descent.param_groups:
            group["lr"] = rate / (1.0 + float(config["decay"]) * epoch)
        total = torch.zeros((), device=x.device)
        for rows in torch.randperm(len(x), device=x.device).split(batch):
            descent.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            descent.step()
            total += loss.detach()
        model.eval()
        with torch.no_grad():
            found = torch.cat([model(part).argmax(dim=1) for part in x_valid.split(5000)])
        error = float((found != y_valid).float().mean())
        seconds.append(time.perf_counter() - began)
        if not math.isfinite(float(total)):
            return [*errors, GUESSING], seconds
        errors.append(error)
    return errors, seconds


def load(place: Path, images: int, device: str) -> tuple[torch.Tensor, ...]:
    """The first `images` pictures to train on, the last 10,000 (or half as many as `images`) to validate."""
    pictures, kinds = fashion(place)
    parts = (slice(0, images), slice(len(kinds) - min(10_000, images // 2), len(kinds)))
    found = []
    for part in parts:
        found += [
            torch.from_numpy(pictures[part].astype(np.float32) / 255.0 - 0.2860).unsqueeze(1).to(device) / 0.3530,
            torch.from_numpy(kinds[part].astype(np.int64)).to(device),
        ]
    return tuple(found)


def work(asked: argparse.Namespace, left: multiprocessing.Queue[tuple[int, dict[str, Any]] | None], lock: Any) -> None:
    """One process: configs from the queue until it is empty; a run that fails is told and left out."""
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = load(asked.fashion, asked.images, device)
    train(spread(SPACE, 1)[0], data, 1, 0)  # the first run would pay for starting the card
    while (job := left.get()) is not None:
        number, config = job
        try:
            errors, seconds = train(config, data, asked.epochs, asked.seed)
        except RuntimeError as problem:
            print(f"{NAME} {number} failed: {problem}", file=sys.stderr, flush=True)
            continue
        row = {
            "number": number,
            "config": config,
            "errors": [round(e, 6) for e in errors],
            "seconds": [round(s, 5) for s in seconds],
        }
        with lock, (asked.out / f"{NAME}.jsonl").open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        print(f"{NAME} {number}: {errors[-1]:.4f} after {seconds[-1]:.1f} s", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("out/recorded"))
    parser.add_argument("--configs", type=int, default=CONFIGS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--fashion", type=Path, default=FASHION, help="folder with the idx files of Fashion-MNIST, or an npz"
    )
    parser.add_argument("--quick", action="store_true", help="2 configs, 2 epochs of 1000 images")
    asked = parser.parse_args()
    if asked.quick:
        asked.configs, asked.epochs, asked.images = 2, 2, 1000
    asked.out.mkdir(parents=True, exist_ok=True)
    processes = multiprocessing.get_context("spawn")
    left, lock = processes.Queue(), processes.Lock()
    done = {row["number"] for row in runs_of(asked.out / f"{NAME}.jsonl")}
    for number, config in enumerate(spread(SPACE, asked.configs)):
        if number not in done:
            left.put((number, config))
    workers = [processes.Process(target=work, args=(asked, left, lock)) for _ in range(asked.jobs)]
    for worker in workers:
        left.put(None)
        worker.start()
    for worker in workers:
        worker.join()
    rows = runs_of(asked.out / f"{NAME}.jsonl")
    best = min(min(row["errors"]) for row in rows) if rows else None
    told = {
        "name": f"record_{NAME}",
        "measured": {"configs": len(rows), "best": best},
        "target": None,
        "ok": bool(rows),
    }
    print(json.dumps(told))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
