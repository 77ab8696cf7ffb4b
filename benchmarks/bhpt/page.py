"""Tables of README.md that are made from runs stored one by one, and the file of these runs.

python -m benchmarks bhpt.page -o out/bhpt       write results/default.jsonl from the runs of `bhpt.real` in the folder
python -m benchmarks bhpt.page                   print the tables of the stored runs
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.markdown import table

DEFAULT = Path(__file__).parent / "results" / "default.jsonl"
FIRST_SEED = 300  # seeds from here on were not used for the choice of the default
BUDGETS = (0.5, 1.0, 2.0)  # full curves
NAMES = {
    "bhpt": "**our default**",
    "bhpt_ten": "our default, average of ten samples",
    "bhpt_printed": "**BHPT**",
    "hyperband": "Hyperband",
    "sequential_halving": "sequential halving, given the budget",
    "asha": "ASHA",
    "fabolas_epochs": "Fabolas on epochs",
}
Rows = Sequence[Mapping[str, Any]]
Regrets = dict[tuple[str, int], float]  # by table and seed


def shorten(rows: Rows) -> list[dict[str, Any]]:
    """Return the fields that the page needs of the runs of the table, in a fixed order.

    A method that has not all the runs of the default is left out.
    """
    fields = ("table", "method", "curves", "seed", "regret", "arms_begun")
    found = [
        {name: round(row[name], 6) if name == "regret" else row[name] for name in fields}
        for row in rows
        if row["seed"] >= FIRST_SEED and row["curves"] in BUDGETS and row["method"] in NAMES
    ]
    number = Counter(row["method"] for row in found)
    found = [row for row in found if number[row["method"]] >= number["bhpt"]]
    return sorted(found, key=lambda row: (list(NAMES).index(row["method"]), row["curves"], row["table"], row["seed"]))


def regrets(rows: Rows, method: str, curves: float) -> Regrets:
    return {(r["table"], r["seed"]): r["regret"] for r in rows if r["method"] == method and r["curves"] == curves}


def default_table(rows: Rows) -> str:
    """Return mean ± one standard deviation of the regret of each method with runs, at each budget."""
    lines = []
    for method in [name for name in NAMES if regrets(rows, name, BUDGETS[0])]:
        found = [np.array(list(regrets(rows, method, curves).values())) for curves in BUDGETS]
        cells = [f"{plain(one.mean())} ± {plain(one.std())}" for one in found]
        lines.append([NAMES[method], *cells, " / ".join(dict.fromkeys(str(one.size) for one in found))])
    return table(["budget (full curves)", *(f"{curves:g}" for curves in BUDGETS), "runs"], lines)


def differences(rows: Rows) -> str:
    """Return the paired differences of our default from each other method, mean ± standard error, at each budget."""
    lines = []
    for method in [name for name in NAMES if name != "bhpt" and regrets(rows, name, BUDGETS[0])]:
        cells = []
        for curves in BUDGETS:
            paired = subtract(regrets(rows, "bhpt", curves), regrets(rows, method, curves))
            error = paired.std(ddof=1) / np.sqrt(paired.size)
            cells.append(f"{paired.mean():+.3f} ± {error:.3f}")
        lines.append([f"our default minus {NAMES[method].strip('*')}", *cells])
    return table(["paired by table and seed", *(f"{curves:g}" for curves in BUDGETS)], lines)


def subtract(mine: Regrets, others: Regrets) -> NDArray[np.float64]:
    """Return the differences of the runs that both methods have."""
    return np.array([mine[key] - others[key] for key in sorted(mine.keys() & others.keys())])


def arms_begun(rows: Rows, method: str) -> list[int]:
    """Return the mean number of arms that a method began, at each budget."""
    return [
        round(float(np.mean([r["arms_begun"] for r in rows if r["method"] == method and r["curves"] == curves])))
        for curves in BUDGETS
    ]


def plain(number: float) -> str:
    """Return a number below 1 as the page writes it: .129."""
    return f"{number:.3f}".removeprefix("0")


def tables(rows: Rows) -> list[str]:
    return [default_table(rows), differences(rows)]


def store(rows: Rows) -> list[str]:
    """Write the runs of the table to results/default.jsonl, and return the tables."""
    kept = shorten(rows)
    DEFAULT.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    return tables(kept)
