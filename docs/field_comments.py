"""An extension of the site: the comment behind a field is the description of the field.

    until: int = 1  # the last step to train

A class whose fields all have comments needs no list of them in its docstring.
"""

from __future__ import annotations

import io
import tokenize
from functools import cache
from pathlib import Path
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and isinstance(attr.filepath, Path) and attr.lineno is not None:
            words = comments_of(attr.filepath).get(attr.endlineno or attr.lineno)
            if words:
                attr.docstring = griffe.Docstring(words, parent=attr)


@cache
def comments_of(path: Path) -> dict[int, str]:
    """Return the comments behind code by line number, without those for tools."""
    text = path.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {
        token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip() and ": ignore" not in token.string
    }
