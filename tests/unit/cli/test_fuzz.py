"""A thousand command lines, most of them wrong: each ends with an exit code and at most one line, never with a traceback."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from shoestring.cli.main import main

COMMANDS = 1200
CODE = """
def train(config):
    for step in range(3):
        yield float(config.get("lr", 1)) / (1 + step)


def plain(config):
    return 1.0


def broken(config):
    raise ValueError("\\x1b no")


broken_target = 3
"""
HOSTILE = [
    "",
    "-1",
    "0",
    "nan",
    "1e308",
    "9" * 400,
    "\x1b[2J",
    "\u202e",
    "é",
    "x" * 300,
    "{",
    "[1",
    "..",
    "/",
    "~",
    "a=b",
]
HOSTILE += [
    "null",
    "true",
    "{}",
    "[]",
    "--",
    "-",
    "0s",
    "1s",
    "2 epochs",
    "$1",
    "\udcff",
    "a\nb",
    "%",
    "{lr}",
    "{rate}",
]
TARGETS = ["fuzzed.py:train", "fuzzed.py:plain", "fuzzed.py:broken", "fuzzed.py:broken_target", "fuzzed.py", ":", "x:y"]
PARAMETERS = [
    "lr={float=[0.1,1]}",
    "lr={int=[1,9]}",
    "lr={choice=[1,'a']}",
    "lr={constant=1}",
    "lr=3",
    "lr={float=[1]}",
]
BUDGETS = ["3 epochs", "5 epochs", "0.2s", "$0.0001 at 2/h", "$1 at 0/h", "1", "0 epochs", "1e400 epochs"]
POLICIES = ["asha", "random_search", "grid", "hyperband", "replay_fixed", "medain", "bohb", "sequential_halving"]
VALUES = {
    "--budget": BUDGETS,
    "-p": PARAMETERS,
    "--policy": POLICIES,
    "--set": ["reduction_factor=3", "points=2", "orders=[]", "orders=[[0,{},1]]", "reduction_factor=x", "=", "a"],
    "--store": ["s.db", "s.db", "none.db", "text.db", "sqlite:///s.db", "mysql://x", "folder"],
    "--study": ["a", "b", "fuzzed"],
    "--max-steps": ["1", "3", "x"],
    "--workers": ["1", "0", "-3"],
    "--deadline": ["0s", "1s", "soon"],
    "--seed": ["1", "-1"],
    "--space": ["space.toml", "text.db", "folder", "none"],
    "--initial": ["first.jsonl", "text.db", "folder"],
    "--table": ["text.db", "none.npz", "folder"],
    "--runner": ["local", "x"],
    "--live": ["1", "0"],
    "--log": ["lr"],
    "--hung-after": ["1s", "x"],
    "--checkpoints-at-most": ["1GB", "x"],
    "--validate-price": ["0", "nan", "-1", "1e300"],
    "--validate-at-most": ["20%", "x"],
    "--trial": ["0", "99"],
    "--tail": ["1", "-1"],
    "--rows": ["1", "-1"],
    "--format": ["csv", "jsonl"],
    "--step-cost": ["1s", "0s"],
    "-o": ["out.db", "out.txt", "folder"],
}
FLAGS = ["--json", "--quiet", "--maximize", "--dry-run", "--yes", "--stderr", "--ledger", "--help"]
OPTIONS = {
    "run": "--budget -p --policy --set --store --study --max-steps --deadline --seed --space --initial --table --runner "
    "--live --log --hung-after --checkpoints-at-most --validate-price --validate-at-most --workers",
    "resume": "--budget --deadline --store --study",
    "plan": "--budget --policy --set --max-steps --step-cost --workers",
    "status": "--store --study --rows",
    "explain": "--store --study --trial",
    "replay": "--store --study --policy --set --budget",
    "retrain": "--store --study",
    "logs": "--store --study --tail",
    "repair": "--store --study -o",
    "list": "--store",
    "rename": "--store --study",
    "delete": "--store --study",
    "policies": "",
    "export": "--store --study --format -o",
}
ARGUMENTS = {
    "explain": ["0", "1"],
    "logs": ["0", "1"],
    "rename": ["a", "b"],
    "policies": ["asha", "grid"],
}


def words_of(rng: random.Random) -> list[str]:
    command = rng.choice([*OPTIONS, "run", "run", "run", rng.choice(HOSTILE)])
    words = [command]
    if command == "run":
        words += [rng.choice(TARGETS[:2])] if rng.random() < 0.8 else [rng.choice([*TARGETS, *HOSTILE])]
        words += ["--budget", rng.choice(BUDGETS[:2]), "--store", "s.db", "-p", PARAMETERS[0]]
        words += ["--max-steps", "3", "--study", rng.choice("abc")] if words[1] == TARGETS[0] else []
    elif command in ARGUMENTS or rng.random() < 0.1:
        words += [rng.choice(ARGUMENTS.get(command, HOSTILE) if rng.random() < 0.7 else HOSTILE)]
    known = OPTIONS.get(command, "").split() or list(VALUES)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        name = rng.choice(known) if rng.random() < 0.95 else rng.choice([*VALUES, *HOSTILE])
        words += [name, rng.choice(VALUES.get(name, HOSTILE) if rng.random() < 0.75 else HOSTILE)]
    words += [flag for flag in FLAGS if rng.random() < 0.12]
    if command == "run" and rng.random() < 0.1:
        words += ["--", rng.choice(["echo", "true", *HOSTILE]), rng.choice(["{lr}", "1", *HOSTILE])]
    return words


@pytest.mark.slow
def test_no_command_line_ends_in_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("fuzzed.py").write_text(CODE)
    Path("space.toml").write_text("lr = { float = [0.1, 1.0] }\n")
    Path("first.jsonl").write_text('{"lr": 0.5}\n')
    Path("text.db").write_bytes(b"\xff\xfe no database" * 50)
    Path("folder").mkdir()
    rng, codes = random.Random(0), dict.fromkeys((0, 1, 2, 3, 4, 130), 0)
    for number in range(COMMANDS):
        words = words_of(rng)
        try:
            main(words)
        except SystemExit as ended:
            codes[ended.code or 0] += 1  # type: ignore[index]  # a code that is not documented is an error
        except BaseException as error:
            raise AssertionError(f"command line {number}, {words!r}, raised {error!r}") from error
        printed = capsys.readouterr()
        for text in (printed.out, printed.err):
            if "export" not in words:
                assert "\x1b" not in text, words
            assert "shoestring/cli" not in text, words
    sys.modules.pop("fuzzed", None)
    assert codes[0] > COMMANDS / 20  # enough lines are valid, so not only the first check is tested
    assert codes[2] > COMMANDS / 4
