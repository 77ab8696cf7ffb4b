"""Install the wheel into an empty environment outside of the clone, and do there what the README shows.

    python tools/check_wheel.py                 build the wheel from this clone first
    python tools/check_wheel.py out/dist/*.whl

It runs the Python example of the README, then from the command line: a study that stops at a deadline, `resume`, `status`,
`export` and `report`. Trials are trained by two workers; on Windows, where only the local runner works, by one. It needs no
package beside the Python that runs it, and pip must reach an index.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BUDGET_EPOCHS = 300
WORKERS = 1 if os.name == "nt" else 2
TRAINING = """
import time


class Train:
    def __init__(self, config):
        self.lr, self.weight = config["lr"], 5.0

    def step(self):
        time.sleep(0.02)
        self.weight -= self.lr * 2 * self.weight
        return self.weight**2

    def save(self, path):
        path.write_text(repr(self.weight))

    def load(self, path):
        self.weight = float(path.read_text())
"""
PLACE_AND_VERSION = "import shoestring, sys; print(shoestring.__file__, sys.version)"


def main(words: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        wheel = Path(words[0]).resolve() if words else build(folder / "dist")
        python = install(wheel, folder / "environment")
        empty = folder / "elsewhere"
        empty.mkdir()
        where = call(empty, python, "-c", PLACE_AND_VERSION)
        assert str(folder.resolve()) in str(Path(where).resolve()), f"another shoestring was imported: {where}"
        print(f"{wheel.name}: {where}")
        print("the example of the README:", call(empty, python, "-c", read_example()))
        check_commands(empty, python)
    print("the wheel does what the README shows")


def read_example() -> str:
    """Return the code of the first example of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- run -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found, "the README has no block that is marked to run"
    return found[1]


def build(folder: Path) -> Path:
    call(ROOT, Path(sys.executable), "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, environment: Path) -> Path:
    """Return the Python of a new environment that holds the wheel and its dependencies only."""
    call(ROOT, Path(sys.executable), "-m", "venv", "--without-pip", str(environment))
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = ("-m", "pip", "--python", str(python), "--disable-pip-version-check", "-q")
    call(ROOT, Path(sys.executable), *pip, "install", str(wheel))
    return python


def check_commands(folder: Path, python: Path) -> None:
    (folder / "train.py").write_text(TRAINING, encoding="utf-8")
    space = ("-p", "lr={float=[1e-4,1],log=true}")
    total = f"{BUDGET_EPOCHS} epochs"
    study = ("--budget", total, "--max-steps", "10", "--workers", str(WORKERS), "--seed", "1")
    command = python.parent / ("shoestring.exe" if os.name == "nt" else "shoestring")
    stopped = read(call(folder, command, "run", "train.py:Train", *space, *study, "--deadline", "1s", "--json"))
    assert stopped["reason"] == "deadline", stopped
    assert stopped["spent"] < BUDGET_EPOCHS, stopped
    resumed = read(call(folder, command, "resume", "--json"))
    assert (resumed["reason"], resumed["spent"], resumed["workers"]) == ("budget", BUDGET_EPOCHS, WORKERS), resumed
    assert Path(resumed["best"]["checkpoint"]).is_file(), resumed
    assert read(call(folder, command, "status", "--json"))["best"] == resumed["best"]
    rows = [read(line) for line in call(folder, command, "export").splitlines()]
    finished = [row for row in rows if row["status"] == "ok" and not row["repeated"]]
    # At the deadline, the running step of each worker was interrupted and charged; a resume check is charged as one epoch.
    assert BUDGET_EPOCHS - WORKERS - 1 <= len(finished) <= BUDGET_EPOCHS, f"{len(finished)} of {len(rows)} steps"
    call(folder, command, "report", "-o", "report.html")
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    print(
        f"stopped after {stopped['spent']:g} epochs, resumed to {total} with {WORKERS} workers: {resumed['best']['value']:.3g}"
    )


def read(text: str) -> Any:
    return json.loads(text)


def call(folder: Path, program: Path, *words: str) -> str:
    """Run a program in this folder and return what it printed; end this script if it fails."""
    hidden = ("PYTHONPATH", "SHOESTRING_STORE", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["PYTHONIOENCODING"] = "utf-8"
    done = subprocess.run(
        [program, *words], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        sys.exit(f"{program.name} {' '.join(words)[:200]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
