"""Run the first example of the README with the installed shoestring.

python tools/ten_lines.py
"""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def ten_lines() -> str:
    """Return the code of the first example of the README."""
    found = re.search(r"<!-- run -->\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found, "the README has no block that is marked to run"
    return found[1]


if __name__ == "__main__":
    exec(compile(ten_lines(), str(README), "exec"), {"__name__": "__main__"})
