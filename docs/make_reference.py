"""Write docs/reference/cli.md from the command line's own help. A test fails when the page is out of date.

python docs/make_reference.py
"""

from __future__ import annotations

from pathlib import Path

import click

from shoestring.cli.main import cli
from shoestring.cli.options import EXIT_CODES

PAGE = Path(__file__).parent / "reference" / "cli.md"


def text() -> str:
    parts = [
        "# The command line\n",
        "Made by `docs/make_reference.py` from the help of each command. Results go to stdout, narration to stderr.\n",
        f"{EXIT_CODES}\n",
    ]
    width = {"max_content_width": 100, "terminal_width": 100}
    root = click.Context(cli, info_name="shoestring", **{**cli.context_settings, **width})
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root, **width)
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
