"""The HTTP server: access, limits and time limits, and errors of one line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.errors import ShoestringError
from shoestring.http.access import Access
from shoestring.http.server import Answer, RequestError, RequestLimits, Server

TOKEN = "a token that nobody guesses"


def echo(query: Mapping[str, str], body: bytes) -> Answer:
    return Answer(json.dumps({"query": dict(query), "body": body.decode()}))


def refuse(query: Mapping[str, str], body: bytes) -> Answer:
    raise RequestError(418, "short\nand stout")


def break_down(query: Mapping[str, str], body: bytes) -> Answer:
    raise ZeroDivisionError("two\nlines")


ROUTES: dict[tuple[str, str], Callable[[Mapping[str, str], bytes], Answer]] = {
    ("GET", "/"): echo,
    ("POST", "/"): echo,
    ("GET", "/teapot"): refuse,
    ("GET", "/broken"): break_down,
}


@contextmanager
def serving(limits: RequestLimits | None = None, routes: Any = None, **access: Any) -> Iterator[Server]:
    server = Server(routes or ROUTES, Access(token=TOKEN, **access), limits)
    has_begun = threading.Event()
    thread = threading.Thread(target=server.serve, args=(has_begun.set,), daemon=True)
    thread.start()
    has_begun.wait(timeout=10)
    yield server
    server.close()
    thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def fetch(
    address: str, body: bytes | None = None, context: ssl.SSLContext | None = None, **headers: str
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}"} | headers
    request = urllib.request.Request(address, body, {name: value for name, value in headers.items() if value})
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]


def send_raw(server: Server, data: bytes, *, half_close: bool = True) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def test_routes_answer_requests(server: Server) -> None:
    assert fetch(f"{server.address}/?a=1&b=x%20y") == (200, {"query": {"a": "1", "b": "x y"}, "body": ""})
    assert fetch(f"{server.address}/", b"hello") == (200, {"query": {}, "body": "hello"})
    code, text = fetch(f"{server.address}/other")
    assert code == 404
    assert "GET /other is not served; there is GET /, POST /, GET /teapot" in text
    assert fetch(f"{server.address}/teapot", b"")[0] == 405
    assert fetch(f"{server.address}/teapot") == (418, "short and stout")


def test_an_error_in_a_route_is_answered_and_does_not_stop_the_server(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = fetch(f"{server.address}/broken")
    assert answer == (500, "the server failed at this request: ZeroDivisionError: two lines")
    assert fetch(f"{server.address}/")[0] == 200
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN]
)
def test_a_request_without_the_token_is_refused(server: Server, authorization: str) -> None:
    code, text = fetch(f"{server.address}/", Authorization=authorization)
    assert code == 403
    assert "token is missing or wrong: send Authorization: Bearer TOKEN" in text


def test_a_token_in_the_url_counts_only_where_it_is_allowed(server: Server) -> None:
    query = f"/?token={TOKEN.replace(' ', '+')}"
    assert fetch(server.address + query, Authorization="")[0] == 403
    with serving(allows_token_in_url=True) as other:
        assert fetch(other.address + query, Authorization="")[0] == 200
        assert fetch(f"{other.address}/?token=wrong", Authorization="")[0] == 403


@pytest.mark.parametrize(
    ("host", "code"), [("evil.example:80", 403), ("", 403), ("localhost:1", 200), ("[::1]:9", 200)]
)
def test_a_loopback_server_answers_only_to_its_own_names(server: Server, host: str, code: int) -> None:
    """Otherwise a web page whose name resolves to 127.0.0.1 could send requests through the reader's browser."""
    request = f"GET / HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    assert f" {code} ".encode() in send_raw(server, request.encode()).splitlines()[0]


def test_behind_a_proxy_any_name_is_answered() -> None:
    with serving(behind_proxy=True) as server:
        assert fetch(f"{server.address}/", Host="tuning.example")[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "my-machine", "::"])
def test_plain_http_is_refused_on_other_addresses(host: str) -> None:
    with pytest.raises(ShoestringError, match=f"the host '{host}' can be reached.*--tls-cert.*--behind-proxy"):
        Access(host=host)
    assert not Access(host=host, behind_proxy=True).is_loopback


@pytest.mark.parametrize("token", ["", "short", "fifteen letters", "a line\nand another one", "nicht nur ASCII: äöü"])
def test_tokens_must_be_hard_to_guess(token: str) -> None:
    with pytest.raises(
        ShoestringError, match="16 or more printable ASCII characters: leave it out to have one generated"
    ):
        Access(token=token)
    assert len({Access().token for _ in range(9)}) == 9


def test_a_port_in_use_is_an_error(server: Server) -> None:
    with pytest.raises(ShoestringError, match=f"port {server.port} of 127.0.0.1: .*choose another"):
        Server(ROUTES, Access(port=server.port))


# TLS -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_requests_over_tls(certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(cafile=str(certificate[0]))
    with serving(certificate=str(certificate[0]), key=str(certificate[1])) as server:
        assert server.address.startswith("https://")
        with socket.create_connection(
            ("127.0.0.1", server.port)
        ):  # a connection without a handshake must not delay others
            assert fetch(f"{server.address}/", b"hello", context)[1]["body"] == "hello"
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            fetch(f"{server.address.replace('https', 'http')}/")
        assert fetch(f"{server.address}/", None, context)[0] == 200


def test_tls_files_that_do_not_belong_together_are_an_error(certificate: tuple[Path, Path]) -> None:
    certificate_file, key = map(str, certificate)
    with pytest.raises(
        ShoestringError, match="TLS needs two files, the certificate and its key: give --tls-cert and --tls-key"
    ):
        Access(certificate=certificate_file)
    for wrong in (("nowhere.pem", key), (key, key), (certificate_file, certificate_file)):
        with pytest.raises(ShoestringError, match=r"TLS cannot use the certificate.*two PEM files"):
            Server(ROUTES, Access(certificate=wrong[0], key=wrong[1]))


# limits --------------------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused() -> None:
    with serving(RequestLimits(body_bytes=10)) as server:
        assert fetch(f"{server.address}/", b"x" * 10)[0] == 200
        for size in (11, 500_000):
            answer = fetch(f"{server.address}/", b"x" * size)
            assert answer == (413, f"the body has {size} bytes; at most 10 are allowed: send less")


@pytest.mark.parametrize("length", ["-1", "ten", "1e3", "9" * 30, "٣", "+5"])
def test_an_invalid_content_length_is_refused(server: Server, length: str) -> None:
    request = (
        f"POST / HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\nhello"
    )
    assert b" 400 " in send_raw(server, request.encode()).splitlines()[0]


def test_a_chunked_or_truncated_body_is_refused(server: Server) -> None:
    head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    chunked = send_raw(server, f"{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".encode())
    assert b" 411 " in chunked.splitlines()[0]
    short = send_raw(server, f"{head}Content-Length: 9\r\n\r\nhello".encode())
    assert b" 400 " in short.splitlines()[0]
    assert b"has 5 bytes" in short


HEAD = f"GET / HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


@contextmanager
def connecting(server: Server, count: int, send: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections that send these bytes, and then nothing."""
    with ExitStack() as stack:
        clients = []
        for _ in range(count):
            clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30)))
            clients[-1].sendall(send)
        yield clients


def is_dropped(client: socket.socket) -> bool:
    """Return whether the server has closed this connection without an answer. This waits until it does."""
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("send", [b"", b"G", HEAD, HEAD.replace(b"GET", b"POST") + b"Content-Length: 99\r\n\r\nhalf"])
def test_incomplete_requests_do_not_keep_others_out(send: bytes) -> None:
    """More of them than threads and than connections that are kept: no token is needed to open them."""
    limits = RequestLimits(requests=4, incomplete=300, incomplete_per_address=250)
    with serving(limits) as server, connecting(server, 320, send) as clients:
        for _ in range(5):
            assert fetch(f"{server.address}/")[0] == 200
        assert all(is_dropped(client) for client in clients[:50]), "the oldest"


def test_a_request_that_does_not_arrive_in_time_is_dropped() -> None:
    with (
        serving(RequestLimits(request_s=0.5)) as server,
        connecting(server, 1) as [silent],
        connecting(server, 1) as [slow],
    ):
        stop = threading.Event()

        def send_slowly() -> None:
            with suppress(OSError):
                slow.sendall(b"POST / HTTP/1.0\r\n")
                while not stop.wait(0.05):
                    slow.sendall(b"x")

        thread = threading.Thread(target=send_slowly)
        thread.start()
        assert is_dropped(silent)
        assert is_dropped(slow)
        stop.set()
        thread.join()


def test_a_body_that_does_not_arrive_in_time_is_answered() -> None:
    head = HEAD.replace(b"GET", b"POST") + b"Content-Length: 9\r\n\r\nhalf"
    with serving(RequestLimits(request_s=0.3)) as server:
        answer = send_raw(server, head, half_close=False)
    assert b" 408 " in answer.splitlines()[0]
    assert b"the body of 9 bytes did not arrive within 0.3 s" in answer


def test_the_address_with_the_most_connections_loses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.2 is another address of this machine, on Linux."""
    with (
        serving(RequestLimits(incomplete=10)) as server,
        socket.create_connection(("127.0.0.1", server.port), 30, ("127.0.0.2", 0)) as other,
        connecting(server, 20) as clients,
    ):
        assert all(is_dropped(client) for client in clients[:10])
        other.sendall(HEAD + b"\r\n")
        assert other.recv(100).startswith(b"HTTP/1.0 200 OK")


def test_more_requests_than_threads_are_sent_away_and_come_again() -> None:
    may_answer, has_begun = threading.Event(), threading.Semaphore(0)

    def wait(query: Mapping[str, str], body: bytes) -> Answer:
        has_begun.release()
        may_answer.wait(timeout=30)
        return Answer("1")

    codes: list[int] = []
    with serving(RequestLimits(requests=2), {("GET", "/"): wait}) as server:
        threads = [threading.Thread(target=lambda: codes.append(fetch(f"{server.address}/")[0])) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert has_begun.acquire(timeout=30)
        assert fetch(f"{server.address}/") == (503, "the server is answering 2 requests: try again later")
        assert fetch(f"{server.address}/", Authorization="Bearer wrong")[0] == 403
        may_answer.set()
        for thread in threads:
            thread.join()
        assert fetch(f"{server.address}/")[0] == 200
    assert codes == [200, 200]


def test_a_client_that_does_not_read_its_answer_is_dropped() -> None:
    has_answered = threading.Event()

    def answer_much(query: Mapping[str, str], body: bytes) -> Answer:
        has_answered.set()
        return Answer("x" * 30_000_000)

    limits = RequestLimits(answer_s=0.3)
    with serving(limits, {("GET", "/"): answer_much}) as server, connecting(server, 1, HEAD + b"\r\n") as [client]:
        assert has_answered.wait(timeout=30)
        time.sleep(1.0)  # longer than it may take to read
        with suppress(ConnectionResetError):
            assert sum(map(len, iter(lambda: client.recv(1 << 20), b""))) < 30_000_000


@pytest.mark.parametrize(
    "target",
    ["/?a=" + "9" * 5000, "//[", "/?a=%zz%00", "/" + "x" * 60_000, "/?" + "&".join("a=1" for _ in range(9999))],
)
def test_a_strange_address_is_no_error_of_the_server(server: Server, target: str) -> None:
    code, _ = fetch(f"{server.address}{target}" if target != "//[" else f"{server.address}/%5B")
    assert code in (200, 404)
    raw = send_raw(server, HEAD.replace(b"GET / ", f"GET {target} ".encode()) + b"\r\n")
    assert raw.split()[1] in (b"200", b"400", b"404")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.0\r\n\r\n", b"414"),
        (b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/1.0\r\na: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"BREW / HTTP/1.0\r\n\r\n", b"501"),
        (b"GET\r\n\r\n", b"400"),
    ],
)
def test_an_invalid_head_has_its_code(server: Server, request_: bytes, code: bytes) -> None:
    assert send_raw(server, request_).split()[1] == code


def test_many_connections_at_one_moment_are_answered() -> None:
    codes: list[int] = []
    with serving() as server:
        threads = [threading.Thread(target=lambda: codes.append(fetch(f"{server.address}/")[0])) for _ in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert codes == [200] * 60


@examples(20, thorough=60)
@given(
    data=st.one_of(
        st.binary(max_size=200), st.text(max_size=80).map(lambda text: f"GET {text} HTTP/1.1\r\n\r\n".encode())
    )
)
def test_invalid_requests_get_an_error_of_one_line_or_no_answer(server: Server, data: bytes) -> None:
    answer = send_raw(server, data)
    if answer:
        head, _, body = answer.partition(b"\r\n\r\n")
        if head.startswith(b"HTTP/"):
            assert head.split()[1][:1] in (b"4", b"5")
        assert list(json.loads(body or head)) == ["error"]
        assert (body or head).count(b"\n") <= 1


def test_a_server_that_was_never_started_can_be_closed() -> None:
    server = Server(ROUTES, Access())
    server.close()
    Server(ROUTES, Access(port=server.port)).close()


def test_a_check_that_raises_stops_the_server() -> None:
    server = Server(ROUTES, Access())

    def check() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        server.serve(check)
    server.close()


def test_ctrl_c_while_a_request_is_answered_stops_the_server() -> None:
    def interrupt(query: Mapping[str, str], body: bytes) -> Answer:
        os.kill(os.getpid(), signal.SIGINT)
        return Answer("1")

    server = Server({("GET", "/"): interrupt}, Access(token=TOKEN))
    answers: list[Any] = []
    client = threading.Thread(target=lambda: answers.append(fetch(server.address + "/")))
    client.start()
    with pytest.raises(KeyboardInterrupt):
        server.serve(fail_after(10))
    client.join()
    server.close()
    assert answers == [(200, 1)]


def fail_after(seconds: float) -> Callable[[], None]:
    """Return a check that fails the test if the server is still serving then."""
    end = time.monotonic() + seconds

    def check() -> None:
        assert time.monotonic() < end, "the server did not stop"

    return check
