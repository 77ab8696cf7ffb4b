"""A page that watches: a small server on this machine alone, which only reads.

It listens on the loopback address, answers nobody who does not know the token of this run, and nobody who reached it under
another host's name (so that no page elsewhere can ask it through the reader's browser). There is nothing to post.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from shoestring.errors import ShoestringError

Render = Callable[[str | None], str]  # (name of a study, None: the only one or the list) -> a page, or its version


class WatchServer:
    """`page` and `version` are asked for each request; a page is made anew only when its version has changed."""

    def __init__(self, page: Render, version: Render, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(16)
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(page, version, self.token))
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def address(self, study: str | None = None) -> str:
        asked = {"token": self.token} | ({"study": study} if study is not None else {})
        return f"http://127.0.0.1:{self.port}/?{urlencode(asked)}"

    def serve(self) -> None:
        """Until `close`, or Ctrl-C."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(page: Render, version: Render, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "shoestring", ""

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            if not _is_local(self.headers.get("Host", "")):
                return self._answer(403, "this server answers on 127.0.0.1 alone")
            if not hmac.compare_digest(asked.get("token", "").encode(), token.encode()):
                return self._answer(403, "the token is missing or wrong: open the address that the command printed")
            render = {"/": page, "/version": version}.get(parts.path)
            if render is None:
                return self._answer(404, "there is no such page")
            try:
                text = render(asked.get("study"))
            except ShoestringError as error:
                return self._answer(500, str(error))
            return self._answer(200, text, "text/html" if parts.path == "/" else "text/plain")

        def _answer(self, code: int, text: str, kind: str = "text/plain") -> None:
            body = text.encode("utf-8", errors="replace")
            self.send_response(code)
            for name, value in _headers(kind, len(body)).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *words: Any) -> None:
            """Addresses hold the token: nothing is logged."""

    return Handler


def _headers(kind: str, length: int) -> Mapping[str, str]:
    return {
        "Content-Type": f"{kind}; charset=utf-8",
        "Content-Length": str(length),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


def _is_local(host: str) -> bool:
    return host.rpartition(":")[0] in ("127.0.0.1", "localhost") or host in ("127.0.0.1", "localhost")
