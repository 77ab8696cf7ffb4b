"""The server: one thread for each request, none of which can wait for ever, and an answer for whatever is sent.

A connection carries one request. It takes one of a limited number of places until it is answered; a request that is not
here within seconds, as a whole, is dropped, so that slow clients cannot keep the places of others. What is wrong with a
request is said in one line: `{"error": "…"}`.
"""

from __future__ import annotations

import io
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import printable
from shoestring.errors import ShoestringError, one_line
from shoestring.network.access import Access

_DRAINED_BYTES = 1 << 20  # of a body that is refused: a client reads no answer while it still sends


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    requests: int = 256  # under way at one time
    body_bytes: int = 1 << 16
    request_s: float = 10.0  # for a whole request to arrive
    answer_s: float = 10.0  # for its answer to be taken


@dataclass(frozen=True)
class Answer:
    text: str
    kind: str = "application/json"
    code: int = 200


class Refused(Exception):
    """A request that gets an error: `code` is HTTP's, the text one line of name and value, rule, remedy."""

    def __init__(self, code: int, text: object) -> None:
        super().__init__(one_line(str(text)))
        self.code = code


Handle = Callable[[Mapping[str, str], bytes], Answer]  # (what stands behind the ? of the address, the body)
Routes = Mapping[tuple[str, str], Handle]  # by method and path: ("GET", "/status")


class Server:
    """`routes` are called from many threads at once."""

    def __init__(self, routes: Routes, access: Access, limits: RequestLimits | None = None) -> None:
        self.access, self._is_serving = access, False
        try:
            self._listener = _Listener(routes, access, limits or RequestLimits())
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ShoestringError(
                f"port {access.port} of {access.host} cannot be served: {why}: choose another --port or --host"
            ) from None

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    @property
    def address(self) -> str:
        """Where it is, seen from this machine or by the name it was given; without a slash at the end."""
        host = f"[{self.access.host}]" if ":" in self.access.host else self.access.host
        return f"{'https' if self.access.has_tls else 'http'}://{host}:{self.port}"

    def serve(self, check: Callable[[], None] = lambda: None) -> None:
        """Until `close`, or until `check`, which is called several times a second, or a signal raises."""
        self._listener.check = check
        self._is_serving = True
        try:
            self._listener.serve_forever(poll_interval=0.2)
        finally:
            self._is_serving = False

    def close(self) -> None:
        if self._is_serving:  # in another thread; the base class would wait for ever for one that never began
            self._listener.shutdown()
        self._listener.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # that knock at one moment; more would have to knock again, a second later

    def __init__(self, routes: Routes, access: Access, limits: RequestLimits) -> None:
        self.routes, self.access, self.limits = routes, access, limits
        self.check: Callable[[], None] = lambda: None
        self._places = threading.BoundedSemaphore(limits.requests)
        self._tls = access.tls_context()
        self.address_family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
        super().__init__((access.host, access.port), _Handler)

    def server_bind(self) -> None:
        """Without asking a name server who we are, which may take a while."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.access.host, int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, sender = super().get_request()
        if self._tls is not None:  # hands are shaken by the request's own thread: a slow one must not stop others here
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, sender

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            _turn_away(
                request, None if self._tls else f"{self.limits.requests} requests are under way: ask again later"
            )
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no more threads
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def service_actions(self) -> None:
        self.check()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is the client's affair."""
        error = sys.exception()
        if not isinstance(error, OSError):
            sys.stderr.write(printable(f"a request failed: {type(error).__name__}: {error}") + "\n")


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    server_version, sys_version = "shoestring", ""

    def setup(self) -> None:
        self._until = time.monotonic() + self.server.limits.request_s
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_TimedReader(self.connection, self._until))
        if hasattr(self.connection, "do_handshake"):
            self.connection.settimeout(self.server.limits.request_s)
            self.connection.do_handshake()

    def do_GET(self) -> None:
        try:
            answer = self._find_answer()
        except Refused as refused:
            answer = _error(refused.code, str(refused))
        except Exception as error:  # a mistake of ours: the client is told, and the others go on
            sys.stderr.write(printable(f"{self.command} failed: {type(error).__name__}: {error}") + "\n")
            answer = _error(500, f"the server failed at this request: {type(error).__name__}: {error}")
        self._send(answer)

    do_POST = do_GET

    def _find_answer(self) -> Answer:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        length = self._body_length()
        body = self._read_body(min(length, _DRAINED_BYTES))
        if refusal := self.server.access.refusal(dict(self.headers), query):
            raise Refused(403, refusal)
        if length > self.server.limits.body_bytes:
            raise Refused(
                413, f"the body has {length} bytes; at most {self.server.limits.body_bytes} are read: send less"
            )
        handle = self.server.routes.get((self.command, parts.path))
        if handle is not None:
            return handle(query, body)
        known = ", ".join(" ".join(route) for route in self.server.routes)
        is_method = any(path == parts.path for _, path in self.server.routes)
        raise Refused(405 if is_method else 404, f"{self.command} {parts.path} is not served; there is {known}")

    def _body_length(self) -> int:
        told = self.headers.get("Content-Length", "0").strip()
        if "Transfer-Encoding" in self.headers:
            raise Refused(411, "the body comes in pieces of unknown length: send it whole, with its Content-Length")
        if not (told.isascii() and told.isdigit() and len(told) < 19):
            raise Refused(400, f"Content-Length {told[:40]!r} must be the number of bytes in the body")
        return int(told)

    def _read_body(self, length: int) -> bytes:
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            raise Refused(
                408, f"the body of {length} bytes did not come in {self.server.limits.request_s:g} s"
            ) from None
        if len(body) < length:
            raise Refused(
                400, f"the body ended after {len(body)} bytes, and Content-Length said {length}: send all of it"
            )
        return body

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class finds wrong with a request, said as we say it."""
        self._send(_error(code, message or "the request is no HTTP that can be understood"))

    def _send(self, answer: Answer) -> None:
        body = answer.text.encode("utf-8", errors="replace")
        self.connection.settimeout(self.server.limits.answer_s)
        self.close_connection = True
        self.send_response(answer.code)
        for name, value in _headers(answer.kind, len(body)).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *words: Any) -> None:
        """Addresses may hold the token: nothing is logged."""


class _TimedReader(io.RawIOBase):
    """Reads a connection up to a moment: who sends a byte now and then gains nothing by it."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until = connection, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


def _error(code: int, text: str) -> Answer:
    return Answer(dumps({"error": one_line(text)}) + "\n", code=code)


def _turn_away(connection: socket.socket, text: str | None) -> None:
    """Say so if that takes no time: this is the thread that lets everybody in."""
    if text is not None:
        body = _error(503, text).text
        connection.setblocking(False)
        head = f"HTTP/1.0 503 Busy\r\nRetry-After: 1\r\nContent-Length: {len(body)}\r\n\r\n"
        with suppress(OSError):
            connection.send(f"{head}{body}".encode())


def _headers(kind: str, length: int) -> Mapping[str, str]:
    return {
        "Content-Type": f"{kind}; charset=utf-8",
        "Content-Length": str(length),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
