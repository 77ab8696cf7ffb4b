"""Decide which requests a server may answer: those with its token, over a connection that no one else can read.

On the loopback address the connection is plain HTTP, and only requests to this machine's own names are answered. So a web page
from another server cannot send requests through the browser of a user. On any other address the connection must use TLS, which
the server or a proxy in front of it provides.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from shoestring.errors import ShoestringError

LOOPBACK = "127.0.0.1"
MIN_TOKEN_CHARS = 16
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, kw_only=True)
class Access:
    """The address of a server, its encryption, and the token that a request must have."""

    host: str = LOOPBACK
    port: int = 0  # 0: any free port
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    allows_token_in_url: bool = False  # needed by browsers; not safe behind proxies, which write URLs into their logs
    certificate: str | None = None  # PEM file for TLS
    key: str | None = None  # PEM file for TLS
    behind_proxy: bool = False  # a proxy speaks TLS with the clients

    def __post_init__(self) -> None:
        if len(self.token) < MIN_TOKEN_CHARS or not (self.token.isascii() and self.token.isprintable()):
            raise ShoestringError(
                f"the token has {len(self.token)} characters; it must have {MIN_TOKEN_CHARS} or more printable ASCII characters: "
                "leave it out to have one generated"
            )
        if (self.certificate is None) != (self.key is None):
            raise ShoestringError("TLS needs two files, the certificate and its key: give --tls-cert and --tls-key")
        if not (self.is_loopback or self.has_tls or self.behind_proxy):
            raise ShoestringError(
                f"the host {self.host!r} can be reached from other machines, and plain HTTP would show the token to others: "
                "give --tls-cert and --tls-key, or --behind-proxy where a proxy speaks TLS, or leave --host out and use a tunnel"
            )

    @property
    def is_loopback(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a host name, which may stand for an address that others can reach
            return False

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None

    def tls_context(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, password="")  # a server must not prompt for a password
        except (OSError, ValueError) as error:  # includes ssl.SSLError
            raise ShoestringError(
                f"TLS cannot use the certificate {self.certificate!r} with the key {self.key!r}: {error}: give two PEM files "
                "that belong together, the key without a password"
            ) from None
        return context

    def find_refusal(self, headers: Mapping[str, str], query: Mapping[str, str]) -> str | None:
        """Return why a request with these headers and this query is refused; None if it may be answered."""
        headers = {name.lower(): value for name, value in headers.items()}
        host = headers.get("host", "")
        if self.is_loopback and not self.has_tls and not self.behind_proxy and not _is_loopback_name(host):
            return "this server answers on 127.0.0.1 alone: send requests there, or through a tunnel that ends there"
        kind, _, token = headers.get("authorization", "").strip().partition(" ")
        given = token.strip() if kind.lower() == "bearer" else ""
        if not given and self.allows_token_in_url:
            given = query.get("token", "")
        if hmac.compare_digest(given.encode(errors="replace"), self.token.encode()):
            return None
        remedy = (
            "open the address that the command printed"
            if self.allows_token_in_url
            else "send Authorization: Bearer TOKEN"
        )
        return f"the token is missing or wrong: {remedy}"


def _is_loopback_name(host: str) -> bool:
    name, _, port = host.rpartition(":")
    return host in _LOOPBACK_NAMES or (name in _LOOPBACK_NAMES and port.isdigit())
