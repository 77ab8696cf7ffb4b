"""`python -m benchmarks NAME …` runs a module of this package that has a `main`; `FOLDER.MODULE` runs those of a paper.

A module without a `main` is a library. The last line that a benchmark prints is one JSON object.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

NAMES = {
    "kill": "whether studies that are killed repeatedly lose anything, charge anything twice, or exceed the budget",
    "race": "our policies and other tools on the same problems with the same budget",
    "guided": "the default against sequential halving: the ratio of mean regrets on runs of the race",
    "sklearn_search": "BudgetSearchCV and scikit-learn's searches with the same seconds",
    "earlier_studies": "whether a study that learns from studies of related tables finds better models",
    "scale": "whether a thousand simulated workers are busy, the loop is fast enough, and a long study does not slow down",
    "start": "the time until every worker has begun its first step, without the imports of the training code",
    "serve": "how long workers wait for an order: through a server, and on the database",
    "ray": "the time per step on a Ray cluster, compared with Ray Tune on the same no-op trainable",
    "decide": "milliseconds per decision, refits included, for each policy with a target (--policy NAME)",
    "policy_change": "seconds of the first decision on a study with many trials of other policies",
    "overhead": "the overhead of the loop, in memory and on disk",
    "import": "how long `import shoestring` takes",
    "portability": "how much scores and decisions differ between the routines for one processor and another",
    "speed": "import, overhead and decide, one after the other",
}
MODULES = {"decide": "speed.decide", "overhead": "speed.overhead", "import": "speed.imports"}  # parts of `speed`
MODULES["ray"] = "ray_overhead"  # a module must not have the name of the package that it imports
PARTS = ("scale.arithmetic",)  # computed from the results of the others
HERE = Path(__file__).parent


def entry_points() -> list[str]:
    """Return the FOLDER.MODULE of every experiment of the papers."""
    files = [file for file in sorted(HERE.glob("*/*.py")) if file.parent.name not in NAMES]
    return [f"{file.parent.name}.{file.stem}" for file in files if "\ndef main(" in file.read_text(encoding="utf-8")]


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name not in NAMES and name not in PARTS and name not in entry_points():
        print("python -m benchmarks NAME …\n", file=sys.stderr)
        for known, about in NAMES.items():
            print(f"  {known:<16} {about}", file=sys.stderr)
        print(f"\nexperiments of the papers: {', '.join(entry_points())}", file=sys.stderr)
        return 0 if name in ("", "-h", "--help") else 2
    run = import_module(f"benchmarks.{MODULES.get(name, name)}").main
    sys.argv = [f"python -m benchmarks {name}", *arguments[1:]]  # some modules read it themselves
    return int((run(arguments[1:]) if inspect.signature(run).parameters else run()) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
