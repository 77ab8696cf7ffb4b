"""Gradient boosting, really trained: the seven-dimensional space of arXiv:2011.11456, small data, several feature pipelines.

    python -m benchmarks cost_aware.xgboost_problems -o out/xgboost [--data DIR] [--pipelines raw pca ...] [--quick]

A problem is a data set and a pipeline. Data come with scikit-learn (digits, breast_cancer, wine, diabetes) or from .npz files
of a folder, each with `X` (n, d) (categories as codes, NaN where missing), `y` (n,), `cat` (d,) telling which columns are
categories, and `meta`, JSON text whose `task` begins with "regression" or "classification". 60 % of the rows train, the
rest judge: loss is the share of wrong answers, or the root mean square error over the spread of the targets. Cost is the
processor time of the training in seconds, on one thread: a busy machine leaves it nearly alone.

Recording trains each of `--configs` quasi-random configs once. A line is written for each training, so an interrupted
recording goes on where it was; a finished problem is also written as a table for `run.py --data out/xgboost`. With `--train` that
command searches the continuous space instead and trains whatever the policy asks for, at the cost that it then takes.
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

from benchmarks.cost_aware.pipelines import BUNDLED, PIPELINES, Data, bundled, in_file, transformers
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
    """One problem: a config in, loss and seconds of one training out."""

    data: Data
    pipeline: str
    most_rows: int = 2000
    space: Space = SPACE

    @property
    def name(self) -> str:
        return f"{self.data.name}_{self.pipeline}"

    @property
    def origin(self) -> dict[str, Any]:
        """From what `trained` makes the problem again, and what describes it to a transferred cost model."""
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
        """One training; the processor's seconds are those of boosting alone, data and judgement apart."""
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
        told = booster.predict(valid)
        if classes:
            loss = float(np.mean((told > 0.5 if classes == 2 else told) != y))
        else:
            loss = float(np.sqrt(np.mean((told - y) ** 2)) / np.std(y))
        return StepOutcome(loss, Cost(train=seconds))


def boostings(names: Iterable[str], pipelines: Iterable[str], folders: Iterable[Path], rows: int) -> list[Boosting]:
    """Every named data set, looked for in scikit-learn first and then in the folders, with every pipeline."""
    found = []
    for name in names:
        paths = [folder / f"{name}.npz" for folder in folders if (folder / f"{name}.npz").exists()]
        if name not in BUNDLED and not paths:
            raise SystemExit(f"data set {name!r} is neither one of {', '.join(BUNDLED)} nor a file of --data")
        data = bundled(name) if name in BUNDLED else in_file(paths[0])
        found += [Boosting(data, pipeline, rows) for pipeline in pipelines]
    return found


@dataclass(frozen=True)
class Trained(Problem):
    """A recorded problem whose configs are trained anew, anywhere in its space; its rows still say what a loss is worth."""

    boosting: Boosting

    @property
    def space(self) -> Space:  # type: ignore[override]
        return self.boosting.space

    @property
    def place(self) -> str:
        """Kept runs are in one unit: a longer recording may turn losses into logarithms."""
        return f"{self.folder}/{self.name}/trained{'/logarithms' if self.is_logged else ''}"

    def step(self, config: Config, step: int) -> StepOutcome:
        """As the recorded rows are told: their logarithm where those are logarithms. No error at all, which has none, counts
        as half of the least that was recorded."""
        outcome = self.boosting.step(config, step)
        if not self.is_logged or outcome.value is None:
            return outcome
        least = 0.5 * math.exp(float(self.losses.min()))
        return replace(outcome, value=math.log(max(outcome.value, least)))


def trained(table: Path, problem: Problem, folders: Iterable[Path]) -> Trained:
    """The problem of a recorded table, to be trained; its data come with scikit-learn or from the folders."""
    meta = json.loads(str(np.load(table)["meta"]))
    if "pipeline" not in meta:
        raise SystemExit(f"--train: {table} is no recording of xgboost_problems.py and cannot be trained")
    boosting = boostings([meta["data"]], [meta["pipeline"]], folders, int(meta["most_rows"]))[0]
    return Trained(**{one.name: getattr(problem, one.name) for one in fields(problem)}, boosting=boosting)


def record(problem: Boosting, configs: int, folder: Path, deadline: float = np.inf) -> bool:
    """Train each config once, from the first not yet in the file; True and a table when all are."""
    lines = folder / f"{problem.name}.jsonl"
    done = len(lines.read_text().splitlines()) if lines.exists() else 0
    cube = quasi_random(0, "configs", problem.space.dims, np.arange(configs))
    with lines.open("a") as file:
        for place in cube[done:]:
            if time.monotonic() > deadline:
                return False
            config = problem.space.from_cube(place)
            outcome = problem.step(config, 1)
            file.write(json.dumps({"config": config, "loss": outcome.value, "seconds": outcome.cost.total}) + "\n")
            file.flush()
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    names = list(problem.space.parameters)
    np.savez(
        folder / f"{problem.name}.npz",
        hp=np.array([[line["config"][name] for name in names] for line in told]),
        hp_names=np.array(names),
        loss=np.array([line["loss"] for line in told]),
        cost=np.maximum([line["seconds"] for line in told], 1e-5),  # the clock's own step
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
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after that long, to go on later")
    parser.add_argument("--quick", action="store_true", help="wine and diabetes, raw, 100 configs")
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
    told = {"problems": len(spread), "cost_spread_median": float(np.median(spread)) if spread else None}
    ok = len(spread) == len(problems)
    print(json.dumps({"name": "xgboost_problems", "measured": told, "target": {"problems": len(problems)}, "ok": ok}))
    raise SystemExit(0 if ok else 1)


if __name__ == "__main__":
    main()
