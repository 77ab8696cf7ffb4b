"""Measure the time per decision and the memory of a method, for studies of 50, 200 and 1000 configurations.

A study has a listed space of that size, curves of 50 steps, and a budget of four steps per configuration. The method runs until
the budget or its time is used up. The last fifth of its decisions is timed, but at least 20 decisions. Each study has its own
process, so that peak memory belongs to this study; for another tool it is that of the tool's process. `base_mb` is the memory
before the study.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race import methods, running
from benchmarks.race.peers.policy import ONE_THREAD
from benchmarks.race.problems import SYNTHETIC_STEPS, synthetic_problem

STEPS_PER_CONFIG, MIN_TIMED = 4, 20


@dataclass(frozen=True)
class ProcessMemory:
    """The memory of a process."""

    pid: int | None  # None: this process

    def peak_mb(self) -> float | None:
        """Return the peak resident memory in MB, or None if the process was killed because it hung."""
        if self.pid is None:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0  # Linux counts KiB
        try:
            status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        except FileNotFoundError:
            return None
        return next(float(line.split()[1]) / 1024.0 for line in status.splitlines() if line.startswith("VmHWM"))


def measure(method: str, arms: int, patience_s: float) -> dict[str, Any]:
    """Measure one study in this process; `_measure_in_subprocess` starts a new one."""
    problem = synthetic_problem(arms)
    curves = arms * STEPS_PER_CONFIG / SYNTHETIC_STEPS
    record: dict[str, Any] = {"method": method, "arms": arms}
    try:
        with methods.open_policy(method, problem, curves, "curves", patience_s) as (policy, version):
            memory = ProcessMemory(methods.pid_of(method))
            base = memory.peak_mb()
            outcome = running.run_study(problem, policy, curves=curves, unit="curves", seed=0, patience_s=patience_s)
            peak = memory.peak_mb()
    except methods.MethodAbsentError as error:
        return {**record, "absent": str(error)}
    if outcome.startup_error:
        return {**record, "absent": outcome.startup_error}
    last = 1000.0 * np.array(_full_size_decisions(outcome.decision_s))
    return {
        **record,
        "version": version,
        "opened": len(outcome.ledger.trials),
        "decisions": len(outcome.decision_s),
        "mean_ms": round(float(last.mean()), 4),
        "median_ms": round(float(np.median(last)), 4),
        "p95_ms": round(float(np.quantile(last, 0.95)), 4),
        "thinking_s": round(float(sum(outcome.decision_s)), 4),
        "base_mb": base and round(base, 1),
        "memory_mb": peak and round(peak, 1),
        "error": outcome.error,
    }


def _full_size_decisions(decision_s: list[float]) -> list[float]:
    """Return the last decisions, at least 20: most continue a trial, and a few would miss the cost of choosing a new one."""
    before_the_end = decision_s[:-1] or decision_s  # the last decision may only end the study
    return before_the_end[-max(MIN_TIMED, len(before_the_end) // 5) :]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks race cost", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["ours", "optuna"], metavar="NAME", help="see `race methods`")
    parser.add_argument("--arms", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--patience", type=float, default=60.0, help="maximum number of seconds per study")
    parser.add_argument("--quick", action="store_true", help="the quick policies, 50 configurations")
    parser.add_argument("-o", "--out", type=Path, help="file of JSON lines, overwritten")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # one study, in this process
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.methods, chosen.arms = ["quick"], [50]
    if chosen.here:
        print(json.dumps(measure(chosen.methods[0], chosen.arms[0], chosen.patience)))
        return 0
    lines = []
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text("", encoding="utf-8")
    for arms in chosen.arms:
        for method in methods.expand_names(chosen.methods, None):
            if method == methods.ORACLE:
                continue
            line = _measure_in_subprocess(method, arms, chosen.patience)
            lines.append(line)
            if chosen.out:
                with chosen.out.open("a", encoding="utf-8") as file:  # immediately: the measurement may be interrupted
                    file.write(json.dumps(line) + "\n")
            facts = line.get("absent") or f"{line['mean_ms']:9.3f} ms {line['memory_mb'] or math.nan:7.0f} MB"
            error = (line.get("error") or "").rpartition("\n")[2]
            print(
                f"{method:<28} {arms:5d} arms {facts} {error}".rstrip()[:140],
                file=sys.stderr,
                flush=True,
            )
    print(json.dumps({"name": "race_cost", "measured": lines}))
    return 0


def _measure_in_subprocess(method: str, arms: int, patience_s: float) -> dict[str, Any]:
    options = ["--here", "--methods", method, "--arms", str(arms), "--patience", str(patience_s)]
    command = [sys.executable, "-m", "benchmarks", "race", "cost", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ONE_THREAD})
    if done.returncode:
        return {
            "method": method,
            "arms": arms,
            "absent": (done.stderr.strip().splitlines() or ["no error message"])[-1],
        }
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line
