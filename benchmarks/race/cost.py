"""What thinking costs: time of a decision and memory of the process that thinks, for studies of 50, 200 and 1000 configs.

A study has so many rows to choose from, curves of 50 steps, and money for four steps each. The method runs until that
money or its patience is gone; the last fifth of its decisions is timed, and no fewer than 20. Each study has a process
of its own, so that peak memory is this study's; for another tool it is that of the tool's process. `base_mb` is the
memory before the study began.
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
from benchmarks.race.problems import MADE_UP_STEPS, made_up

STEPS_EACH, FEWEST_TIMED = 4, 20


@dataclass(frozen=True)
class Memory:
    """Peak resident memory of a process, in MB."""

    pid: int | None  # None: this process

    def peak_mb(self) -> float | None:
        """None where the process is gone: it hung, and was ended."""
        if self.pid is None:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0  # Linux counts KiB
        try:
            status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        except FileNotFoundError:
            return None
        return next(float(line.split()[1]) / 1024.0 for line in status.splitlines() if line.startswith("VmHWM"))


def measure(method: str, arms: int, patience_s: float) -> dict[str, Any]:
    """In this very process: see `main` for one of its own."""
    problem = made_up(arms)
    curves = arms * STEPS_EACH / MADE_UP_STEPS
    told: dict[str, Any] = {"method": method, "arms": arms}
    try:
        with methods.entering(method, problem, curves, "curves", patience_s) as (policy, version):
            memory = Memory(methods.pid_of(method))
            base = memory.peak_mb()
            outcome = running.compete(problem, policy, curves=curves, unit="curves", seed=0, patience_s=patience_s)
            peak = memory.peak_mb()
    except methods.NotThere as error:
        return {**told, "absent": str(error)}
    if outcome.broke_at_once:
        return {**told, "absent": outcome.broke_at_once}
    last = 1000.0 * np.array(_timed(outcome.decision_s))
    return {
        **told,
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


def _timed(decision_s: list[float]) -> list[float]:
    """Those of the study at its full size. Most only let a trial go on, so that a few would not show what a new one costs."""
    before_the_end = decision_s[:-1] or decision_s  # the very last one may only end the study
    return before_the_end[-max(FEWEST_TIMED, len(before_the_end) // 5) :]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks race cost", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["ours", "optuna"], metavar="NAME", help="see `race methods`")
    parser.add_argument("--arms", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for one study")
    parser.add_argument("--quick", action="store_true", help="the quick policies, 50 configs")
    parser.add_argument("-o", "--out", type=Path, help="a file of JSON lines, written anew")
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
        for method in methods.named(chosen.methods, None):
            if method == methods.ORACLE:
                continue
            line = _in_its_own_process(method, arms, chosen.patience)
            lines.append(line)
            if chosen.out:
                with chosen.out.open("a", encoding="utf-8") as file:  # at once: it may be cut off
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


def _in_its_own_process(method: str, arms: int, patience_s: float) -> dict[str, Any]:
    told = ["--here", "--methods", method, "--arms", str(arms), "--patience", str(patience_s)]
    command = [sys.executable, "-m", "benchmarks", "race", "cost", *told]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ONE_THREAD})
    if done.returncode:
        return {"method": method, "arms": arms, "absent": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line
