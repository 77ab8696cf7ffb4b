"""The HTTP server: access, limits and time limits, and errors of one line."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
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


def test_slow_clients_do_not_keep_others_out() -> None:
    """Two clients that send nothing, or a byte now and then, use all requests; after a while they are dropped."""
    with (
        serving(RequestLimits(requests=2, request_s=1.5)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow,
    ):
        slow.sendall(b"POST / HTTP/1.0\r\n")
        stop = threading.Event()

        def send_slowly() -> None:
            with suppress(OSError):
                while not stop.wait(0.05):
                    slow.sendall(b"x")

        thread = threading.Thread(target=send_slowly)
        thread.start()
        assert "answering 2 requests: try again later" in fetch_until(503, server)
        assert silent.recv(100) == b""  # dropped without an answer
        fetch_until(200, server)
        stop.set()
        thread.join()


def fetch_until(code: int, server: Server) -> Any:
    for _ in range(500):
        with suppress(urllib.error.URLError, ConnectionError):  # refused while it was still sending
            answer = fetch(f"{server.address}/")
            if answer[0] == code:
                return answer[1]
        time.sleep(0.01)
    raise AssertionError(f"no answer with code {code} came")


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


def test_ctrl_c_while_a_request_is_accepted_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_thread_and_interrupt(listener: Any, request: Any, client_address: Any) -> None:
        answering = threading.Thread(target=listener.process_request_thread, args=(request, client_address))
        answering.start()
        answering.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "process_request", start_thread_and_interrupt)
    server = Server(ROUTES, Access(token=TOKEN))
    client = threading.Thread(target=fetch, args=(server.address,))
    client.start()
    with pytest.raises(KeyboardInterrupt):
        server.serve(fail_after(10))
    client.join()
    server.close()


def fail_after(seconds: float) -> Callable[[], None]:
    """Return a check that fails the test if the server is still serving then."""
    end = time.monotonic() + seconds

    def check() -> None:
        assert time.monotonic() < end, "the server did not stop"

    return check
