"""The commands that copy a study out of its store: `export` for other tools, `repair` for a damaged study."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from shoestring.cli.printing import print_line
from shoestring.core.values.credentials import hide_credentials
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count, printable
from shoestring.errors import StoreError, StudyError
from shoestring.private_files import write_file
from shoestring.stores.addresses import open_store
from shoestring.study.journal import default_checkpoint_folder
from shoestring.study.study import Study


def export_study(store: str, name: str | None, form: str, whole: bool, to: str | None, output: str | None) -> None:
    from shoestring.reports import export

    if to == "optuna":
        export_to_optuna(Study.open(name, store), output)
        return
    if whole and form == "csv":
        raise StudyError("--ledger needs --format jsonl: the entries of a ledger are not a table")
    study = Study.open(name, store)
    rows = export.ledger_rows(study.ledger) if whole else export.step_rows(study.ledger)
    text = export.as_csv(rows) if form == "csv" else "".join(f"{line}\n" for line in export.as_json_lines(rows))
    if output:
        try:
            write_file(Path(output), text.encode())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise StoreError(f"the export cannot be written to {output!r}: {why}") from None
    else:
        sys.stdout.write(printable(text, lines=True) if sys.stdout.isatty() else text)


def export_to_optuna(study: Study, output: str | None) -> None:
    """Write the study to a storage of Optuna."""
    if output is None:
        raise StudyError("--to optuna needs -o FILE, as in -o study.journal")
    from shoestring.integrations.optuna import to_optuna

    exported, shown = to_optuna(study.ledger, output, study.name), hide_credentials(output)
    print_line(
        f"{count(len(exported.trials), 'trial')} in {shown}; look at them with: optuna-dashboard {shlex.quote(shown)}"
    )


def repair_study(study: str, output: str, store: str, as_json: bool) -> None:
    from shoestring.stores.repair import repair

    repaired = repair(store, study, output)
    if as_json:
        print_line(
            dumps(
                {
                    "study": study,
                    "copied": repaired.n_copied,
                    "dropped": repaired.n_dropped,
                    "why": repaired.reason,
                    "output": output,
                }
            )
        )
        return
    checkpoints = default_checkpoint_folder(open_store(store), study)
    if checkpoints.exists():
        print_line(
            "checkpoints are not copied; to copy them: "
            + shlex.join(["cp", "-r", str(checkpoints), str(default_checkpoint_folder(open_store(output), study))])
        )
    entries = f"{repaired.n_copied} {'entry' if repaired.n_copied == 1 else 'entries'}"
    rest = "an unknown number" if repaired.n_dropped is None else str(repaired.n_dropped)
    print_line(
        f"copied {entries} of {study!r} to {output}"
        + (f", left out {rest}: {repaired.reason}" if repaired.reason else "")
    )
