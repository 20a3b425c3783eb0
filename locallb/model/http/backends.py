"""The HTTP version and the TLS settings with which a proxy connects to backends. Not here: the backends themselves."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from locallb.model.http import checks as check
from locallb.model.http.serving import Certificate


class Speaks(StrEnum):
    """The protocol of backends."""

    HTTP1 = "http/1.1"
    """WebSocket as well."""
    HTTP2 = "h2"
    """With TLS by ALPN, without it by prior knowledge (h2c); gRPC is this."""


class BackendTls(Struct, frozen=True):
    """Backends are spoken to by TLS, and believed only with a certificate for them, if it isn't said otherwise."""

    server_name: str
    """SNI, and the name that must be in the certificate where `dns_names` and `uris` are empty."""
    authorities: str = ""
    """PEM; empty: the authorities that the system trusts."""
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    """Names of which one must be in the certificate, as DNS name or URI."""
    client: Certificate | None = None
    """The client certificate of the proxy."""
    believes_all: bool = False
    """Every server is trusted: no name is sent, none is checked."""

    def __post_init__(self) -> None:
        if not self.believes_all:
            check.hostname(self.server_name, wildcard=False)
        elif self.server_name or self.authorities or self.dns_names or self.uris:
            raise ValueError(
                "without verification of backends there may be no server name and no certificate authority"
            )
        _ = self.authorities and check.authorities(self.authorities)
        for name in self.dns_names:
            check.hostname(name)
        for uri in self.uris:
            check.compared(uri)


class HttpBackends(Struct, frozen=True):
    """Settings of HTTP backends (`serving.Upstream.http`), in contrast to plain bytes."""

    speaks: Speaks = Speaks.HTTP1
    tls: BackendTls | None = None
