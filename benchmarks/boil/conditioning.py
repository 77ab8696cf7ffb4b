"""Why not learn from every step of a curve: the condition number of the covariance with no, selected and full augmentation.

    python -m benchmarks boil.conditioning                 our tables, 2 seeds, up to 15 runs: half a minute
    python -m benchmarks boil.conditioning --quick         one table, 1 seed, 8 runs

Full trainings of a table are added one after the other, with no prefixes, with those that BOIL selects, or with all of a grid of
50. The kernel is BOIL's initial one (length-scales 0.25 and 0.45), and the noise is 1e-10, almost nothing: with BOIL's own noise
of 5e-4 the logarithm of the condition number cannot exceed 20 below 240,000 points, whatever is added. This is the paper's Fig.
3. It also counts, with BOIL's own noise, the prefixes per run for a floor of variances, as in BOIL, and of standard deviations,
as in the authors' programs. Last line: one JSON object; exit 1 if the condition number exceeds 20 with selected prefixes, or
stays below 25 with full curves.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.boil.problems import Problem, load, table_paths
from benchmarks.plotting import plt
from shoestring.models.boil.augmentation import (
    Floor,
    count_allowed_points,
    log_condition,
    pick_full_curve,
    pick_most_uncertain,
    step_grid,
)
from shoestring.models.boil.score_process import ProcessParameters, TrainingLengths, product_kernel
from shoestring.models.gp.posterior import condition

RESULTS = Path(__file__).parent / "results"
NOISE = 1e-10
MAX_POINTS = 15  # for a full run, BOIL's default
SELECTED_AT_MOST, FULL_AT_LEAST = 20.0, 25.0
WAYS = {"none": "tab:blue", "selected": "tab:red", "full": "tab:gray"}


def conditions(
    problem: Problem, way: str, seed: int, runs: int, noise: float = NOISE, floor: Floor = "variance"
) -> list[dict[str, Any]]:
    """Return, after each run, ln of the condition number, the number of points, and the reason to stop adding."""
    space = problem.table(0).space()
    steps = problem.values.shape[2]
    lengths = TrainingLengths(-(-steps // 5), steps)
    grid = step_grid(lengths.min_steps, steps)
    times = np.array([lengths.time_of(int(t)) for t in grid])
    kernel, theta = product_kernel(space.dims), ProcessParameters(noise_variance=noise).theta(space.dims)
    z, rows = np.zeros((0, space.dims + 1)), []
    for number in np.random.default_rng(seed).permutation(len(problem.configs))[:runs]:
        x = space.to_cube(problem.configs[number])
        z = np.vstack([z, np.append(x, 1.0)])
        gp = condition(kernel, theta, z, np.zeros(len(z)))
        stop = "count"
        if way != "none":
            most = {"max_points": count_allowed_points(1.0, MAX_POINTS), "max_log_condition": SELECTED_AT_MOST}
            added = (
                pick_full_curve(gp, x, times)
                if way == "full"
                else pick_most_uncertain(gp, x, times, floor=floor, **most)
            )
            stop = added.stop
            z = np.vstack([z, np.column_stack([np.tile(x, (len(added.times), 1)), added.times])])
        rows.append({"log_condition": log_condition(gp, z[len(gp.x) :]), "points": len(z), "stop": stop})
    return rows


def prefixes_by(problems: list[Problem], floor: Floor, seeds: int, runs: int) -> dict[str, float]:
    """Return, with BOIL's own noise, the mean number of prefixes per run, and the share of runs that the floor ended."""
    noise = ProcessParameters().noise_variance
    studies = [conditions(p, "selected", s, runs, noise, floor) for p in problems for s in range(seeds)]
    steps = [step for study in studies for step in study]
    return {
        "a_run": round(float(np.mean([study[-1]["points"] / len(study) - 1.0 for study in studies])), 2),
        "stopped_by_it": round(float(np.mean([step["stop"] == "variance" for step in steps])), 2),
    }


def draw(path: Path, measured: dict[str, list[list[dict[str, Any]]]]) -> None:
    figure, axis = plt.subplots(figsize=(6, 3.4))
    for way, colour in WAYS.items():
        for i, study in enumerate(measured[way]):
            label = f"{way} augmentation".replace("none", "no") if i == 0 else None
            axis.plot(
                np.arange(1, len(study) + 1), [s["log_condition"] for s in study], color=colour, alpha=0.6, label=label
            )
    axis.axhline(SELECTED_AT_MOST, color="black", linewidth=0.8, linestyle=":")
    axis.set(
        xlabel="run",
        ylabel="ln condition number",
        title="noise 1e-10; each line is a table and an order of its configs",
    )
    axis.legend(fontsize=8, ncols=3, loc="center", bbox_to_anchor=(0.5, 0.58))  # between the lines
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=RESULTS, help="folder of the figure")
    parser.add_argument("--data", type=Path, help="folder with further tables of record.py")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    paths = dict(list(table_paths(chosen.data).items())[: 1 if chosen.quick else None])
    seeds, runs = (1, 8) if chosen.quick else (2, 15)
    problems = [load(name, path) for name, path in paths.items()]
    measured = {way: [conditions(p, way, s, runs) for p in problems for s in range(seeds)] for way in WAYS}
    worst = {
        way: round(max(s["log_condition"] for study in studies for s in study), 2) for way, studies in measured.items()
    }
    points = {
        way: round(float(np.mean([study[-1]["points"] for study in studies]))) for way, studies in measured.items()
    }
    by_floor = {floor: prefixes_by(problems, floor, seeds, runs) for floor in get_args(Floor)}
    if not chosen.quick:
        chosen.out.mkdir(parents=True, exist_ok=True)
        draw(chosen.out / "conditioning.png", measured)
    ok = worst["selected"] <= SELECTED_AT_MOST and worst["full"] > FULL_AT_LEAST
    target = {"selected": SELECTED_AT_MOST, "full": f"> {FULL_AT_LEAST}"}
    print(
        json.dumps(
            {
                "name": "boil_conditioning",
                "measured": worst,
                "points": points,
                "prefixes_by_floor": by_floor,
                "target": target,
                "ok": ok,
            }
        )
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
