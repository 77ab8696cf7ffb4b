"""docs/reference/json-line.md names every variable and every key, and its program trains."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from shoestring import Float, Space
from shoestring.runners.command import command_line, command_state
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.study.study import Study

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "json-line.md").read_text(encoding="utf-8")


def test_every_variable_is_named() -> None:
    code = "".join(Path(module.__file__ or "").read_text(encoding="utf-8") for module in (command_line, command_state))
    known = set(re.findall(r"SHOESTRING_[A-Z_]+", code))
    assert {"SHOESTRING_CONFIG", "SHOESTRING_MAX_STEPS"} <= known
    assert known == set(re.findall(r"`(SHOESTRING_[A-Z_]+)`", PAGE))


def test_every_key_of_a_report_is_named() -> None:
    reader = inspect.getsource(command_line)
    keys = set(re.findall(r"body(?:\.get\(|\[|\.pop\()\"(\w+)\"", reader))
    assert "value" in keys
    assert keys == set(re.findall(r"^\| `([a-z]+)` \|", PAGE, re.MULTILINE))


def test_the_program_of_the_page_can_be_paused_and_resumed(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    program = tmp_path / "train.py"
    program.write_text(found[1])
    space = Space({"lr": Float(0.05, 0.4)})
    study = Study.begin(space, "30 epochs", max_steps=6, name="line", store=f"sqlite:///{tmp_path}/line.db", seed=1)
    study.run(CommandRunner([sys.executable, str(program)], space, tmp_path / "states"))
    assert study.spent == 30
    for trial in study.trials:
        lr = trial.config["lr"]
        weights = [5.0 * (1 - 2 * lr) ** step for step in range(1, trial.steps + 1)]
        assert all(abs(value - weight**2) < 1e-9 for value, weight in zip(trial.values, weights, strict=True) if value)
    assert max(trial.steps for trial in study.trials) == 6
