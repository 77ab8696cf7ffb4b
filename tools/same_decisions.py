"""Do golden traces that were recorded anew hold the same decisions as before, whatever is told about them?

    python tools/same_decisions.py [REVISION]

Compares every trace in the working tree with that of REVISION (default: HEAD), the `why` of each order left out: what was
bought, when, at which price and with which result must be equal, line by line. Exits 1 where a decision changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TRACES = "tests/golden/traces"


def read_without_why(text: str) -> list[object]:
    return [{name: fact for name, fact in json.loads(line).items() if name != "why"} for line in text.splitlines()]


def read_recorded(revision: str) -> dict[str, str]:
    """Name and text of each trace at that revision."""
    listed = _git("ls-tree", "--name-only", f"{revision}:{TRACES}").split()
    return {name: _git("show", f"{revision}:{TRACES}/{name}") for name in listed}


def find_changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Names of traces whose decisions differ, or that are there only once."""
    once = set(before) ^ set(now)
    both = set(before) & set(now)
    return sorted(once | {name for name in both if read_without_why(before[name]) != read_without_why(now[name])})


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> int:
    revision = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    before = read_recorded(revision)
    now = {path.name: path.read_text("utf-8") for path in (ROOT / TRACES).glob("*.jsonl")}
    changed = find_changed(before, now)
    retold = sum(before[name] != now[name] for name in set(before) & set(now))
    print(
        f"{len(now)} traces, {retold} recorded anew since {revision}; decisions changed in: {', '.join(changed) or 'none'}"
    )
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
