"""How commands print: results on stdout, as lines or as what rich draws."""

from __future__ import annotations

import sys
from typing import Any


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def print_rich(renderable: Any, *, wraps: bool = True) -> None:
    """`wraps`: at the width of the terminal, else of a wide one; if not, lines stay whole."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or not wraps else 160
    Console(highlight=False, width=width).print(renderable, soft_wrap=not wraps)
