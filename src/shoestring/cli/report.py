"""The commands `report`, which writes a page about studies, and `watch`, which serves one that is updated."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from shoestring import policies
from shoestring.cli.printing import print_line, store_words
from shoestring.core.values.credentials import hide_credentials
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import printable
from shoestring.errors import ShoestringError, StudyError, did_you_mean
from shoestring.http.access import Access
from shoestring.http.server import Answer, RequestError, Routes, Server
from shoestring.policies.citations import cite
from shoestring.reports.figures.comparisons import draw_comparison, draw_replayed
from shoestring.reports.figures.drawing import Figure
from shoestring.reports.figures.history import StudyHistory, read_history
from shoestring.reports.figures.page import describe_study, draw_study, list_copyables, write_page
from shoestring.reports.figures.static import draw_png, write_file, write_svg
from shoestring.reports.figures.trials_table import TrialsTable, list_trials
from shoestring.stores.addresses import open_store
from shoestring.stores.ledger_store import LedgerStore
from shoestring.stores.nearby import describe_nearby
from shoestring.stores.sql import SqlStore
from shoestring.study.predicted_history import read_predicted_history
from shoestring.study.study import Study

_WHOLE_STUDY = "curves"  # the figure that shows every trial; it is written if one file is named and no figure
_MAX_DIGITS = 18  # of the number of an order in an address


def write_report(
    studies: Sequence[str],
    compare: Iterable[str],
    orders: Sequence[int],
    output: str | None,
    svg: str | None,
    png: str | None,
    only: Sequence[str],
    dark: bool,
    store: str,
    as_json: bool,
) -> None:
    """Write a report of these studies; without names, of all studies in the store."""
    began = time.perf_counter()
    ledger_store = open_store(store, must_exist=True)
    names = list(studies) or ledger_store.studies()
    if not names:
        raise StudyError(f"there is no study in {hide_credentials(store)}: nothing to draw")
    ledgers = {name: Study.open(name, ledger_store).ledger for name in names}
    if orders and len(names) > 1:
        raise StudyError(
            f"--order {orders[0]} is for one study: choose it with --study NAME, one of {', '.join(names)}"
        )
    for ledger in ledgers.values():
        ledger.entries()  # a snapshot reads its entries only here, and this belongs to the loading time
    loaded = time.perf_counter()
    read = partial(read_predicted_history, decisions=orders) if len(names) == 1 else read_history
    histories = [read(name, ledger) for name, ledger in ledgers.items()]
    figures = _choose(_draw(histories, compare), only)
    _require_one(figures, only, {"--svg": svg, "--png": png})
    written = [*_write_figures(figures, svg, "svg", dark), *_write_figures(figures, png, "png", dark)]
    page = output if output is not None or written else "report.html"
    size = sum(path.stat().st_size for path in written)
    if page is not None:
        trials = None if only else list_trials(histories)
        text = _write_page(histories, store_words(store, ledger_store.where), figures, trials, ledger_store).encode()
        write_file(Path(page), text)
        size += len(text)
    result = {
        "report": page,
        "figures": [str(path) for path in written],
        "studies": names,
        "bytes": size,
        "load_s": loaded - began,
        "draw_s": time.perf_counter() - loaded,
    }
    print_line(dumps(result) if as_json else "\n".join(map(str, filter(None, [*written, page]))))


def _choose(figures: Sequence[Figure], only: Sequence[str]) -> list[Figure]:
    known = [figure.key for figure in figures]
    for name in only:
        if name not in known:
            raise StudyError(f"there is no figure {name!r} of this study. {did_you_mean(name, known)}")
    return [figure for figure in figures if not only or figure.key in only]


def _write_figures(figures: Sequence[Figure], folder: str | None, kind: str, dark: bool) -> list[Path]:
    """Write each figure to its own file; figures with a dark background have "-dark" in their names.

    If the name of a file is given in place of a folder, write one figure there.
    """
    if folder is None:
        return []
    if _is_file(folder, kind):
        chosen = next((figure for figure in figures if figure.key == _WHOLE_STUDY), figures[0])
        return [_write_figure(chosen, Path(folder), dark)]
    write_file(Path(folder))
    paths = []
    for figure in (one for several in figures for one in (several, *several.others)):
        name = "-".join([figure.key, *figure.choice.split()])  # `choice`: which of several decisions or policies
        paths.append(_write_figure(figure, Path(folder) / f"{name}{'-dark' if dark else ''}.{kind}", dark))
    return paths


def _is_file(place: str, kind: str) -> bool:
    return Path(place).suffix.lower() == f".{kind}" and not Path(place).is_dir()


def _require_one(figures: Sequence[Figure], only: Sequence[str], places: Mapping[str, str | None]) -> None:
    """Raise an error if several figures are chosen for one file."""
    for option, place in places.items():
        if place is not None and _is_file(place, option[2:]) and len(only) > 1:
            keys = ", ".join(figure.key for figure in figures)
            raise StudyError(f"{option} {place} is one file, for one figure: choose one of {keys}, or name a folder")


def _write_figure(figure: Figure, path: Path, dark: bool) -> Path:
    drawn = write_svg(figure, "dark" if dark else "light")
    write_file(path, draw_png(drawn) if path.suffix.lower() == ".png" else drawn.encode())
    return path


def render(
    histories: Sequence[StudyHistory],
    where: Sequence[str],
    compare: Iterable[str] = (),
    *,
    store: LedgerStore | None = None,
    version: str | None = None,
) -> str:
    """Return the page; `where` are the arguments that name the store in a command."""
    return _write_page(histories, where, _draw(histories, compare), list_trials(histories), store, version)


def _draw(histories: Sequence[StudyHistory], compare: Iterable[str] = ()) -> list[Figure]:
    if len(histories) == 1:
        return [*_draw_replays(histories[0], compare), *draw_study(histories[0])]
    side_by_side = draw_comparison(histories)
    figures = [side_by_side] if side_by_side is not None else []
    for number, history in enumerate(histories):
        drawn = {figure.key: figure for figure in draw_study(history)}
        for key in ("budget", "curves"):  # the comparison does not show these
            if key in drawn:
                figures.append(replace(drawn[key], key=f"{key}-{number}", title=f"{history.name}: {drawn[key].title}"))
    return figures


def _write_page(
    histories: Sequence[StudyHistory],
    where: Sequence[str],
    figures: Sequence[Figure],
    trials: TrialsTable | None,
    store: LedgerStore | None,
    version: str | None = None,
) -> str:
    history = histories[0]
    if len(histories) > 1:
        lead = f"The studies of {history.name} to {histories[-1].name} side by side, then one by one."
        return write_page(f"{len(histories)} studies", lead, figures, trials=trials, version=version)
    resume = shlex.join(["shoestring", "resume", "--study", history.name, *where])
    copies = list_copyables(history, resume, cite(history.state.policy))
    lead = f"{describe_study(history)} {_describe_times(store, history.name)}".strip()
    return write_page(history.name, lead, figures, copies, trials=trials, version=version)


def _describe_times(store: LedgerStore | None, name: str) -> str:
    """Return when the study began and when its last entry was stored, if the store knows."""
    times = store.find_times(name) if isinstance(store, SqlStore) else None
    if times is None:
        return ""
    began, last = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") for at in times)
    return f"It began on {began} UTC; the last entry is of {last} UTC."


def _draw_replays(history: StudyHistory, compare: Iterable[str]) -> list[Figure]:
    """Draw what other policies would have reached on the same recorded curves."""
    from shoestring.study.simulation import replay

    others, missing, drawings = [], 0.0, []
    for name in compare:
        replayed = replay(history.ledger, policies.make(name))
        others.append(read_history(f"replay of {name}", replayed.ledger))
        missing = max(missing, replayed.missing_share)
        drawings.append(draw_replayed(history, others[-1], replayed.missing_share))
    caution = (
        f"Replayed on recorded curves: up to {missing:.0%} of the steps that they would have trained are not recorded."
    )
    figure = draw_comparison([history, *others], title="With another policy", caution=caution) if others else None
    known = [one for one in drawings if one is not None]
    chosen = replace(known[0], others=known[1:]) if known else None
    return [one for one in (figure, chosen) if one is not None]


# watching ------------------------------------------------------------------------------------------------------------


class WatchedStore:
    """The studies of a store as pages, which are drawn again when there are new entries."""

    def __init__(self, store: str) -> None:
        self._store = open_store(store)
        self._where = store_words(store, self._store.where)
        self._studies: dict[str, Study] = {}
        self._pages: dict[str, tuple[tuple[str, str], str]] = {}  # by study: version and order, page
        self.address_of: Callable[[str], str] = str  # returns the address of a study's page; set when the server exists

    @property
    def where(self) -> str:
        """The address of the store, without a password."""
        return self._store.where

    def has(self, name: str | None) -> bool:
        """Return whether there is a study of this name; without a name, whether there is any."""
        names = self._store.studies()
        return bool(names) if name is None else name in names

    def version(self, name: str | None) -> str:
        study = self._study(name)
        return str(len(study.journal.refresh())) if study is not None else ",".join(self._store.studies())

    def page(self, name: str | None, order: str = "") -> str:
        """Return the page of a study; `order` is the number of an order to show, or empty for a few chosen ones."""
        study, version = self._study(name), self.version(name)
        if study is None:
            links = {known: self.address_of(known) for known in self._store.studies()}
            missing = "a study" if name is None else f"the study {name}"
            lead = (
                "Which study?"
                if name is None and links
                else f"This page waits for {missing}, and shows it when it begins."
            )
            return write_page(self._store.where, lead, [], links=links, version=version)
        known = self._pages.get(study.name)
        if known is None or known[0] != (version, order):
            # A copy, because other requests read new entries meanwhile, which consumes the study's own ledger.
            ledger = study.ledger.fork()
            history = read_predicted_history(study.name, ledger, _read_order(order))
            known = (version, order), render([history], self._where, store=self._store, version=version)
            self._pages[study.name] = known
        return known[1]

    def routes(self) -> Routes:
        """Return the routes of a page and of its version, which the page requests again and again."""

        def get(render: Callable[[Mapping[str, str]], str], kind: str, query: Mapping[str, str], body: bytes) -> Answer:
            try:
                return Answer(render(query), kind)
            except StudyError as error:  # no such study or order
                raise RequestError(400, error) from None
            except ShoestringError as error:
                raise RequestError(500, error) from None

        return {
            ("GET", "/"): partial(get, lambda q: self.page(q.get("study"), q.get("order", "")), "text/html"),
            ("GET", "/version"): partial(get, lambda q: self.version(q.get("study")), "text/plain"),
        }

    def _study(self, name: str | None) -> Study | None:
        names = self._store.studies()
        if name is None and len(names) == 1:
            name = names[0]
        if name is None or name not in names:
            return None
        if name not in self._studies:
            self._studies[name] = Study.open(name, self._store)
        return self._studies[name]


def _read_order(text: str) -> tuple[int, ...]:
    if text and not (text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS):
        raise StudyError(f"order={text[:_MAX_DIGITS]!r} must be the number of an order, as order=7")
    return (int(text),) if text else ()


def watch_store(store: str, name: str | None, port: int) -> None:
    watched = WatchedStore(store)
    watched.page(name)  # raises an error if the store cannot be read
    server = Server(watched.routes(), Access(port=port, allows_token_in_url=True))

    def address(study: str | None) -> str:
        query = {"token": server.access.token} | ({"study": study} if study is not None else {})
        return f"{server.address}/?{urlencode(query)}"

    watched.address_of = address
    print_line(address(name))
    sys.stdout.flush()  # a script may wait for this line at the other end of a pipe
    if not watched.has(name):
        missing = "a study" if name is None else f"the study {printable(name)!r}"
        nearby = describe_nearby()
        sys.stderr.write(f"waiting for {missing} in {watched.where}{f' ({nearby})' if nearby else ''}\n")
    sys.stderr.write("open this address in a browser on this machine; Ctrl-C stops the server\n")
    with contextlib.suppress(KeyboardInterrupt):
        server.serve()
