"""Gateways that serve HTTPS with local certificates."""

from __future__ import annotations

from tests.support.gateway_clients import service
from tests.support.gateway_objects import JsonObject, backend, gateway, gateway_class, listener, route, rule
from tests.support.manifests import node
from tests.support.stages import Stage

PORT = 8443


def https(name: str = "https", **fields: object) -> JsonObject:
    """Make a listener for HTTPS that names no certificate."""
    return listener(name, PORT, "HTTPS", tls={"mode": "Terminate"}, **fields)


def served(play: Stage, *listeners: JsonObject, backend_port: int, hostnames: tuple[str, ...] = ()) -> str:
    """Serve a Gateway with these listeners; return its address."""
    named: JsonObject = {"hostnames": list(hostnames)} if hostnames else {}
    play.configure(certificates="local")
    play.write("cluster.yaml", node(), service("one", backend_port))
    play.write(
        "gateway.yaml",
        gateway_class(),
        gateway(*listeners, addresses=[{"type": "IPAddress", "value": play.at(9)}]),
        route(rule("/", backends=[backend("one")]), **named),
    )
    play.up()
    return play.at(9)
