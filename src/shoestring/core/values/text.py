"""Texts that the user wrote: messages of training code and its exceptions, names and options.

They are shortened where they are stored, so that one endless message does not fill a ledger. They are escaped where they are
shown, so that none of them can move the cursor, ring the bell or reverse the reading direction of a terminal.
"""

from __future__ import annotations

MAX_BYTES = 4096  # longest text in the ledger, as UTF-8
MAX_NAME_CHARS = 200  # longest name of a study or a parameter
_ROOM_FOR_NOTE = 64  # bytes for the note about the part that was cut
_SHARE_OF_HEAD = 0.25  # most of the room is for the end: there a traceback says what happened
_MAX_VALUE_CHARS = 80  # of a value in a message
_ALLOWED_IN_LINES = "\n\t"


def shorten(text: str) -> str:
    """Return the text; if it is longer than `MAX_BYTES`, return its beginning and its end with a note of how much was cut."""
    if len(text) <= MAX_BYTES and len(text.encode(errors="surrogatepass")) <= MAX_BYTES:
        return text
    room = MAX_BYTES - _ROOM_FOR_NOTE
    head_bytes = int(room * _SHARE_OF_HEAD)
    head, tail = _first(text, head_bytes), _first(text[::-1], room - head_bytes)[::-1]
    return f"{head}\n… ({len(text) - len(head) - len(tail):,} more characters cut)\n{tail}"


def printable(text: str, *, lines: bool = False) -> str:
    """Return the text with all unprintable characters escaped; with `lines`, line ends and tabs are not escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or (lines and char in _ALLOWED_IN_LINES) else _escape(char) for char in text
    )


def show_value(value: object) -> str:
    """Return any object as a short text for a message, also if its own conversion to text fails."""
    try:
        text = repr(value)
    except Exception:  # an integer of many thousand digits, or an object of the user
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 3]}..."


def count(number: int, what: str) -> str:
    """Return a number with its noun: 1 trial, 7 trials."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def find_problem_of_name(name: object) -> str | None:
    """Return what is wrong with the name of a study; None if nothing is."""
    if not isinstance(name, str) or not name:
        return f"the study's name {name!r} must be text"
    if len(name) > MAX_NAME_CHARS:
        return f"the study's name {name[:20]!r}… has {len(name):,} characters; at most {MAX_NAME_CHARS} are allowed"
    return None if name.isprintable() else f"the study's name {printable(name)!r} has characters that are not printable"


def _first(text: str, max_bytes: int) -> str:
    """Return the longest beginning of the text that has at most `max_bytes` bytes."""
    return text[:max_bytes].encode(errors="surrogatepass")[:max_bytes].decode(errors="ignore")


def _escape(char: str) -> str:
    return " " if char == "\xa0" else char.encode("unicode_escape").decode("ascii")
