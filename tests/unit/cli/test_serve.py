"""`serve` and `watch` as commands: what they need, what they print, and what a body must hold."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring import Study
from shoestring.cli import serve
from shoestring.cli.main import cli
from shoestring.cli.report import WatchedStore
from shoestring.cli.serve import find_token, routes_of
from shoestring.errors import PolicyError, StoreError, StudyError
from shoestring.network.server import Refused, Routes
from shoestring.stores.in_memory import Memory
from shoestring.study.serving.session import Desk, Turns

SPACE = {"x": {"float": [0.0, 1.0]}}
PARAM = ("-p", "x={float=[0,1]}")


@pytest.fixture
def routes() -> Iterator[Routes]:
    study = Study.begin(SPACE, "1000 epochs", max_steps=3, policy="random_search", store=Memory(), seed=1)
    with study.store.lease(study.name) as lease, Turns(Desk(study, lease, 60.0)) as turns:
        yield routes_of(turns)


def post(routes: Routes, path: str, body: Any) -> Any:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads(routes["POST", path]({}, sent).text)


def refusal(routes: Routes, path: str, body: Any) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        post(routes, path, body)
    return refused.value.code, str(refused.value)


# bodies --------------------------------------------------------------------------------------------------------------


def test_an_order_from_asking_to_its_last_step(routes: Routes) -> None:
    order = post(routes, "/ask", {"client": "a"})["order"]
    assert post(routes, "/beat", {"order": order["number"]})["next_step"] == 1
    told = post(routes, "/tell", {"order": 0, "step": 1, "value": 0.25, "cost_s": 2, "saved": 0})
    assert (told["new"], told["next_step"], told["spent"]) == (True, 2, 1.0)
    assert post(routes, "/lost", {"order": 0, "held": 0})["next_step"] == 1
    assert json.loads(routes["GET", "/best"]({}, b"").text)["best"]["value"] == 0.25
    status = json.loads(routes["GET", "/status"]({}, b"").text)
    assert [client["client"] for client in status["clients"]] == ["a"]
    assert post(routes, "/tell", {"order": 0, "step": 1, "failed": "boom"})["open"] is False
    assert refusal(routes, "/tell", {"order": 0, "step": 2, "value": 0.2})[0] == 409
    assert refusal(routes, "/beat", {"order": 0})[0] == 409


@pytest.mark.parametrize("told", ["~nan", "~inf", "~-inf", None])
def test_values_that_are_no_numbers_can_be_told(routes: Routes, told: str | None) -> None:
    post(routes, "/ask", {"client": "a"})
    assert post(routes, "/tell", {"order": 0, "step": 1, "value": told})["open"] is False


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/ask", b"", "the body '' is not JSON"),
        ("/ask", b"{", 'is not JSON: .*; send an object, as {"client":"gpu-7"}'),
        ("/ask", b"\xff\xfe", "is not JSON"),
        ("/ask", b"[" * 100_000, "is not JSON"),
        ("/ask", b'{"client": ' + b"9" * 5000 + b"}", "is not JSON: .*digits"),
        ("/ask", [1], "must be an object"),
        ("/ask", {}, "the field 'client' is missing in '{}': /ask needs client"),
        ("/ask", {"clinet": "a"}, "the field 'clinet' is unknown to /ask. Did you mean 'client'"),
        ("/ask", {"client": 3}, "client='3' must be a name"),
        ("/tell", b'{"order":0,"order":0,"step":1}', "a field is given twice"),
        ("/tell", {"order": 0}, "the field 'step' is missing"),
        ("/tell", {"order": 0, "step": 1, "value": "0.3"}, "value='0.3' must be a number, null, or '~nan'"),
        ("/tell", {"order": 0, "step": 1, "value": True}, "value=True must be a number"),
        ("/tell", {"order": 0, "step": 1, "value": 10**400}, "value=1000"),
        ("/tell", {"order": 0, "step": 1, "value": 1, "cost_s": -1}, "cost_s=-1 must be seconds, 0 or more"),
        ("/tell", {"order": 0, "step": 1, "failed": 3}, "failed=3 must be the text of the failure"),
        ("/tell", {"order": 0, "step": 1, "value": 1, "saved": 2}, "saved=2 must be a step up to 1"),
        ("/tell", {"order": -1, "step": 1}, "order=-1 must be a whole number, 0 or more"),
        ("/lost", {"order": 0, "held": 1}, "held=1 must be at most 0"),
    ],
)
def test_what_is_wrong_with_a_body_is_said_in_one_line(routes: Routes, path: str, body: Any, said: str) -> None:
    post(routes, "/ask", {"client": "somebody"})
    code, text = refusal(routes, path, body)
    assert code == 400
    assert "\n" not in text
    assert re.search(said.replace("{", r"\{"), text), text


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
NAMES = st.sampled_from(["client", "order", "step", "value", "cost_s", "failed", "saved", "held"])
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda body: json.dumps(body).encode()),
    st.dictionaries(NAMES, JSON, max_size=5).map(lambda body: json.dumps(body).encode()),
)


def answer_of(routes: Routes, path: str, body: bytes) -> tuple[int, str]:
    try:
        return 200, routes["POST", path]({}, body).text.removesuffix("\n")
    except Refused as refused:
        return refused.code, str(refused)


@examples(9, thorough=25)
@given(sent=st.lists(st.tuples(st.sampled_from(["/ask", "/tell", "/beat", "/lost"]), BODIES), min_size=1, max_size=12))
def test_any_body_is_answered_or_refused_and_money_is_never_made(sent: list[tuple[str, bytes]]) -> None:
    study = Study.begin(SPACE, "9 epochs", max_steps=3, policy="random_search", store=Memory(), seed=1)
    with study.store.lease(study.name) as lease, Turns(Desk(study, lease, 60.0)) as turns:
        made = routes_of(turns)
        post(made, "/ask", {"client": "a"})
        for path, body in sent:
            before = len(study.ledger)
            code, line = answer_of(made, path, body)
            assert code in (200, 400, 409)
            assert "\n" not in line
            assert code == 200 or len(study.ledger) == before, "what is refused leaves nothing behind"
            assert study.ledger.spent + study.ledger.reserved <= 9


@pytest.mark.parametrize(
    ("error", "code"), [(StudyError("no"), 400), (StoreError("no disk"), 503), (PolicyError("no idea"), 500)]
)
def test_whose_fault_it_is(monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    study = Study.begin(SPACE, "9 epochs", policy="random_search", store=Memory(), seed=1)

    def fail(desk: Desk, client: str) -> Any:
        raise error

    monkeypatch.setattr(Desk, "ask", fail)
    with study.store.lease(study.name) as lease, Turns(Desk(study, lease, 60.0)) as turns:
        assert refusal(routes_of(turns), "/ask", {"client": "a"}) == (code, str(error))


def test_who_waits_too_long_may_send_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study.begin(SPACE, "9 epochs", policy="random_search", store=Memory(), seed=1)
    monkeypatch.setattr(serve, "_TURN_S", 0.01)
    may_go_on = threading.Event()
    real_ask = Desk.ask

    def ask_slowly(desk: Desk, client: str) -> Any:
        may_go_on.wait(timeout=20)
        return real_ask(desk, client)

    monkeypatch.setattr(Desk, "ask", ask_slowly)
    with study.store.lease(study.name) as lease, Turns(Desk(study, lease, 60.0)) as turns:
        code, said = refusal(routes_of(turns), "/ask", {"client": "a"})
        assert code == 503
        assert "nothing is done twice" in said
        may_go_on.set()
        monkeypatch.setattr(serve, "_TURN_S", 30.0)
        assert post(routes_of(turns), "/ask", {"client": "a"})["order"]["number"] == 0
    assert len(study.ledger.orders) == 1


# the command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, which stops as soon as it would serve, by a signal's number."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serve, "_serve_until_signal", lambda server, check: 143)
    return lambda *words: CliRunner().invoke(cli, ["serve", *words])


def test_a_study_begins_goes_on_and_is_opened(run: Callable[..., Result]) -> None:
    begun = run(
        *PARAM, "--budget", "8 epochs", "--max-steps", "4", "--study", "mine", "--seed", "3", "--policy", "asha"
    )
    assert begun.exit_code == 143, begun.output
    assert begun.stdout.splitlines()[0].startswith("SHOESTRING_ADDRESS=http://127.0.0.1:")
    assert begun.stdout.splitlines()[1].startswith("SHOESTRING_TOKEN=")
    assert "0 epochs of 8 epochs spent, policy asha" in begun.stderr
    raised = run(*PARAM, "--budget", "9 epochs", "--max-steps", "4", "--study", "mine")
    assert "of 9 epochs spent, policy asha" in raised.stderr
    opened = run("--study", "mine", "--json")
    told = json.loads(opened.stdout)
    assert told["study"] == "mine"
    assert told["address"].endswith(str(told["port"]))
    ledger = Study.open("mine").ledger
    assert (ledger.max_steps, ledger.opened.seed) == (4, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "8 epochs"], "no space is given"),
        (["--policy", "asha"], "no space is given"),
        ([*PARAM], "no --budget is given"),
        (["--study", "nobody"], "there is no store"),
        ([*PARAM, "--budget", "8 epochs", "--host", "0.0.0.0"], "--behind-proxy"),
        ([*PARAM, "--budget", "8 epochs", "--tls-cert", "a"], "TLS needs two files"),
        ([*PARAM, "--budget", "8 epochs", "--give-up-after", "soon"], "soon"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_made(
    run: Callable[..., Result], words: list[str], said: str
) -> None:
    result = run(*words)
    assert said in str(result.exception)
    assert not list(Path().glob("*.db"))


def test_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]) -> None:
    monkeypatch.delenv("SHOESTRING_TOKEN", raising=False)
    assert find_token(None) is None
    file = tmp_path / "token"
    made = find_token(str(file))
    assert made is not None
    assert len(made) >= 32
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert find_token(str(file)) == made
    shown = run(*PARAM, "--budget", "8 epochs", "--token-file", str(file))
    assert made not in shown.output, "what the user has already is not printed"
    monkeypatch.setenv("SHOESTRING_TOKEN", "from the environment")
    assert find_token(None) == "from the environment"
    with pytest.raises(StudyError, match="cannot be read or made"):
        find_token(str(tmp_path / "no folder" / "token"))
    file.write_text("short")
    assert "16 or more" in str(run(*PARAM, "--budget", "8 epochs", "--token-file", str(file)).exception)


# watch ---------------------------------------------------------------------------------------------------------------


def test_pages_to_watch(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/w.db"
    study = Study.begin(SPACE, "9 epochs", name="one", policy="random_search", store=where, seed=1)
    watched = WatchedStore(where)
    routes = watched.routes()
    assert set(routes) == {("GET", "/"), ("GET", "/version")}, "there is nothing to post"
    page, version = routes["GET", "/"], routes["GET", "/version"]
    assert page({}, b"").kind == "text/html"
    assert "one" in page({"study": "one"}, b"").text
    before = version({}, b"").text
    assert study.ask() is not None
    assert version({}, b"").text != before
    with pytest.raises(Refused, match="there is no study 'two'"):
        page({"study": "two"}, b"")
    Study.begin(SPACE, "9 epochs", name="two", policy="random_search", store=where, seed=1)
    watched.address_of = lambda name: f"where-{name}-is"
    assert "where-two-is" in page({}, b"").text


def test_a_decision_to_look_at_while_watching(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/w.db"
    settings = {"arms": 4, "parameters": (1.0, 5.0, 1.0, 0.01, 1.0, 0.0)}
    study = Study.begin(
        SPACE, "20 epochs", name="one", policy="bhpt", settings=settings, store=where, seed=1, max_steps=5
    )
    while (order := study.ask()) is not None and order.number < 9:
        study.tell(order, 0.5 + 0.1 * order.trial)
    page = WatchedStore(where).routes()["GET", "/"]
    assert 'id="expected-order-9"' in page({}, b"").text
    asked = page({"decision": "7"}, b"").text
    assert "When order 7 bought" in asked
    assert "When order 9 bought" not in asked
    with pytest.raises(Refused, match="decision 99: there is no such order"):
        page({"decision": "99"}, b"")
    with pytest.raises(Refused, match=r"decision='x' must be the number of an order"):
        page({"decision": "x"}, b"")
