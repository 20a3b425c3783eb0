"""What the stack's own state says that it holds."""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.engine.state.resource import resource_from_json
from locallb.engine.state.stack_state import StackState
from locallb.envoy import render, render_empty
from locallb.envoy.document import text
from locallb.envoy.listeners import listener
from locallb.envoy.overload import MAX_HEAP
from locallb.model.identities import (
    ClusterName,
    Home,
    NodeName,
    ObjectKey,
    ObjectKind,
    Owner,
    Protocol,
    ProxyId,
    ProxyName,
    Uid,
    UpstreamName,
)
from locallb.model.objects import Discovery
from locallb.model.own_classes import HeldClass
from locallb.model.own_nodes import InitializedNode
from locallb.model.serving import HeapBounds, Listener, Proxy, ProxyTraits
from locallb.model.snapshot import Claim, HeldProxy, HeldProxyAssignment
from locallb.model.texts import owner_fields, proxy_owner
from locallb.sources import SourceError
from locallb.sources.held import HeldByState, HeldMemory, held_by, read_resources
from tests.sources.support import key
from tests.support.descriptors import few_files

HOME = Home("local-lb", "dev", "/home/someone/local-lb")
UNBOUNDED = HeapBounds(0, ends_stalled=False)


def owner(name: str) -> Owner:
    """Return the owner of what a Service holds."""
    return Owner(HOME, key(name), Uid(f"uid-{name}"))


def resource(kind: str, inputs: object, outputs: object = None, **more: object) -> Any:  # noqa: ANN401 - JSON
    """Make a resource as the state file has it."""
    urn = f"urn:pulumi:dev::local-lb::locallb:index:{kind}::x"
    return {"urn": urn, "type": f"locallb:index:{kind}", "inputs": inputs, "outputs": outputs, "custom": True, **more}


def address(name: str, text: str, **more: object) -> Any:  # noqa: ANN401 - JSON
    inputs = {"address": text, "owner": owner_fields(owner(name))}
    return resource("LoopbackAddress", inputs, {**inputs, "claim": "x"}, **more)


def config(name: str, *files: str, clusters: int = 1, **more: object) -> Any:  # noqa: ANN401 - JSON
    """Make a ProxyConfig with these files beside bootstrap, LDS and CDS."""
    cds = json.dumps({"version_info": "1", "resources": [{"name": "tcp-80-ipv4"}] * clusters})
    texts = {"bootstrap.json": "{}", "lds.json": "{}", "cds.json": cds, **dict.fromkeys(files, "{}")}
    return resource("ProxyConfig", {"proxy": "0" * 12, "owner": owner_fields(owner(name)), "files": texts}, **more)


def state(tmp_path: Path, *resources: object) -> Path:
    path = tmp_path / "dev.json"
    latest = {"manifest": {"time": "", "magic": "", "version": ""}, "resources": list(resources)}
    path.write_text(json.dumps({"version": 3, "checkpoint": {"stack": "organization/local-lb/dev", "latest": latest}}))
    return path


def held_in(path: Path) -> HeldByState:
    """Return the holdings of a state file."""
    return held_by(read_resources(path))


def test_no_state_holds_nothing(tmp_path: Path) -> None:
    """Before the first update, and after the stack was removed."""
    assert held_in(tmp_path / "dev.json") == HeldByState()
    (tmp_path / "dev.json").write_text('{"version": 3, "checkpoint": {"stack": "x", "latest": null}}')
    assert held_in(tmp_path / "dev.json") == HeldByState()
    assert held_in(state(tmp_path)) == HeldByState()


def test_addresses_proxies_and_processes_are_found(tmp_path: Path) -> None:
    """Sorted, among resources of other kinds."""
    path = state(
        tmp_path,
        {"urn": "urn:pulumi:dev::local-lb::pulumi:pulumi:Stack::s", "type": "pulumi:pulumi:Stack", "custom": False},
        address("web", "127.77.0.9"),
        address("dual", "fd00::5"),
        address("dual", "127.77.0.5"),
        config("web", "eds-tcp-80-ipv4.json"),
        config("dual"),
        resource("EnvoyProcess", {}, {"pid": 4711.0, "started": "x"}),
        resource("EnvoyProcess", {}, {"pid": 815}),
        resource("EnvoyProcess", {}, None),
        resource("Reachable", {"owner": 5}, {}),
    )
    assert held_in(path) == HeldByState(
        remembered=(
            Claim(ip_address("127.77.0.5"), owner("dual")),
            Claim(ip_address("127.77.0.9"), owner("web")),
            Claim(ip_address("fd00::5"), owner("dual")),
        ),
        proxies=(
            HeldProxy(key("dual"), Discovery.STATIC, traits=ProxyTraits(heap=UNBOUNDED, udp_only=False)),
            HeldProxy(key("web"), Discovery.EDS, traits=ProxyTraits(heap=UNBOUNDED, udp_only=False)),
        ),
        pids=(815, 4711),
        runtimes=frozenset({"process"}),
    )


def test_a_proxy_without_upstreams_keeps_no_way(tmp_path: Path) -> None:
    """Nothing shows how it would learn endpoints, so it may choose again."""
    assert held_in(state(tmp_path, config("idle", clusters=0))).proxies == (
        HeldProxy(key("idle"), None, traits=ProxyTraits(heap=UNBOUNDED, udp_only=False)),
    )


def test_seats_at_proxies_of_the_stack_are_held(tmp_path: Path) -> None:
    """A proxy without a Service of its own is the stack's; who has a part in it keeps its place there."""
    its = {"proxy": "1" * 12, "name": "spare-1", "owner": owner_fields(proxy_owner(HOME, ProxyName("spare-1")))}
    spare = resource("ProxyConfig", {**its, "files": {"bootstrap.json": "{}"}})
    part = resource("ServiceConfig", {"proxy": "1" * 12, "owner": owner_fields(owner("web"))})
    lost = resource("ServiceConfig", {"proxy": "2" * 12, "owner": owner_fields(owner("lost"))})
    held = held_in(state(tmp_path, spare, part, lost))
    assert (held.stack_proxies, held.proxies) == (("spare-1",), ())
    assert held.assignments == (HeldProxyAssignment(key("web"), ProxyName("spare-1")),)


@pytest.mark.parametrize(
    ("heap", "held_as"),
    [
        (None, HeapBounds(MAX_HEAP)),
        (HeapBounds(MAX_HEAP), HeapBounds(MAX_HEAP)),
        (HeapBounds(48 << 20), HeapBounds(48 << 20)),
        (HeapBounds(48 << 20, ends_stalled=False), HeapBounds(48 << 20, ends_stalled=False)),
        (HeapBounds(0), UNBOUNDED),
    ],
)
def test_bounds_of_memory_are_known_by_the_bootstrap(
    tmp_path: Path, heap: HeapBounds | None, held_as: HeapBounds
) -> None:
    """A Service's own and the stack's: what an earlier version started, without or with others, is kept."""
    name = ProxyName("spare-1")
    spare = Proxy(name, ProxyId("1" * 12), Discovery.STATIC, heap=heap)
    own = Proxy(ProxyName("web"), ProxyId("2" * 12), Discovery.STATIC, heap=heap)
    resources = [
        resource(
            "ProxyConfig",
            {"proxy": proxy.id, "name": proxy.name, "owner": owner_fields(of), "files": dict(render(proxy).files)},
        )
        for proxy, of in ((spare, proxy_owner(HOME, name)), (own, owner("web")))
    ]
    held = held_in(state(tmp_path, *resources))
    assert held.heaps == {name: held_as}
    assert [proxy.traits.heap for proxy in held.proxies] == [held_as]


@pytest.mark.parametrize("only", [True, False])
def test_whether_a_proxy_serves_udp_alone_is_known_by_the_bootstrap(tmp_path: Path, *, only: bool) -> None:
    """Those of earlier versions, which say nothing of it, may serve anything."""
    proxy = Proxy(ProxyName("web"), ProxyId("2" * 12), Discovery.STATIC, udp_only=only)
    inputs = {"proxy": proxy.id, "name": proxy.name, "owner": owner_fields(owner("web"))}
    [held] = held_in(state(tmp_path, resource("ProxyConfig", {**inputs, "files": dict(render(proxy).files)}))).proxies
    assert held.traits.udp_only is only


@pytest.mark.parametrize("released", ["", "127.77.0.1:55 [fd00::1]:53"])
def test_udp_ports_that_a_proxy_has_or_had_are_held(tmp_path: Path, released: str) -> None:
    """Those that it has by its listeners, the others beside these: both change in the same moment."""
    listeners = [
        Listener(ip_address("127.77.0.1"), port, protocol, UpstreamName("a"), container_port=inside)
        for port, protocol, inside in ((53, Protocol.UDP, 0), (54, Protocol.TCP, 0), (56, Protocol.UDP, 10_056))
    ]
    files = {"lds.json": text({"resources": [listener(each) for each in listeners]})}
    inputs = {"proxy": "0" * 12, "owner": owner_fields(owner("web")), "files": files}
    more = {"released": released} if released else {}
    [held] = held_in(state(tmp_path, resource("ProxyConfig", {**inputs, **more}))).proxies
    assert held.traits.datagrams == {"127.77.0.1:53", *released.split()}


@pytest.mark.parametrize("may_serve_http", [True, False])
def test_a_spare_says_what_it_can_serve_and_whom_it_serves_whole(tmp_path: Path, *, may_serve_http: bool) -> None:
    """By its bootstrap, as one of an earlier version lacks what HTTP needs, and by a Gateway's key."""
    name, gateway = ProxyName("spare-1"), _gateway(key("web"))
    empty = Proxy(name, ProxyId("1" * 12), Discovery.STATIC, may_serve_http=may_serve_http)
    its = {"proxy": empty.id, "name": name, "owner": owner_fields(proxy_owner(HOME, name))}
    waiting = held_in(state(tmp_path, resource("ProxyConfig", {**its, "files": dict(render_empty(empty).files)})))
    assert (waiting.stack_proxies, waiting.proxies, waiting.assignments) == ((name,), (), ())
    assert waiting.http_proxies == ({name} if may_serve_http else set())
    files = {**render_empty(empty).files, "eds-a.json": "{}", "eds-b.json": "{}"}
    claimed = held_in(state(tmp_path, resource("ProxyConfig", {**its, "files": files, "serves": str(gateway)})))
    assert claimed.proxies == (
        HeldProxy(gateway, Discovery.EDS, 2, ProxyTraits(heap=HeapBounds(MAX_HEAP), udp_only=False)),
    )
    assert claimed.assignments == (HeldProxyAssignment(gateway, name, whole=True),)
    assert claimed.stack_proxies == (name,)


def test_a_spare_whose_files_were_lost_when_it_was_refreshed_is_what_spares_are_now(tmp_path: Path) -> None:
    """A refresh takes over that there are none; another bootstrap than it was started with would end whom it serves."""
    name = ProxyName("spare-1")
    its = {"proxy": "1" * 12, "name": name, "owner": owner_fields(proxy_owner(HOME, name)), "files": {}}
    assert held_in(state(tmp_path, resource("ProxyConfig", its))).http_proxies == {name}


def _gateway(service: ObjectKey) -> ObjectKey:
    return service._replace(kind=ObjectKind.GATEWAY)


@pytest.mark.parametrize("patient", [True, False])
def test_listeners_that_serve_say_whether_they_hold_clients(tmp_path: Path, *, patient: bool) -> None:
    """As Envoy's own words have it, of a Service's own proxy and of its part in one of the stack's."""
    made = Listener(ip_address("127.77.0.1"), 80, Protocol.TCP, UpstreamName("tcp-80-ipv4"), patient=patient)
    files = {"lds.json": text({"resources": [listener(made)]})}
    config_of_web = resource("ProxyConfig", {"proxy": "0" * 12, "owner": owner_fields(owner("web")), "files": files})
    own = held_in(state(tmp_path, config_of_web))
    assert own.proxies == (HeldProxy(key("web"), None, traits=ProxyTraits(patient=patient)),)
    its = {"proxy": "1" * 12, "name": "spare-1", "owner": owner_fields(proxy_owner(HOME, ProxyName("spare-1")))}
    spare = resource("ProxyConfig", {**its, "files": {}})
    listeners = {"listeners": {made.name: text(listener(made))}}
    part = resource("ServiceConfig", {"proxy": "1" * 12, "owner": owner_fields(owner("web")), **listeners})
    (assignment,) = held_in(state(tmp_path, spare, part)).assignments
    assert assignment.patient is patient


def test_old_instances_hold_nothing_but_their_process(tmp_path: Path) -> None:
    """They wait for their deletion; a process of ours is ours until it is gone."""
    old = [
        address("web", "127.77.0.9", delete=True),
        config("web", delete=True),
        resource("EnvoyProcess", {}, {"pid": 7}, delete=True),
    ]
    assert held_in(state(tmp_path, *old)) == HeldByState(pids=(7,), runtimes=frozenset({"process"}))


RESOURCES = [
    address("web", "127.77.0.9"),
    address("other", "127.77.0.1"),
    address("other", "fd00::5"),
    config("web", "eds-tcp-80-ipv4.json"),
    config("other"),
    config("idle", clusters=0),
    resource(
        "ProxyConfig",
        {"proxy": "1" * 12, "name": "s", "owner": owner_fields(proxy_owner(HOME, ProxyName("s"))), "files": {}},
    ),
    resource("ServiceConfig", {"proxy": "1" * 12, "owner": owner_fields(owner("web"))}),
    resource("EnvoyProcess", {}, {"pid": 7}),
    resource("EnvoyProcess", {}, {"pid": 9.0}),
    resource("EnvoyProcess", {}, {}),
    resource("Reachable", {"proxy": "1" * 12}, {}),
]


@st.composite
def states(draw: st.DrawFn) -> list[Any]:
    """Make the resources of a state in any order: some live, some left to be deleted or to be created again."""
    some = draw(st.lists(st.sampled_from(RESOURCES), max_size=8))
    marks = st.sampled_from([{}, {"delete": True}, {"pendingReplacement": True}])
    return [
        {**resource, "urn": f"{resource['urn']}-{number}", "id": "x", **draw(marks)}
        for number, resource in enumerate(some)
    ]


@given(states())
def test_the_program_and_the_loop_read_the_same_from_a_state(resources: list[Any]) -> None:
    """One reads the file, the other what the engine has in memory: from the same world they plan the same."""
    with TemporaryDirectory() as directory:
        in_file = held_in(state(Path(directory), *resources))
    in_memory = StackState([resource_from_json(resource) for resource in resources], [])
    assert held_by(in_memory.in_order(), HeldMemory()) == in_file


@given(states(), st.lists(st.sets(st.integers(0, 5)), max_size=4))
def test_with_a_memory_the_same_is_held(resources: list[Any], history: list[set[int]]) -> None:
    """Whatever resources come and go between two readings."""
    every, existing = [resource_from_json(resource) for resource in resources], HeldMemory()
    for removed in history:
        some = [resource for number, resource in enumerate(every) if number not in removed]
        assert held_by(some, existing) == held_by(some, HeldMemory())


WRONG = [
    resource("LoopbackAddress", {"address": "127.77.0.900", "owner": owner_fields(owner("web"))}),
    resource("LoopbackAddress", {"address": "127.77.0.9", "owner": {"project": "x"}}),
    resource("LoopbackAddress", {"address": "127.77.0.9"}),
    resource("LoopbackAddress", []),
    resource("ProxyConfig", {"owner": owner_fields(owner("web")), "files": {"cds.json": "{"}}),
    resource("ProxyConfig", {"owner": owner_fields(owner("web"))}),
    resource("EnvoyProcess", {}, {"pid": "4711"}),
    resource("EnvoyProcess", {}, {"pid": -1}),
    {"urn": "x"},
    "x",
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_state_that_isnt_as_we_write_it_stops_the_run(tmp_path: Path, wrong: object) -> None:
    """Otherwise addresses would move."""
    path = state(tmp_path, wrong)
    with pytest.raises(SourceError) as caught:
        held_in(path)
    assert str(caught.value).endswith("; run `locallb state restore` to go back to the last good state")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "5", '{"checkpoint": 5}', '{"checkpoint": {"latest": 5}}'])
def test_a_broken_state_file_stops_the_run(tmp_path: Path, text: str) -> None:
    """With the way back."""
    path = tmp_path / "dev.json"
    path.write_text(text)
    with pytest.raises(SourceError, match="isn't what Pulumi writes; run `locallb state restore"):
        held_in(path)


def test_a_state_file_that_cannot_be_read_stops_the_run(tmp_path: Path) -> None:
    """A directory in its place, or no descriptor left: with what helps there."""
    with pytest.raises(SourceError, match=r"the stack's state can't be read: .*: Is a directory$"):
        held_in(tmp_path)
    (tmp_path / "dev.json").touch()
    with (
        few_files(0),
        pytest.raises(SourceError, match=r"the stack's state can't be read: .*; raise the limit of"),
    ):
        held_in(tmp_path / "dev.json")


def test_services_of_different_clusters_are_distinguished(tmp_path: Path) -> None:
    """The key has the cluster."""
    (claim,) = held_in(state(tmp_path, address("web", "127.77.0.9"))).remembered
    assert claim.owner.service == ObjectKey(key("web").cluster, "shop", "web")


def test_classes_in_clusters_are_held(tmp_path: Path) -> None:
    """With what they have, by cluster and kind."""
    fields = {"cluster": "c", "controller": "x", "label": "local-lb-0", "owner": owner_fields(owner("c/class"))}
    default = {**fields, "kind": "ingressclasses", "default": True, "used": False}
    used = {**fields, "kind": "gatewayclasses", "default": False, "used": True}
    path = state(tmp_path, resource("OwnClass", default), resource("OwnClass", used))
    assert held_in(path).classes == (
        HeldClass(ClusterName("c"), ObjectKind.GATEWAY_CLASS, is_default=False, is_used=True),
        HeldClass(ClusterName("c"), ObjectKind.INGRESS_CLASS, is_default=True, is_used=False),
    )


def test_initialized_nodes_are_held(tmp_path: Path) -> None:
    """With what they got; one of an unknown form is an error as any other."""
    fields = {"cluster": "c", "node": "n", "uid": "1", "provider": "local-lb://c/n", "hostname": "n"}
    nodes = [resource("InitializedNode", {**fields, "addresses": each}) for each in (["10.0.0.2", "fd00::2"], "x")]
    addresses = (ip_address("10.0.0.2"), ip_address("fd00::2"))
    wanted = InitializedNode(ClusterName("c"), NodeName("n"), "1", "local-lb://c/n", addresses, "n")
    assert held_in(state(tmp_path, nodes[0])).nodes == (wanted,)
    with pytest.raises(SourceError):
        held_in(state(tmp_path, nodes[1]))
