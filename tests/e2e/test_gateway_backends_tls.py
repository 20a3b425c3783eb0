"""Backends of Gateways that are spoken to by TLS, against a real Envoy: what they are shown, and whom they answer."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.support import Stage, node
from tests.e2e.test_gateway_clients import config_map
from tests.e2e.test_gateways import _Answer, _secret, address_of, get, service, web
from tests.envoy.certificates import Authority, Pair
from tests.gateway.api import JsonObject, backend, gateway_class, route, rule
from tests.gateway.backend_tls import policy

pytestmark = pytest.mark.envoy


@contextmanager
def asking(own: Pair, authority: Authority) -> Iterator[int]:
    """Serve HTTPS to who shows a certificate of an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.chain, own.key)
    context.load_verify_locations(authority.own.chain)
    context.verify_mode = ssl.CERT_REQUIRED
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Named", (_Answer,), {"name": "asking"}))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def shown(name: str) -> JsonObject:
    """Make the Gateway that shows a certificate."""
    return web(tls={"backend": {"clientCertificateRef": {"name": name}}})


def test_backends_are_shown_the_certificate_that_the_gateway_names(play: Stage, tmp_path: Path) -> None:
    """Without one, or with one that isn't there, they refuse; nothing of its key is in the state."""
    authority = Authority(tmp_path / "authority")
    pair = authority.sign("DNS:client")
    with asking(authority.sign("DNS:a.test"), authority) as port:
        play.write("cluster.yaml", node(), service("api", port), config_map(authority.own.pem), policy())
        play.write("secret.yaml", _secret(pair))
        play.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=[backend()])))
        play.up()
        at = address_of(play)
        assert get(at)[0] == 503
        play.write("gateway.yaml", gateway_class(), shown("cert"), route(rule("/", backends=[backend()])))
        play.up()
        assert get(at) == (200, "asking / -")
        before = play.pids()
        play.write("secret.yaml", _secret(authority.sign("DNS:client")))
        play.up()
        assert get(at) == (200, "asking / -")
        play.write("gateway.yaml", gateway_class(), shown("gone"), route(rule("/", backends=[backend()])))
        assert "InvalidClientCertificateRef: Secret shop/gone can't be used" in play.run("up", "--yes").err
        assert get(at)[0] == 503
        assert play.pids() == before
    written = b"".join(text for name, text in play.files().items() if name.startswith(".state"))
    assert pair.key.read_bytes().splitlines()[1] not in written
