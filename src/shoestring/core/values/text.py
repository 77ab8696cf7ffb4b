"""Texts that others wrote: training code, its exceptions, the names and options of a user.

They are bounded where they are stored, so that one endless message does not fill a ledger, and escaped where they are
shown, so that none of them can move the cursor, ring the bell, or turn the reading direction of a terminal.
"""

from __future__ import annotations

MOST_BYTES = 4096  # of one text in the ledger, as UTF-8
MOST_NAME_CHARS = 200  # of a study's name
_ROOM_FOR_NOTE = 64  # what is said about the part that was cut
_SHARE_OF_HEAD = 0.25  # the end of a traceback says what happened; its beginning, where it came from
_KEPT_IN_LINES = "\n\t"


def bounded(text: str) -> str:
    """The text, or its head and its tail and how much between them was cut."""
    if len(text) <= MOST_BYTES and len(text.encode(errors="surrogatepass")) <= MOST_BYTES:
        return text
    room = MOST_BYTES - _ROOM_FOR_NOTE
    head_bytes = int(room * _SHARE_OF_HEAD)
    head, tail = _first(text, head_bytes), _first(text[::-1], room - head_bytes)[::-1]
    return f"{head}\n… ({len(text) - len(head) - len(tail):,} more characters cut)\n{tail}"


def printable(text: str, *, lines: bool = False) -> str:
    """The text with every character escaped that does more than to be seen; `lines`: line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or (lines and char in _KEPT_IN_LINES) else _escape(char) for char in text)


def count(number: int, what: str) -> str:
    """1 trial, 7 trials."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def rule_of_name(name: object) -> str | None:
    """What is wrong with the name of a study, if anything."""
    if not isinstance(name, str) or not name:
        return f"the study's name {name!r} must be text"
    if len(name) > MOST_NAME_CHARS:
        return f"the study's name {name[:20]!r}… has {len(name):,} characters; at most {MOST_NAME_CHARS} are kept"
    return None if name.isprintable() else f"the study's name {printable(name)!r} holds characters that cannot be seen"


def _first(text: str, most_bytes: int) -> str:
    """The longest beginning of at most so many bytes."""
    return text[:most_bytes].encode(errors="surrogatepass")[:most_bytes].decode(errors="ignore")


def _escape(char: str) -> str:
    return " " if char == "\xa0" else char.encode("unicode_escape").decode("ascii")
