"""Gateways and routes in manifests, served by a real Envoy: each request to the backend that its route names."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import time
from collections import Counter
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.support.backends import ask, backends
from tests.support.certificates import Authority
from tests.support.gateway_clients import (
    Client,
    address_of,
    answering,
    get,
    service,
    shown_certificate,
    tls_secret,
    web,
)
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, route, rule
from tests.support.manifests import node
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy


def test_requests_reach_the_backend_of_their_route(play: Stage) -> None:
    """By host and path, with what filters do; what no route takes is not found, what leads nowhere fails."""
    named = [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-from", "value": "100%"}]}}]
    moved = [{"type": "RequestRedirect", "requestRedirect": {"hostname": "b.test", "statusCode": 301}}]
    with answering("one") as one, answering("two") as two:
        play.write("cluster.yaml", node(), service("one", one), service("two", two))
        play.write(
            "gateway.yaml",
            gateway_class(),
            web(),
            route(
                rule("/", backends=[backend("one")]),
                rule("/two", backends=[backend("two")], filters=named),
                rule("/moved", backends=[], filters=moved),
                rule("/gone", backends=[backend("gone")]),
                hostnames=["a.test"],
            ),
        )
        done = play.up()
        assert "HTTPRoute shop/route: BackendNotFound: Service shop/gone isn't there" in done.out + done.err
        address = address_of(play)
        assert get(address) == (200, "one / -")
        assert get(address, "/two/x") == (200, "two /two/x 100%")
        assert get(address, "/moved")[0] == 301
        assert get(address, "/gone")[0] == 500
        assert get(address, host="else.test")[0] == 404
    detail = play.run("status", "c/gateways/shop/web").out
    assert "8080: a.test/two/* → shop/two:8080" in detail


def test_a_route_that_changes_costs_no_request_and_no_connection(play: Stage) -> None:
    """Weights and backends move under a client that keeps its connection; the proxy stays the same process."""
    with answering("one") as one, answering("two") as two:
        play.write("cluster.yaml", node(), service("one", one), service("two", two))
        play.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=[backend("one")])))
        play.up()
        before = play.pids()
        with Client(address_of(play)) as client:
            for some in ([backend("one"), backend("two")], [backend("two")], [backend("one")], [backend("two")]):
                play.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=some)))
                play.up()
        assert client.answers[-1] == "200 two"
        assert set(client.answers) == {"200 one", "200 two"}
        assert play.pids() == before


@pytest.mark.slow
def test_watch_follows_routes_and_costs_no_request(play: Stage) -> None:
    """A hundred changes of routes under a client that keeps its connection: none of its requests fails."""
    some = ([backend("one")], [backend("one"), backend("two", weight=3)], [backend("two")])
    with answering("one") as one, answering("two") as two:
        play.write("cluster.yaml", node(), service("one", one), service("two", two))
        play.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=some[0])))
        with watching(play) as watch:
            eventually(lambda: play.run("status", "--json").json[0]["state"] == "serving", watch)
            eventually(lambda: get(address_of(play)) == (200, "one / -"), watch)
            before = play.pids()
            with Client(address_of(play)) as client:
                for number in range(99):
                    play.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=some[number % 3])))
                    time.sleep(0.05)
                eventually(lambda: {get(address_of(play))[1][:3] for _ in range(9)} == {"two"}, watch)
            assert set(client.answers) == {"200 one", "200 two"}
            assert play.pids() == before
            play.write("gateway.yaml", gateway_class())
            eventually(lambda: play.run("status", "--json").json == [], watch)


def test_https_ends_with_the_certificate_of_a_secret_and_a_new_one_follows(play: Stage, tmp_path: Path) -> None:
    """Under the same process; what the state and the last good reading know of the key is nothing."""
    authority = Authority(tmp_path / "authority")
    first, second = authority.sign("DNS:a.test"), authority.sign("DNS:a.test")
    https = listener("https", 8443, "HTTPS", hostname="a.test", tls={"certificateRefs": [{"name": "cert"}]})
    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one))
        play.write("gateway.yaml", gateway_class(), gateway(https), route(rule("/", backends=[backend("one")])))
        play.write("secret.yaml", tls_secret(first))
        play.up()
        address, before = address_of(play), play.pids()
        old = shown_certificate(address, authority)
        play.write("secret.yaml", tls_secret(second))
        play.up()
        new = shown_certificate(address, authority)
        assert play.pids() == before
    assert old[1] == new[1] == "one / -"
    assert old[0] != new[0]
    written = b"".join(text for name, text in play.files().items() if name.startswith(".state"))
    for pair in (first, second):
        assert base64.b64encode(pair.key.read_bytes()) not in written
        assert pair.key.read_bytes().splitlines()[1] not in written


def test_with_tls_hosts_of_other_listeners_are_misdirected_and_those_of_none_not_found(
    play: Stage, tmp_path: Path
) -> None:
    """Listener.hostname: "If another Listener does match the Host, the Gateway SHOULD return a 421"; otherwise 404."""
    authority = Authority(tmp_path / "authority")
    tls = {"certificateRefs": [{"name": "cert"}]}
    listeners = [
        listener(f"l{number}", 8443, "HTTPS", hostname=hostname, tls=tls)
        for number, hostname in enumerate(("*.shop.test", "api.shop.test", "*.b.test"))
    ]
    context = ssl.create_default_context(cafile=str(authority.own.chain))
    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one), tls_secret(authority.sign("DNS:*.shop.test")))
        play.write("gateway.yaml", gateway_class(), gateway(*listeners), route(rule("/", backends=[backend("one")])))
        play.up()
        address = address_of(play)

        def status(host: str) -> int:
            with (
                socket.create_connection((address, 8443), timeout=5) as plain,
                context.wrap_socket(plain, server_hostname="a.shop.test") as client,
            ):
                client.sendall(f"GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
                answer = http.client.HTTPResponse(client)
                answer.begin()
                return answer.status

        hosts = ("b.shop.test", "api.shop.test", "x.b.test", "shop.test", "other.test")
        assert [status(host) for host in hosts] == [200, 421, 421, 404, 404]


def test_tls_that_ends_before_a_backend_of_bytes_needs_no_routes_of_http(play: Stage, tmp_path: Path) -> None:
    """A proxy that has certificates and no HTTP at all is proven like any other."""
    authority = Authority(tmp_path / "authority")
    tls = listener("tls", 8443, "TLS", hostname="a.test", tls={"certificateRefs": [{"name": "cert"}]})
    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one), tls_secret(authority.sign("DNS:a.test")))
        bytes_only = route({"backendRefs": [backend("one")]}, kind="TLSRoute", hostnames=["a.test"])
        play.write("gateway.yaml", gateway_class(), gateway(tls), bytes_only)
        play.up()
        assert shown_certificate(address_of(play), authority)[1] == "one / -"


def test_udp_port_of_a_gateway_is_served_once_it_has_a_route(play: Stage) -> None:
    """Without one it is no failure; with one, clients are answered by weight."""
    udp = gateway(listener("udp", 8080, "UDP"))
    play.write("cluster.yaml", node())
    play.write("gateway.yaml", gateway_class(), udp)
    play.up()
    at = address_of(play)
    with backends() as make:
        for name in ("one", "two"):
            port = {"port": 8080, "nodePort": make(name).port, "protocol": "UDP"}
            play.write(f"{name}.yaml", {**service(name, 0), "spec": {"type": "NodePort", "ports": [port]}})
        shares = [backend("one", weight=3), backend("two")]
        play.write("route.yaml", route({"backendRefs": shares}, kind="UDPRoute"))
        play.up()
        answers = [ask(at, 8080, "UDP") for _ in range(40)]
    assert address_of(play) == at
    assert Counter(answers) == {"one: hello": 30, "two: hello": 10}


@pytest.mark.parametrize("spares", [0, 1])
def test_udp_port_that_a_gateway_gives_up_is_free_after_the_update(play: Stage, spares: int) -> None:
    """The Gateway's other listeners go on, in a proxy of its own and in one that was a spare."""
    udp, http = listener("udp", 8080, "UDP"), listener("web", 8081)
    play.configure(proxies={"mode": "per-service", "spares": spares})
    play.write("cluster.yaml", node())
    play.up()
    play.write("gateway.yaml", gateway_class(), gateway(udp, http))
    with backends() as make, answering("a") as web_port:
        port = {"port": 8080, "nodePort": make("one").port, "protocol": "UDP"}
        play.write("one.yaml", {**service("one", 0), "spec": {"type": "NodePort", "ports": [port]}})
        play.write("udp.yaml", route({"backendRefs": [backend("one")]}, kind="UDPRoute", name="udp"))
        play.write("web.yaml", service("a", web_port), route(rule("/", backends=[backend("a")])))
        play.up()
        at = address_of(play)
        assert ask(at, 8080, "UDP") == "one: hello"
        assert "/spare-2" in play.pids() or not spares
        play.write("gateway.yaml", gateway(http), gateway_class())
        play.up()
        assert get(at, port=8081)[0] == HTTPStatus.OK
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program:
            program.bind((at, 8080))


def test_a_gateway_of_another_controller_is_left_alone(play: Stage) -> None:
    """Nothing is served, and that is told; a class that the stack names and nobody has is told, too."""
    play.write("gateway.yaml", gateway_class("local", "theirs.test/controller"), web())
    play.configure(gatewayClasses=["local"])
    done = play.run("up", "--yes")
    assert done.code == 0
    assert "1 Gateway left out: of another class" in done.out + done.err
    assert "gatewayClasses has local, but no source has a GatewayClass of that name" in done.out + done.err
    assert play.run("status", "--json").json == []


def test_a_gateway_asks_for_an_address(play: Stage) -> None:
    """By spec.addresses; one that isn't in the pool is refused with the reason that a Service would get."""
    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one))
        requested = web(addresses=[{"type": "IPAddress", "value": play.at(9)}])
        play.write("gateway.yaml", gateway_class(), requested, route(rule("/", backends=[backend("one")])))
        play.up()
        assert address_of(play) == play.at(9)
        assert get(play.at(9)) == (200, "one / -")


def test_a_gateway_has_a_proxy_of_its_own_beside_shared_ones(play: Stage) -> None:
    """Services share theirs, whatever the Gateway does; with it gone, nothing of it is left."""
    with answering("one") as one:
        balancer = {"type": "LoadBalancer", "ports": [{"port": 8081, "nodePort": one}]}
        shared = {**service("plain", one), "spec": balancer}
        play.configure(proxies="shared")
        play.write("cluster.yaml", node(), service("one", one), shared)
        play.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=[backend("one")])))
        play.up()
        addresses = {row["name"]: row["addresses"][0] for row in play.run("status", "--json").json}
        assert get(addresses["web"]) == (200, "one / -")
        assert get(addresses["plain"], port=8081) == (200, "one / -")
        play.write("gateway.yaml", gateway_class())
        play.up()
        assert [row["name"] for row in play.run("status", "--json").json] == ["plain"]
        assert get(addresses["plain"], port=8081) == (200, "one / -")
        with pytest.raises(ConnectionRefusedError):
            get(addresses["web"])


@pytest.mark.parametrize("form", ["tree", "markdown", "html", "json"])
def test_a_preview_knows_gateways(play: Stage, form: str) -> None:
    """Before they are there, as they are, and after a change."""
    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one))
        play.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=[backend("one")])))
        shown = play.run("preview", "--format", form)
        assert shown.code == 0, shown.err
        assert "c/gateways/shop/web" in shown.out
        play.up()
        assert play.run("preview", "--expect-no-changes", "--format", form).code == 0
        play.write("gateway.yaml", gateway_class(), web(), route(rule("/x", backends=[backend("one")])))
        changed = play.run("preview", "--expect-no-changes", "--format", form)
        assert changed.code != 0
        assert "c/gateways/shop/web" in changed.out
