"""The commands of the README run as they are printed, in order, in a fresh clone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
ENDLESS = ("shoestring watch", "shoestring serve")  # they run until Ctrl-C
pytestmark = pytest.mark.slow


def commands(block: str) -> list[str]:
    """Return the commands of a block, each with the lines that continue it and its comment."""
    return [command.strip() for command in re.split(r"^\$ ", block, flags=re.MULTILINE) if command.strip()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the files that a clone would have, with the environment of these tests as its .venv."""
    folder = tmp_path_factory.mktemp("clone")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not in a clone")
    for file in filter(None, files.split("\0")):
        if (ROOT / file).is_file():  # not deleted
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, folder / file)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def run(command: str, clone: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as in a shell in which the environment was activated before."""
    return subprocess.run(
        ["bash", "-c", command], cwd=clone, env=activated(clone), capture_output=True, text=True, check=False
    )


def activated(clone: Path) -> dict[str, str]:
    # Without the variables of a `make` that runs the tests: another one inside it would print which folder it leaves.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return {**inherited, "PATH": f"{clone}/.venv/bin{os.pathsep}{os.environ['PATH']}"}


def test_the_demo_ends_with_how_to_look_at_its_report(clone: Path) -> None:
    demo, activate = commands(BLOCKS[0])
    assert demo.startswith("make demo ")
    # The environment exists, so nothing is installed: `-o` means that its stamp is new enough.
    done = run("make demo DEMO_BUDGET=3s -o .venv/demo", clone)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    (page,) = re.findall(r"^Open (\S+) in a browser: ", last)
    assert "<!doctype html>" in (clone / page).read_text("utf-8")
    assert run(f"{activate.partition('#')[0]} && command -v shoestring", clone).returncode == 0


def test_the_commands_run_in_order_as_they_are_printed(clone: Path, port: int) -> None:
    printed = commands(BLOCKS[1])
    assert len(printed) >= 8
    for command in printed:
        if command.startswith(ENDLESS):
            run_until_it_serves(command.replace("8765", str(port)), clone)
            continue
        done = run(command, clone)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip()
    assert "<!doctype html>" in (clone / "report.html").read_text("utf-8")


def run_until_it_serves(command: str, clone: Path) -> None:
    """Run a command that serves a page or workers; press Ctrl-C when it has printed its address."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=clone,
        env=activated(clone),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert "http://127.0.0.1:" in first, err
    assert process.returncode in (0, 128 + signal.SIGINT), err


@pytest.fixture
def port() -> int:
    """Return a port that is free, in place of the one on the page."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    return number


def test_every_file_that_a_command_names_is_in_the_clone() -> None:
    named = re.findall(r"examples/[\w./]+", "".join(BLOCKS))
    assert named
    assert [file for file in named if not (ROOT / file.rstrip("/")).exists()] == []


def test_no_page_says_that_the_release_can_be_installed_already() -> None:
    """The package is in no index yet: a bare `pip install shoestring` may be named only as what will hold then."""
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("docs/**/*.ipynb"),
        *ROOT.glob("examples/**/*.md"),
    ]
    wrong = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in pages
        for line in page.read_text("utf-8").splitlines()
        if re.search(r"pip install shoestring\b", line) and "release" not in line
    ]
    assert wrong == []
