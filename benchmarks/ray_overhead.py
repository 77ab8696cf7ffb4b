"""What a step costs on a Ray cluster beside the training itself: our Ray runner, and Ray Tune, on the same no-op trainable.

Both run ASHA over the same lengths with as many seats, on one cluster of this machine, in turn and several times. The
trainable can be saved and loaded and does nothing. Counted is the time from the first step that was finished to the last,
divided by the steps. We write a checkpoint at the end of every order, since trials are to go on later; Ray Tune stops its trials
and writes none. It is run as it comes, which is what the target is about, and as lean as it gets: actors used again for the
next trial (code has to be written for that), no files of results.

Needs an environment with Ray Tune: `python -m benchmarks race peers ray` makes one. Last line: one JSON object; exit 1 when a
target is missed.

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
SEATS, MAX_STEPS, REDUCTION = 2, 27, 3
MOST_SHARE = 0.5  # of what Ray Tune needs
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # everything on loopback
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}


class NoOp:
    """Training code of ours that does nothing."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.x, self.done = config["x"], 0

    def step(self) -> float:
        self.done += 1
        return float(self.x + 1 / self.done)

    def save(self, path: Path) -> None:
        path.write_text(str(self.done))

    def load(self, path: Path) -> None:
        self.done = int(path.read_text())


def measure_ours(steps: int, folder: Path) -> tuple[float, int]:
    """(milliseconds a step, steps)"""
    from shoestring.core.entries import Receipt
    from shoestring.runners.checkpoints import Checkpoints
    from shoestring.runners.ray import Seats
    from shoestring.study.study import Study

    settings = {"reduction_factor": REDUCTION}
    space = {"x": {"float": [0, 1]}}
    how: dict[str, Any] = {"max_steps": MAX_STEPS, "policy": "asha", "settings": settings, "seed": 1, "workers": SEATS}
    study = Study.begin(space, f"{steps} epochs", **how)
    study.run(Seats(NoOp, Checkpoints(folder), SEATS))
    at = [entry.at for entry in study.ledger.entries() if isinstance(entry, Receipt)]
    return (max(at) - min(at)) / (len(at) - 1) * 1e3, len(at)


def measure_tune(trials: int, folder: Path, *, is_lean: bool) -> tuple[float, int]:
    """The same for Ray Tune: as it comes, or as lean as it gets, with actors used again and no files of results."""
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

    moments: list[float] = []

    class Watch(tune.Callback):  # type: ignore[misc]
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            moments.append(result["moment"])

    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = str(int(is_lean))
    tuner = tune.Tuner(
        Trainable,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="value",
            mode="min",
            num_samples=trials,
            max_concurrent_trials=SEATS,
            reuse_actors=is_lean,
            scheduler=ASHAScheduler(max_t=MAX_STEPS, grace_period=1, reduction_factor=REDUCTION),
        ),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0, callbacks=[Watch()]),
    )
    tuner.fit()
    return (max(moments) - min(moments)) / (len(moments) - 1) * 1e3, len(moments)


def measure(trials: int, repeats: int) -> int:
    """In an environment that has Ray Tune."""
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init("local", num_cpus=SEATS, include_dashboard=False, logging_level="error", log_to_driver=False)
    lean = "Ray Tune, lean"
    found: dict[str, list[float]] = {"ours": [], "Ray Tune": [], lean: []}
    with tempfile.TemporaryDirectory() as made:
        for repeat in range(repeats):
            found["Ray Tune"].append(measure_tune(trials, Path(made) / f"tune-{repeat}", is_lean=False)[0])
            theirs, steps = measure_tune(trials, Path(made) / f"lean-{repeat}", is_lean=True)
            found[lean].append(theirs)
            found["ours"].append(measure_ours(steps, Path(made) / f"ours-{repeat}")[0])
            last = ", ".join(f"{name} {values[-1]:.1f} ms" for name, values in found.items())
            print(f"{steps} steps: {last} a step", flush=True)
    version = ray.__version__
    ray.shutdown()
    medians = {name: statistics.median(values) for name, values in found.items()}
    share = medians["ours"] / medians["Ray Tune"]
    result = {
        "name": "ray",
        "measured": {
            "step_ms": medians["ours"],
            "share_of_ray_tune": share,
            "share_of_lean_ray_tune": medians["ours"] / medians[lean],
        },
        "target": {"share_of_ray_tune": MOST_SHARE},
        "peers": {f"{name}, ASHA, {version}": medians[name] for name in ("Ray Tune", lean)},
        "ok": share <= MOST_SHARE,
    }
    print(json.dumps(result))
    return 0 if result["ok"] else 1


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
