"""`Plot`: a figure of a study as an object, which a notebook shows and a user saves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import StudyError, one_line
from shoestring.reports.figures.configs import (
    MIN_TRIALS,
    MIN_TRIALS_FOR_IMPORTANCE,
    Importance,
    draw_importance,
    draw_parallel,
    find_importances,
)
from shoestring.reports.figures.costs import draw_best
from shoestring.reports.figures.drawing import Figure
from shoestring.reports.figures.history import StudyHistory, read_history
from shoestring.reports.figures.notebook_cell import show_figures
from shoestring.reports.figures.static import draw_png, write_file, write_svg
from shoestring.reports.figures.trial_curves import draw_curves

PlotKind = Literal["best", "curves", "importances", "parallel"]
_COMPARABLE = "trials that reached a common step with a value"
_KINDS: dict[PlotKind, tuple[Callable[[StudyHistory], Figure | None], str]] = {  # how it is drawn, and what it needs
    "best": (draw_best, "a step with a value"),
    "curves": (draw_curves, "a trial of two steps with a value"),
    "importances": (draw_importance, f"{MIN_TRIALS_FOR_IMPORTANCE} {_COMPARABLE}, and a parameter that varies"),
    "parallel": (draw_parallel, f"{MIN_TRIALS} {_COMPARABLE}, and two parameters that vary"),
}


class Plot:
    """A figure of a study. As the last line of a notebook cell it is shown; `save` writes it to a file.

    The methods `plot_best`, `plot_curves`, `plot_importances` and `plot_parallel` of a study return it. It is the figure that
    `shoestring report` draws.

    Parameters
    ----------
    figure : Figure
        What was drawn. The constructor is for internal use.

    Attributes
    ----------
    title : str
        The title.
    sentence : str
        What the figure shows, in one or two sentences.
    columns : sequence of str
        The names of the columns of `rows`.
    rows : sequence of sequence
        The figure as a table.
    svg : str
        The figure as the text of an SVG file, on a white background.

    Examples
    --------
    >>> from shoestring import Float, Space, tune
    >>> study = tune(lambda config: config["x"] ** 2, Space({"x": Float(-1.0, 1.0)}), "30 epochs", seed=0)
    >>> plot = study.plot_best()
    >>> plot.title
    'The best value so far'
    >>> plot.svg[:4]
    '<svg'
    """

    def __init__(self, figure: Figure) -> None:
        self._figure = figure
        self.title, self.sentence = figure.title, figure.sentence
        self.columns, self.rows = figure.columns, figure.rows

    def __repr__(self) -> str:
        return one_line(f"<Plot: {self.title}. {self.sentence}>")

    def _repr_html_(self) -> str:
        return show_figures([self._figure])

    def _repr_svg_(self) -> str:
        return self.svg

    @property
    def svg(self) -> str:
        """The figure as the text of an SVG file, on a white background."""
        return write_svg(self._figure)

    def save(self, path: str | Path, *, dark: bool = False) -> None:
        """Write the figure to a file.

        Parameters
        ----------
        path : str or Path
            The file; it ends in `.svg` or `.png`.
        dark : bool, optional
            Draw on a dark background.

        Raises
        ------
        StudyError
            If the name of the file ends otherwise.
        MissingExtra
            If a PNG is wanted and the package that draws it is not installed: `pip install 'shoestring[pictures]'`.
        StoreError
            If the file cannot be written.
        """
        file = Path(path)
        if file.suffix.lower() not in (".svg", ".png"):
            raise StudyError(f"the figure cannot be saved as {str(path)!r}: the name must end in .svg or .png")
        drawn = write_svg(self._figure, "dark" if dark else "light")
        write_file(file, draw_png(drawn) if file.suffix.lower() == ".png" else drawn.encode())


def measure_importances(name: str, ledger: Ledger) -> dict[str, Importance]:
    """Return the importance of each parameter, the largest first; raise an error if there are too few trials."""
    found = find_importances(read_history(name, ledger))
    if found is None:
        raise StudyError(
            f"the study {name!r} has no importances yet: that needs {MIN_TRIALS_FOR_IMPORTANCE} {_COMPARABLE}"
        )
    return found[1]


def plot_study(name: str, ledger: Ledger, kind: PlotKind) -> Plot:
    """Return the figure of this kind; raise an error if the study does not have what it needs yet."""
    draw, need = _KINDS[kind]
    figure = draw(read_history(name, ledger))
    if figure is None:
        raise StudyError(f"the study {name!r} has no plot of its {kind} yet: that needs {need}")
    return Plot(figure)
