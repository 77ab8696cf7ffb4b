"""New files are private, unless their folder is shared with a group; a token that others can read is refused."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shoestring import Float, Space, Study
from shoestring.cli.main import cli
from shoestring.cli.serve import find_token
from shoestring.errors import StudyError
from shoestring.private_files import make_file, make_folder, write_file
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.process.process_runner import ProcessRunner

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has other access rights")
OTHER_GROUP = 12345


@pytest.fixture
def umask() -> Iterator[Any]:
    """Return a function that sets the umask for this test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))[2:]


class Saves:
    def __init__(self, config: Any) -> None:
        sys.stdout.write("a log\n")

    def step(self) -> float:
        return 1.0

    def save(self, path: Path) -> None:
        path.write_text("state")

    def load(self, path: Path) -> None:
        pass


def readable_by_others(folder: Path) -> list[str]:
    """Return what others could read, in a folder that they can enter."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.stat().st_mode & 0o077:
            found.append(path.name)
            if path.is_dir() and path.stat().st_mode & 0o011:
                found += readable_by_others(path)
    return found


@pytest.mark.usefixtures("umask")
def test_nothing_of_a_study_can_be_read_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = str(tmp_path / "new.db")
    study = Study.begin(Space({"x": Float(0, 1)}), "4 epochs", store=store, max_steps=2, seed=1)
    study.run(ProcessRunner(Saves, Checkpoints(study.checkpoints)))
    for words in (
        "report -o report.html",
        "report --svg figures",
        "export -o rows.jsonl",
        "repair --study study -o other.db",
    ):
        done = CliRunner().invoke(cli, [*words.split(), "--store", store])
        assert done.exit_code == 0, done.output
    logs = [path.name for path in Path(study.checkpoints).rglob("stdout.txt")]
    assert logs
    made = {"new.db", "new.db.checkpoints", "report.html", "figures", "rows.jsonl", "other.db"}
    assert made <= {path.name for path in tmp_path.iterdir()}
    assert readable_by_others(tmp_path) == []


@pytest.mark.parametrize(
    ("folder_mode", "umask_of_user", "is_own_group", "file_mode", "new_folder_mode"),
    [
        (0o755, 0o022, True, "600", "700"),
        (0o755, 0o000, True, "600", "700"),
        (0o775, 0o002, True, "660", "770"),  # the group may write
        (0o770, 0o022, True, "640", "750"),  # the umask takes this away
        (0o775, 0o002, False, "600", "700"),  # new files would belong to another group than the folder
        (0o2770, 0o002, False, "660", "2770"),  # new files belong to the folder's group
        (0o2750, 0o002, False, "640", "2750"),  # this group only reads
        (0o1777, 0o000, True, "600", "700"),  # everybody may write, as in /tmp
        (0o2777, 0o000, True, "600", "2700"),
        (0o770, 0o077, True, "600", "700"),
    ],
)
def test_the_group_of_a_shared_folder_keeps_its_access(
    folder_mode: int,
    umask_of_user: int,
    is_own_group: bool,
    file_mode: str,
    new_folder_mode: str,
    tmp_path: Path,
    umask: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(folder_mode)
    if not is_own_group:
        monkeypatch.setattr(os, "getegid", lambda: OTHER_GROUP)
    umask(umask_of_user)
    make_file(folder / "a")
    write_file(folder / "b", b"text")
    make_folder(folder / "c" / "d")
    assert [mode(folder / name) for name in "abc"] == [file_mode, file_mode, new_folder_mode]
    assert not (folder / "c" / "d").stat().st_mode & 0o007


@pytest.mark.usefixtures("umask")
def test_what_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()
    make_file(tmp_path / "a")
    make_folder(tmp_path / "b")
    assert (mode(tmp_path / "a"), mode(tmp_path / "b")) == ("644", "755")
    write_file(tmp_path / "a", b"new")
    assert (mode(tmp_path / "a"), (tmp_path / "a").read_text()) == ("644", "new")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a")


# tokens --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("open_mode", [0o644, 0o640, 0o604, 0o602, 0o666])
def test_a_token_that_others_can_read_is_refused(open_mode: int, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a token that nobody guesses\n")
    file.chmod(open_mode)
    with pytest.raises(
        StudyError, match=r"other users can read or change the token file .*chmod 600.*SHOESTRING_TOKEN"
    ):
        find_token(str(file))
    file.chmod(0o600)
    assert find_token(str(file)) == "a token that nobody guesses"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_a_token_of_the_administrator_may_be_readable_by_a_group(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a token that nobody guesses\n")
    os.chown(file, 12345, OTHER_GROUP)
    file.chmod(0o440)
    assert find_token(str(file)) == "a token that nobody guesses"
    file.chmod(0o444)
    with pytest.raises(StudyError, match="other users can read"):
        find_token(str(file))
