"""Draw the pictures of the README from a real study: the terminal while `make demo` runs.

python docs/pictures/make.py        # trains for 30 seconds, writes docs/pictures/terminal.svg
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from shoestring.core.entries import Order
from shoestring.reports.progress import LiveView
from shoestring.study.study import Study

ROOT = Path(__file__).parents[2]
WIDTH = 118
STUDY = "examples/digits.py:Digits --space examples/digits.toml --max-steps 40 --seed 1 --budget 30s --quiet --json"


def main() -> None:
    os.environ["COLUMNS"] = str(WIDTH)  # the view asks its terminal, and a picture has none
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/demo.db"
        command = [sys.executable, "-m", "shoestring", "run", *STUDY.split(), "--store", store]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        ledger = Study.open(store=store).ledger
        # The moment of the last order at about two thirds of the money: some trials run, many are frozen.
        moments = [n for n in range(1, len(ledger) + 1) if isinstance(ledger.entries()[n - 1], Order)]
        moment = next(n for n in moments if ledger.fork(n).spent > 0.66 * ledger.budget.total)
        view = LiveView(f"digits: {ledger.books.policy}, seed {ledger.opened.seed}")
        then = ledger.fork(moment)
        view(then, then.orders[-1])
        console = Console(record=True, width=WIDTH, file=open("/dev/null", "w"))  # noqa: SIM115
        console.print(view.render(then))
    console.save_svg(str(ROOT / "docs" / "pictures" / "terminal.svg"), title="shoestring run examples/digits.py:Digits")


if __name__ == "__main__":
    main()
