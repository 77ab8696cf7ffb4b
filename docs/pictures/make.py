"""Draw the pictures of the README and the docs from real studies.

    python docs/pictures/make.py              # from recorded trainings and stored measurements; reproducible
    python docs/pictures/make.py terminal     # the terminal during `make demo`; it trains for 30 seconds

A test compares the stored files with the output of the first command. The PNG for GitHub's social preview needs
`pip install 'shoestring[pictures]'`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from shoestring.core.ledger.entries import Order
from shoestring.errors import MissingExtra
from shoestring.reports.figures.comparisons import draw_comparison
from shoestring.reports.figures.history import StudyHistory, read_history
from shoestring.reports.figures.page import draw_study
from shoestring.reports.figures.static import draw_png, wrap_svg, write_svg
from shoestring.reports.progress import LiveView
from shoestring.runners.simulated.recorded_table import Table
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.study.study import Study

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # for `benchmarks`
FOLDER = ROOT / "docs" / "pictures"
TABLE = ROOT / "benchmarks" / "data" / "fashion_curves" / "resnet_alexnet.npz"  # 49 trained networks
FIGURES = ("budget", "best", "curves", "timeline", "parallel", "importance")
POLICIES = ("sequential_halving", "asha", "random_search")
SEEDS = range(5)
SOCIAL = "social-preview"  # 1280 by 640, as GitHub asks for
TERMINAL_WIDTH = 118
DEMO = "examples/digits.py:Digits --space examples/digits.toml --max-steps 40 --seed 1 --budget 30s --quiet --json"


def tune_recorded(policy: str = "sequential_halving", seed: int = 1, workers: int = 4) -> StudyHistory:
    """Return the history of a study of 400 epochs on recorded trainings: real curves and costs, in simulated time."""
    table = Table.load(TABLE)
    study = Study.begin(
        table.space(),
        "400 epochs",
        max_steps=table.max_steps,
        policy=policy,
        seed=seed,
        workers=workers,
        metric="validation error",
    )
    study.run(SimulatedRunner(table, workers))
    return read_history(policy, study.ledger)


def draw() -> dict[str, str]:
    """Return the text of every reproducible picture by file name."""
    figures = {figure.key: figure for figure in draw_study(tune_recorded())}
    compared = draw_comparison([tune_recorded(policy, seed) for policy in POLICIES for seed in SEEDS])
    assert compared is not None
    shown = [*(figures[key] for key in FIGURES), compared]
    files = {f"report_{figure.key}.svg": write_svg(figure, "reader") for figure in shown}
    return {
        **files,
        **draw_scale(),
        "race.svg": draw_race(),
        f"{SOCIAL}.svg": draw_social_preview(figures["curves"].svg),
    }


def draw_scale() -> dict[str, str]:
    """Draw the stored measurements of `python -m benchmarks scale`."""
    from benchmarks.scale.pictures import draw_growth, draw_utilisation

    measured = json.loads((ROOT / "benchmarks" / "scale" / "results" / "scale.json").read_text(encoding="utf-8"))
    return {
        "scale_utilisation.svg": draw_utilisation(measured["runs"]),
        "scale_growth.svg": draw_growth(measured["growth"]),
    }


def draw_race() -> str:
    """Draw the stored results of `python -m benchmarks race`: our default and other tools at several budgets."""
    from benchmarks.race import digest, results, statistics

    stored = json.loads((ROOT / "benchmarks" / "race" / "results" / "race.json").read_text(encoding="utf-8"))
    return digest.picture(statistics.summary(results.unpack(stored)))


def draw_social_preview(curves: str) -> str:
    """Draw the picture that a link to the project shows. It is shown small, so the axes have no numbers."""
    shape = re.sub(r"<text .*?</text>", "", curves)
    inner = shape.replace("<svg ", '<svg x="560" y="90" width="690" height="440" ', 1)
    texts = [
        (212, 92, "name", "shoestring"),
        (276, 33, "name", "The best model you can afford"),
        (350, 27, "label", "Hyperparameter tuning"),
        (388, 27, "label", "under a hard budget:"),
        (426, 27, "label", "epochs, hours, dollars"),
    ]
    written = "".join(
        f'<text x="72" y="{y}" class="{style}" style="font-size: {size}px">{words}</text>'
        for y, size, style, words in texts
    )
    drawn = f'<svg viewBox="0 0 1280 640" role="img">{inner}{written}</svg>'
    return wrap_svg(drawn, "shoestring: the best model you can afford", padding=0.0)


def draw_terminal() -> str:
    """Draw the live view of the demo as a terminal shows it."""
    from rich.console import Console

    # The view reads the width of the terminal, which a picture does not have.
    os.environ["COLUMNS"] = str(TERMINAL_WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/demo.db"
        command = [sys.executable, "-m", "shoestring", "run", *DEMO.split(), "--store", store]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        ledger = Study.open(store=store).ledger
        # The moment of the first order after two thirds of the budget: some trials run, many are paused.
        moments = [n for n in range(1, len(ledger) + 1) if isinstance(ledger.entries()[n - 1], Order)]
        moment = next(n for n in moments if ledger.fork(n).spent > 0.66 * ledger.budget.total)
        view = LiveView(f"digits: {ledger.state.policy}, seed {ledger.definition.seed}")
        then = ledger.fork(moment)
        view(then, then.orders[-1])
        console = Console(record=True, width=TERMINAL_WIDTH, file=open("/dev/null", "w"))  # noqa: SIM115
        console.print(view.render(then))
    return console.export_svg(title="shoestring run examples/digits.py:Digits")


def main(words: list[str]) -> None:
    files = {"terminal.svg": draw_terminal()} if words == ["terminal"] else draw()
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    if f"{SOCIAL}.svg" in files:
        try:
            (FOLDER / f"{SOCIAL}.png").write_bytes(draw_png(files[f"{SOCIAL}.svg"], zoom=1.0))
        except MissingExtra as error:
            sys.stderr.write(f"{SOCIAL}.png is not changed: {error}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
