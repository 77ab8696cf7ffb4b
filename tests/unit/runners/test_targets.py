"""Finding training code by name, and sending it to another process."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring.errors import RunnerError
from shoestring.runners.training.targets import Target, pack_code, resolve, unpack_code


@pytest.fixture(autouse=True)
def _untouched_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def one_line(words: str) -> str:
    with pytest.raises(RunnerError) as caught:
        resolve(words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_is_imported_with_its_neighbours_and_without_its_main_part(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_target.py").write_text("LOSS = 0.25\n")
    (tmp_path / "my_target.py").write_text(
        "from neighbour_of_target import LOSS\n"
        "def train(config): return LOSS\n"
        "class Model:\n    def step(self): return 1.0\n"
        "if __name__ == '__main__': raise SystemExit('ran as a script')\n"
    )
    assert resolve(f"{tmp_path}/my_target.py:train")({}) == 0.25
    assert resolve(f"{tmp_path}/my_target.py:Model").__name__ == "Model"


def test_a_relative_path_and_a_module_are_found_from_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg_of_target").mkdir()
    (tmp_path / "pkg_of_target" / "inner.py").write_text("def train(config): return 2.0\n")
    assert resolve("pkg_of_target.inner:train")({}) == 2.0
    assert resolve("pkg_of_target/inner.py:train")({}) == 2.0
    assert resolve("shoestring.testing.runners:Curve").__name__ == "Curve"


@pytest.mark.parametrize("words", ["train.py", ":train", "train.py:", ""])
def test_targets_without_a_name_are_refused(words: str) -> None:
    assert "write file.py:train or package.module:train" in one_line(words)


def test_misspelt_targets_get_a_suggestion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits_target.py").write_text("def train(config): return 1.0\ndef _own(): pass\nLIMIT = 3\n")
    assert "'digits_target.py'?" in one_line("digit_target.py:train")
    assert "'train'?" in one_line("digits_target.py:trian")
    assert "Known: train." in one_line("digits_target.py:xyz")
    assert "there is no module 'no_such_module_at_all'" in one_line("no_such_module_at_all.x:train")
    (tmp_path / "notes.txt").write_text("x")
    assert "is not a Python file" in one_line("./notes.txt:train")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import not_installed_anywhere\n", "No module named 'not_installed_anywhere'"),
        ("x = 1\ny = 1 / 0\n", "ZeroDivisionError: division by zero (broken_target.py, line 2)"),
        ("def train(:\n", "SyntaxError"),
    ],
)
def test_code_that_cannot_be_imported_is_a_one_line_error(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "broken_target.py").write_text(code)
    assert message in one_line(f"{tmp_path}/broken_target.py:train")


def test_a_file_with_the_name_of_another_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("def train(config): return 1.0\n")
    assert "rename the file" in one_line(f"{tmp_path}/json.py:train")


def loss(config: dict[str, Any], scale: float = 1.0) -> float:
    return scale * float(config["x"])


def test_code_with_a_name_is_sent_as_a_reference() -> None:
    assert unpack_code(pack_code(loss)) is loss
    assert unpack_code(pack_code(functools.partial(loss, scale=2.0)))({"x": 3}) == 6.0
    assert unpack_code(pack_code(Target.find("shoestring.testing.runners:Curve"))).__name__ == "Curve"


def typed_in_functions() -> list[tuple[Any, str]]:
    def local(config: dict[str, Any]) -> float:
        return 1.0

    return [(lambda config: 1.0, "lambda"), (local, "inside another function")]


@pytest.mark.parametrize(("train", "message"), typed_in_functions())
def test_without_cloudpickle_code_without_a_name_is_refused(
    train: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(RunnerError, match=message) as caught:
        pack_code(train)
    assert "pip install cloudpickle, or define it at the top level of a file" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("train", "message"), typed_in_functions())
def test_with_cloudpickle_code_is_sent_as_a_whole(train: Any, message: str) -> None:
    assert unpack_code(pack_code(train))({"x": 1}) == 1.0


def test_code_that_cannot_be_pickled_is_refused() -> None:
    lock = threading.Lock()

    def local(config: dict[str, Any]) -> float:
        return float(lock.locked())

    with pytest.raises(RunnerError, match="it refers to something that cannot be pickled: TypeError") as caught:
        pack_code(local)
    assert "\n" not in str(caught.value)


TYPED_IN = """
import sys
{without}
from shoestring import tune
scale = 2.0
def half(x):
    return x / scale
def train(config):
    for _ in range(3):
        yield half(config["x"])
study = tune(train, {{"x": {{"float": [0.0, 1.0]}}}}, "6 epochs", max_steps=3, workers=2, policy="random_search", seed=1)
print(study.spent, [trial.values[-1] == trial.config["x"] / 2 for trial in study.trials])
"""


def type_in(without: str, folder: Path) -> subprocess.CompletedProcess[str]:
    code = TYPED_IN.format(without=without)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, cwd=folder
    )


def test_code_that_was_typed_in_is_trained_by_two_workers(tmp_path: Path) -> None:
    done = type_in("", tmp_path)
    assert done.stdout == "6.0 [True, True]\n", done.stderr


def test_code_that_was_typed_in_is_refused_without_cloudpickle(tmp_path: Path) -> None:
    done = type_in("sys.modules['cloudpickle'] = None", tmp_path)
    assert "it was typed in and is in no file; pip install cloudpickle" in done.stderr.splitlines()[-1]


def test_code_of_the_main_script_is_sent_to_a_cluster_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node of a cluster does not import the main script; a worker process does."""

    def train(config: object) -> float:
        return 3.0

    train.__module__, train.__qualname__ = "__main__", "train"
    monkeypatch.setattr(sys.modules["__main__"], "train", train, raising=False)
    monkeypatch.setattr(
        sys.modules["__main__"], "__file__", __file__, raising=False
    )  # tests in parallel have no script
    by_name, whole = pack_code(train), pack_code(train, has_our_main=False)
    monkeypatch.delattr(sys.modules["__main__"], "train")
    with pytest.raises(AttributeError):
        unpack_code(by_name)
    assert unpack_code(whole)(None) == 3.0
