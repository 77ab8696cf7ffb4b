"""Find where the code repeats itself: pairs of places that share six or more lines.

    python tools/repeats.py [FOLDER] [--json]

Two lines agree when they are equal except for white space, or when they have the same shape: any name, string or number
agrees with any other, and keywords and punctuation must be equal. A pair is a longest run of such lines in two places that do
not overlap. A row says `same` where six lines in a row are equal, else `shape`.

Blank lines, comments, docstrings, imports and lines without a word, such as a lone bracket, are not compared.

At most half of a run may be thin lines. These are decorators, `pass` and similar, a parameter of a signature on a line of its own
(an implementation must repeat those of its interface) and, where only the shape agrees, lines that only declare: the head of a
class, a field, an argument or an item on a line of its own, a row of plain data. Two dataclasses with six numbers or two calls
with six arguments share nothing that could be moved to one place.

If runs overlap, as shifted copies of one list do, only the longest is reported.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import keyword
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

MIN_LINES = 6  # of a run
SOURCE = Path(__file__).parents[1] / "src"
_IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_FSTRING_START, _FSTRING_END = (getattr(tokenize, f"FSTRING_{end}", None) for end in ("START", "END"))
_THIN = re.compile(r"@.*|pass|else:|try:|return|returnNone|\.\.\.|\*|self,|\*{0,2}\w+:[^()]*,")  # without white space
_DECLARES = re.compile(r"class .*|n : .*|n = [^()]*|[^()]* ,|[s0-9 ,()\[\]{}:-]*")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of code that is compared."""

    number: int
    text: str  # without white space
    shape: str  # its tokens, with one sign for all names, one for all numbers and one for all strings

    @property
    def is_thin(self) -> bool:
        return _THIN.fullmatch(self.text) is not None

    @property
    def is_thin_by_shape(self) -> bool:
        return self.is_thin or _DECLARES.fullmatch(self.shape) is not None


@dataclass(frozen=True, slots=True)
class Run:
    """`lines` that begin at line `first` of one file and `second` of another (or the same), counted in code lines."""

    first: int
    second: int
    lines: int

    def overlaps(self, other: Run) -> bool:
        """Return whether both places have lines in common with those of the other run."""
        return _meet(self.first, self.lines, other.first, other.lines) and _meet(
            self.second, self.lines, other.second, other.lines
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """Two places that share lines."""

    first: str  # file:from-to
    second: str
    lines: int
    is_same: bool  # equal, not only of the same shape

    def __str__(self) -> str:
        return f"{self.first} ~ {self.second}  {self.lines} lines, {'same' if self.is_same else 'shape'}"


def repeats(folder: Path) -> list[Pair]:
    """Return all pairs below a folder, the longest first."""
    files = {path: code_lines(path.read_text("utf-8")) for path in sorted(folder.rglob("*.py"))}
    starts: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, lines in files.items():
        for start in range(len(lines) - MIN_LINES + 1):
            starts[tuple(line.shape for line in lines[start : start + MIN_LINES])].append((path, start))
    agreeing: dict[tuple[Path, Path], set[tuple[int, int]]] = defaultdict(set)
    for places in starts.values():
        for (a, i), (b, j) in combinations(places, 2):
            agreeing[a, b].add((i, j))
    found = [
        _pair(folder, a, b, files[a], files[b], run)
        for (a, b), windows in agreeing.items()
        for run in _longest(_runs(windows, a == b))
        if _counts(files[a], files[b], run)
    ]
    return sorted(found, key=lambda pair: (-pair.lines, pair.first, pair.second))


def _runs(windows: set[tuple[int, int]], one_file: bool) -> Iterator[Run]:
    """Join windows that follow each other to one run; within one file it ends where its two places would meet."""
    for i, j in windows:
        if (i - 1, j - 1) in windows:
            continue
        lines = MIN_LINES
        while (i + lines - MIN_LINES + 1, j + lines - MIN_LINES + 1) in windows:
            lines += 1
        lines = min(lines, j - i) if one_file else lines
        if lines >= MIN_LINES:
            yield Run(i, j, lines)


def _longest(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that do not overlap a longer one."""
    chosen: list[Run] = []
    for run in sorted(runs, key=lambda run: (-run.lines, run.first, run.second)):
        if not any(run.overlaps(longer) for longer in chosen):
            chosen.append(run)
    return chosen


def _counts(a: Sequence[Line], b: Sequence[Line], run: Run) -> bool:
    """Return whether at most half of the run's lines are thin."""
    thin = 0
    for ours, theirs in zip(a[run.first : run.first + run.lines], b[run.second : run.second + run.lines], strict=True):
        thin += ours.is_thin if ours.text == theirs.text else ours.is_thin_by_shape
    return 2 * thin <= run.lines


def _pair(folder: Path, a: Path, b: Path, ours: Sequence[Line], theirs: Sequence[Line], run: Run) -> Pair:
    ours, theirs = ours[run.first : run.first + run.lines], theirs[run.second : run.second + run.lines]
    same = any(_is_same(ours[i : i + MIN_LINES], theirs[i : i + MIN_LINES]) for i in range(run.lines - MIN_LINES + 1))
    return Pair(
        f"{a.relative_to(folder)}:{ours[0].number}-{ours[-1].number}",
        f"{b.relative_to(folder)}:{theirs[0].number}-{theirs[-1].number}",
        run.lines,
        same,
    )


def _is_same(ours: Sequence[Line], theirs: Sequence[Line]) -> bool:
    return [line.text for line in ours] == [line.text for line in theirs]


def _meet(start: int, lines: int, other: int, other_lines: int) -> bool:
    return start < other + other_lines and other < start + lines


def code_lines(text: str) -> list[Line]:
    """Return the lines of a file that are compared."""
    ignored = set(_ignored_lines(ast.parse(text)))
    words: dict[int, list[tokenize.TokenInfo]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _IGNORED and token.start[0] not in ignored:
            words[token.start[0]].append(token)
    lines = []
    for number, tokens in words.items():
        if any(token.type != tokenize.OP for token in tokens):
            joined = " ".join(token.string for token in tokens)
            lines.append(Line(number, joined.replace(" ", ""), " ".join(_shapes(tokens))))
    return lines


def _shapes(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[str]:
    inside = 0  # depth of f-strings, which Python 3.12 and later split into tokens
    for token in tokens:
        opens, closes = token.type == _FSTRING_START, token.type == _FSTRING_END
        if not inside and not closes:
            yield "s" if opens else _shape(token)
        inside += opens - closes


def _shape(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.OP or keyword.iskeyword(token.string):
        return token.string
    return "n" if token.type == tokenize.NAME else "0" if token.type == tokenize.NUMBER else "s"


def _ignored_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_import or is_docstring:
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=SOURCE, help="default: src")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = repeats(arguments.folder)
    if arguments.json:
        print(json.dumps([asdict(pair) for pair in found], indent=2))
        return
    print(*found, f"{len(found)} pairs, {sum(pair.is_same for pair in found)} of them with equal lines", sep="\n")


if __name__ == "__main__":
    main()
