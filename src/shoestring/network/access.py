"""Who may ask a server: those who know its token, through a connection that nobody on the way can read.

On the loopback address that is plain HTTP, and only under this machine's own names, so that no page elsewhere can ask
through a reader's browser. Off it the connection must be TLS, ours or that of a proxy in front.
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
LEAST_TOKEN_CHARS = 16
_OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, kw_only=True)
class Access:
    host: str = LOOPBACK
    port: int = 0  # 0: a free one
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    in_address: bool = (
        False  # the token may stand in the address, as a browser needs it; proxies keep addresses in logs
    )
    certificate: str | None = None  # files of TLS
    key: str | None = None
    behind_proxy: bool = False  # which speaks TLS with the clients

    def __post_init__(self) -> None:
        if len(self.token) < LEAST_TOKEN_CHARS or not (self.token.isascii() and self.token.isprintable()):
            raise ShoestringError(
                f"the token has {len(self.token)} characters; it must have {LEAST_TOKEN_CHARS} or more of ASCII, and no line "
                "ends: leave it out to have one drawn"
            )
        if (self.certificate is None) != (self.key is None):
            raise ShoestringError("TLS needs two files, the certificate and its key: give --tls-cert and --tls-key")
        if not (self.is_loopback or self.has_tls or self.behind_proxy):
            raise ShoestringError(
                f"the host {self.host!r} can be reached from other machines, and plain HTTP shows the token on the way: give "
                "--tls-cert and --tls-key, or --behind-proxy where a proxy speaks TLS, or leave --host out and use a tunnel"
            )

    @property
    def is_loopback(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name: whoever it leads to may be elsewhere
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
            context.load_cert_chain(self.certificate, self.key, password="")  # no prompt in a server
        except (OSError, ValueError) as error:  # ssl.SSLError too
            raise ShoestringError(
                f"TLS cannot use the certificate {self.certificate!r} with the key {self.key!r}: {error}: give two PEM files "
                "that belong together, the key without a password"
            ) from None
        return context

    def refusal(self, headers: Mapping[str, str], query: Mapping[str, str]) -> str | None:
        """Why a request with these headers is not answered; None: it is welcome."""
        headers = {name.lower(): value for name, value in headers.items()}
        if self.is_loopback and not self.has_tls and not self.behind_proxy and not _is_own(headers.get("host", "")):
            return "this server answers on 127.0.0.1 alone: ask it there, or through a tunnel that ends there"
        kind, _, token = headers.get("authorization", "").strip().partition(" ")
        given = token.strip() if kind.lower() == "bearer" else ""
        if not given and self.in_address:
            given = query.get("token", "")
        if hmac.compare_digest(given.encode(errors="replace"), self.token.encode()):
            return None
        where = "open the address that the command printed" if self.in_address else "send Authorization: Bearer TOKEN"
        return f"the token is missing or wrong: {where}"


def _is_own(host: str) -> bool:
    name, _, port = host.rpartition(":")
    return host in _OWN_NAMES or (name in _OWN_NAMES and port.isdigit())
