"""The HTTP server: one thread for each request, and time limits, so that no request can wait for ever.

A connection carries one request. The number of requests at one time is limited. A request that has not arrived completely
within some seconds is dropped, so that slow clients cannot keep others out. An invalid request is answered with one line,
`{"error": "…"}`.
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
from shoestring.http.access import Access

_MAX_READ_BYTES = 1 << 20  # a refused body is read up to here: a client reads no answer while it is still sending


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """The limits that protect a server from too many, too long or too slow requests."""

    requests: int = 256  # answered at the same time
    body_bytes: int = 1 << 16
    request_s: float = 10.0  # time limit for a complete request to arrive
    answer_s: float = 10.0  # time limit for the client to read the answer


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    text: str
    content_type: str = "application/json"
    code: int = 200


class RequestError(Exception):
    """An error that is sent as the answer to a request, with the HTTP status `code` and a text of one line."""

    def __init__(self, code: int, text: object) -> None:
        super().__init__(one_line(str(text)))
        self.code = code


RouteFunction = Callable[[Mapping[str, str], bytes], Answer]  # called with the query of the URL and the body
Routes = Mapping[tuple[str, str], RouteFunction]  # by method and path, such as ("GET", "/status")


class Server:
    """Answers requests by calling the functions in `routes`, from many threads at once."""

    def __init__(self, routes: Routes, access: Access, limits: RequestLimits | None = None) -> None:
        self.access, self._is_serving = access, False
        try:
            self._listener = _Listener(routes, access, limits or RequestLimits())
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ShoestringError(
                f"cannot listen on port {access.port} of {access.host}: {why}: choose another --port or --host"
            ) from None

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    @property
    def address(self) -> str:
        """The URL of the server, without a slash at the end."""
        host = f"[{self.access.host}]" if ":" in self.access.host else self.access.host
        return f"{'https' if self.access.has_tls else 'http'}://{host}:{self.port}"

    def serve(self, check: Callable[[], None] = lambda: None) -> None:
        """Answer requests until `close` is called, or a signal handler or `check` raises; `check` runs five times a second."""
        self._listener.check = check
        self._is_serving = True
        try:
            self._listener.serve_forever(poll_interval=0.2)
        finally:
            self._is_serving = False

    def close(self) -> None:
        if self._is_serving:  # in another thread; if it had never started, the base class would wait for ever
            self._listener.shutdown()
        self._listener.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # connections that may wait; others would have to connect again a second later

    def __init__(self, routes: Routes, access: Access, limits: RequestLimits) -> None:
        self.routes, self.access, self.limits = routes, access, limits
        self.check: Callable[[], None] = lambda: None
        self._free_requests = threading.BoundedSemaphore(limits.requests)
        self._tls = access.tls_context()
        self.address_family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
        super().__init__((access.host, access.port), _Handler)

    def server_bind(self) -> None:
        """Bind as the base class does, but do not look up this machine's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.access.host, int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, sender = super().get_request()
        if self._tls is not None:  # the handshake is done in the thread of the request: here it would delay others
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, sender

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free_requests.acquire(blocking=False):
            _refuse_busy(request, self.limits.requests, has_tls=self._tls is not None)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # No thread could be started. After any other error, such as Ctrl-C, the thread releases its request itself.
            self._free_requests.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free_requests.release()

    def service_actions(self) -> None:
        self.check()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # a broken connection is normal
            sys.stderr.write(printable(f"a request failed: {type(error).__name__}: {error}") + "\n")


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    server_version, sys_version = "shoestring", ""

    def setup(self) -> None:
        self._arrival_deadline = time.monotonic() + self.server.limits.request_s
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_TimedReader(self.connection, self._arrival_deadline))
        if hasattr(self.connection, "do_handshake"):
            self.connection.settimeout(self.server.limits.request_s)
            self.connection.do_handshake()

    def do_GET(self) -> None:
        try:
            answer = self._find_answer()
        except RequestError as refused:
            answer = _error(refused.code, str(refused))
        except Exception as error:  # a bug in a route must not stop the server
            sys.stderr.write(printable(f"{self.command} failed: {type(error).__name__}: {error}") + "\n")
            answer = _error(500, f"the server failed at this request: {type(error).__name__}: {error}")
        self._send(answer)

    do_POST = do_GET

    def _find_answer(self) -> Answer:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        length = self._body_length()
        body = self._read_body(min(length, _MAX_READ_BYTES))
        if why := self.server.access.find_refusal(dict(self.headers), query):
            raise RequestError(403, why)
        if length > self.server.limits.body_bytes:
            raise RequestError(
                413, f"the body has {length} bytes; at most {self.server.limits.body_bytes} are allowed: send less"
            )
        route = self.server.routes.get((self.command, parts.path))
        if route is not None:
            return route(query, body)
        known = ", ".join(" ".join(route) for route in self.server.routes)
        is_path_known = any(path == parts.path for _, path in self.server.routes)
        raise RequestError(
            405 if is_path_known else 404, f"{self.command} {parts.path} is not served; there is {known}"
        )

    def _body_length(self) -> int:
        length = self.headers.get("Content-Length", "0").strip()
        if "Transfer-Encoding" in self.headers:
            raise RequestError(411, "the body has no known length: send it as a whole, with its Content-Length")
        if not (length.isascii() and length.isdigit() and len(length) < 19):
            raise RequestError(400, f"Content-Length {length[:40]!r} must be the number of bytes in the body")
        return int(length)

    def _read_body(self, length: int) -> bytes:
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            raise RequestError(
                408, f"the body of {length} bytes did not arrive within {self.server.limits.request_s:g} s"
            ) from None
        if len(body) < length:
            raise RequestError(
                400, f"the body has {len(body)} bytes, but its Content-Length is {length}: send all of it"
            )
        return body

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error of the base class as JSON too."""
        self._send(_error(code, message or "the request is not valid HTTP"))

    def _send(self, answer: Answer) -> None:
        body = answer.text.encode("utf-8", errors="replace")
        self.connection.settimeout(self.server.limits.answer_s)
        self.close_connection = True
        self.send_response(answer.code)
        for name, value in _headers(answer.content_type, len(body)).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing, because a URL may contain the token."""


class _TimedReader(io.RawIOBase):
    """Reads from a connection until a deadline, which is for the whole request, not for each read."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline = connection, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


def _error(code: int, text: str) -> Answer:
    return Answer(dumps({"error": one_line(text)}) + "\n", code=code)


def _refuse_busy(connection: socket.socket, limit: int, *, has_tls: bool) -> None:
    """Send code 503 without waiting, since this thread accepts all connections; with TLS a handshake would be needed first."""
    if not has_tls:
        body = _error(503, f"the server is answering {limit} requests: try again later").text
        connection.setblocking(False)
        head = f"HTTP/1.0 503 Busy\r\nRetry-After: 1\r\nContent-Length: {len(body)}\r\n\r\n"
        with suppress(OSError):
            connection.send(f"{head}{body}".encode())


def _headers(content_type: str, length: int) -> Mapping[str, str]:
    return {
        "Content-Type": f"{content_type}; charset=utf-8",
        "Content-Length": str(length),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
