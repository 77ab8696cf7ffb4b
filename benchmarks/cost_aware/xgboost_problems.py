"""Gradient boosting that is really trained: the space of arXiv:2011.11456 (seven dimensions), small data, several pipelines.

    python -m benchmarks cost_aware.xgboost_problems -o out/xgboost [--data DIR] [--pipelines raw pca ...] [--quick]

A problem is a data set and a pipeline. Data come with scikit-learn (digits, breast_cancer, wine, diabetes) or from .npz files
of a folder, each with `X` (n, d) (categories as codes, NaN where missing), `y` (n,), `cat` (d,) with True for
categories, and `meta`, JSON text whose `task` begins with "regression" or "classification". 60 % of the rows are for training,
the rest for validation: loss is the error rate, or the root mean squared error divided by the standard deviation of the targets.
Cost is the processor time of the training in seconds, on one thread: it hardly depends on other load of the machine.

Recording trains each of `--configs` quasi-random configurations once. Each training writes one line, so an interrupted
recording can continue; a finished problem is also written as a table for `run.py --data out/xgboost`. With `--train`, `run.py`
searches the continuous space instead and trains the configurations that the policy chooses, at their measured cost.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cost_aware.pipelines import BUNDLED, PIPELINES, Data, load_bundled, load_file, transformers
from benchmarks.cost_aware.problems import Problem
from shoestring.core.ledger.entries import Cost
from shoestring.core.space.parameters import Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.core.values.randomness import points as quasi_random
from shoestring.runners.simulated.simulated_runner import StepOutcome

Array = NDArray[np.float64]
SPACE = Space(
    {
        "num_round": Int(1, 256, log=True),
        "learning_rate": Float(0.01, 1.0, log=True),
        "gamma": Float(0.0, 0.1),
        "alpha": Float(1e-3, 1e3, log=True),
        "lambda": Float(1e-3, 1e3, log=True),
        "subsample": Float(0.01, 1.0),
        "max_depth": Int(1, 16),
    }
)


@dataclass(frozen=True)
class Boosting:
    """A problem that maps a configuration to the loss and the seconds of one training."""

    data: Data
    pipeline: str
    most_rows: int = 2000
    space: Space = SPACE

    @property
    def name(self) -> str:
        return f"{self.data.name}_{self.pipeline}"

    @property
    def origin(self) -> dict[str, Any]:
        """The facts from which `make_trainable` restores the problem, and the meta-features for a transferred cost model."""
        train = self._split[0]
        size = {"rows": train.num_row(), "columns": train.num_col(), "classes": self.data.classes}
        return {"data": self.data.name, "pipeline": self.pipeline, "most_rows": self.most_rows, **size}

    @cached_property
    def _split(self) -> tuple[Any, Any, Array]:
        import xgboost
        from sklearn.model_selection import train_test_split

        x, y = self.data.x, self.data.y
        rows = np.random.default_rng(0).permutation(y.size)[: self.most_rows]
        parts = train_test_split(x[rows], y[rows], train_size=0.6, random_state=0)
        features = transformers()[self.pipeline](self.data).fit(parts[0], parts[2])
        train, valid = (np.asarray(features.transform(part)) for part in parts[:2])
        return xgboost.DMatrix(train, parts[2]), xgboost.DMatrix(valid), parts[3]

    def step(self, config: Config, step: int) -> StepOutcome:
        """Train once; the cost is the processor time of boosting, without data preparation and validation."""
        import xgboost

        train, valid, y = self._split
        classes = self.data.classes
        objective = {0: "reg:squarederror", 2: "binary:logistic"}.get(classes, "multi:softmax")
        settings = {k: v for k, v in config.items() if k != "num_round"}
        settings |= {"objective": objective, "nthread": 1}
        settings |= {"seed": 0, "num_class": classes} if objective == "multi:softmax" else {"seed": 0}
        began = time.process_time()
        booster = xgboost.train(settings, train, num_boost_round=int(config["num_round"]))
        seconds = time.process_time() - began
        predictions = booster.predict(valid)
        if classes:
            loss = float(np.mean((predictions > 0.5 if classes == 2 else predictions) != y))
        else:
            loss = float(np.sqrt(np.mean((predictions - y) ** 2)) / np.std(y))
        return StepOutcome(loss, Cost(train=seconds))


def boostings(names: Iterable[str], pipelines: Iterable[str], folders: Iterable[Path], rows: int) -> list[Boosting]:
    """Return the problems of all data sets and pipelines; data sets come from scikit-learn or from the folders."""
    found = []
    for name in names:
        paths = [folder / f"{name}.npz" for folder in folders if (folder / f"{name}.npz").exists()]
        if name not in BUNDLED and not paths:
            raise SystemExit(f"data set {name!r} is not one of {', '.join(BUNDLED)} and not a file in --data")
        data = load_bundled(name) if name in BUNDLED else load_file(paths[0])
        found += [Boosting(data, pipeline, rows) for pipeline in pipelines]
    return found


@dataclass(frozen=True)
class TrainableProblem(Problem):
    """A recorded problem with a continuous space and real training; its rows define the unit of loss."""

    boosting: Boosting

    @property
    def space(self) -> Space:  # type: ignore[override]
        return self.boosting.space

    @property
    def key(self) -> str:
        """The key of stored runs, which also tells logarithms apart: a longer recording may turn losses into logarithms."""
        return f"{self.folder}/{self.name}/trained{'/logarithms' if self.is_logged else ''}"

    def step(self, config: Config, step: int) -> StepOutcome:
        """Train once; the loss is a logarithm if the recorded ones are. A loss of 0 then counts as half of the lowest one."""
        outcome = self.boosting.step(config, step)
        if not self.is_logged or outcome.value is None:
            return outcome
        least = 0.5 * math.exp(float(self.losses.min()))
        return replace(outcome, value=math.log(max(outcome.value, least)))


def make_trainable(table: Path, problem: Problem, folders: Iterable[Path]) -> TrainableProblem:
    """Return the problem of a recorded table with real training; its data come from scikit-learn or from the folders."""
    meta = json.loads(str(np.load(table)["meta"]))
    if "pipeline" not in meta:
        raise SystemExit(f"--train: {table} was not recorded by xgboost_problems and cannot be trained")
    boosting = boostings([meta["data"]], [meta["pipeline"]], folders, int(meta["most_rows"]))[0]
    return TrainableProblem(**{one.name: getattr(problem, one.name) for one in fields(problem)}, boosting=boosting)


def record(problem: Boosting, configs: int, folder: Path, deadline: float = np.inf) -> bool:
    """Train each configuration that is not in the file yet; return whether all are, and then write the table."""
    lines = folder / f"{problem.name}.jsonl"
    done = len(lines.read_text().splitlines()) if lines.exists() else 0
    cube = quasi_random(0, "configs", problem.space.dims, np.arange(configs))
    with lines.open("a") as file:
        for point in cube[done:]:
            if time.monotonic() > deadline:
                return False
            config = problem.space.from_cube(point)
            outcome = problem.step(config, 1)
            file.write(json.dumps({"config": config, "loss": outcome.value, "seconds": outcome.cost.total}) + "\n")
            file.flush()
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    names = list(problem.space.parameters)
    np.savez(
        folder / f"{problem.name}.npz",
        hp=np.array([[line["config"][name] for name in names] for line in records]),
        hp_names=np.array(names),
        loss=np.array([line["loss"] for line in records]),
        cost=np.maximum([line["seconds"] for line in records], 1e-5),  # the resolution of the clock
        meta=np.array(json.dumps({"objective": "loss", "direction": "min", **problem.origin})),
    )
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for recordings and tables")
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="folders of data sets")
    parser.add_argument("--names", nargs="+", default=list(BUNDLED), help="data sets")
    parser.add_argument("--pipelines", nargs="+", choices=PIPELINES, default=["raw", "onehot", "pca"])
    parser.add_argument("--configs", type=int, default=400)
    parser.add_argument("--rows", type=int, default=2000, help="rows of a data set that are used")
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="stop after this time; the same command continues"
    )
    parser.add_argument("--quick", action="store_true", help="wine and diabetes, raw, 100 configurations")
    options = parser.parse_args()
    if options.quick:
        options.names, options.pipelines, options.configs = ["wine", "diabetes"], ["raw"], 100
    options.output.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60.0 * options.minutes
    problems = boostings(options.names, options.pipelines, options.data, options.rows)
    spread: list[float] = []
    for number, problem in enumerate(problems, 1):
        if not record(problem, options.configs, options.output, deadline):
            break
        cost = np.load(options.output / f"{problem.name}.npz")["cost"]
        spread.append(float(np.quantile(cost, 0.95) / np.quantile(cost, 0.05)))
        print(
            f"{number}/{len(problems)} {problem.name}: {cost.sum():.1f} s of training, "
            f"95 % quantile of cost {spread[-1]:.0f} times the 5 % quantile",
            flush=True,
        )
    measured = {"problems": len(spread), "cost_spread_median": float(np.median(spread)) if spread else None}
    ok = len(spread) == len(problems)
    print(
        json.dumps({"name": "xgboost_problems", "measured": measured, "target": {"problems": len(problems)}, "ok": ok})
    )
    raise SystemExit(0 if ok else 1)


if __name__ == "__main__":
    main()
