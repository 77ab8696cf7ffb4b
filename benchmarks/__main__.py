"""`python -m benchmarks NAME …`: a module of this package that has a `main`; `FOLDER.MODULE` for those of a paper.

A module without one is a library for those beside it. The last line that a benchmark prints is one JSON object.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

NAMES = {
    "kill": "studies killed again and again: is anything lost, charged twice, or spent beyond the budget?",
    "race": "our policies and other tools on the same problems with the same money",
    "thrift": "the learned belief on sources that its weights have not seen, and whether it may be the default",
    "start": "the time until every worker has begun its first step, beside the imports of the training code",
    "decide": "milliseconds of a decision, refits included, for each policy that has a promise (--policy NAME)",
    "overhead": "what the loop costs beside training, in memory and on disk",
    "ray": "what a step costs on a Ray cluster, beside Ray Tune on the same no-op trainable",
    "import": "how long `import shoestring` takes",
}
MODULES = {"import": "import_time", "ray": "ray_overhead"}  # where a module cannot have the name
HERE = Path(__file__).parent


def entry_points() -> list[str]:
    """FOLDER.MODULE of every experiment of the papers."""
    files = sorted(HERE.glob("*/*.py"))
    return [f"{file.parent.name}.{file.stem}" for file in files if "\ndef main(" in file.read_text(encoding="utf-8")]


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name not in NAMES and name not in entry_points():
        print("python -m benchmarks NAME …\n", file=sys.stderr)
        for known, about in NAMES.items():
            print(f"  {known:<10} {about}", file=sys.stderr)
        print(f"\nof the papers: {', '.join(entry_points())}", file=sys.stderr)
        return 0 if name in ("", "-h", "--help") else 2
    run = import_module(f"benchmarks.{MODULES.get(name, name)}").main
    sys.argv = [f"python -m benchmarks {name}", *arguments[1:]]  # for those that read it themselves
    return int((run(arguments[1:]) if inspect.signature(run).parameters else run()) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
