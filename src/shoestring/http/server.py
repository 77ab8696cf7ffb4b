"""The HTTP server: one thread reads all requests, a pool of threads answers them, and no request can wait for ever.

A connection carries one request. Requests are read by an `asyncio` loop: a connection whose request has not arrived completely
costs a little memory and no thread, so clients that connect and send nothing, or send slowly, do not keep others out. They are
dropped after some seconds, or earlier if there are too many of them: first the oldest one of the address that has the most. A
request without the token is refused in the loop, too. All others are answered by a thread, a limited number at the same time. An
invalid request is answered with one line, `{"error": "…"}`.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import responses
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import printable
from shoestring.errors import ShoestringError, one_line
from shoestring.http.access import Access

_MAX_READ_BYTES = 1 << 20  # a refused body is read up to here: a client reads no answer while it is still sending
_MAX_HEAD_BYTES = 1 << 16  # of the request line and the headers
_BACKLOG = 128  # connections that may wait to be accepted; others would have to connect again a second later
_CHECK_S = 0.2  # how often `check` is called
_CLOSE_S = 1.0  # for the last answers, when the server is closed
_METHODS = ("GET", "POST")
_ACCEPT_RETRY_S = 0.05  # after an error, such as too many open files


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """The limits that protect a server from too many, too long or too slow requests."""

    requests: int = 256  # answered at the same time
    incomplete: int = 400  # connections whose request has not arrived completely; most systems allow 1024 open files
    incomplete_per_address: int = 200  # the same, of one address
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
        self.access, self._routes, self._limits = access, routes, limits or RequestLimits()
        self._tls = access.tls_context()
        self._stop: Callable[[], object] | None = None  # ends `serve`; set while it runs
        self._socket = socket.socket(socket.AF_INET6 if ":" in access.host else socket.AF_INET)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((access.host, access.port))
            self._socket.listen(_BACKLOG)
            self._socket.setblocking(False)
        except (OSError, OverflowError) as error:
            self._socket.close()
            why = getattr(error, "strerror", None) or error
            raise ShoestringError(
                f"cannot listen on port {access.port} of {access.host}: {why}: choose another --port or --host"
            ) from None
        self.port = int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """The URL of the server, without a slash at the end."""
        host = f"[{self.access.host}]" if ":" in self.access.host else self.access.host
        return f"{'https' if self.access.has_tls else 'http'}://{host}:{self.port}"

    def serve(self, check: Callable[[], None] = lambda: None) -> None:
        """Answer requests until `close` is called, or a signal handler or `check` raises; `check` runs five times a second."""
        asyncio.run(self._serve(check))

    def close(self) -> None:
        """End `serve`, which may run in another thread, and stop listening."""
        if (stop := self._stop) is not None:
            with suppress(RuntimeError):  # it has ended by itself at this moment
                stop()
        else:
            self._socket.close()

    async def _serve(self, check: Callable[[], None]) -> None:
        is_stopped = asyncio.Event()
        self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, is_stopped.set)
        connections = _Connections(self._routes, self.access, self._limits)
        accepting = asyncio.create_task(connections.accept_all(self._socket, self._tls))
        try:
            while not is_stopped.is_set():
                check()
                with suppress(TimeoutError):
                    await asyncio.wait_for(is_stopped.wait(), _CHECK_S)
        finally:
            self._stop = None
            accepting.cancel()
            self._socket.close()
            await connections.close()


class _Connections:
    """The open connections of a server. Only the thread of the event loop uses it."""

    def __init__(self, routes: Routes, access: Access, limits: RequestLimits) -> None:
        self._routes, self._access, self._limits = routes, access, limits
        self._pool = ThreadPoolExecutor(limits.requests, "shoestring-http")
        self._incomplete: dict[asyncio.Task[None], str] = {}  # address by connection, the oldest first
        self._complete: set[asyncio.Task[None]] = set()  # connections whose request is complete
        self._unopened: set[socket.socket] = set()  # accepted connections whose task has not begun
        self._answering = 0  # requests in the pool

    async def accept_all(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, sender = await loop.sock_accept(listener)
            except OSError:  # the client has left already, or there are too many open files
                self._drop_oldest()
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            address = str(sender[0])
            task = asyncio.create_task(self._serve_connection(connection, tls))
            self._incomplete[task] = address
            self._unopened.add(connection)
            task.add_done_callback(partial(self._forget, connection))
            if sum(other == address for other in self._incomplete.values()) > self._limits.incomplete_per_address:
                self._drop_oldest(address)
            if len(self._incomplete) > self._limits.incomplete:
                self._drop_oldest()

    async def close(self) -> None:
        """Drop the incomplete requests, and give the others a moment to be answered."""
        for task in list(self._incomplete):
            task.cancel()
        if self._complete:
            await asyncio.wait(self._complete, timeout=_CLOSE_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _forget(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._incomplete.pop(task, None)
        self._complete.discard(task)
        if connection in self._unopened:  # the task was cancelled before it began
            self._unopened.remove(connection)
            connection.close()
        if not task.cancelled() and (error := task.exception()) is not None:
            sys.stderr.write(printable(f"a request failed: {type(error).__name__}: {error}") + "\n")

    def _drop_oldest(self, address: str | None = None) -> None:
        """Drop the oldest incomplete request of this address; by default of the address that has the most."""
        if self._incomplete:
            address = address or Counter(self._incomplete.values()).most_common(1)[0][0]
            oldest = next(task for task, other in self._incomplete.items() if other == address)
            del self._incomplete[oldest]
            oldest.cancel()

    # one connection --------------------------------------------------------------------------------------------------

    async def _serve_connection(self, connection: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Read the request of a connection, answer it, and close the connection. A broken connection is normal."""
        loop = asyncio.get_running_loop()
        self._unopened.remove(connection)
        deadline = loop.time() + self._limits.request_s
        with suppress(OSError):  # includes TimeoutError
            async with asyncio.timeout_at(deadline):
                reader = asyncio.StreamReader(_MAX_HEAD_BYTES, loop)
                protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls)
            try:
                async with asyncio.timeout_at(deadline):
                    head = await _read_head(reader)
                answer = await self._find_answer(_Request(head), reader, deadline)
                if answer is not None:
                    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                    transport.set_write_buffer_limits(0)  # `drain` then waits until all is sent
                    async with asyncio.timeout(self._limits.answer_s):
                        writer.write(_encode(answer))
                        await writer.drain()
            except BaseException:
                transport.abort()
                raise
            transport.close()

    async def _find_answer(self, request: _Request, reader: asyncio.StreamReader, deadline: float) -> Answer | None:
        """Return the answer; None if the request is empty. Only a request that has the token gets a thread."""
        if not request.is_valid:
            return request.refusal
        try:
            route, query, body = await self._check(request, reader, deadline)
            if self._answering >= self._limits.requests:
                raise RequestError(503, f"the server is answering {self._answering} requests: try again later")
        except RequestError as refused:
            return _error(refused.code, str(refused))
        self._answering += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _call, route, query, body)
        finally:
            self._answering -= 1

    async def _check(
        self, request: _Request, reader: asyncio.StreamReader, deadline: float
    ) -> tuple[RouteFunction, Mapping[str, str], bytes]:
        """Return the route of a request, its query and its body; raise a RequestError if it may not be answered."""
        try:
            parts = urlsplit(request.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        except ValueError as error:
            raise RequestError(400, f"the address {request.path[:80]!r} is not valid: {error}") from None
        length = _read_length(request)
        body = await self._read_body(reader, min(length, _MAX_READ_BYTES), deadline)
        task = asyncio.current_task()
        if task is not None and self._incomplete.pop(task, None) is not None:
            self._complete.add(task)
        if why := self._access.find_refusal(dict(request.headers), query):
            raise RequestError(403, why)
        if length > self._limits.body_bytes:
            raise RequestError(
                413, f"the body has {length} bytes; at most {self._limits.body_bytes} are allowed: send less"
            )
        route = self._routes.get((request.command, parts.path))
        if route is not None:
            return route, query, body
        known = ", ".join(" ".join(route) for route in self._routes)
        is_path_known = any(path == parts.path for _, path in self._routes)
        raise RequestError(
            405 if is_path_known else 404, f"{request.command} {parts.path} is not served; there is {known}"
        )

    async def _read_body(self, reader: asyncio.StreamReader, length: int, deadline: float) -> bytes:
        try:
            async with asyncio.timeout_at(deadline):
                return await reader.readexactly(length)
        except TimeoutError:
            raise RequestError(
                408, f"the body of {length} bytes did not arrive within {self._limits.request_s:g} s"
            ) from None
        except asyncio.IncompleteReadError as error:
            raise RequestError(
                400, f"the body has {len(error.partial)} bytes, but its Content-Length is {length}: send all of it"
            ) from None


class _Request(BaseHTTPRequestHandler):
    """The request line and the headers of a request; `refusal` is the answer to a request that is not `is_valid`."""

    refusal: Answer | None

    def __init__(self, head: bytes) -> None:
        self.rfile, self.refusal = io.BufferedReader(io.BytesIO(head)), None
        self.raw_requestline = self.rfile.readline()
        if len(self.raw_requestline) > _MAX_HEAD_BYTES:
            self.send_error(414)
        self.is_valid = self.refusal is None and self.parse_request() and self.command in _METHODS
        if self.refusal is None and self.raw_requestline.strip() and not self.is_valid:
            self.refusal = _error(501, f"the method {self.command[:40]!r} is not served")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.refusal = _error(code, message or responses[code])


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """Return the lines up to the first empty one, or up to the end. A head that is too long is cut, and is not valid then."""
    lines, size = list[bytes](), 0
    while size <= _MAX_HEAD_BYTES:
        try:
            lines.append(await reader.readline())
        except ValueError:  # a line that is too long
            lines.append(b"x" * (_MAX_HEAD_BYTES + 1))
        size += len(lines[-1])
        if lines[-1] in (b"", b"\n", b"\r\n"):
            break
    return b"".join(lines)


def _read_length(request: _Request) -> int:
    length = request.headers.get("Content-Length", "0").strip()
    if "Transfer-Encoding" in request.headers:
        raise RequestError(411, "the body has no known length: send it as a whole, with its Content-Length")
    if not (length.isascii() and length.isdigit() and len(length) < 19):
        raise RequestError(400, f"Content-Length {length[:40]!r} must be the number of bytes in the body")
    return int(length)


def _call(route: RouteFunction, query: Mapping[str, str], body: bytes) -> Answer:
    try:
        return route(query, body)
    except RequestError as refused:
        return _error(refused.code, str(refused))
    except Exception as error:  # a bug in a route must not stop the server
        sys.stderr.write(printable(f"a request failed: {type(error).__name__}: {error}") + "\n")
        return _error(500, f"the server failed at this request: {type(error).__name__}: {error}")


def _error(code: int, text: str) -> Answer:
    return Answer(dumps({"error": one_line(text)}) + "\n", code=code)


def _encode(answer: Answer) -> bytes:
    body = answer.text.encode("utf-8", errors="replace")
    headers = {
        "Server": "shoestring",
        "Content-Type": f"{answer.content_type}; charset=utf-8",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        **({"Retry-After": "1"} if answer.code == 503 else {}),
    }
    lines = [f"HTTP/1.0 {answer.code} {responses.get(answer.code, '')}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
