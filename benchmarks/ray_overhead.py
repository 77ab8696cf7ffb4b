"""Measure the overhead of a step on a Ray cluster: our Ray runner and Ray Tune on the same trainable, which does nothing.

Both run ASHA over the same lengths with the same number of workers, on one cluster of this machine, alternately and several
times. The trainable can be saved and loaded. The result is the time from the first finished step to the last, divided by the
number of steps, and the processor time of the driver in between, which is meaningful on a busy machine too.

Our runner writes a checkpoint at the end of every order, because trials may be resumed later, and waits until it is on disk. Ray
Tune stops its trials and writes none. So our runner is also measured with checkpoints in a folder in memory, without that wait.
Ray Tune is measured with its defaults, which is what the target refers to, and with the least possible overhead: actors are
reused for the next trial (this needs code) and no result files are written. In the second case it trains for up to a
second before it checks whether a trial should stop: up to 27 steps instead of 1, so its steps are many and cheap. Therefore it is
also measured with a check after every step, as its scheduler is documented.

It needs an environment with Ray Tune, which `python -m benchmarks race peers ray` creates. Last line: one JSON object;
exit 1 when a target is missed.

    python -m benchmarks ray [--trials 12] [--repeats 3] [--quick]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WORKERS, MAX_STEPS, REDUCTION = 2, 27, 3
IN_MEMORY = Path("/dev/shm")  # on systems that have it
LEAN, LEAN_EACH = "Ray Tune, lean", "Ray Tune, lean, a check after every step"
OURS, OURS_IN_MEMORY = "ours", "ours, checkpoints in memory"
MAX_TIME_SHARE = 0.5  # of the time of Ray Tune
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keep everything on loopback
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}


class NoOp:
    """Training code that does nothing."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.x, self.done = config["x"], 0

    def step(self) -> float:
        self.done += 1
        return float(self.x + 1 / self.done)

    def save(self, path: Path) -> None:
        path.write_text(str(self.done))

    def load(self, path: Path) -> None:
        self.done = int(path.read_text())


class Pace:
    """Clock and processor time of this process from the first finished step to the last."""

    def __init__(self) -> None:
        self.moments: list[float] = []
        self._cpu: list[float] = []

    def note(self, moment: float) -> None:
        self.moments.append(moment)
        self._cpu.append(time.process_time())

    def ms_a_step(self) -> tuple[float, float]:
        spans = (max(self.moments) - min(self.moments), self._cpu[-1] - self._cpu[0])
        return tuple(1e3 * span / (len(self.moments) - 1) for span in spans)  # type: ignore[return-value]


def measure_ours(steps: int, folder: Path) -> Pace:
    from shoestring.core.ledger.entries import Receipt
    from shoestring.runners.checkpoints.checkpoints import Checkpoints
    from shoestring.runners.ray.ray_runner import RayRunner
    from shoestring.study.study import Study

    pace = Pace()

    class RecordingRunner(RayRunner):
        def wait(self, until: float) -> list[Any]:
            news = super().wait(until)
            for entry in news:
                if isinstance(entry, Receipt):
                    pace.note(entry.at)
            return news

    settings = {"reduction_factor": REDUCTION}
    space = {"x": {"float": [0, 1]}}
    how: dict[str, Any] = {
        "max_steps": MAX_STEPS,
        "policy": "asha",
        "settings": settings,
        "seed": 1,
        "workers": WORKERS,
    }
    Study.begin(space, f"{steps} epochs", **how).run(RecordingRunner(NoOp, Checkpoints(folder), WORKERS))
    return pace


def measure_tune(trials: int, folder: Path, *, is_lean: bool, checks_each_step: bool = False) -> Pace:
    """Measure Ray Tune with its defaults, or with reused actors and no result files."""
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    class Trainable(tune.Trainable):  # type: ignore[misc]
        def setup(self, config: dict[str, Any]) -> None:
            self.code = NoOp(config)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.code = NoOp(new_config)
            return True

        def step(self) -> dict[str, Any]:
            value = self.code.step()
            return {"value": value, "moment": time.time(), "done": self.code.done >= MAX_STEPS}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self.code.save(Path(checkpoint_dir) / "done")

        def load_checkpoint(self, checkpoint_dir: str) -> None:
            self.code.load(Path(checkpoint_dir) / "done")

    pace = Pace()

    class RecordingCallback(tune.Callback):  # type: ignore[misc]
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            pace.note(result["moment"])

    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = str(int(is_lean))
    os.environ.pop("TUNE_RESULT_BUFFER_LENGTH", None)
    if checks_each_step:
        os.environ["TUNE_RESULT_BUFFER_LENGTH"] = "1"
    tuner = tune.Tuner(
        Trainable,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="value",
            mode="min",
            num_samples=trials,
            max_concurrent_trials=WORKERS,
            reuse_actors=is_lean,
            scheduler=ASHAScheduler(max_t=MAX_STEPS, grace_period=1, reduction_factor=REDUCTION),
        ),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0, callbacks=[RecordingCallback()]),
    )
    tuner.fit()
    return pace


def measure(trials: int, repeats: int) -> int:
    """Run all measurements in an environment that has Ray Tune."""
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init("local", num_cpus=WORKERS, include_dashboard=False, logging_level="error", log_to_driver=False)
    found: dict[str, list[Pace]] = {}
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory(dir=_folder_in_memory()) as in_memory:
        for repeat in range(repeats):
            at = {
                name: Path(made) / f"{number}-{repeat}"
                for number, name in enumerate(("Ray Tune", LEAN, LEAN_EACH, OURS))
            }
            now = {"Ray Tune": measure_tune(trials, at["Ray Tune"], is_lean=False)}
            now[LEAN] = measure_tune(trials, at[LEAN], is_lean=True)
            now[LEAN_EACH] = measure_tune(trials, at[LEAN_EACH], is_lean=True, checks_each_step=True)
            steps = len(now[LEAN_EACH].moments)
            now[OURS] = measure_ours(steps, at[OURS])
            now[OURS_IN_MEMORY] = measure_ours(steps, Path(in_memory) / str(repeat))
            for name, pace in now.items():
                found.setdefault(name, []).append(pace)
                wall_ms, cpu_ms = pace.ms_a_step()
                print(f"{name}: {len(pace.moments)} steps, {wall_ms:.1f} ms each, driver {cpu_ms:.1f} ms", flush=True)
    version = ray.__version__
    ray.shutdown()
    result = _judge(found, version)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def _folder_in_memory() -> Path | None:
    return IN_MEMORY if IN_MEMORY.is_dir() else None


def _judge(found: dict[str, list[Pace]], version: str) -> dict[str, Any]:
    """Compute medians over the repeats; the target refers to Ray Tune with its defaults."""
    wall, cpu = ({name: _median_ms(paces, part) for name, paces in found.items()} for part in (0, 1))
    share = wall[OURS] / wall["Ray Tune"]
    theirs = [name for name in found if name not in (OURS, OURS_IN_MEMORY)]
    return {
        "name": "ray",
        "measured": {
            "step_ms": wall[OURS],
            "step_ms_without_disk": wall[OURS_IN_MEMORY],
            "driver_cpu_ms": cpu[OURS],
            "share": {name: wall[OURS] / wall[name] for name in theirs},
            "share_without_disk": {name: wall[OURS_IN_MEMORY] / wall[name] for name in theirs},
            "share_of_driver_cpu": {name: cpu[OURS] / cpu[name] for name in theirs},
        },
        "target": {"share": {"Ray Tune": MAX_TIME_SHARE}},
        "peers": {f"{name}, ASHA, {version}": {"step_ms": wall[name], "driver_cpu_ms": cpu[name]} for name in theirs},
        "ok": share <= MAX_TIME_SHARE,
    }


def _median_ms(paces: list[Pace], part: int) -> float:
    return statistics.median(pace.ms_a_step()[part] for pace in paces)


def main() -> int:
    from benchmarks.race.peers.environments import find_python

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="4 trials, once")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.trials, chosen.repeats = 4, 1
    has_tune = find_spec("ray") is not None and find_spec("pyarrow") is not None
    python = Path(sys.executable) if has_tune else find_python("ray")
    if python is None:
        print("Ray Tune is not installed: python -m benchmarks race peers ray", file=sys.stderr)
        return 1
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    words = f"from benchmarks.ray_overhead import measure; raise SystemExit(measure({chosen.trials}, {chosen.repeats}))"
    return subprocess.run(
        [python, "-c", words], env={**os.environ, **QUIET, "PYTHONPATH": path}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
