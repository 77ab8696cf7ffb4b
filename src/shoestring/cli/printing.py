"""How commands print: results on stdout, as lines or as what rich draws."""

from __future__ import annotations

import sys
from typing import Any


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def print_rich(renderable: Any) -> None:
    from rich.console import Console

    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(renderable)
