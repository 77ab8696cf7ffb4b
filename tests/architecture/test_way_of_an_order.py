"""The page "How it works" lists the files of cli/ and study/ that a run passes before its first decision."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import shoestring
from shoestring.cli.main import cli
from shoestring.policies.halving.guided_halving import GuidedHalving

ROOT = Path(shoestring.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "how-it-works.md"
MAX_FILES = 51  # of the whole package; if a change needs more, look for unnecessary ones


class FirstDecision(Exception):
    """The policy raises this to end the traced run."""


@pytest.fixture
def _training_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("made_up.py").write_text(
        "def train(config):\n    for step in range(9):\n        yield config['x'] / (1 + step)\n"
    )
    yield
    sys.modules.pop("made_up", None)


def run_until_the_first_decision(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files of the package in the order in which one of their functions is first called."""

    def decide(*_: object) -> None:
        raise FirstDecision

    passed: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and frame.f_code.co_name != "<module>" and path.is_relative_to(ROOT):
            file = str(path.relative_to(ROOT))
            if file not in passed:
                passed.append(file)

    monkeypatch.setattr(GuidedHalving, "decide", decide)
    words = ["run", "made_up.py:train", "--max-steps", "9", "--budget", "20 epochs", "--study", name, "--quiet"]
    sys.setprofile(note)
    try:
        with pytest.raises(FirstDecision):
            cli.main([*words, "-p", "x={float=[0,1]}", "--store", "made_up.db"], standalone_mode=False)
    finally:
        sys.setprofile(None)
    return passed


@pytest.mark.usefixtures("_training_code")
def test_the_page_lists_the_files_that_a_run_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    run_until_the_first_decision("once, so that everything is imported", monkeypatch)
    passed = run_until_the_first_decision("traced", monkeypatch)
    listed = re.findall(r"^\d+\. \[`((?:cli|study)/\w+\.py)`\]", PAGE.read_text(encoding="utf-8"), flags=re.M)
    assert [file for file in passed if file.startswith(("cli/", "study/"))] == listed
    assert len(passed) <= MAX_FILES
