"""Print results to stdout, as lines or as tables of rich, and messages to stderr."""

from __future__ import annotations

import sys
from typing import Any


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def print_message(line: str) -> None:
    sys.stderr.write(line + "\n")


def print_rich(renderable: Any, *, wraps: bool = True) -> None:
    """Print a rich object; `wraps`: break lines at the width of the terminal (160 columns without a terminal)."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or not wraps else 160
    Console(highlight=False, width=width).print(renderable, soft_wrap=not wraps)


def store_words(address: str, where: str) -> list[str]:
    """Return the arguments that name a store in a command for the user; `where` is its address without the password."""
    from shoestring.core.values.credentials import hide_credentials
    from shoestring.stores.addresses import DEFAULT_STORE

    is_server = "://" in address and not address.startswith("sqlite")
    return [] if address == DEFAULT_STORE else ["--store", where if is_server else hide_credentials(address)]
