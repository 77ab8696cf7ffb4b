"""Run the tests that need heavy packages, each group in a virtual environment of its own.

    python tools/heavy.py                 all groups
    python tools/heavy.py boosting -k xgboost

A group is a folder of tests/heavy with a requirements.txt. Its environment is made in .venvs/GROUP and made anew when the
requirements or the project's own dependencies change. While the tests of one group run, the environments of those behind it are
made. Words after the groups go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "heavy"
MOSTLY_WAITING = {"ray"}  # for nodes to start, to die and to be missed: two files of tests at a time
OURS = ["pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100"]


def groups() -> list[str]:
    return sorted(path.parent.name for path in TESTS.glob("*/requirements.txt"))


def prepare(group: str) -> Path:
    """The Python of the group's environment, with the project and all that the group needs."""
    folder, wanted = ROOT / ".venvs" / group, TESTS / group / "requirements.txt"
    python, stamp = folder / "bin" / "python", folder / "installed"
    fingerprint = sha256(wanted.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == fingerprint):
        run_quietly([sys.executable, "-m", "venv", "--without-pip", folder])
        # The pip that is here: a pip of its own takes seconds to be made, and is as old as this Python.
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "-q"]
        # Most files of such packages are never imported: compiling all of them is a third of the work.
        run_quietly([*pip, "install", "--no-compile", "-e", ROOT, *OURS, "-r", wanted])
        stamp.write_text(fingerprint)
    return python


def run_quietly(command: Sequence[str | Path]) -> None:
    """Run it; what it says is heard only if it fails, since another group's tests are talking meanwhile."""
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f"{done.stdout}{' '.join(map(str, command))} ended with {done.returncode}")


def run(group: str, python: Path, words: Sequence[str]) -> int:
    """The exit code of pytest. The warnings of other people's packages are not ours to mend."""
    command: list[str | Path] = [python, "-m", "pytest", TESTS / group, "-o", "filterwarnings=default"]
    if group in MOSTLY_WAITING:
        command += ["-n", "2", "--dist", "loadfile"]
    command += words
    # Nothing was compiled yet, and tests start processes by the dozen: the first to import a file compiles it for all.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def has_passed(group: str, made: Future[Path], words: Sequence[str]) -> bool:
    try:
        python = made.result()
    except (RuntimeError, OSError) as error:
        print(f"{group}: no environment could be made for it\n{error}", flush=True)
        return False
    return run(group, python, words) == 0


def main(words: Sequence[str]) -> int:
    known = groups()
    chosen = [word for word in words if word in known] or known
    others = [word for word in words if word not in known]
    installer = ThreadPoolExecutor(max_workers=1)
    made = {group: installer.submit(prepare, group) for group in chosen}
    try:
        failed = [group for group in chosen if not has_passed(group, made[group], others)]
    finally:
        installer.shutdown(cancel_futures=True)  # who breaks off waits for one environment at most
    print(f"failed: {', '.join(failed)}" if failed else f"passed: {', '.join(chosen)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
