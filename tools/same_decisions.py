"""Compare the decisions in the golden traces of the working tree with those of a git revision.

    python tools/same_decisions.py [REVISION]

Run it after traces were recorded again with `--update-golden`. Every trace below `tests/golden/traces`, `ties/` included, is
compared with the same file at REVISION (default: HEAD), line by line and without the `why` of each order. So configurations,
steps, times, prices and results must be equal, and only the labels in `why` may differ. Exits 1 where a decision changed.
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


def read_work_tree() -> dict[str, str]:
    """Return the text of each trace in the working tree, by its path below `TRACES`."""
    folder = ROOT / TRACES
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*.jsonl")}


def read_revision(revision: str) -> dict[str, str]:
    """Return the text of each trace at a git revision, by its path below `TRACES`."""
    paths = _git("ls-tree", "-r", "--name-only", f"{revision}:{TRACES}").split()
    return {path: _git("show", f"{revision}:{TRACES}/{path}") for path in paths if path.endswith(".jsonl")}


def find_changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the names of traces whose decisions differ, or that exist on one side only."""
    on_one_side = set(before) ^ set(now)
    on_both = set(before) & set(now)
    return sorted(
        on_one_side | {name for name in on_both if read_without_why(before[name]) != read_without_why(now[name])}
    )


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> int:
    revision = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    before, now = read_revision(revision), read_work_tree()
    changed = find_changed(before, now)
    rewritten = sum(before[name] != now[name] for name in set(before) & set(now))
    print(f"{len(now)} traces, {rewritten} of them rewritten since {revision}")
    print(f"decisions changed in: {', '.join(changed) or 'none'}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
