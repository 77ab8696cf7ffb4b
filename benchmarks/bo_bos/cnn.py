"""Record a small convolutional network on Fashion-MNIST: up to 128 configurations, 50 epochs each, on a GPU.

    python -m benchmarks bo_bos.cnn -o out/recorded --jobs 2              half an hour on one shared GPU
    python -m benchmarks bo_bos.cnn -o out/recorded --configs 4 --epochs 2 --images 2000      a test on the CPU
    python -m benchmarks bo_bos.record cnn_fashion -o out/recorded --table-only               makes the table

Three convolutions, each followed by a pooling layer, and one dense layer, as in Dai, Yu, Low, Jaillet, ICML 2019, appendix D.2,
with fewer filters. 20,000 images to train on, 10,000 to validate. Gradient descent with momentum 0.9; after each epoch
the learning rate is divided by 1 + decay * epochs. The configurations fill the space in their order, and every finished run is a
JSON line in OUT/cnn_fashion.jsonl, so the script can be interrupted and started again. `seconds` is clock time, with `--jobs`
runs at the same time. A run whose loss is not finite ends with the error 0.9.
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
GUESSING = 0.9  # error of random guessing with ten equal classes
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
    """Return validation error and seconds after each epoch. `data` are images and labels for training, then for validation."""
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


def load(path: Path, images: int, device: str) -> tuple[torch.Tensor, ...]:
    """Return the first `images` images for training, and the last 10,000 (or `images` / 2) for validation."""
    pictures, labels = fashion(path)
    parts = (slice(0, images), slice(len(labels) - min(10_000, images // 2), len(labels)))
    found = []
    for part in parts:
        found += [
            torch.from_numpy(pictures[part].astype(np.float32) / 255.0 - 0.2860).unsqueeze(1).to(device) / 0.3530,
            torch.from_numpy(labels[part].astype(np.int64)).to(device),
        ]
    return tuple(found)


def work(
    options: argparse.Namespace, left: multiprocessing.Queue[tuple[int, dict[str, Any]] | None], lock: Any
) -> None:
    """Train configurations from the queue until it is empty; a failed run is printed and skipped."""
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = load(options.fashion, options.images, device)
    train(spread(SPACE, 1)[0], data, 1, 0)  # otherwise the time of the first run includes the start of the GPU
    while (job := left.get()) is not None:
        number, config = job
        try:
            errors, seconds = train(config, data, options.epochs, options.seed)
        except RuntimeError as problem:
            print(f"{NAME} {number} failed: {problem}", file=sys.stderr, flush=True)
            continue
        row = {
            "number": number,
            "config": config,
            "errors": [round(e, 6) for e in errors],
            "seconds": [round(s, 5) for s in seconds],
        }
        with lock, (options.out / f"{NAME}.jsonl").open("a", encoding="utf-8") as out:
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
    options = parser.parse_args()
    if options.quick:
        options.configs, options.epochs, options.images = 2, 2, 1000
    options.out.mkdir(parents=True, exist_ok=True)
    processes = multiprocessing.get_context("spawn")
    left, lock = processes.Queue(), processes.Lock()
    done = {row["number"] for row in runs_of(options.out / f"{NAME}.jsonl")}
    for number, config in enumerate(spread(SPACE, options.configs)):
        if number not in done:
            left.put((number, config))
    workers = [processes.Process(target=work, args=(options, left, lock)) for _ in range(options.jobs)]
    for worker in workers:
        left.put(None)
        worker.start()
    for worker in workers:
        worker.join()
    rows = runs_of(options.out / f"{NAME}.jsonl")
    best = min(min(row["errors"]) for row in rows) if rows else None
    result = {
        "name": f"record_{NAME}",
        "measured": {"configs": len(rows), "best": best},
        "target": None,
        "ok": bool(rows),
    }
    print(json.dumps(result))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
