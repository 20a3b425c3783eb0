"""Through the API server: which ports of pods are backends by a relay, and which relays a plan has."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.parsing import parse_settings
from locallb.config.settings import SettingsError
from locallb.model.identities import ClusterName, Home
from locallb.model.objects import Via
from locallb.model.reasons import Reason
from locallb.model.relays import RelayedPort, RelayWay, relay_id
from locallb.model.serving import ConnectCheck
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.backends import PortBackends, upstreams
from locallb.planning.endpoints import BackendIndex, eligible
from tests.support.objects import DEMO, JsonObject, endpoint, endpoints, node, parsed, service
from tests.support.strategies import HOME

A = node("a", "172.18.0.2")
RELAY = relay_id(HOME, DEMO)
ALL = RelayWay(RELAY)
UDP: JsonObject = {"ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}]}


def pod(address: str, name: str, *, ready: bool = True) -> JsonObject:
    return {**endpoint(address, "a", ready=ready), "targetRef": {"kind": "Pod", "name": name}}


def found(*objects: JsonObject, way: RelayWay = ALL) -> PortBackends:
    """Find the backends of the one port of the one Service of a cluster with a relay."""
    result = parsed(*objects)
    snapshot = Snapshot(HOME, nodes=result.nodes, slices=result.slices, host=HostFacts(routed=()))
    relays = MappingProxyType({DEMO: way})
    (web,) = result.services
    (entry,) = upstreams(web, BackendIndex.within(snapshot, eligible(result.nodes)[0], relays=relays))
    return entry


def test_pods_are_backends_by_sockets_of_their_own_and_no_node_stands_by() -> None:
    entry = found(service(), A, endpoints(pod("10.244.0.7", "web-1"), pod("10.244.0.8", "web-2")))
    assert (entry.via, entry.health, entry.standby) == (Via.API, ConnectCheck(), ())
    relayed = [backend.relayed for backend in entry.backends]
    assert [str(each.port) for each in relayed if each] == [
        "demo/shop/web:8080 shop/web-1:9376",
        "demo/shop/web:8080 shop/web-2:9376",
    ]
    paths = {each.path for each in relayed if each}
    assert len(paths) == 2
    assert all(path.startswith(f"../../relays/{RELAY}/") and len(path) < 70 for path in paths)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        (
            (service(**UDP), endpoints(pod("10.244.0.7", "dns"), ports=({"port": 5353, "protocol": "UDP"},))),
            "no UDP",
        ),
        ((service(), endpoints(endpoint("192.0.2.7", "a"))), "none of its endpoints is a pod"),
    ],
)
def test_what_the_api_server_reaches_not_has_no_backends(objects: tuple[JsonObject, ...], why: str) -> None:
    entry = found(*objects, A)
    assert entry.backends == ()
    assert entry.problem is not None
    assert entry.problem.reason is Reason.UNREACHABLE
    assert why in entry.problem.message


def auto(*objects: JsonObject, nodes_answer: bool) -> PortBackends:
    """Find the backends of the one port of the one Service where no key asks for the API."""
    way = RelayWay(RELAY, only=False, nodes_answer=nodes_answer, namespaces=frozenset({"shop"}))
    return found(*objects, way=way)


PODS = endpoints(pod("10.244.0.7", "web-1"))
DATAGRAMS = endpoints(pod("10.244.0.7", "dns"), ports=({"port": 53, "protocol": "UDP"},))
LONE: JsonObject = {"ports": [{"port": 8080}]}


@pytest.mark.parametrize(
    ("objects", "nodes_answer", "via"),
    [
        ((service(), PODS), True, Via.NODE_PORTS),
        ((service(), PODS), False, Via.API),
        ((service(**LONE), PODS), True, Via.API),
        ((service(**LONE), PODS), False, Via.API),
        ((service(namespace="other"), {**PODS, "metadata": {**PODS["metadata"], "namespace": "other"}}), False, None),
        ((service(meta={"annotations": {"local-lb.dev/backends": "nodePorts"}}), PODS), False, Via.NODE_PORTS),
        ((service(meta={"annotations": {"local-lb.dev/backends": "pods"}}), PODS), False, Via.PODS),
        ((service(), endpoints(endpoint("192.0.2.7", "a"))), False, Via.NODE_PORTS),
        ((service(**UDP), DATAGRAMS), True, Via.NODE_PORTS),
        (
            (service(**UDP, meta={"annotations": {"local-lb.dev/backends": "nodePorts"}}), DATAGRAMS),
            False,
            Via.NODE_PORTS,
        ),
    ],
    ids=[
        "NodePorts answer",
        "none does",
        "no nodePort",
        "nothing",
        "no right",
        "chosen",
        "pods",
        "no pod",
        "UDP",
        "chosen UDP",
    ],
)
def test_without_a_key_pods_are_reached_by_a_relay_where_nothing_else_serves(
    objects: tuple[JsonObject, ...], *, nodes_answer: bool, via: Via | None
) -> None:
    """Not pods of a namespace for which the right lacks; a choice of the Service's owner counts."""
    entry = auto(*objects, A, nodes_answer=nodes_answer)
    assert entry.via is (via or Via.NODE_PORTS)
    assert entry.backends
    assert all(bool(backend.relayed) is (via is Via.API) for backend in entry.backends)


def test_udp_is_not_sent_to_nodes_that_do_not_answer() -> None:
    """No health check would find out that nothing arrives."""
    entry = auto(service(**UDP), A, DATAGRAMS, nodes_answer=False)
    assert entry.backends == ()
    assert entry.problem is not None
    assert "through the API server only, which forwards no UDP" in entry.problem.message


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)


@given(st.builds(RelayedPort, st.builds("{}/{}:80".format, NAMES, NAMES), NAMES, NAMES, st.integers(1, 65535)))
def test_ports_are_read_as_they_are_printed(port: RelayedPort) -> None:
    assert RelayedPort.parse(str(port)) == port


@pytest.mark.parametrize("text", ["", "web", "a b", "a b/c", "a b/c:d", "a /c:1", "b/c:1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        RelayedPort.parse(text)


def test_relays_of_stacks_and_clusters_differ() -> None:
    homes = HOME, Home("other", *HOME[1:])
    assert len({relay_id(home, ClusterName(name)) for home in homes for name in ("a", "b")}) == 4


def test_containers_have_no_relay() -> None:
    keys = {"sources": [{"manifests": "demo"}], "podRoutes": "api", "runtime": "docker"}
    with pytest.raises(SettingsError, match="api is for proxies that are processes of this host"):
        parse_settings(keys)
