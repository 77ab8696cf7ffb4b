"""`serve`: one process decides, and workers in any language ask it for orders and report their steps, over HTTP and JSON."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shoestring.cli.job import find_policy, read_direction, read_settings, read_space, require_file
from shoestring.cli.options import STOPPED
from shoestring.cli.printing import print_line
from shoestring.core.ledger.budget import parse_duration_s
from shoestring.core.ledger.entries import Direction
from shoestring.core.values.checks import is_number
from shoestring.core.values.strict_json import dumps, untag
from shoestring.core.values.text import printable
from shoestring.errors import ShoestringError, StoreError, StudyError, StudyInUse, did_you_mean
from shoestring.http.access import Access
from shoestring.http.server import Answer, RequestError, Routes, Server
from shoestring.study.ask import StepReport
from shoestring.study.serving.request_queue import RequestQueue
from shoestring.study.serving.session import OrderNotOpen, ServeSession
from shoestring.study.study import Study

TOKEN_VARIABLE = "SHOESTRING_TOKEN"
_REQUEST_TIMEOUT_S = 30.0  # a request that waited so long gets code 503, and may be sent again
_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # path: required and optional fields of the body
    "/ask": (("worker",), ()),
    "/tell": (("order", "step"), ("value", "cost_s", "failed", "saved_step")),
    "/heartbeat": (("order",), ()),
    "/lost": (("order", "resumable_step"), ()),
}
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    **study_options: Any,
) -> int:
    """Serve a study until a signal comes, and return the exit code. `study_options` are needed to begin a study."""
    give_up_after_s = parse_duration_s(give_up_after, "give up after")
    known_token = find_token(token_file)
    access = Access(host=host, port=port, certificate=tls_cert, key=tls_key, behind_proxy=behind_proxy)
    access = access if known_token is None else replace(access, token=known_token)
    study = _find_study(store, name, **study_options)
    _ = study.policy  # raises an error now, before any worker asks, if the policy is not registered here
    with study.store.lease(study.name) as lease, RequestQueue(ServeSession(study, lease, give_up_after_s)) as queue:
        server = Server(routes_of(queue), access)
        try:
            _print_address(study, server, give_up_after_s, is_token_known=known_token is not None, as_json=as_json)
            return _serve_until_signal(server, lambda: _require_lease(study, is_lost=lease.lost))
        finally:
            server.close()


def routes_of(queue: RequestQueue) -> Routes:
    session = queue.session
    posts: dict[str, Callable[..., Any]] = {
        "/ask": lambda worker: session.ask(worker),
        "/tell": lambda order, step, **report: session.tell(order, step, _read_report(**report)),
        "/heartbeat": lambda order: session.heartbeat(order),
        "/lost": lambda order, resumable_step: session.lose(order, resumable_step),
    }

    def post(path: str, query: Mapping[str, str], body: bytes) -> Answer:
        return _answer_from_queue(queue, partial(posts[path], **read_fields(path, body)))

    def get(request: Callable[[], Any], query: Mapping[str, str], body: bytes) -> Answer:
        return _answer_from_queue(queue, request)

    routes = {("POST", path): partial(post, path) for path in posts}
    return routes | {("GET", "/status"): partial(get, session.status), ("GET", "/best"): partial(get, session.best)}


def _answer_from_queue(queue: RequestQueue, request: Callable[[], Any]) -> Answer:
    try:
        return Answer(dumps(queue.call(request, _REQUEST_TIMEOUT_S)) + "\n")
    except OrderNotOpen as error:
        raise RequestError(409, error) from None
    except StudyError as error:
        raise RequestError(400, error) from None
    except StoreError as error:
        raise RequestError(503, error) from None
    except ShoestringError as error:  # a policy that cannot decide: the request is not at fault
        raise RequestError(500, error) from None
    except TimeoutError:
        raise RequestError(
            503, f"the request waited {_REQUEST_TIMEOUT_S:g} s: send it again, nothing is done or charged twice"
        ) from None


def read_fields(path: str, body: bytes) -> dict[str, Any]:
    """Return the fields of a request's body; raise a RequestError if a required one is missing or one is unknown."""
    required, optional = _FIELDS[path]
    example = dumps({"worker": "gpu-7"} if path == "/ask" else dict.fromkeys(required, 1))
    try:
        fields = untag(json.loads(body, object_pairs_hook=_without_repeats))
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body {_short(body)} is not JSON: {error}; send an object, as {example}") from None
    if not isinstance(fields, dict):
        raise RequestError(400, f"the body {_short(body)} must be an object, as {example}")
    for name in fields:
        if name not in required + optional:
            raise RequestError(
                400, f"the field {name[:40]!r} is unknown to {path}. {did_you_mean(name, required + optional)}"
            )
    for name in required:
        if name not in fields:
            raise RequestError(
                400, f"the field {name!r} is missing in {_short(body)}: {path} needs {' and '.join(required)}"
            )
    return fields


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field is given twice")
    return fields


def _read_report(*, value: Any = None, cost_s: Any = None, failed: Any = None, saved_step: Any = None) -> StepReport:
    if value is not None and not is_number(value):
        raise StudyError(f"value={value!r} must be a number, null, or '~nan' or '~inf' for one that is not finite")
    return StepReport.read(value, cost_s, failed, saved_step=saved_step)


def _short(body: bytes) -> str:
    text = body[:80].decode(errors="replace")
    return repr(text if len(body) <= 80 else f"{text}…")


def find_token(file: str | None) -> str | None:
    """Return the token in the file, which is created if it does not exist; without a file, the token in the environment."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    path = Path(file)
    try:
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as created:
                created.write(secrets.token_urlsafe(24) + "\n")
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise StudyError(
            f"the token file {file!r} cannot be read or created: {why}: give a file that you can write"
        ) from None


def _find_study(
    store: str,
    name: str | None,
    *,
    budget: str | None,
    space_file: str | None,
    params: Iterable[str],
    policy: str | None,
    settings: Iterable[str],
    max_steps: int | None,
    direction: Direction | None,
    maximize: bool,
    **more: Any,
) -> Study:
    """Begin or continue a study when a space is given; open the existing one when no study option is given."""
    settings = tuple(settings)
    if not (space_file or tuple(params)):
        given = (budget, policy, max_steps, direction, *more.values())
        if maximize or settings or any(value is not None for value in given):
            raise StudyError("no space is given: give all options that the study began with, or --study NAME alone")
        return Study.open(name, store)
    if budget is None:
        raise StudyError("no --budget is given: a study begins with a space and a budget")
    name = name or "study"
    own_policy = find_policy(policy, require_file(store), name) if settings else ""
    return Study.begin(
        read_space(space_file, params),
        budget,
        name=name,
        store=require_file(store),
        max_steps=1 if max_steps is None else max_steps,
        direction=read_direction(direction, maximize=maximize),
        policy=policy,
        settings=read_settings(settings, own_policy),
        **more,
    )


def _print_address(
    study: Study, server: Server, give_up_after_s: float, *, is_token_known: bool, as_json: bool
) -> None:
    """Print the address as JSON, or as lines that a shell can read. A token that the user gave is not printed."""
    token = None if is_token_known else server.access.token
    if as_json:
        shown = {"study": study.name, "address": server.address, "port": server.port, "token": token}
        print_line(dumps(shown | {"give_up_after_s": give_up_after_s, "pid": os.getpid()}))
    else:
        print_line(f"SHOESTRING_ADDRESS={server.address}")
        if token is not None:
            print_line(f"{TOKEN_VARIABLE}={token}")
    sys.stdout.flush()  # a script may wait for these lines at the other end of a pipe
    budget, ledger = study.ledger.budget, study.ledger
    spent = f"{budget.show(ledger.spent)} of {budget.show(budget.total)} spent"
    sys.stderr.write(
        printable(f"serving study {study.name!r}: {spent}, policy {ledger.state.policy}; stop it with Ctrl-C") + "\n"
    )


def _serve_until_signal(server: Server, check: Callable[[], None]) -> int:
    """Answer requests until a signal comes, and return the exit code; `check` raises an error to stop the server.

    The signal handler raises nothing. If it raised an exception while a request is accepted, the base class of the server would
    treat it as an error of that request and go on serving.
    """
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        received.append(number)

    def check_signals() -> None:
        if received:
            raise _SignalReceived
        check()

    former = {number: signal.signal(number, handle) for number in _STOP_SIGNALS}
    try:
        server.serve(check_signals)
    except _SignalReceived:
        return STOPPED + received[0]
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    raise AssertionError("a server ends by a signal")


def _require_lease(study: Study, *, is_lost: bool) -> None:
    if is_lost:
        study.journal.refresh()  # raises another error if the store itself is gone
        raise StudyInUse(f"the study {study.name!r} was taken over by another process: this server stops")


class _SignalReceived(Exception):
    """A signal has come; it ends `Server.serve`."""
