"""HTTP/3 through a real Envoy: names, certificates, routes and sources as over TCP, and only where it is wished."""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import closing
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from locallb.envoy import render
from locallb.envoy.admin import EnvoyAdmin
from locallb.model.http_routes import DirectResponse, HttpRoute, Match, Redirect
from locallb.model.http_serving import (
    ANY,
    Chain,
    ClientValidation,
    HttpListener,
    HttpRoutes,
    TcpForward,
    Termination,
    VirtualHost,
)
from locallb.model.identities import Protocol, ProxyId, ProxyName
from locallb.model.objects import Discovery
from locallb.model.serving import Proxy
from locallb.runtimes.published_ports import split_listener
from tests.support.certificates import ED25519, P256, Authority, Pair
from tests.support.envoy import Envoy
from tests.support.envoy_traffic import TIMEOUT, Block
from tests.support.http3 import asked_by_http3
from tests.support.http_traffic import WEB, Client, Echo, upstream
from tests.support.waiting import becomes

pytestmark = pytest.mark.envoy
REDIRECT = Chain(HttpRoutes((VirtualHost((ANY,), (HttpRoute(Match(), Redirect(scheme="https")),)),)))


def secure(name: str, pair: Pair, *routes: HttpRoute, clients: ClientValidation | None = None) -> Chain:
    """Make a chain of HTTPS for a name."""
    return Chain(HttpRoutes((VirtualHost((name,), routes),)), (name,), Termination((pair.reference(name),), clients))


def proxy(listener: HttpListener, discovery: Discovery, *backends: Echo) -> Proxy:
    name, identity = ProxyName("test/gateways/default/web"), ProxyId("0123456789ab")
    behind = tuple(upstream(each.name, each) for each in backends)
    return Proxy(name, identity, discovery, (), behind, http=(listener,), may_serve_http=True)


@pytest.mark.parametrize("discovery", list(Discovery))
def test_http3_serves_what_https_serves(
    discovery: Discovery, tmp_path: Path, block: Block, authority: Authority
) -> None:
    """By name, with a certificate for it; answers by TCP tell where; a route that changes changes for both."""
    pairs = {name: authority.sign(f"DNS:{name}") for name in ("a.test", "b.test")}
    with Echo("web", block[1]) as echo:
        chains = (
            secure("a.test", pairs["a.test"], HttpRoute(Match(), WEB)),
            secure("b.test", pairs["b.test"], HttpRoute(Match(), DirectResponse(200, "b"))),
        )
        listener = HttpListener(ip_address(block[9]), 8443, chains, http3=True)
        rendered = render(proxy(listener, discovery, echo))
        (tmp_path / "envoy").mkdir()
        for name, pair in pairs.items():
            pair.put(tmp_path / "envoy", name)
        with Envoy(tmp_path / "envoy", rendered) as envoy:
            envoy.wait(rendered)
            bound = {split_listener(name) for name in EnvoyAdmin(tmp_path / "envoy").listeners()}
            assert bound == {(listener.address, 8443, Protocol.TCP), (listener.address, 8443, Protocol.UDP)}
            reported = asked_by_http3(block[9], 8443, "a.test", authority.own.chain, "/x")
            assert reported.headers[":status"] == "200"
            assert b'"path": "/x"' in reported.body
            other = asked_by_http3(block[9], 8443, "b.test", authority.own.chain)
            assert other.body == b"b"
            with closing(Client(block[9], 8443, str(authority.own.chain))) as client:
                assert client.ask(host="a.test").headers["alt-svc"] == 'h3=":8443"; ma=86400'
            changed = secure("b.test", pairs["b.test"], HttpRoute(Match(), DirectResponse(200, "changed")))
            retry = render(proxy(replace(listener, chains=(chains[0], changed)), discovery, echo))
            envoy.apply(retry)
            envoy.wait(retry)
            last = asked_by_http3(block[9], 8443, "b.test", authority.own.chain)
            assert last.body == b"changed"


@pytest.mark.parametrize("discovery", list(Discovery))
def test_http3_admits_the_same_clients_as_https(discovery: Discovery, tmp_path: Path) -> None:
    """Each chain of HTTPS exists under the same conditions, and serves the same routes."""
    pair = Authority(tmp_path).sign("DNS:a.test")
    routed = (HttpRoute(Match(), DirectResponse(200, "a")),)
    chains = (secure("a.test", pair, *routed), secure("*.b.test", pair, *routed), replace(REDIRECT, names=()))
    ranges = (ip_network("10.0.0.0/8"),)
    rendered = render(proxy(HttpListener(ip_address("127.77.0.5"), 443, chains, ranges, http3=True), discovery))
    tcp, quic = json.loads(rendered.files["lds.json"])["resources"][::-1]
    assert (tcp["name"], quic["name"]) == ("127.77.0.5:443/TCP", "127.77.0.5:443/QUIC")
    assert quic["address"] == {"socket_address": {"address": "127.77.0.5", "port_value": 443, "protocol": "UDP"}}
    reported = [(each["filter_chain_match"], routes_of(each)) for each in quic["filter_chains"]]
    assert reported == [(each["filter_chain_match"], routes_of(each)) for each in tcp["filter_chains"][:2]]
    assert all(match["source_prefix_ranges"] and match["server_names"] for match, _ in reported)


@pytest.mark.parametrize("discovery", list(Discovery))
def test_a_key_that_http3_does_not_take_is_shown_by_tcp(
    discovery: Discovery, tmp_path: Path, block: Block, authority: Authority
) -> None:
    """HTTPS goes over to the new certificate, and HTTP/3 is back with the next one that it takes."""
    pairs = [authority.sign("DNS:a.test", kind=kind) for kind in (P256, ED25519, P256)]
    listeners = [
        HttpListener(
            ip_address(block[9]),
            8443,
            (secure("a.test", pair, HttpRoute(Match(), DirectResponse(200, "a"))),),
            http3=True,
        )
        for pair in pairs
    ]
    rendered = [render(proxy(listener, discovery)) for listener in listeners]
    (tmp_path / "envoy").mkdir()
    for pair in pairs:
        pair.put(tmp_path / "envoy", "a.test")
    with Envoy(tmp_path / "envoy", rendered[0]) as envoy:
        envoy.wait(rendered[0])
        for pair, each in zip(pairs, rendered, strict=True):
            envoy.apply(each)
            envoy.wait(each)
            becomes(partial(shows, block[9], authority, pair), "the certificate is shown")
            with closing(Client(block[9], 8443, str(authority.own.chain))) as client:
                has = "alt-svc" in client.ask(host="a.test").headers
            assert has == (pair is not pairs[1])
        assert asked_by_http3(block[9], 8443, "a.test", authority.own.chain).body == b"a"


def shows(address: str, authority: Authority, pair: Pair) -> bool:
    """Return whether clients of HTTPS are shown this certificate."""
    context = ssl.create_default_context(cafile=str(authority.own.chain))
    with (
        socket.create_connection((address, 8443), TIMEOUT) as plain,
        context.wrap_socket(plain, server_hostname="a.test") as client,
    ):
        return client.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(pair.pem)


def routes_of(chain: Any) -> Any:  # noqa: ANN401 - JSON
    manager = chain["filters"][0]["typed_config"]
    return manager.get("rds") or manager["route_config"]


def test_http3_is_served_where_it_is_wished_and_can_be(tmp_path: Path) -> None:
    """Not for plain HTTP, bytes, clients that are asked for certificates, or ports that Docker publishes."""
    authority = Authority(tmp_path / "authority")
    pair = authority.sign("DNS:a.test")
    chain = secure("a.test", pair, HttpRoute(Match(), DirectResponse(200, "a")))
    asking = secure("b.test", pair, clients=ClientValidation(authority.own.pem))
    wished = HttpListener(ip_address("127.77.0.5"), 443, (chain, replace(REDIRECT, names=())), http3=True)
    assert wished.quic
    assert not replace(wished, http3=False).quic
    assert not replace(wished, chains=(REDIRECT,)).quic
    assert not replace(wished, chains=(Chain(TcpForward(()), ("a.test",), chain.termination),)).quic
    assert not replace(wished, chains=(chain, asking)).quic
    assert not replace(wished, container_port=20_000).quic
    assert not replace(wished, chains=(secure("a.test", authority.sign("DNS:a.test", kind=ED25519)),)).quic
