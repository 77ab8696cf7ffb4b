"""`serve`: one process decides, and clients in any language ask it and tell it, over plain HTTP and JSON."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shoestring.cli.job import read_settings, read_space
from shoestring.cli.printing import print_line
from shoestring.cli.run import STOPPED
from shoestring.core.ledger.budget import parse_duration_s
from shoestring.core.values.checks import is_number
from shoestring.core.values.strict_json import dumps, untag
from shoestring.core.values.text import printable
from shoestring.errors import Leased, ShoestringError, StoreError, StudyError, did_you_mean
from shoestring.network.access import Access
from shoestring.network.server import Answer, Refused, Routes, Server
from shoestring.study.ask import Told
from shoestring.study.serving.client_orders import OrderGone
from shoestring.study.serving.session import Desk, Turns
from shoestring.study.study import Study

TOKEN_VARIABLE = "SHOESTRING_TOKEN"
_TURN_S = 30.0  # so long a request waits for its turn; the same request again goes on waiting
_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # of each body: needed, and possible
    "/ask": (("client",), ()),
    "/tell": (("order", "step"), ("value", "cost_s", "failed", "saved")),
    "/beat": (("order",), ()),
    "/lost": (("order", "held"), ()),
}
_STOPS = (signal.SIGINT, signal.SIGTERM)


def serve_study(
    *,
    store: str,
    name: str | None,
    host: str,
    port: int,
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: bool,
    token_file: str | None,
    give_up_after: str,
    as_json: bool,
    **words: Any,
) -> int:
    """Until a signal; `words` are those that a study begins with."""
    patience_s = parse_duration_s(give_up_after, "give up after")
    found = find_token(token_file)
    access = Access(host=host, port=port, certificate=tls_cert, key=tls_key, behind_proxy=behind_proxy)
    access = access if found is None else replace(access, token=found)
    study = _find_study(store, name, **words)
    _ = study.policy  # one that is not registered cannot be had here: said before anybody asks
    with study.store.lease(study.name) as lease, Turns(Desk(study, lease, patience_s)) as turns:
        server = Server(routes_of(turns), access)
        try:
            _introduce(study, server, patience_s, is_known=found is not None, as_json=as_json)
            return _serve_until_signal(server, lambda: _require_lease(study.name, is_lost=lease.lost))
        finally:
            server.close()


def routes_of(turns: Turns) -> Routes:
    desk = turns.desk
    posts: dict[str, Callable[..., Any]] = {
        "/ask": lambda client: desk.ask(client),
        "/tell": lambda order, step, **told: desk.tell(order, step, _read_told(**told)),
        "/beat": lambda order: desk.beat(order),
        "/lost": lambda order, held: desk.lose(order, held),
    }

    def post(path: str, query: Mapping[str, str], body: bytes) -> Answer:
        return _take_turn(turns, partial(posts[path], **read_fields(path, body)))

    def get(work: Callable[[], Any], query: Mapping[str, str], body: bytes) -> Answer:
        return _take_turn(turns, work)

    routes = {("POST", path): partial(post, path) for path in posts}
    return routes | {("GET", "/status"): partial(get, desk.status), ("GET", "/best"): partial(get, desk.best)}


def _take_turn(turns: Turns, work: Callable[[], Any]) -> Answer:
    try:
        return Answer(dumps(turns.take(work, _TURN_S)) + "\n")
    except OrderGone as error:
        raise Refused(409, error) from None
    except StudyError as error:
        raise Refused(400, error) from None
    except StoreError as error:
        raise Refused(503, error) from None
    except ShoestringError as error:  # a policy that cannot decide: no fault of who asked
        raise Refused(500, error) from None
    except TimeoutError:
        raise Refused(503, f"no turn came in {_TURN_S:g} s: send the same again, nothing is done twice") from None


def read_fields(path: str, body: bytes) -> dict[str, Any]:
    """The fields of a body, those and no others that belong to this path."""
    needed, possible = _FIELDS[path]
    example = dumps({"client": "gpu-7"} if path == "/ask" else dict.fromkeys(needed, 1))
    try:
        fields = untag(json.loads(body, object_pairs_hook=_without_repeats))
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body {_short(body)} is not JSON: {error}; send an object, as {example}") from None
    if not isinstance(fields, dict):
        raise Refused(400, f"the body {_short(body)} must be an object, as {example}")
    for name in fields:
        if name not in needed + possible:
            raise Refused(400, f"the field {name[:40]!r} is unknown to {path}. {did_you_mean(name, needed + possible)}")
    for name in needed:
        if name not in fields:
            raise Refused(400, f"the field {name!r} is missing in {_short(body)}: {path} needs {' and '.join(needed)}")
    return fields


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field is given twice")
    return fields


def _read_told(*, value: Any = None, cost_s: Any = None, failed: Any = None, saved: Any = None) -> Told:
    if value is not None and not is_number(value):
        raise StudyError(f"value={value!r} must be a number, null, or '~nan' or '~inf' for one that is not finite")
    return Told.read(value, cost_s, failed, saved=saved)


def _short(body: bytes) -> str:
    text = body[:80].decode(errors="replace")
    return repr(text if len(body) <= 80 else f"{text}…")


def find_token(file: str | None) -> str | None:
    """The token in the file, which is made if it is not there, else the one in the environment, if any."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    path = Path(file)
    try:
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as made:
                made.write(secrets.token_urlsafe(24) + "\n")
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise StudyError(
            f"the token in {file!r} cannot be read or made: {why}: give a file that you can write"
        ) from None


def _find_study(
    store: str,
    name: str | None,
    *,
    budget: str | None,
    space_file: str | None,
    params: Iterable[str],
    settings: Iterable[str],
    max_steps: int | None,
    maximize: bool,
    **words: Any,
) -> Study:
    """Begun, or gone on with, if the words for that are given; opened if there are none."""
    if not (space_file or tuple(params)):
        if budget or max_steps or maximize or tuple(settings) or any(word is not None for word in words.values()):
            raise StudyError("no space is given: give all words that the study began with, or --study NAME alone")
        return Study.open(name, store)
    if budget is None:
        raise StudyError("no --budget is given: a study begins with its space and its total")
    return Study.begin(
        read_space(space_file, params),
        budget,
        name=name or "study",
        store=store,
        max_steps=1 if max_steps is None else max_steps,
        direction="max" if maximize else "min",
        settings=read_settings(settings),
        **words,
    )


def _introduce(study: Study, server: Server, patience_s: float, *, is_known: bool, as_json: bool) -> None:
    """Where it is: as JSON, or as lines that a shell can read. A token that the user gave is not printed."""
    token = None if is_known else server.access.token
    if as_json:
        told = {"study": study.name, "address": server.address, "port": server.port, "token": token}
        print_line(dumps(told | {"give_up_after_s": patience_s, "pid": os.getpid()}))
    else:
        print_line(f"SHOESTRING_ADDRESS={server.address}")
        if token is not None:
            print_line(f"{TOKEN_VARIABLE}={token}")
    sys.stdout.flush()  # whoever waits for these lines may read them through a pipe
    budget, ledger = study.ledger.budget, study.ledger
    spent = f"{budget.show(ledger.spent)} of {budget.show(budget.total)} spent"
    sys.stderr.write(
        printable(f"study {study.name!r} is served: {spent}, policy {ledger.books.policy}; Ctrl-C ends it") + "\n"
    )


def _serve_until_signal(server: Server, check: Callable[[], None]) -> int:
    with _signals_raise():
        try:
            server.serve(check)
        except _Came as came:
            return STOPPED + came.number
    raise AssertionError("a server ends by a signal")


def _require_lease(name: str, *, is_lost: bool) -> None:
    if is_lost:
        raise Leased(f"the study {name!r} was taken over by another process: this server stops")


class _Came(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals_raise() -> Iterator[None]:
    def handle(number: int, frame: Any) -> None:
        for other in _STOPS:  # one is enough
            signal.signal(other, signal.SIG_IGN)
        raise _Came(number)

    former = {number: signal.signal(number, handle) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
