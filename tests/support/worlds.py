"""Whole snapshots and settings in which something may change."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.services import DEFAULT_POOL
from locallb.config.settings import OtherServices, PodRouting, ProxySettings, Settings, Sharing
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.faults import Fault, Order
from locallb.model.identities import (
    ClusterName,
    ContextName,
    Family,
    Home,
    NodeName,
    ObjectKey,
    ObjectKind,
    Owner,
    Protocol,
    ProxyName,
    Uid,
)
from locallb.model.objects import (
    BackendChoice,
    Discovery,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    FamilyPolicy,
    IngressEntry,
    MalformedService,
    Node,
    ProxyProtocol,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from locallb.model.own_classes import ClassFacts, HeldClass
from locallb.model.own_nodes import InitializedNode
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem, Reason
from locallb.model.relays import ForwardingFacts
from locallb.model.routes import Diversion, HostAddresses, HostRoute, PodRoute
from locallb.model.serving import HeapBounds, ProxyTraits
from locallb.model.snapshot import (
    Access,
    Claim,
    Contents,
    HeldProxy,
    HeldProxyAssignment,
    HostFacts,
    LocalAuthority,
    MappedPort,
    Snapshot,
    Socket,
    Subnet,
)
from tests.support.gateway_objects import gateway, gateway_class, route
from tests.support.gateway_objects import service as cluster_ip

C = ClusterName("demo")
HOME = Home("p", "s", "/p")
FIRST, SECOND, FAR, LOOPBACK = (ip_address(text) for text in ("127.77.0.1", "127.77.0.2", "10.9.9.9", "127.0.0.1"))
PODS = ip_network("10.244.1.0/24")
NODE = Node(C, NodeName("worker"), (ip_address("172.18.0.3"),), {"a": "b"}, pod_cidrs=(PODS,))
FAULT = Fault("2999-01-01T00:00:00Z", refuse=100)
BRIDGE = HostRoute(ip_network("172.18.0.0/16"), "unicast", "br-kind")
NEAR = HostRoute(PODS, "unicast", "br-kind", ip_address("172.18.0.3"))
HERE = HostAddresses((AddressRange(ip_address("127.0.0.0"), ip_address("127.255.255.255")),), routes=(BRIDGE, NEAR))
GATEWAY = parse_objects(C, [gateway_class(), gateway(), cluster_ip("api", {"port": 8080, "name": "8080"}), route()])
A, B = (
    Service(
        ObjectKey(C, "shop", name),
        (ServicePort(number, name=str(number), node_port=30000 + number % 1000),),
        created=f"2026-01-0{1 + number % 2}T00:00:00Z",
    )
    for name, number in (("a", 8080), ("b", 8081))
)


def pods(of: ObjectKey, *addresses: str) -> EndpointSlice:
    """Make an EndpointSlice for any of the ports."""
    named = tuple(EndpointPort(9376, name=str(number)) for number in (8080, 8081))
    return EndpointSlice(
        of, Family.IPV4, named, tuple(Endpoint((ip_address(each),), node=NODE.name) for each in addresses)
    )


PLAIN = Snapshot(
    HOME,
    (A, B),
    nodes=(NODE,),
    slices=(pods(A.key, "10.244.1.7"), pods(B.key, "10.244.1.8"), pods(ObjectKey(C, "shop", "api"), "10.244.1.9")),
    access={C: Access("/kubeconfig", ContextName("demo"))},
    host=HostFacts(routes=(BRIDGE, NEAR)),
)
_OWNED = Claim(FIRST, Owner(HOME, A.key)), Claim(SECOND, Owner(Home("p", "t", "/q"), B.key))
FULL = Snapshot(
    HOME,
    (
        replace(
            A,
            uid=Uid("u"),
            families=(Family.IPV6, Family.IPV4),
            family_policy=FamilyPolicy.PREFER_DUAL,
            requested=(SECOND,),
            backends=BackendChoice.PODS,
            fault=FAULT,
            ordered=Order(FAULT),
            name_in_status=True,
            proxy_protocol=ProxyProtocol.V2,
            source_ranges=(ip_network("127.0.0.0/8"),),
            client_ip_affinity=True,
            traffic_policy=TrafficPolicy.LOCAL,
            health_check_node_port=32000,
            labels={"tier": "web"},
            annotations={"external-dns.alpha.kubernetes.io/hostname": "a.test"},
            ingress=(IngressEntry(FAR),),
            was_served=True,
            ports=(ServicePort(8080, name="8080"), ServicePort(53, Protocol.UDP, "dns", 30053)),
        ),
        replace(B, load_balancer_class="x", hostnames=("lb.example.com",), sharing_key="x", created="2025"),
        replace(A, key=ObjectKey(C, "team", "c"), sharing_key="x", deleting=True, ingress=(IngressEntry(FIRST),)),
    ),
    malformed=(MalformedService(ObjectKey(C, "shop", "m"), Problem(Reason.MALFORMED, "odd")),),
    nodes=(
        NODE,
        replace(NODE, name=NodeName("other"), deleting=True, taints=("x",), addresses=(SECOND,), pod_cidrs=()),
    ),
    slices=(replace(pods(A.key, "10.244.1.9", "10.244.1.10"), family=Family.IPV6),),
    claims=(*_OWNED, Claim(LOOPBACK, Owner(HOME, B.key), (MappedPort(8081, Protocol.TCP, 18081),), "odd", unread=True)),
    remembered=_OWNED,
    proxies=(HeldProxy(A.key, Discovery.STATIC, 3, ProxyTraits(patient=True, may_fail=True, heap=HeapBounds(0))),),
    stack_proxies=(ProxyName("spare-1"), ProxyName("shared-1")),
    http_proxies=frozenset({ProxyName("spare-1")}),
    heaps={ProxyName("shared-1"): HeapBounds(0)},
    assignments=(HeldProxyAssignment(B.key, ProxyName("spare-1"), patient=True, whole=True),),
    host=HostFacts(
        1024,
        9,
        (
            Socket(ip_address("0.0.0.0"), 8081, Protocol.TCP),
            Socket(FIRST, 8080, Protocol.TCP, "x", foreign=True, alone=True),
        ),
        HERE,
        (ip_network("172.18.0.0/16"),),
        (BRIDGE,),
        (Diversion(ip_network("10.244.0.0/16"), "table 9", yields=False),),
        "1.40.0",
        1001,
        7,
        may_route=False,
        subnets=(Subnet(ip_network("172.18.0.0/16")),),
    ),
    health_ports={C: frozenset({Family.IPV4})},
    forwarding={C: ForwardingFacts(nodes_answer=False, requested=True, namespaces=frozenset({"shop"}))},
    node_routes={C: (PodRoute(PODS, ip_address("172.18.0.3")),)},
    external_ips=frozenset({FIRST}),
    contents=(Contents(C, {"Service": 2}),),
    gateway_api=GATEWAY.gateway_api,
    overrides={A.key: Order(FAULT), ObjectKey(C, "shop", "api"): Order(drained=frozenset({"worker"}))},
    name_servers=((FIRST, 53),),
    authority=LocalAuthority(),
    hints=("told",),
    classes={C: {ObjectKind.INGRESS_CLASS: ClassFacts()}},
    held_classes=(HeldClass(C, ObjectKind.GATEWAY_CLASS, is_default=False, is_used=True),),
    initialized_nodes=(InitializedNode(C, NodeName("n"), "1", "local-lb://c/n", (), "n"),),
)
"""Another value for each field of everything."""
_PARSED = {
    "sources": [{"manifests": "m", "name": "demo"}],
    "dns": {"zones": [{"zone": "test", "embedded": "127.0.0.77:5300"}], "template": "{name}.test"},
    "pools": [{"name": "p", "addresses": ["127.77.0.0/29"]}],
    "pins": {"shop/b": ["127.77.0.5"]},
}
OWN = Settings((), (DEFAULT_POOL,))
SETTINGS: Mapping[str, Settings] = {
    "own": OWN,
    "shared": replace(OWN, proxies=ProxySettings(Sharing.SHARED)),
    "spares": replace(OWN, proxies=ProxySettings(spares=1), take_over=True),
    "pods": replace(OWN, backends=BackendChoice.PODS, pod_routes=PodRouting.HOST),
    "names": parse_settings(_PARSED),
    "mapped": replace(OWN, port_mapping=True),
    "any": replace(OWN, services=OtherServices(frozenset({ServiceType.CLUSTER_IP}))),
    "narrow": replace(OWN, namespaces=frozenset({"shop"}), selector={"tier": "web"}),
}
WORLDS: Mapping[str, Snapshot] = {
    "plain": PLAIN,
    "Gateways": replace(PLAIN, gateway_api=GATEWAY.gateway_api),
    "held": replace(
        FULL, services=(FULL.services[0], B, FULL.services[2]), host=replace(PLAIN.host, sockets=FULL.host.sockets)
    ),
}
