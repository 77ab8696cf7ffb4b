"""`serve` and `watch` as commands: their options, their output, and the bodies of requests."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring import Study
from shoestring.cli import report, serve
from shoestring.cli.main import cli
from shoestring.cli.report import WatchedStore
from shoestring.cli.serve import find_token, routes_of
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import PolicyError, StoreError, StudyError
from shoestring.http.access import Access
from shoestring.http.server import Answer, RequestError, Routes, Server
from shoestring.stores.in_memory import MemoryStore
from shoestring.study.predicted_history import read_predicted_history
from shoestring.study.serving.request_queue import RequestQueue
from shoestring.study.serving.session import ServeSession

SPACE = {"x": {"float": [0.0, 1.0]}}
PARAM = ("-p", "x={float=[0,1]}")


@pytest.fixture
def routes() -> Iterator[Routes]:
    study = Study.begin(SPACE, "1000 epochs", max_steps=3, policy="random_search", store=MemoryStore(), seed=1)
    with study.store.lease(study.name) as lease, RequestQueue(ServeSession(study, lease, 60.0)) as queue:
        yield routes_of(queue)


def post(routes: Routes, path: str, body: Any) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads(routes["POST", path]({}, data).text)


def refusal(routes: Routes, path: str, body: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as refused:
        post(routes, path, body)
    return refused.value.code, str(refused.value)


# bodies --------------------------------------------------------------------------------------------------------------


def test_an_order_from_the_request_to_its_last_step(routes: Routes) -> None:
    order = post(routes, "/ask", {"worker": "a"})["order"]
    assert post(routes, "/heartbeat", {"order": order["number"]})["next_step"] == 1
    answer = post(routes, "/tell", {"order": 0, "step": 1, "value": 0.25, "cost_s": 2, "saved_step": 0})
    assert (answer["new"], answer["next_step"], answer["spent"]) == (True, 2, 1.0)
    assert post(routes, "/lost", {"order": 0, "resumable_step": 0})["next_step"] == 1
    assert json.loads(routes["GET", "/best"]({}, b"").text)["best"]["value"] == 0.25
    status = json.loads(routes["GET", "/status"]({}, b"").text)
    assert [worker["worker"] for worker in status["busy_workers"]] == ["a"]
    assert status["workers"] == 1, "the number of workers, as in `status --json`"
    assert post(routes, "/tell", {"order": 0, "step": 1, "failed": "boom"})["open"] is False
    assert refusal(routes, "/tell", {"order": 0, "step": 2, "value": 0.2})[0] == 409
    assert refusal(routes, "/heartbeat", {"order": 0})[0] == 409


@pytest.mark.parametrize("value", ["~nan", "~inf", "~-inf", None])
def test_a_value_that_is_not_finite_closes_the_order(routes: Routes, value: str | None) -> None:
    post(routes, "/ask", {"worker": "a"})
    assert post(routes, "/tell", {"order": 0, "step": 1, "value": value})["open"] is False


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/ask", b"", "the body '' is not JSON"),
        ("/ask", b"{", 'is not JSON: .*; send an object, as {"worker":"gpu-7"}'),
        ("/ask", b"\xff\xfe", "is not JSON"),
        ("/ask", b"[" * 100_000, "is not JSON"),
        ("/ask", b'{"worker": ' + b"9" * 5000 + b"}", "is not JSON: .*digits"),
        ("/ask", [1], "must be an object"),
        ("/ask", {}, "the field 'worker' is missing in '{}': /ask needs worker"),
        ("/ask", {"wroker": "a"}, "the field 'wroker' is unknown to /ask. Did you mean 'worker'"),
        ("/ask", {"worker": 3}, "worker='3'"),
        ("/tell", b'{"order":0,"order":0,"step":1}', "a field is given twice"),
        ("/tell", {"order": 0}, "the field 'step' is missing"),
        (
            "/tell",
            {"order": 0, "step": 1, "value": "0.3"},
            "value='0.3' must be a number, or None if there is none: str is not",
        ),
        ("/tell", {"order": 0, "step": 1, "value": True}, "value=True must be a number"),
        ("/tell", {"order": 0, "step": 1, "value": 10**400}, "value=1000"),
        ("/tell", {"order": 0, "step": 1, "value": 1, "cost_s": -1}, "cost_s=-1 "),
        ("/tell", {"order": 0, "step": 1, "failed": 3}, "failed=3 must be the text of the failure"),
        ("/tell", {"order": 0, "step": 1, "value": 1, "saved_step": 2}, "saved_step=2 must be a step up to 1"),
        ("/tell", {"order": -1, "step": 1}, "order=-1 must be a whole number, 0 or more"),
        ("/lost", {"order": 0, "resumable_step": 1}, "resumable_step=1 must be at most 0"),
    ],
)
def test_an_invalid_body_is_refused_with_one_line(routes: Routes, path: str, body: Any, expected: str) -> None:
    post(routes, "/ask", {"worker": "somebody"})
    code, text = refusal(routes, path, body)
    assert code == 400
    assert "\n" not in text
    assert re.search(expected.replace("{", r"\{"), text), text


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 5),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["~nan", "~", "a", "b"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
NAMES = st.sampled_from(["worker", "order", "step", "value", "cost_s", "failed", "saved_step", "resumable_step"])
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda body: json.dumps(body).encode()),
    st.dictionaries(NAMES, JSON, max_size=5).map(lambda body: json.dumps(body).encode()),
)


def answer_of(routes: Routes, path: str, body: bytes) -> tuple[int, str]:
    try:
        return 200, routes["POST", path]({}, body).text.removesuffix("\n")
    except RequestError as refused:
        return refused.code, str(refused)


@examples(9, thorough=25)
@given(
    requests=st.lists(
        st.tuples(st.sampled_from(["/ask", "/tell", "/heartbeat", "/lost"]), BODIES), min_size=1, max_size=12
    )
)
def test_any_body_is_answered_or_refused_and_the_budget_holds(requests: list[tuple[str, bytes]]) -> None:
    study = Study.begin(SPACE, "9 epochs", max_steps=3, policy="random_search", store=MemoryStore(), seed=1)
    with study.store.lease(study.name) as lease, RequestQueue(ServeSession(study, lease, 60.0)) as queue:
        routes = routes_of(queue)
        post(routes, "/ask", {"worker": "a"})
        for path, body in requests:
            before = len(study.ledger)
            code, line = answer_of(routes, path, body)
            assert code in (200, 400, 409)
            assert "\n" not in line
            assert code == 200 or len(study.ledger) == before, "a refused request must record nothing"
            assert study.ledger.spent + study.ledger.reserved <= 9


@pytest.mark.parametrize(
    ("error", "code"), [(StudyError("no"), 400), (StoreError("no disk"), 503), (PolicyError("no idea"), 500)]
)
def test_the_status_code_depends_on_the_kind_of_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    study = Study.begin(SPACE, "9 epochs", policy="random_search", store=MemoryStore(), seed=1)

    def fail(session: ServeSession, worker: str) -> Any:
        raise error

    monkeypatch.setattr(ServeSession, "ask", fail)
    with study.store.lease(study.name) as lease, RequestQueue(ServeSession(study, lease, 60.0)) as queue:
        assert refusal(routes_of(queue), "/ask", {"worker": "a"}) == (code, str(error))


def test_a_request_that_waited_too_long_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study.begin(SPACE, "9 epochs", policy="random_search", store=MemoryStore(), seed=1)
    monkeypatch.setattr(serve, "_REQUEST_TIMEOUT_S", 0.01)
    may_continue = threading.Event()
    real_ask = ServeSession.ask

    def ask_slowly(session: ServeSession, worker: str) -> Any:
        may_continue.wait(timeout=20)
        return real_ask(session, worker)

    monkeypatch.setattr(ServeSession, "ask", ask_slowly)
    with study.store.lease(study.name) as lease, RequestQueue(ServeSession(study, lease, 60.0)) as queue:
        code, text = refusal(routes_of(queue), "/ask", {"worker": "a"})
        assert code == 503
        assert "nothing is done or charged twice" in text
        may_continue.set()
        monkeypatch.setattr(serve, "_REQUEST_TIMEOUT_S", 30.0)
        assert post(routes_of(queue), "/ask", {"worker": "a"})["order"]["number"] == 0
    assert len(study.ledger.orders) == 1


# the command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command; instead of serving it returns the exit code of a signal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serve, "_serve_until_signal", lambda server, check: 143)
    return lambda *arguments: CliRunner().invoke(cli, ["serve", *arguments])


def test_a_study_is_begun_continued_and_opened(run: Callable[..., Result]) -> None:
    first = run(
        *PARAM, "--budget", "8 epochs", "--max-steps", "4", "--study", "mine", "--seed", "3", "--policy", "asha"
    )
    assert first.exit_code == 143, first.output
    assert first.stdout.splitlines()[0].startswith("SHOESTRING_ADDRESS=http://127.0.0.1:")
    assert first.stdout.splitlines()[1].startswith("SHOESTRING_TOKEN=")
    assert "0 epochs of 8 epochs spent, policy asha" in first.stderr
    raised = run(*PARAM, "--budget", "9 epochs", "--max-steps", "4", "--study", "mine")
    assert "of 9 epochs spent, policy asha" in raised.stderr
    opened = run("--study", "mine", "--json")
    printed = json.loads(opened.stdout)
    assert printed["study"] == "mine"
    assert printed["address"].endswith(str(printed["port"]))
    ledger = Study.open("mine").ledger
    assert (ledger.max_steps, ledger.definition.seed) == (4, 3)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--budget", "8 epochs"], "no space is given"),
        (["--policy", "asha"], "no space is given"),
        ([*PARAM], "no --budget is given"),
        (["--study", "nobody"], "shoestring.db"),
        ([*PARAM, "--budget", "8 epochs", "--host", "0.0.0.0"], "--behind-proxy"),
        ([*PARAM, "--budget", "8 epochs", "--tls-cert", "a"], "--tls-key"),
        ([*PARAM, "--budget", "8 epochs", "--give-up-after", "soon"], "soon"),
    ],
)
def test_a_wrong_option_is_an_error_before_a_store_is_created(
    run: Callable[..., Result], arguments: list[str], expected: str
) -> None:
    result = run(*arguments)
    assert expected in str(result.exception)
    assert not list(Path().glob("*.db"))


def test_the_token_comes_from_a_file_or_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]
) -> None:
    monkeypatch.delenv("SHOESTRING_TOKEN", raising=False)
    assert find_token(None) is None
    file = tmp_path / "token"
    token = find_token(str(file))
    assert token is not None
    assert len(token) >= 32
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert find_token(str(file)) == token
    result = run(*PARAM, "--budget", "8 epochs", "--token-file", str(file))
    assert token not in result.output, "the user has this token already"
    monkeypatch.setenv("SHOESTRING_TOKEN", "from the environment")
    assert find_token(None) == "from the environment"
    with pytest.raises(StudyError, match="cannot be read or created"):
        find_token(str(tmp_path / "no folder" / "token"))
    file.write_text("short")
    assert " 5 characters" in str(run(*PARAM, "--budget", "8 epochs", "--token-file", str(file)).exception)


# watch ---------------------------------------------------------------------------------------------------------------


def test_watch_serves_a_page_per_study_and_a_version_that_changes(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/w.db"
    study = Study.begin(SPACE, "9 epochs", name="one", policy="random_search", store=where, seed=1)
    watched = WatchedStore(where)
    routes = watched.routes()
    assert set(routes) == {("GET", "/"), ("GET", "/version")}, "watch changes nothing, so there is nothing to post"
    page, version = routes["GET", "/"], routes["GET", "/version"]
    assert page({}, b"").content_type == "text/html"
    assert "one" in page({"study": "one"}, b"").text
    before = version({}, b"").text
    assert study.ask() is not None
    assert version({}, b"").text != before
    watched.address_of = lambda name: f"where-{name}-is"
    waiting = page({"study": "two"}, b"").text
    assert "This page waits for the study two" in waiting
    assert "where-one-is" in waiting
    before = version({"study": "two"}, b"").text
    Study.begin(SPACE, "9 epochs", name="two", policy="random_search", store=where, seed=1)
    assert version({"study": "two"}, b"").text != before
    assert "This page waits" not in page({"study": "two"}, b"").text
    assert "where-two-is" in page({}, b"").text


def test_watch_waits_for_a_store_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Study.begin(SPACE, "9 epochs", store="other.db", seed=1)
    seen: list[Server] = []
    monkeypatch.setattr(Server, "serve", lambda server: seen.append(server))
    done = CliRunner().invoke(cli, ["watch", "--store", "new.db"])
    assert done.exit_code == 0, done.exception
    assert done.stdout.startswith("http://127.0.0.1:")
    assert f"waiting for a study in {tmp_path}/new.db (nearby: other.db)" in done.stderr
    assert not (tmp_path / "new.db").exists()
    seen[0].close()
    watched = WatchedStore("new.db")
    assert "This page waits for a study" in watched.page(None)
    before = watched.version(None)
    Study.begin(SPACE, "9 epochs", name="begun", store="new.db", seed=1)
    assert watched.version(None) != before
    assert "<h1>begun" in watched.page(None)


def test_a_page_is_drawn_while_another_request_reads_new_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"sqlite:///{tmp_path}/w.db"
    study = Study.begin(SPACE, "9 epochs", name="one", policy="random_search", store=where, seed=1)
    watched = WatchedStore(where)

    def draw(name: str, ledger: Ledger, decisions: Sequence[int]) -> Any:
        study.ask()
        watched.version("one")
        return read_predicted_history(name, ledger, decisions)

    monkeypatch.setattr(report, "read_predicted_history", draw)
    assert "one" in watched.page("one")


def test_a_decision_can_be_chosen_while_watching(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/w.db"
    settings = {"arms": 4, "parameters": (1.0, 5.0, 1.0, 0.01, 1.0, 0.0)}
    study = Study.begin(
        SPACE, "20 epochs", name="one", policy="bhpt", settings=settings, store=where, seed=1, max_steps=5
    )
    while (order := study.ask()) is not None and order.number < 9:
        study.tell(order, 0.5 + 0.1 * order.trial)
    page = WatchedStore(where).routes()["GET", "/"]
    assert 'id="expected-order-9"' in page({}, b"").text
    text = page({"order": "7"}, b"").text
    assert "Order 7 " in text
    assert "Order 9 " not in text
    with pytest.raises(RequestError, match="order 99 in 'one'"):
        page({"order": "99"}, b"")
    with pytest.raises(RequestError, match=r"order='x' must be the number of an order"):
        page({"order": "x"}, b"")


def test_a_signal_while_a_request_is_answered_stops_the_server() -> None:
    def get_signal(query: Any, body: bytes) -> Answer:
        os.kill(os.getpid(), signal.SIGTERM)
        return Answer("done")

    server = Server({("GET", "/"): get_signal}, Access())
    end = time.monotonic() + 10

    def check() -> None:
        assert time.monotonic() < end, "the server did not stop"

    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(
            f"GET / HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {server.access.token}\r\n\r\n".encode()
        )
        assert serve._serve_until_signal(server, check) == 128 + signal.SIGTERM
        assert b" 200 OK" in client.recv(1000), "the request is answered before the server stops"
    server.close()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("order", ["x", "9" * 5000, "٣", "-1", "1e3"])
def test_an_invalid_number_in_an_address_is_the_fault_of_the_request(order: str, tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/w.db"
    Study.begin(SPACE, "3 epochs", name="one", store=where, seed=1).ask()
    with pytest.raises(RequestError, match=r"order='.{1,40}' must be the number of an order, as order=7") as refused:
        WatchedStore(where).routes()["GET", "/"]({"order": order}, b"")
    assert refused.value.code == 400
