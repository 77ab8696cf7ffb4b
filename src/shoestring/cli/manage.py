"""The commands for the studies of a store: `list`, `rename` and `delete`."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from shoestring.cli.printing import print_line, print_rich, store_words
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count, printable
from shoestring.errors import StudyError
from shoestring.reports import facts, messages
from shoestring.stores.addresses import open_store
from shoestring.stores.ledger_store import LedgerStore
from shoestring.study import manage
from shoestring.study.study import Study


def list_studies(store: str, as_json: bool) -> None:
    show_studies(open_store(store, must_exist=True), store, as_json=as_json)


def show_studies(store: LedgerStore, address: str, *, as_json: bool) -> None:
    """Print one line about each study of a store."""
    rows: list[dict[str, Any]] = []
    for name, found in manage.open_all(store):
        if isinstance(found, Study):
            rows.append(facts.list_entry(name, found.ledger))
        else:
            rows.append({"study": name, "error": str(found)})
    if as_json:
        print_line(dumps({"store": store.where, "studies": rows}))
    elif rows:
        print_rich(messages.study_table(rows))
        print_line(
            f"more about one: shoestring status --study NAME {shlex.join(store_words(address, store.where))}".rstrip()
        )
    else:
        print_line(f"{store.where} has no study")


def rename_study(new: str, name: str | None, store: str, as_json: bool) -> None:
    study = Study.open(name, store)
    manage.rename(study, new)
    renamed = {"study": study.name, "new": new, "store": study.store.where}
    print_line(dumps(renamed) if as_json else f"the study {printable(study.name)!r} is now {printable(new)!r}")


def delete_study(name: str, store: str, yes: bool, as_json: bool) -> None:
    study = Study.open(name, store)
    manage.require_free(study)
    (files, size_bytes), ledger = manage.measure_files(study), study.ledger
    what = (
        f"the study {printable(name)!r} in {study.store.where}: {count(len(ledger.trials), 'trial')}, "
        f"{ledger.budget.show(ledger.spent)} spent"
    )
    if files:
        size = facts.show_bytes(size_bytes)
        what += f"; and its checkpoints and logs: {count(files, 'file')}, {size} in {study.checkpoints}"
    if not yes:
        if not sys.stdin.isatty():
            raise StudyError(f"this would delete {what}: add --yes, because there is no terminal on which to ask")
        click.echo(f"this deletes {what}", err=True)
        click.confirm("Delete it? This cannot be undone.", abort=True, err=True)
    manage.delete(study)
    deleted: dict[str, Any] = {"study": name, "store": study.store.where, "trials": len(ledger.trials)}
    deleted |= {"checkpoints": str(study.checkpoints), "files": files, "bytes": size_bytes}
    print_line(dumps(deleted) if as_json else f"deleted {what}")
