"""Time the loop itself: decide, append the order and append its receipt, for orders of one step.

Random search on a simulated curve, in memory and on SQLite with synchronous=FULL, compared with Optuna's `ask` + `report` +
`tell` with its random sampler on the same file system, in the same run (interleaved, since machines are noisy). Also
10,000 simulated steps of Hyperband. Last line: one JSON object; exit 1 when a target is missed.

    python -m benchmarks overhead [--orders 500] [--repeats 5] [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoestring import policies
from shoestring.core.ledger.entries import Cost
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.sql import SqlStore
from shoestring.study.study import Study

SPACE = Space(
    {
        "lr": Float(1e-5, 1.0, log=True),
        "decay": Float(1e-6, 1e-1, log=True),
        "dropout": Float(0.0, 0.9),
        "units": Int(8, 512, log=True),
        "layers": Int(1, 5),
        "activation": Choice(["relu", "tanh", "gelu"]),
    }
)
TARGETS_MS = {"memory": 0.2, "sqlite": 2.0}
HYPERBAND_TARGET_S = 3.0


class DurableSqlStore(SqlStore):
    """A store that waits for the disk at every commit, as for real training."""

    def append(self, *words: Any, durable: bool = True, **how: Any) -> Ledger:
        return super().append(*words, **how)


class Curve:
    def step(self, config: Config, step: int) -> StepOutcome:
        return StepOutcome(config["dropout"] + 1 / (1 + config["lr"] * step), Cost(train=1.0))


def shoestring_ms(store: Any, orders: int) -> float:
    study = Study.begin(SPACE, f"{orders} epochs", store=store, policy="random_search", seed=1)
    began = time.perf_counter()
    study.run(SimulatedRunner(Curve()))
    seconds = time.perf_counter() - began
    assert len(study.ledger.orders) == orders
    return seconds / orders * 1e3


def optuna_ms(storage: Any, orders: int) -> float:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler(seed=1))
    began = time.perf_counter()
    for _ in range(orders):
        trial = study.ask()
        lr = trial.suggest_float("lr", 1e-5, 1.0, log=True)
        trial.suggest_float("decay", 1e-6, 1e-1, log=True)
        dropout = trial.suggest_float("dropout", 0.0, 0.9)
        trial.suggest_int("units", 8, 512, log=True)
        trial.suggest_int("layers", 1, 5)
        trial.suggest_categorical("activation", ["relu", "tanh", "gelu"])
        value = dropout + 1 / (1 + lr)
        trial.report(value, 1)
        study.tell(trial, value)
    return (time.perf_counter() - began) / orders * 1e3


def optuna_sqlite(path: Path, wal: bool) -> Any:
    import optuna
    import sqlalchemy

    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")

    def pragmas(connection: Any, _: Any) -> None:
        connection.execute(f"PRAGMA journal_mode={'WAL' if wal else 'DELETE'}")
        connection.execute("PRAGMA synchronous=FULL")

    sqlalchemy.event.listen(storage.engine, "connect", pragmas)
    storage.engine.dispose()
    return storage


def hyperband_s(steps: int) -> float:
    policy = policies.make("hyperband")
    study = Study.begin(SPACE, f"{steps} epochs", policy=policy, max_steps=81, seed=1)
    began = time.perf_counter()
    study.run(SimulatedRunner(Curve()))
    assert study.spent == steps
    return time.perf_counter() - began


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the databases are made (default: a temporary folder)")
    parser.add_argument("--quick", action="store_true", help="200 orders, once")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.orders, chosen.repeats = 200, 1
    with tempfile.TemporaryDirectory(dir=chosen.folder) as made:
        folder = Path(made)
        slow = max(20, chosen.orders // 10)
        cases: dict[str, Callable[[int], float]] = {
            "memory": lambda i: shoestring_ms(MemoryStore(), chosen.orders),
            "sqlite": lambda i: shoestring_ms(DurableSqlStore(f"sqlite:///{folder}/s{i}.db"), chosen.orders),
            "optuna memory": lambda i: optuna_ms(None, chosen.orders),
            "optuna sqlite": lambda i: optuna_ms(optuna_sqlite(folder / f"o{i}.db", wal=False), slow),
            "optuna sqlite wal": lambda i: optuna_ms(optuna_sqlite(folder / f"w{i}.db", wal=True), slow),
        }
        measured: dict[str, list[float]] = {name: [] for name in cases}
        for i in range(chosen.repeats):
            for name, case in cases.items():
                measured[name].append(case(i))
        medians = {name: statistics.median(values) for name, values in measured.items()}
    hyperband = statistics.median(hyperband_s(10_000) for _ in range(1 if chosen.quick else 3))
    for name, value in medians.items():
        print(f"{name:20s} {value:8.3f} ms an order   (runs {', '.join(f'{v:.3f}' for v in measured[name])})")
    print(f"hyperband, 10,000 simulated steps: {hyperband:.2f} s")
    ok = all(medians[name] <= target for name, target in TARGETS_MS.items()) and hyperband <= HYPERBAND_TARGET_S
    result = {
        "name": "overhead",
        "measured": {
            "memory_ms": medians["memory"],
            "sqlite_ms": medians["sqlite"],
            "hyperband_10000_steps_s": hyperband,
        },
        "target": {
            "memory_ms": TARGETS_MS["memory"],
            "sqlite_ms": TARGETS_MS["sqlite"],
            "hyperband_10000_steps_s": HYPERBAND_TARGET_S,
        },
        "peers": {name: value for name, value in medians.items() if name.startswith("optuna")},
        "ok": ok,
    }
    print(json.dumps(result))
    return 0 if ok else 1
