"""Name an argument in a message as the user gave it: `max_steps=0` in Python, `--max-steps 0` on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_OPTION_OF = {"name": "--study"}  # the others have the same name, with hyphens
_WITH_OPTION = {
    *("checkpoints", "checkpoints_at_most", "deadline", "devices", "direction", "give_up_after", "gpus", "hung_after"),
    *("live", "max_steps", "name", "policy", "rows", "runner", "seed", "store", "workers"),
}
_is_command_line = ContextVar("is_command_line", default=False)
_EXAMPLES = {"name": "NAME"}


@contextmanager
def name_as_options() -> Iterator[None]:
    """Name arguments as options of the command line inside this block."""
    token = _is_command_line.set(True)
    try:
        yield
    finally:
        _is_command_line.reset(token)


def show_argument(name: str, *value: object) -> str:
    """Return the argument with its value; without a value, return how it is given.

    An argument that no command has as an option, such as a setting of a policy, has its Python name everywhere.
    """
    if not (_is_command_line.get() and name in _WITH_OPTION):
        return f"{name}={value[0]!r}" if value else f"{name}=…"
    option = _OPTION_OF.get(name, f"--{name.replace('_', '-')}")
    return f"{option} {shlex.quote(str(value[0])) if value else _EXAMPLES.get(name, '…')}"
