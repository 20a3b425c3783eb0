"""Backends of Gateways that are spoken to by TLS, against a real Envoy: what they are shown, and whom they answer."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.backend_tls import policy
from tests.support.certificates import Authority, Pair
from tests.support.gateway_clients import Answer, address_of, config_map, get, service, tls_secret, web
from tests.support.gateway_objects import JsonObject, backend, gateway_class, route, rule
from tests.support.manifests import node
from tests.support.servers import in_thread
from tests.support.stages import Stage

pytestmark = pytest.mark.envoy


class _Each(Answer):
    """Ends each connection, so that the next request is believed or refused anew."""

    name: ClassVar[str] = "asking"
    protocol_version = "HTTP/1.0"


@contextmanager
def asking(own: Pair, authority: Authority | None = None) -> Iterator[int]:
    """Serve HTTPS, to who shows a certificate of an authority where one is given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.chain, own.key)
    if authority:
        context.load_verify_locations(authority.own.chain)
        context.verify_mode = ssl.CERT_REQUIRED
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Each)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with in_thread(server):
        yield server.server_port


def shown(name: str) -> JsonObject:
    """Make the Gateway that shows a certificate."""
    return web(tls={"backend": {"clientCertificateRef": {"name": name}}})


def test_backends_are_shown_the_certificate_that_the_gateway_names(play: Stage, tmp_path: Path) -> None:
    """Without one, or with one that isn't there, they refuse; nothing of its key is in the state."""
    authority = Authority(tmp_path / "authority")
    pair = authority.sign("DNS:client")
    with asking(authority.sign("DNS:a.test"), authority) as port:
        play.write("cluster.yaml", node(), service("api", port), config_map(authority.own.pem), policy())
        play.write("secret.yaml", tls_secret(pair))
        play.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=[backend()])))
        play.up()
        at = address_of(play)
        assert get(at)[0] == 503
        play.write("gateway.yaml", gateway_class(), shown("cert"), route(rule("/", backends=[backend()])))
        play.up()
        assert get(at) == (200, "asking / -")
        before = play.pids()
        play.write("secret.yaml", tls_secret(authority.sign("DNS:client")))
        play.up()
        assert get(at) == (200, "asking / -")
        play.write("gateway.yaml", gateway_class(), shown("gone"), route(rule("/", backends=[backend()])))
        assert "InvalidClientCertificateRef: Secret shop/gone can't be used" in play.run("up", "--yes").err
        assert get(at)[0] == 503
        assert play.pids() == before
    written = b"".join(text for name, text in play.files().items() if name.startswith(".state"))
    assert pair.key.read_bytes().splitlines()[1] not in written


def test_backends_are_believed_by_the_authorities_of_now(play: Stage, tmp_path: Path) -> None:
    """Other authorities take effect beneath a running proxy; a bundle with a key is refused, and goes nowhere."""
    mine, other = Authority(tmp_path / "mine"), Authority(tmp_path / "other")
    key = mine.own.key.read_text()
    with asking(mine.sign("DNS:a.test")) as port:
        play.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=[backend()])), policy())
        play.write("cluster.yaml", node(), service("api", port), config_map(mine.own.pem))
        play.up()
        at, before = address_of(play), play.pids()
        assert get(at) == (200, "asking / -")
        play.write("cluster.yaml", node(), service("api", port), config_map(other.own.pem))
        play.up()
        assert get(at)[0] == 503
        play.write("cluster.yaml", node(), service("api", port), config_map(mine.own.pem + key))
        done = play.up()
        assert "BackendTLSPolicy shop/tls: NoValidCACertificate" in done.out + done.err
        assert get(at)[0] == 500
        written = b"".join(text for name, text in play.files().items() if name.startswith(".state"))
        assert key.splitlines()[1].encode() not in written
        play.write("cluster.yaml", node(), service("api", port), config_map(other.own.pem + mine.own.pem))
        play.up()
        assert get(at) == (200, "asking / -")
        assert play.pids() == before
