"""Gateways with hostnames in a real cluster, at ports of 127.0.0.1 (`portMapping`): as their users find them."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from lightkube import Client

from locallb.gateway.kinds import KINDS
from tests.support.cluster_gateways import CRD, definition, is_created, owner, status_of
from tests.support.control_plane import Objects
from tests.support.dns_questions import addresses, named
from tests.support.gateway_clients import answering, get
from tests.support.gateway_objects import JsonObject, api_object, gateway, gateway_class, listener, rule
from tests.support.manifests import port, service
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

__all__ = ["owner"]

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
LOCALHOST = "127.0.0.1"


@pytest.fixture
def free() -> int:
    """Return a port that nobody has on this host, above what mapping uses."""
    for number in range(57_000 + os.getpid() % 4_000, 61_000):
        with socket.socket() as probe:
            if probe.connect_ex((LOCALHOST, number)):
                return number
    raise AssertionError("no port is free")


def of_host(name: str, number: int) -> Iterator[JsonObject]:
    """Make a Gateway for one hostname, and a route to the Service of its name; /old leads to the Gateway itself."""
    host = f"{name}.test"
    yield gateway(listener("http", number, hostname=host), name=name, metadata={"namespace": "n"})
    itself = [{"type": "RequestRedirect", "requestRedirect": {"hostname": host, "port": number}}]
    rules = [rule("/", backends=[{"name": name, "port": 8080}]), rule("/old", backends=[], filters=itself)]
    spec = {"parentRefs": [{"name": name}], "rules": rules}
    yield api_object("HTTPRoute", name, namespace="n", spec=spec)


def redirected(number: int, host: str) -> str:
    connection = http.client.HTTPConnection(LOCALHOST, number, timeout=5)
    try:
        connection.request("GET", "/old", headers={"host": host})
        return connection.getresponse().headers["location"]
    finally:
        connection.close()


def test_gateways_of_one_port_are_found_by_name_and_have_their_port_in_the_status(
    cluster: Objects, owner: Client, play: Stage, free: int
) -> None:
    """Names, redirects, the table, and the status of each listener say where clients find them."""
    server = named(play)
    zones = [{"zone": "test", "embedded": f"{server[0]}:{server[1]}"}]
    play.configure(sources=[cluster.plane.source], portMapping="loopback", dns={"zones": zones})
    for kind in KINDS.values():
        owner.create(CRD.from_dict(definition(kind)))
    with ExitStack() as stack:
        for name in ("one", "two"):
            spec = {"type": "NodePort", "ports": [port(8080, 0)]}
            made = cluster.service({**service(name), "spec": spec})
            stack.enter_context(answering(name, port=made["spec"]["ports"][0]["nodePort"]))
        watch = stack.enter_context(watching(play, "--plain"))
        classes = {**gateway_class(), "metadata": {"name": "local"}}
        for document in (classes, *of_host("one", free), *of_host("two", free)):
            eventually(partial(is_created, owner, document), watch)
        eventually(lambda: len(numbers(play)) == 2, watch)
        found = numbers(play)
        assert sorted(number == free for number in found.values()) == [False, True]
        for name, number in found.items():
            host = f"{name}.test"
            eventually(partial(_answers, host, number, name), watch)
            eventually(partial(programmed, owner, name), watch)
            assert addresses(server, host) == [LOCALHOST]
            assert redirected(number, f"{host}:{number}") == f"http://{host}:{number}/old"
            assert programmed(owner, name) == f"{LOCALHOST}:{number}"
            label = f"{free}/TCP" if number == free else f"{free}/TCP={number}"
            assert f"  {label}  serving" in play.run("status", f"gateways/n/{name}").out


def _answers(host: str, number: int, name: str) -> bool:
    return get(LOCALHOST, "/", host, number)[1].startswith(name)


def numbers(play: Stage) -> dict[str, int]:
    """Return where each Gateway that serves is found."""
    rows = play.run("status", "--json").json
    return {
        row["name"]: row["ports"][0]["mapped"]
        for row in rows
        if row["kind"] == "gateways" and row["state"] == "serving"
    }


def programmed(owner: Client, name: str) -> str:
    """Return what the listener of a Gateway is told of being served."""
    (reported,) = status_of(owner, "Gateway", name)["listeners"]
    return next(str(each["message"]) for each in reported["conditions"] if each["type"] == "Programmed")
