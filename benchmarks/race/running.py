"""One run: a method on a problem with so much money. One line of JSON each, in a file that is only ever added to.

A run is known by KEY. Its random numbers come from a hash of that key, so a race may be cut off, widened, split over
machines and done in any order. A run that the file already holds is not done again.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race import methods
from benchmarks.race.problems import Entrant, Problem, Unit, hashed, made_up
from shoestring import policies
from shoestring.core.deciding.decision import Decision
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Opened
from shoestring.core.ledger.ledger import Ledger
from shoestring.study.loop import run_in_memory

KEY = ("suite", "source", "table", "method", "budget", "unit", "seed", "steps", "pool")
_SPAWN = get_context("spawn")  # fresh processes: a fork would share the pipes of a tool that this one drives
WARM_UP_CONFIGS, WARM_UP_S = 20, 3.0
PATIENCE_S = 900.0  # for one run: whoever thinks longer is cut off, and gets what it had by then


class Timed:
    """A policy with a stopwatch."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.name = policy, policy.name
        self.decision_s: list[float] = []

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        began = time.perf_counter()
        try:
            return self.policy.decide(ledger, rng)
        finally:
            self.decision_s.append(time.perf_counter() - began)


@dataclass(frozen=True)
class Outcome:
    ledger: Ledger
    best: float | None  # the lowest loss that was bought
    decision_s: list[float]
    error: str | None = None

    @property
    def broke_at_once(self) -> str | None:
        """Why it never got to its first decision: then nothing was measured, and the method counts as absent."""
        return self.error.splitlines()[-1] if self.error and not self.ledger.orders else None


def opened(problem: Problem, policy: Policy, curves: float, unit: Unit, seed: int, workers: int = 1) -> Opened:
    """The study that a run is."""
    return Opened(
        space=problem.space,
        budget=Budget(problem.budget(curves, unit)),
        policy=policy.name,
        settings=policies.settings_of(policy),
        seed=seed,
        max_steps=problem.max_steps,
        workers=workers,
    )


def compete(
    problem: Problem,
    policy: Policy,
    *,
    curves: float,
    unit: Unit,
    seed: int,
    patience_s: float = PATIENCE_S,
    workers: int = 1,
) -> Outcome:
    """One study of any policy, registered or not, under the real loop."""
    timed = Timed(policy)
    newest = [Ledger([opened(problem, policy, curves, unit, seed, workers)])]
    until = time.monotonic() + patience_s

    def observe(ledger: Ledger, entry: Entry | None) -> None:
        newest[0] = ledger

    error = None
    try:
        ending = run_in_memory(
            newest[0], timed, problem.runner(), should_stop=lambda: time.monotonic() > until, observe=observe
        )
        if ending.reason in ("stopped", "failing"):
            error = f"cut off after {patience_s:.0f} s" if ending.reason == "stopped" else ending.text
    except methods.NotThere:
        raise
    except Exception as raised:  # whatever a method does, the race goes on
        error = "".join(traceback.format_exception_only(raised)).strip()[-600:]
    return Outcome(newest[0], problem.best(newest[0]), timed.decision_s, error)


@dataclass(frozen=True)
class Run:
    """What is to be run."""

    entrant: Entrant
    method: str
    budget: float
    unit: Unit
    seed: int

    @property
    def key(self) -> dict[str, Any]:
        entrant = self.entrant
        return {
            "suite": entrant.suite,
            "source": entrant.source,
            "table": entrant.table,
            "method": self.method,
            "budget": self.budget,
            "unit": self.unit,
            "seed": self.seed,
            "steps": entrant.steps,
            "pool": entrant.pool,
        }


def seed_of(run: Run) -> int:
    """Of its study. On a clock no run repeats exactly: there all methods share it, so ours begin with the same configs."""
    method = "" if run.entrant.suite == "trained" else run.method
    return hashed(run.entrant.name, method, f"{run.budget:g}", run.unit, run.seed)


def do(run: Run, patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Its line."""
    problem = draw(run.entrant, run.seed)
    told = {**run.key, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        if run.entrant.suite == "trained":
            _warm_up(run.method, methods.pid_of(run.method))
        began = time.perf_counter()
        with methods.entering(run.method, problem, run.budget, run.unit, patience_s) as (policy, version):
            seed = seed_of(run)
            outcome = compete(problem, policy, curves=run.budget, unit=run.unit, seed=seed, patience_s=patience_s)
    except methods.NotThere as error:
        return {**told, "absent": str(error)}
    if outcome.broke_at_once:
        return {**told, "absent": outcome.broke_at_once}
    return told | tell(problem, outcome, run.budget, run.unit, version, began)


def tell(problem: Problem, outcome: Outcome, budget: float, unit: Unit, version: str, began: float) -> dict[str, Any]:
    """What came of a run, beside its key; `began` on the clock of `time.perf_counter`."""
    return {
        "version": version,
        "best": outcome.best,
        "start": problem.start,
        "regret": problem.regret(outcome.best, budget, unit),
        "spent": outcome.ledger.spent,
        "trials": len(outcome.ledger.trials),
        "decisions": len(outcome.decision_s),
        "thinking_s": round(sum(outcome.decision_s), 6),
        "wall_s": round(time.perf_counter() - began, 3),
        "error": outcome.error,
    }


@cache
def _warm_up(method: str, pid: int | None) -> None:
    """A few decisions that nobody pays for: many a method imports on its first ones. Once in each process that thinks."""
    problem = made_up(WARM_UP_CONFIGS)
    curves = WARM_UP_CONFIGS / problem.max_steps
    with suppress(methods.NotThere), methods.entering(method, problem, curves, "curves", PATIENCE_S) as (policy, _):
        compete(problem, policy, curves=curves, unit="curves", seed=0, patience_s=WARM_UP_S)


@lru_cache(maxsize=4)
def draw(entrant: Entrant, seed: int) -> Problem:
    return entrant.draw(seed)


# many ----------------------------------------------------------------------------------------------------------------


def plan(
    entrants: Iterable[Entrant],
    names: dict[str, list[str]],
    budgets: Sequence[float],
    units: Sequence[Unit],
    seeds: int,
) -> list[Run]:
    """Every run that was asked for, the runs of one draw together."""
    return [
        Run(entrant, method, budget, unit, seed)
        for seed in range(seeds)
        for entrant in entrants
        for unit in entrant.units(units)
        for method in names[entrant.suite]
        for budget in budgets
    ]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of runs, the newest of each run; a half-written last line is no line."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    runs: dict[tuple[Any, ...], dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        try:
            run = json.loads(line)
        except ValueError:
            if number == len(lines):
                break
            raise SystemExit(f"line {number} of {path} is not JSON: remove it") from None
        runs[key_of(run)] = run
    return list(runs.values())


def key_of(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run.get(name) for name in KEY)


def mend(path: Path) -> None:
    """Cut a half-written last line off, so that the next one begins on a line of its own."""
    if not path.exists():
        return
    text = path.read_bytes()
    if text and not text.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(text.rfind(b"\n") + 1)


def missing(runs: Iterable[Run], done: Iterable[dict[str, Any]], *, retry: bool = False) -> list[Run]:
    have = {key_of(run) for run in done if not (retry and run.get("error"))}
    return [run for run in runs if key_of(run.key) not in have]


def race(
    runs: Sequence[Run], path: Path, jobs: int, patience_s: float = PATIENCE_S, lanes: int = 1
) -> Iterator[dict[str, Any]]:
    """Do all these runs and write each down as it is done. Whatever is not installed is told, and not written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mend(path)
    shared = [run for run in runs if run.entrant.suite != "trained"]
    alone = [run for run in runs if run.entrant.suite == "trained"]
    # On a real clock nobody shares a core, and nobody always comes first; a race that is cut off has whole seeds.
    alone.sort(key=lambda run: (run.seed, hashed("order", *run.key.values())))
    with path.open("a", encoding="utf-8") as file:
        for told in chain(_many(shared, jobs, patience_s), _in_lanes(alone, lanes, patience_s)):
            if "absent" not in told:
                file.write(json.dumps(told, allow_nan=False) + "\n")
                file.flush()
            yield told


def _many(runs: Sequence[Run], jobs: int, patience_s: float) -> Iterator[dict[str, Any]]:
    if jobs <= 1 or len(runs) < 2:
        yield from (do(run, patience_s) for run in runs)
        return
    yield from _pooled(runs, patience_s, ProcessPoolExecutor(jobs, mp_context=_SPAWN, initializer=use_one_thread))


def _in_lanes(runs: Sequence[Run], lanes: int, patience_s: float) -> Iterator[dict[str, Any]]:
    """One run at a time in each lane of cores of its own, which the tool that it drives shares with it."""
    if lanes <= 1:
        yield from (do(run, patience_s) for run in runs)
        return
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // lanes
    if not each:
        raise SystemExit(f"--lanes {lanes} needs as many cores, and there are {len(cores)}: take fewer lanes")
    free = _SPAWN.SimpleQueue()
    for i in range(lanes):
        free.put(cores[i * each : (i + 1) * each])
    pool = ProcessPoolExecutor(lanes, mp_context=_SPAWN, initializer=_take_lane, initargs=(free,))
    for told in _pooled(runs, patience_s, pool):
        yield {**told, "lanes": lanes, "cores": each}


def _pooled(runs: Sequence[Run], patience_s: float, pool: ProcessPoolExecutor) -> Iterator[dict[str, Any]]:
    try:
        submitted = {pool.submit(do, run, patience_s): run for run in runs}
        for future in as_completed(submitted):
            error = future.exception()
            yield future.result() if error is None else {**submitted[future].key, "absent": repr(error)}
    finally:  # whoever stops the race does not want to wait for thousands of runs
        pool.shutdown(cancel_futures=True)


def _take_lane(free: Any) -> None:
    os.sched_setaffinity(0, free.get())
    use_one_thread()


def use_one_thread() -> None:
    from benchmarks.race.peers.policy import ONE_THREAD

    os.environ.update(ONE_THREAD)
