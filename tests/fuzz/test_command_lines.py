"""Every command line ends with a documented exit code and never with a traceback."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from junk import TimeLimitExceeded, limit_time
from thoroughness import repetitions

from shoestring import Float, Space, tune
from shoestring.cli.main import cli, main

CODES = {0, 1, 2, 3, 130, 143}
LINES = repetitions(400, thorough=1200)
TRAIN = """\
def train(config):
    for step in range(3):
        yield config["x"] + step

def objective(config):
    return config["x"]

def broken(config):
    raise ValueError("broken\\nin two lines \\x1b[31m")

class Model:
    def __init__(self, config): self.x = config["x"]
    def step(self): return self.x

number = 5
"""

# In each list the first value is valid.
TARGETS = [
    "tried.py:train",
    "tried.py:objective",
    "tried.py:Model",
    "tried.py:broken",
    "tried.py:number",
    "tried.py:nothing",
]
TARGETS += [
    "tried.py",
    "nowhere.py:train",
    "nowhere:train",
    ":",
    "tried.py:",
    "",
    "tried.toml:train",
    "folder:x",
    "é.py:x",
]
TARGETS += ["\x00:x", "tried.py:Model.step", "shoestring:tune", "-", "/dev/null:x"]
PARAMS = [
    "x={float=[0,1]}",
    "x={float=[0,1],log=true}",
    "x={int=[1,9]}",
    "x={choice=['a','b']}",
    "x=1",
    "x",
    "=",
    "",
    "x={}",
]
PARAMS += [
    "x={float=[1,0]}",
    "x={float=['a',1]}",
    "x={float=[0,1],when={y=1}}",
    "'\x00'={int=[1,2]}",
    "x={float=[nan,inf]}",
]
FILES = [
    "space.toml",
    "configs.jsonl",
    "configs.json",
    "good.db",
    "damaged.db",
    "empty",
    "folder",
    "nowhere",
    "tried.py",
]
FILES += ["binary", "", "\x00"]
STORES = [
    "good.db",
    "damaged.db",
    "empty",
    "folder",
    "nowhere.db",
    "nowhere/x.db",
    "sqlite:///good.db",
    "sqlite://",
    "mysql://x",
]
STORES += [
    "sqlite:///",
    "://",
    "",
    "good.db?mode=ro",
    "postgres",
    "\x00",
    "x" * 300,
    "tried.py",
    "binary",
    "sqlite:///:memory:",
]
BUDGETS = [
    "6 epochs",
    "1 epoch",
    "0 epochs",
    "1.5 epochs",
    "9s",
    "$0.01 at 1/h",
    "$1",
    "lots",
    "",
    "-3 epochs",
    "nan epochs",
]
BUDGETS += ["1e999s", "epochs", "\x00", "9 s\n"]
WORDS = [
    "3",
    "",
    "x",
    "0",
    "1",
    "-1",
    "2",
    "1.5",
    "nan",
    "inf",
    "1e400",
    str(10**30),
    "a b",
    "\x1b[31m",
    "é",
    "{x}",
    "--",
    "-",
]
WORDS += ["\udc80", "\x00", "x" * 5000]
DURATIONS = ["0s", "0.01s", "", "soon", "-1s", "nan", "1e999h", "5"]
POLICIES = [
    "random_search",
    "asha",
    "sequential_halving",
    "ce_gp_ucb",
    "replay_fixed",
    "bohb",
    "sequental_halving",
    "",
    "\x00",
]
SETTINGS = [
    "reduction_factor=3",
    "reduction_factor=1",
    "x=1",
    "=",
    "",
    "orders=[[0,null,1]]",
    "orders=5",
    "query=often",
]
SETTINGS += ["seed=\x00", "reduction_factor=1e400", "reduction_factor=[[[]]]", "orders=[[0,{},1]]"]
OPTIONS: dict[str, list[str] | None] = {
    "--budget": BUDGETS,
    "--space": FILES,
    "-p": PARAMS,
    "--table": ["table.npz", *FILES],
    "--max-steps": WORDS,
    "--direction": ["min", "max", "up", ""],
    "--maximize": None,
    "--policy": POLICIES,
    "--set": SETTINGS,
    "--runner": ["local", "locl", ""],
    "--seed": WORDS,
    "--initial": ["configs.json", *FILES],
    "--deadline": DURATIONS,
    "--live": WORDS,
    "--hung-after": DURATIONS,
    "--checkpoints-at-most": ["1MB", "much", "", "-1GB"],
    "--validate-price": ["0", "0.5", "-1", "nan", "x"],
    "--validate-at-most": ["20%", "3 passes", "0 passes", "x", ""],
    "--step-cost": DURATIONS,
    "--rows": WORDS,
    "--format": ["csv", "jsonl", "xml"],
    "--ledger": None,
    "-o": ["new", "empty", "folder", "nowhere/x", "binary", "", "\x00"],
    "--svg": ["figures", "folder", "binary", "nowhere/x", "", "\x00"],
    "--figure": ["budget", "curves", "curve", "", "\x00"],
    "--dark": None,
    "--quiet": None,
    "--store": STORES,
    "--study": ["s", "t", "", "no such", "\x00", "a\nb", "x" * 500],
    "--json": None,
    "--yes": None,
    "--workers": ["0", "-1", "x", "1"],
    "--order": ["0", "3", "-1", "x", "99999999999999999999"],
    "--help": None,
    "--no-such-option": None,
}
OWN = {  # the options of each command; a line may also have others
    "run": "--budget --space -p --max-steps --direction --maximize --policy --set --runner --seed --initial --deadline --live "
    "--hung-after --checkpoints-at-most --validate-price --validate-at-most --quiet --store --study --json",
    "resume": "--budget --deadline --quiet --store --study --json",
    "plan": "--budget --max-steps --step-cost --policy --set --json",
    "status": "--rows --store --study --json",
    "explain": "--store --study --json",
    "replay": "--budget --policy --set --store --study --json",
    "repair": "--study -o --store --json",
    "list": "--store --json",
    "rename": "--study --store --json",
    "delete": "--study --store --yes --json",
    "policies": "--json",
    "export": "--format --ledger -o --store --study",
    "retrain": "--store --study --json",
    "logs": "--store --study",
    "report": "-o --order --svg --figure --dark --store --study --json",
}


def draw_line(rng: Random) -> list[str]:
    command = rng.choice([name for name in OWN if name in cli.commands])
    options = {name: _draw_value(rng, values) for name, values in _draw_options(rng, command)}
    if command in ("run", "plan"):
        options.setdefault("--budget", "4 epochs")
    if command == "run":  # a valid line must end soon, too
        options.setdefault("-p", "x={float=[0,1]}")
        options.setdefault("--store", "run.db")
        options.setdefault("--max-steps", "3")
        options.setdefault("--study", f"run {rng.randrange(1000)}")
        options.setdefault("--deadline", "0.02s")
    elif "--store" in OWN[command]:
        options.setdefault("--store", "good.db")
    line = [command]
    for name, value in rng.sample(sorted(options.items(), key=str), k=len(options)):
        line += [name] if value is None else [name, value]
    if command == "run" and rng.random() < 0.9:
        line.insert(1, _draw_value(rng, TARGETS) or "")
    elif command in ("explain", "rename", "policies", "logs") and rng.random() < 0.9:
        good = {"explain": "0", "rename": "s", "policies": "asha", "logs": "0"}[command]
        line.insert(1, rng.choice([good, rng.choice(WORDS)]))
    if command == "run" and rng.random() < 0.03:
        line += ["--", *rng.choice([["true"], ["no-such-program", "{x}"], [""], ["echo", "{y}"]])]
    return line if rng.random() < 0.97 else [rng.choice(WORDS), *line]


def _draw_value(rng: Random, values: list[str] | None) -> str | None:
    """Return a value, often the valid one; None for a flag."""
    return rng.choice([values[0], rng.choice(values)]) if values else None


def _draw_options(rng: Random, command: str) -> Iterator[tuple[str, list[str] | None]]:
    own = OWN[command].split()
    for name in rng.sample(own, k=rng.randrange(min(5, len(own) + 1))):
        yield name, OPTIONS[name]
    if rng.random() < 0.05:
        name = rng.choice(sorted(OPTIONS))
        yield name, OPTIONS[name]


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("tried.py").write_text(TRAIN)
    Path("space.toml").write_text("x = { float = [0, 1] }\n")
    Path("configs.jsonl").write_text('{"x": 0.5}\n{"y": 1}\n')
    Path("configs.json").write_text('[{"x": 0.5}]')
    Path("binary").write_bytes(bytes(range(256)) * 20)
    Path("empty").touch()
    Path("folder").mkdir()
    tune(lambda config: config["x"], Space({"x": Float(0, 1)}), "5 epochs", store="good.db", name="s", seed=1)
    whole = Path("good.db").read_bytes()
    Path("damaged.db").write_bytes(whole[:5000] + b"\xff" * 200 + whole[5200:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    sys.modules.pop("tried", None)


def run_line(line: list[str]) -> int:
    """Return the exit code of the command; other exceptions pass through."""
    with pytest.raises(SystemExit) as ended:
        main(line)
    code = ended.value.code
    return code if isinstance(code, int) else 0 if code is None else 1


@pytest.mark.repeated
@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("part", range(4))
def test_every_line_ends_with_a_documented_code(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    seen: set[int] = set()
    for seed in range(part * LINES // 4, (part + 1) * LINES // 4):
        line = draw_line(Random(seed))
        try:
            code = limit_time(lambda line=line: run_line(line))  # type: ignore[misc]
        except (Exception, TimeLimitExceeded) as error:
            pytest.fail(f"line {seed}, {line!r}: {type(error).__name__}: {error}")
        output = capsys.readouterr()
        assert code in CODES, f"line {seed}, {line!r} ended with {code}"
        assert "Traceback" not in output.err or "broken" in output.err, f"line {seed}, {line!r}: {output.err}"
        assert code != 2 or output.err.strip(), f"line {seed}, {line!r} was refused without a message"
        seen.add(code)
    assert {0, 1, 2} <= seen  # some lines are valid
