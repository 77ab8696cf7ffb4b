"""Execute runs: a run is one method on one problem with one budget. Each run appends one line of JSON to a file.

KEY identifies a run. Its random numbers come from a hash of that key, so a race can be interrupted, extended, split over
machines and executed in any order. A run that is already in the file is not executed again.
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
from benchmarks.race.problems import Problem, ProblemSpec, Unit, stable_hash, synthetic_problem
from shoestring import policies
from shoestring.core.deciding.decision import Decision
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.study.loop import run_in_memory

KEY = ("suite", "source", "table", "method", "budget", "unit", "seed", "steps", "pool")
_SPAWN = get_context("spawn")  # new processes: a fork would share the pipes of the tools that this process drives
WARM_UP_CONFIGS, WARM_UP_S = 20, 3.0
PATIENCE_S = 900.0  # for one run: a slower method is stopped, and its best loss until then counts


class TimedPolicy:
    """A policy whose decisions are timed."""

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
    best: float | None  # the lowest loss of the run
    decision_s: list[float]
    error: str | None = None

    @property
    def startup_error(self) -> str | None:
        """The error that occurred before the first decision, or None. Such a method counts as absent."""
        return self.error.splitlines()[-1] if self.error and not self.ledger.orders else None


def opening_entry(
    problem: Problem, policy: Policy, curves: float, unit: Unit, seed: int, workers: int = 1
) -> StudyDefinition:
    """Return the first ledger entry of the study of a run."""
    return StudyDefinition(
        space=problem.space,
        budget=Budget(problem.budget(curves, unit)),
        policy=policy.name,
        settings=policies.settings_of(policy),
        seed=seed,
        max_steps=problem.max_steps,
        workers=workers,
    )


def run_study(
    problem: Problem,
    policy: Policy,
    *,
    curves: float,
    unit: Unit,
    seed: int,
    patience_s: float = PATIENCE_S,
    workers: int = 1,
) -> Outcome:
    """Run one study of a policy, registered or not, with the real loop."""
    timed = TimedPolicy(policy)
    newest = [Ledger([opening_entry(problem, policy, curves, unit, seed, workers)])]
    until = time.monotonic() + patience_s

    def observe(ledger: Ledger, entry: Entry | None) -> None:
        newest[0] = ledger

    error = None
    try:
        ending = run_in_memory(
            newest[0], timed, problem.runner(), should_stop=lambda: time.monotonic() > until, observe=observe
        )
        if ending.reason in ("stopped", "failing"):
            error = f"stopped after {patience_s:.0f} s" if ending.reason == "stopped" else ending.text
    except methods.MethodAbsentError:
        raise
    except Exception as raised:  # an error of a method must not end the race
        error = "".join(traceback.format_exception_only(raised)).strip()[-600:]
    return Outcome(newest[0], problem.best(newest[0]), timed.decision_s, error)


@dataclass(frozen=True)
class Run:
    """A run to be executed."""

    spec: ProblemSpec
    method: str
    budget: float
    unit: Unit
    seed: int

    @property
    def key(self) -> dict[str, Any]:
        spec = self.spec
        return {
            "suite": spec.suite,
            "source": spec.source,
            "table": spec.table,
            "method": self.method,
            "budget": self.budget,
            "unit": self.unit,
            "seed": self.seed,
            "steps": spec.steps,
            "pool": spec.pool,
        }


def seed_of(run: Run) -> int:
    """Return the seed of a study. Our policies share it, so that they differ in what they decide, not in what they draw."""
    method = "" if run.spec.suite == "trained" or methods.is_ours(run.method) else run.method
    return stable_hash(run.spec.name, method, f"{run.budget:g}", run.unit, run.seed)


def execute(run: Run, patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Execute a run and return its record."""
    problem = _draw_problem(run.spec, run.seed)
    record = {**run.key, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        if run.spec.suite == "trained":
            _warm_up(run.method, methods.pid_of(run.method))
        began = time.perf_counter()
        with methods.open_policy(run.method, problem, run.budget, run.unit, patience_s) as (policy, version):
            seed = seed_of(run)
            outcome = run_study(problem, policy, curves=run.budget, unit=run.unit, seed=seed, patience_s=patience_s)
    except methods.MethodAbsentError as error:
        return {**record, "absent": str(error)}
    if outcome.startup_error:
        return {**record, "absent": outcome.startup_error}
    return record | _result_fields(problem, outcome, run.budget, run.unit, version, began)


def _result_fields(
    problem: Problem, outcome: Outcome, budget: float, unit: Unit, version: str, began: float
) -> dict[str, Any]:
    """Return the results of a run; `began` is its start on the clock of `time.perf_counter`."""
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
    """Let a method decide a few times before the clock starts, once per process: many methods import on first use."""
    problem = synthetic_problem(WARM_UP_CONFIGS)
    curves = WARM_UP_CONFIGS / problem.max_steps
    with (
        suppress(methods.MethodAbsentError),
        methods.open_policy(method, problem, curves, "curves", PATIENCE_S) as (policy, _),
    ):
        run_study(problem, policy, curves=curves, unit="curves", seed=0, patience_s=WARM_UP_S)


@lru_cache(maxsize=4)
def _draw_problem(spec: ProblemSpec, seed: int) -> Problem:
    return spec.draw(seed)


# many runs ----------------------------------------------------------------------------------------------------------------


def plan(
    specs: Iterable[ProblemSpec],
    names: dict[str, list[str]],
    budgets: Sequence[float],
    units: Sequence[Unit],
    seeds: int,
) -> list[Run]:
    """Return all runs, those with the same drawn problem next to each other."""
    return [
        Run(spec, method, budget, unit, seed)
        for seed in range(seeds)
        for spec in specs
        for unit in spec.units(units)
        for method in names[spec.suite]
        for budget in budgets
    ]


def read(path: Path) -> list[dict[str, Any]]:
    """Read a file of runs: the newest record of each run, without an incomplete last line."""
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


def _remove_torn_line(path: Path) -> None:
    """Remove an incomplete last line, so that the next record starts on a new line."""
    if not path.exists():
        return
    text = path.read_bytes()
    if text and not text.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(text.rfind(b"\n") + 1)


def missing_runs(runs: Iterable[Run], done: Iterable[dict[str, Any]], *, retry: bool = False) -> list[Run]:
    have = {key_of(run) for run in done if not (retry and run.get("error"))}
    return [run for run in runs if key_of(run.key) not in have]


def race(
    runs: Sequence[Run], path: Path, jobs: int, patience_s: float = PATIENCE_S, lanes: int = 1
) -> Iterator[dict[str, Any]]:
    """Execute runs, append each record to the file, and yield it. Absent methods are yielded, not written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_torn_line(path)
    shared = [run for run in runs if run.spec.suite != "trained"]
    alone = [run for run in runs if run.spec.suite == "trained"]
    # On a real clock, runs do not share cores and methods run in random order. An interrupted race has complete seeds.
    alone.sort(key=lambda run: (run.seed, stable_hash("order", *run.key.values())))
    with path.open("a", encoding="utf-8") as file:
        for record in chain(_run_in_jobs(shared, jobs, patience_s), _run_in_lanes(alone, lanes, patience_s)):
            if "absent" not in record:
                file.write(json.dumps(record, allow_nan=False) + "\n")
                file.flush()
            yield record


def _run_in_jobs(runs: Sequence[Run], jobs: int, patience_s: float) -> Iterator[dict[str, Any]]:
    if jobs <= 1 or len(runs) < 2:
        yield from (execute(run, patience_s) for run in runs)
        return
    yield from _run_in_pool(runs, patience_s, ProcessPoolExecutor(jobs, mp_context=_SPAWN, initializer=_use_one_thread))


def _run_in_lanes(runs: Sequence[Run], lanes: int, patience_s: float) -> Iterator[dict[str, Any]]:
    """Execute one run at a time per lane. A lane is a set of cores that only its run, and the tool it drives, may use."""
    if lanes <= 1:
        yield from (execute(run, patience_s) for run in runs)
        return
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // lanes
    if not each:
        raise SystemExit(f"--lanes {lanes} needs at least as many cores, but there are {len(cores)}: use fewer lanes")
    free = _SPAWN.SimpleQueue()
    for i in range(lanes):
        free.put(cores[i * each : (i + 1) * each])
    pool = ProcessPoolExecutor(lanes, mp_context=_SPAWN, initializer=_pin_to_lane, initargs=(free,))
    for record in _run_in_pool(runs, patience_s, pool):
        yield {**record, "lanes": lanes, "cores": each}


def _run_in_pool(runs: Sequence[Run], patience_s: float, pool: ProcessPoolExecutor) -> Iterator[dict[str, Any]]:
    try:
        submitted = {pool.submit(execute, run, patience_s): run for run in runs}
        for future in as_completed(submitted):
            error = future.exception()
            yield future.result() if error is None else {**submitted[future].key, "absent": repr(error)}
    finally:  # an interrupt must not wait for the runs in the queue
        pool.shutdown(cancel_futures=True)


def _pin_to_lane(free: Any) -> None:
    os.sched_setaffinity(0, free.get())
    _use_one_thread()


def _use_one_thread() -> None:
    from benchmarks.race.peers.policy import ONE_THREAD

    os.environ.update(ONE_THREAD)
