"""`python -m benchmarks NAME …`: each name is a module of this package with `main(arguments) -> exit code`."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = {
    "kill": "studies killed again and again: is anything lost, charged twice, or spent beyond the budget?",
    "race": "our policies and other tools on the same problems with the same money",
    "start": "the time until every worker has begun its first step, beside the imports of the training code",
}


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name not in NAMES:
        print("python -m benchmarks NAME …\n", file=sys.stderr)
        for known, about in NAMES.items():
            print(f"  {known:<10} {about}", file=sys.stderr)
        return 0 if name in ("", "-h", "--help") else 2
    return int(import_module(f"benchmarks.{name}").main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
