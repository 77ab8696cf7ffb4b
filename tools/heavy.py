"""Run the tests that need heavy packages, each group in a virtual environment of its own.

    python tools/heavy.py                 all groups
    python tools/heavy.py boosting -k xgboost

A group is a folder of tests/heavy with a requirements.txt. Its environment is created in .venvs/GROUP, and created again when the
requirements or the project's own dependencies change. While the tests of one group run, the environments of the next groups
are created. Arguments after the groups are passed to pytest.
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
MOSTLY_WAITING = {"ray"}  # these tests wait for nodes to start and to die, so two files run at a time
TEST_PACKAGES = ["pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100"]


def groups() -> list[str]:
    return sorted(path.parent.name for path in TESTS.glob("*/requirements.txt"))


def prepare(group: str) -> Path:
    """Create the group's environment if needed and return its Python."""
    folder, requirements = ROOT / ".venvs" / group, TESTS / group / "requirements.txt"
    python, stamp = folder / "bin" / "python", folder / "installed"
    fingerprint = sha256(requirements.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == fingerprint):
        run_quietly([sys.executable, "-m", "venv", "--without-pip", folder])
        # Use this environment's pip: installing another one takes seconds, and it would be as old as this Python.
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "-q"]
        # Most files of these packages are never imported; compiling all of them takes a third of the time.
        run_quietly([*pip, "install", "--no-compile", "-e", ROOT, *TEST_PACKAGES, "-r", requirements])
        stamp.write_text(fingerprint)
    return python


def run_quietly(command: Sequence[str | Path]) -> None:
    """Run a command and show its output only if it fails, because the tests of another group print at the same time."""
    process = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if process.returncode:
        raise RuntimeError(f"{process.stdout}{' '.join(map(str, command))} ended with {process.returncode}")


def run(group: str, python: Path, words: Sequence[str]) -> int:
    """Run pytest and return its exit code; warnings of the installed packages are not errors here."""
    command: list[str | Path] = [python, "-m", "pytest", TESTS / group, "-o", "filterwarnings=default"]
    if group in MOSTLY_WAITING:
        command += ["-n", "2", "--dist", "loadfile"]
    command += words
    # Tests start dozens of processes: let the first one that imports a file compile it for all.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def has_passed(group: str, environment: Future[Path], words: Sequence[str]) -> bool:
    try:
        python = environment.result()
    except (RuntimeError, OSError) as error:
        print(f"{group}: no environment could be made for it\n{error}", flush=True)
        return False
    return run(group, python, words) == 0


def main(words: Sequence[str]) -> int:
    known = groups()
    chosen = [word for word in words if word in known] or known
    others = [word for word in words if word not in known]
    installer = ThreadPoolExecutor(max_workers=1)
    environments = {group: installer.submit(prepare, group) for group in chosen}
    try:
        failed = [group for group in chosen if not has_passed(group, environments[group], others)]
    finally:
        installer.shutdown(cancel_futures=True)  # after Ctrl-C, wait for the running installation only
    print(f"failed: {', '.join(failed)}" if failed else f"passed: {', '.join(chosen)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
