"""Run the tests that need heavy packages, each group in a virtual environment of its own.

    python tools/heavy.py                 all groups
    python tools/heavy.py boosting -k xgboost

A group is a folder of tests/heavy with a requirements.txt. Its environment is made in .venvs/GROUP and made anew when the
requirements or the project's own dependencies change. Words after the groups go to pytest.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
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
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        # Most files of such packages are never imported: compiling all of them is a third of the work.
        pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-compile"]
        subprocess.run([*pip, "-e", ROOT, *OURS, "-r", wanted], check=True)
        stamp.write_text(fingerprint)
    return python


def run(group: str, words: Sequence[str]) -> int:
    """The exit code of pytest. The warnings of other people's packages are not ours to mend."""
    command: list[str | Path] = [prepare(group), "-m", "pytest", TESTS / group, "-o", "filterwarnings=default"]
    if group in MOSTLY_WAITING:
        command += ["-n", "2", "--dist", "loadfile"]
    command += words
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(words: Sequence[str]) -> int:
    known = groups()
    chosen = [word for word in words if word in known]
    failed = [group for group in chosen or known if run(group, [word for word in words if word not in known])]
    print(f"failed: {', '.join(failed)}" if failed else f"passed: {', '.join(chosen or known)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
