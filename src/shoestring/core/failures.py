"""When are two failures the same one? Training code that always fails must not be bought again and again.

Texts of one and the same failure vary: the sizes in an "out of memory", the number of a trial in a path, the config that
the message quotes. So a failure with a traceback is known by the type of its exception and the place that raised it, and
any other by its last line with numbers, paths and quoted text masked.
"""

from __future__ import annotations

import re

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\{[^{}]*\}")
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/][^\s:,;'\")]+|\S+[\\/]\S+")
_NUMBER = re.compile(r"(?:0x[0-9a-fA-F]+|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


def kind_of_failure(text: str) -> str:
    """Equal for failures that are one and the same."""
    frames = list(_FRAME.finditer(text))
    if frames:
        last = frames[-1]
        raised = _RAISED.search(text, last.end())
        if raised is not None:
            return f"{raised['type']} in {last['file']}, line {last['line']}"
    return _mask(_last_line(text))


def say_failure(text: str) -> str:
    """The one line of a failure that says what happened."""
    frames = list(_FRAME.finditer(text))
    raised = _RAISED.search(text, frames[-1].end()) if frames else None
    return text[raised.start() :].splitlines()[0].strip() if raised is not None else _last_line(text)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def _mask(line: str) -> str:
    for pattern, word in ((_QUOTED, "<text>"), (_PATH, "<path>"), (_NUMBER, "<number>")):
        line = pattern.sub(word, line)
    return line
