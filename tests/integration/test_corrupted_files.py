"""Files damaged in hundreds of ways: the entries that are read are right, or one line says what is wrong."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from thoroughness import repetitions

from shoestring.core.ledger.entries import Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import ShoestringError
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.command.command_state import CommandState, read_saved_step
from shoestring.stores import snapshots
from shoestring.stores.repair import repair
from shoestring.stores.sql import SqlStore
from shoestring.testing.ledger_stores import a_step, an_opening, an_order, entries_as_text

PAGE = 4096
ODD_STATES = [
    [],
    3,
    None,
    {},
    {"saved_step": "x"},
    {"saved_step": -1},
    {"pid": "all"},
    {"saved_step": 2.5},
    {"saved_step": True},
]
Damage = Callable[[Path, random.Random], None]


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return a folder with a study of three hundred entries, a snapshot and a journal; and the entries as text."""
    folder = tmp_path_factory.mktemp("undamaged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "_MIN_NEW_ENTRIES_AT_END", 1)
        store = SqlStore(f"sqlite:///{folder}/made.db")
        ledger = store.append("s", None, an_opening("10000 epochs"))
        for number in range(50):
            steps = [a_step(number, 1, 1 / (number + 1)), a_step(number, 2, 0.5)]
            ledger = store.append("s", ledger, an_order(number), *steps)
        store.finish_run("s", ledger)
        store.close()  # the entries so far are in the file, the next ones in the journal
        for number in range(50, 90):
            note = Note(topic="n", facts={"n": number, "text": "x" * 100})
            ledger = store.append("s", ledger, an_order(number), a_step(number, 1), note)
        other = store.append("other", None, an_opening())
        assert len(other) == 1
        for ending in ("", "-wal"):
            shutil.copy(f"{folder}/made.db{ending}", f"{folder}/store.db{ending}")
        store.close()
    truth = entries_as_text(ledger)
    assert (folder / "store.db-wal").stat().st_size > 20 * PAGE
    return folder, truth


# ways to damage a file -----------------------------------------------------------------------------------------------


def merge_journal(file: Path) -> None:
    """Merge the journal into the file."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    Path(f"{file}-wal").unlink(missing_ok=True)


def flip(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 20])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def flip_in_file(file: Path, chance: random.Random) -> None:
    merge_journal(file)
    flip(file, chance)


def flip_in_head(file: Path, chance: random.Random) -> None:
    merge_journal(file)
    data = bytearray(file.read_bytes())
    data[chance.randrange(200)] = chance.randrange(256)
    file.write_bytes(data)


def flip_in_journal(file: Path, chance: random.Random) -> None:
    flip(Path(f"{file}-wal"), chance)


def cut_file(file: Path, chance: random.Random) -> None:
    merge_journal(file)
    data = file.read_bytes()
    file.write_bytes(data[: chance.choice([chance.randrange(len(data)), PAGE * chance.randrange(len(data) // PAGE)])])


def cut_journal(file: Path, chance: random.Random) -> None:
    journal = Path(f"{file}-wal")
    data = journal.read_bytes()
    journal.write_bytes(data[: chance.randrange(len(data))])


def lose_journal(file: Path, chance: random.Random) -> None:
    Path(f"{file}-wal").unlink()


def another_journal(file: Path, chance: random.Random) -> None:
    Path(f"{file}-wal").write_bytes(chance.randbytes(chance.randrange(1, 5 * PAGE)))


def zero_pages(file: Path, chance: random.Random) -> None:
    merge_journal(file)
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 3])):
        page = chance.randrange(len(data) // PAGE)
        data[page * PAGE : (page + 1) * PAGE] = chance.choice([bytes(PAGE), chance.randbytes(PAGE)])
    file.write_bytes(data)


def swap_pages(file: Path, chance: random.Random) -> None:
    merge_journal(file)
    data = bytearray(file.read_bytes())
    one, second = (PAGE * chance.randrange(1, len(data) // PAGE) for _ in range(2))
    data[one : one + PAGE], data[second : second + PAGE] = data[second : second + PAGE], data[one : one + PAGE]
    file.write_bytes(data)


def tamper(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def swap_rows(file: Path, chance: random.Random) -> None:
    seq, second = chance.sample(range(270), 2)
    move = "UPDATE entries SET seq = {} WHERE study = 's' AND seq = {}"
    tamper(file, move.format(-1, seq), move.format(seq, second), move.format(second, -1))


def edit_row(file: Path, chance: random.Random) -> None:
    change = chance.choice(
        [
            "body = replace(body, '0.5', '0.25')",
            "body = replace(body, ':1', ':2')",
            "kind = 'note'",
            "at = at + 1",
            "sum = 'x'",
            "body = 7",
            "body = x'ff00'",
            "body = CAST(x'ff' AS TEXT)",
            "body = substr(body, 1, 20)",
            "sum = (SELECT sum FROM entries WHERE study = 's' AND seq = 3)",
        ]
    )
    tamper(file, f"UPDATE entries SET {change} WHERE study = 's' AND seq = {chance.randrange(271)}")


def lose_rows(file: Path, chance: random.Random) -> None:
    first = chance.randrange(271)
    count = chance.choice([1, 1, 5, 300])
    tamper(file, f"DELETE FROM entries WHERE study = 's' AND seq >= {first} AND seq < {first + count}")


def repeat_rows(file: Path, chance: random.Random) -> None:
    copied = f"SELECT study, 271, kind, body, sum, at FROM entries WHERE study = 's' AND seq = {chance.randrange(271)}"
    tamper(file, f"INSERT INTO entries {copied}")


def damage_snapshot(file: Path, chance: random.Random) -> None:
    change = chance.choice(
        [
            "seq = seq - 1",
            "seq = 1000",
            "seq = 'x'",
            "sum = (SELECT sum FROM entries WHERE study = 's' AND seq = 9)",
            "first_sum = ''",
            "layout = layout || 'x'",
            "body = replace(body, '0.5', '0.25')",
            f"body = substr(body, 1, {chance.randrange(3000)})",
            "body = '{}'",
            "body = x'00'",
            "body = CAST(x'ff' AS TEXT)",
            "seal = 1",
            "study = 'other'",
        ]
    )
    tamper(file, f"UPDATE snapshots SET {change}")


def edit_leases_and_tables(file: Path, chance: random.Random) -> None:
    tamper(
        file,
        chance.choice(
            [
                "DROP TABLE snapshots",
                "DROP TABLE entries",
                "ALTER TABLE entries RENAME TO theirs",
                "ALTER TABLE snapshots RENAME COLUMN body TO text",
                "ALTER TABLE entries RENAME COLUMN sum TO total",
                "CREATE TABLE more (x)",
            ]
        ),
    )


def replace_by_another(file: Path, chance: random.Random) -> None:
    merge_journal(file)
    chance.choice(  # type: ignore[no-untyped-call]
        [
            lambda: file.write_bytes(b""),
            lambda: file.write_bytes(b"SQLite format 3\x00"),
            lambda: file.write_bytes(chance.randbytes(10_000)),
            lambda: file.write_text("lr,loss\n0.1,0.5\n" * 99),
            lambda: (file.unlink(), file.mkdir()),  # type: ignore[func-returns-value]
            lambda: (
                file.unlink(),  # type: ignore[func-returns-value]
                tamper(file, "CREATE TABLE entries (title TEXT)", "INSERT INTO entries VALUES (1)"),  # type: ignore[func-returns-value]
            ),
        ]
    )()


DAMAGES: dict[Damage, int] = {
    flip_in_file: 60,
    flip_in_head: 25,
    flip_in_journal: 30,
    cut_file: 30,
    cut_journal: 25,
    lose_journal: 1,
    another_journal: 6,
    zero_pages: 30,
    swap_pages: 20,
    swap_rows: 20,
    edit_row: 40,
    lose_rows: 25,
    repeat_rows: 8,
    damage_snapshot: 40,
    edit_leases_and_tables: 10,
    replace_by_another: 12,
}


def read_all(file: Path) -> tuple[str, list[str]]:
    """Return the totals that `status` shows and then all entries; only errors of shoestring may be raised."""
    store = SqlStore(f"sqlite:///{file}")
    status, seen = "", []
    try:
        store.studies()
        ledger = store.load("s")
        if ledger is not None:
            status = _status_of(ledger)
            seen = entries_as_text(ledger)
    except ShoestringError as error:
        _require_one_line(error)
    finally:
        store.close()
    return status, seen


def _require_one_line(error: ShoestringError) -> None:
    assert str(error), "an error has a message"
    assert "\n" not in str(error), f"an error is one line: {error}"


def _status_of(ledger: Ledger) -> str:
    return repr((len(ledger), ledger.trials, ledger.spent, ledger.budget, len(ledger.orders), ledger.open_orders))


@pytest.mark.slow
@pytest.mark.repeated
def test_no_wrong_entry_is_ever_read(undamaged: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, truth = undamaged
    whole = SqlStore(f"sqlite:///{folder}/store.db").load("s")
    assert whole is not None
    outcomes: Counter[str] = Counter()
    for damage, times in DAMAGES.items():
        for seed in range(repetitions(-(-times // 6), thorough=times)):
            file = tmp_path / f"{damage.__name__}-{seed}" / "store.db"
            file.parent.mkdir()
            for ending in ("", "-wal"):
                shutil.copy(folder / f"store.db{ending}", f"{file}{ending}")
            damage(file, random.Random(f"{damage.__name__} {seed}"))
            status, seen = read_all(file)
            assert seen == truth[: len(seen)], f"{damage.__name__} {seed}: wrong entries"
            if status:
                count = int(status[1:].split(",")[0])
                assert status == _status_of(whole.fork(count)), f"{damage.__name__} {seed}: wrong state"
            outcomes[
                "whole" if len(seen) == len(truth) else "a part" if seen else "state" if status else "refused"
            ] += 1
            if seed % 8 == 0:
                _check_repair(file, truth)
            shutil.rmtree(file.parent)
    assert outcomes.total() >= repetitions(50, thorough=300)
    least = min(outcomes["whole"], outcomes["a part"], outcomes["refused"])
    assert least > repetitions(3, thorough=10), f"every outcome occurs: {outcomes}"


def _check_repair(file: Path, truth: list[str]) -> None:
    new = file.parent / "new.db"
    try:
        repair(f"sqlite:///{file}", "s", f"sqlite:///{new}")
    except ShoestringError as error:
        _require_one_line(error)
        return
    saved = entries_as_text(SqlStore(f"sqlite:///{new}").load("s"))
    assert saved
    assert saved == truth[: len(saved)]


# files beside the database -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_state_file_of_a_command(seed: int, tmp_path: Path) -> None:
    """The file is used or ignored; a step that was never saved is not invented."""
    folder, chance = tmp_path / "trial-0000", random.Random(seed)
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "weights").write_text("1.0")
    CommandState(saved_step=3, reports_saves=True).write(folder)
    (file,) = folder.glob("*.json")
    data = file.read_bytes()
    if seed % 4 == 0:
        file.write_bytes(data[: chance.randrange(len(data))])
    elif seed % 4 == 1:
        file.write_bytes(chance.randbytes(30))
    elif seed % 4 == 2:
        file.write_text(json.dumps(chance.choice(ODD_STATES)))
    else:
        damaged = bytearray(data)
        damaged[chance.randrange(len(damaged))] = chance.randrange(128)
        file.write_bytes(damaged)
    resumable_step = read_saved_step(folder)
    assert isinstance(resumable_step, int)
    assert resumable_step >= 0


@pytest.mark.parametrize("name", ["step-3.partial", "step-x", "step-", "step-99999999999999999999", "other"])
def test_files_that_are_not_checkpoints(name: str, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    folder = Path(checkpoints.partial_path(0, 1)).parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("half")
    ledger = Ledger([an_opening(), an_order(0, until=4), a_step(0, 1)])
    survivors = Checkpoints(tmp_path).start(ledger)
    assert survivors.get(0, 0) in (0, 1)
