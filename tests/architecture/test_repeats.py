"""The source hardly repeats itself; tools/repeats.py defines what counts as a repetition."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import repeats

BODY = """\
    total = 0.0
    for row in rows:
        if row.weight > 0:
            total += row.weight * row.value
    mean = total / len(rows)
    spread = max(rows) - min(rows)
    return mean, spread
"""
FIELDS = "    a: int = 0\n    b: float = 1.0\n    c: str = ''\n    d: bool = True\n    e: int = 2\n    f: int = 3\n"


def found_in(folder: Path, *files: str) -> list[repeats.Pair]:
    for number, text in enumerate(files):
        (folder / f"{number}.py").write_text(dedent(text))
    return repeats.repeats(folder)


def test_the_source_hardly_repeats_itself() -> None:
    found = repeats.repeats(repeats.SOURCE)
    assert len(found) < 10, "\n".join(map(str, found))


def test_the_same_lines_in_two_files_are_a_pair(tmp_path: Path) -> None:
    (pair,) = found_in(tmp_path, f"def f(rows):\n{BODY}", f"x = 1\n\n\ndef g(a, b):\n{BODY}")
    assert (pair.first, pair.second) == ("0.py:2-8", "1.py:5-11")
    assert pair.is_same


def test_other_names_and_numbers_make_the_same_shape(tmp_path: Path) -> None:
    other = BODY.replace("row", "item").replace("total", "sum").replace("0.0", "7").replace("weight", "share")
    (pair,) = found_in(tmp_path, f"def f(rows):\n{BODY}", f"def g(items):\n{other}")
    assert pair.lines == 8
    assert not pair.is_same


@pytest.mark.parametrize("between", ["", "    # a word\n", "\n\n", '    """A word."""\n', "    import math\n"])
def test_comments_and_imports_do_not_count(tmp_path: Path, between: str) -> None:
    first, _, rest = BODY.partition("\n")
    assert len(found_in(tmp_path, f"def f(rows):\n{BODY}", f"def g(a, b):\n{first}\n{between}{rest}")) == 1


def test_five_lines_are_not_a_pair(tmp_path: Path) -> None:
    five = "\n".join(BODY.splitlines()[:5])
    assert found_in(tmp_path, f"def f(rows):\n{five}", f"class A:\n  def f(x, y):\n    x\n{five}") == []


def test_fields_count_only_if_they_are_identical(tmp_path: Path) -> None:
    one, two = f"class A:\n{FIELDS}", "class B(C, D):\n" + FIELDS.translate(str.maketrans("abcdef", "uvwxyz"))
    assert found_in(tmp_path, one, two) == []
    assert len(found_in(tmp_path, one, f"class B(C, D):\n{FIELDS}")) == 1


def test_one_file_can_repeat_itself_but_not_overlap_with_itself(tmp_path: Path) -> None:
    assert len(found_in(tmp_path, f"def f(rows):\n{BODY}\n\ndef g(a, b):\n{BODY}")) == 1
    assert found_in(tmp_path, "def f():\n" + "    g(1)\n" * 11) == []


def test_the_command_prints_pairs_and_their_number(tmp_path: Path) -> None:
    found_in(tmp_path, f"def f(rows):\n{BODY}", f"def g(a, b):\n{BODY}")
    command = [sys.executable, repeats.__file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "1 pairs, 1 of them with equal lines"
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)[0]["lines"] == 7
