"""Clients of Gateways that must show a certificate, against a real Envoy: who is let in, what new authorities cost."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Pair
from tests.support.gateway_clients import answering, config_map, service, tls_secret
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, route, rule
from tests.support.manifests import node
from tests.support.stages import Stage

pytestmark = pytest.mark.envoy
PORT, OTHER = 8443, 9443


class World:
    """A Gateway with two ports for HTTPS, of which the first asks clients for certificates of one authority."""

    def __init__(self, play: Stage, directory: Path, port: int) -> None:
        self.play, self.ours = play, Authority(directory / "ours")
        self.first, self.second = (Authority(directory / name, name) for name in ("first", "second"))
        play.write("cluster.yaml", node(), service("one", port), tls_secret(self.ours.sign("DNS:a.test")))
        self.trust(self.first.own.pem)

    def trust(self, text: str, mode: str = "AllowValidOnly") -> None:
        """Have clients checked by these authorities from now on."""
        named = [{"group": "", "kind": "ConfigMap", "name": "ca"}]
        requested = {"validation": {"caCertificateRefs": named, "mode": mode}}
        frontend = {"default": {}, "perPort": [{"port": PORT, "tls": requested}]}
        certificate = {"certificateRefs": [{"name": "cert"}]}
        listeners = (listener(f"l{port}", port, "HTTPS", tls=certificate) for port in (PORT, OTHER))
        made = gateway(*listeners, tls={"frontend": frontend})
        self.play.write("gateway.yaml", gateway_class(), made, route(rule("/", backends=[backend("one")])))
        self.play.write("ca.yaml", config_map(text))
        self.play.up()

    def connection(self, port: int, pair: Pair | None = None) -> http.client.HTTPSConnection:
        """Prepare a connection that shows a certificate, if there is one."""
        context = ssl.create_default_context(cafile=str(self.ours.own.chain))
        context.check_hostname = False
        if pair:
            context.load_cert_chain(pair.chain, pair.key)
        (row,) = self.play.run("status", "--json").json
        return http.client.HTTPSConnection(row["addresses"][0], port, timeout=5, context=context)

    def get(self, port: int, pair: Pair | None = None) -> int | None:
        """Ask once on a new connection; None where TLS is refused."""
        with closing(self.connection(port, pair)) as connection:
            try:
                return status(connection)
            except (ssl.SSLError, ConnectionResetError, http.client.RemoteDisconnected):
                return None


def status(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/")
    answer = connection.getresponse()
    answer.read()
    return answer.status


@pytest.fixture
def world(play: Stage, tmp_path: Path) -> Iterator[World]:
    with answering("one") as port:
        yield World(play, tmp_path, port)


def test_clients_are_let_in_whom_the_authority_knows(world: World) -> None:
    """Nobody else: without a certificate, or with one that another authority or nobody signed."""
    existing, stranger = world.first.sign("DNS:client"), world.second.sign("DNS:client")
    assert [world.get(PORT, pair) for pair in (existing, stranger, world.second.own, None)] == [200, None, None, None]
    assert [world.get(OTHER, pair) for pair in (existing, None)] == [200, 200]
    world.trust(world.first.own.pem, "AllowInsecureFallback")
    assert [world.get(PORT, pair) for pair in (existing, stranger, None)] == [200, 200, 200]


def test_new_authorities_count_for_new_connections_and_cut_none(world: World) -> None:
    """Neither at their port nor at the other one; first both are believed, then the new one alone."""
    existing, successor = world.first.sign("DNS:client"), world.second.sign("DNS:client")
    before = world.play.pids()
    with closing(world.connection(PORT, existing)) as held, closing(world.connection(OTHER)) as sibling:
        assert (status(held), status(sibling)) == (200, 200)
        sockets = held.sock, sibling.sock
        world.trust(world.first.own.pem + world.second.own.pem)
        assert [world.get(PORT, pair) for pair in (existing, successor)] == [200, 200]
        world.trust(world.second.own.pem)
        assert [world.get(PORT, pair) for pair in (existing, successor)] == [None, 200]
        assert (status(held), status(sibling)) == (200, 200)
        assert (held.sock, sibling.sock) == sockets
    assert world.play.pids() == before


@pytest.mark.parametrize(
    "text", ["", "rubbish", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "KEY"]
)
def test_unusable_authorities_let_no_client_in_and_affect_no_other_port(world: World, text: str) -> None:
    """Not even clients of the former ones; when they are repaired, it is served again."""
    existing, pem = world.first.sign("DNS:client"), world.first.own.pem
    key = world.first.own.key.read_text()
    world.trust(pem + key if text == "KEY" else text)
    with pytest.raises(ConnectionRefusedError):
        world.get(PORT, existing)
    assert world.get(OTHER) == 200
    written = b"".join(world.play.files()[name] for name in world.play.files() if name.startswith(".state"))
    assert key.splitlines()[1].encode() not in written
    (row,) = world.play.run("status", "--json").json
    assert (row["state"], row["reason"]) == ("degraded", "ListenersNotValid")
    assert "NoValidCACertificate" in world.play.run("preview").out + world.play.run("up", "--yes").err
    world.trust(pem)
    assert [world.get(PORT, pair) for pair in (existing, None)] == [200, None]
