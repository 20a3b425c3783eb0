"""Plans of every shape: runtimes, proxies of their own and shared ones, Gateways, names, routes, rejections."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.gateway_objects import Gateway, Meta, Named
from locallb.model.gateway_of_cluster import ObjectOfCluster, TlsSecret
from locallb.model.identities import ClusterName, Digest, Fingerprint, NodeName, ObjectKey, ProxyName
from locallb.model.objects import Node
from locallb.model.own_classes import KINDS as CLASS_KINDS
from locallb.model.own_classes import ClassFacts
from locallb.model.own_nodes import TAINT
from locallb.model.routes import PodRoute
from locallb.model.snapshot import HeldProxyAssignment, HostFacts, LocalAuthority, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.statuses import withdraw
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, parent, route, service
from tests.support.plan_cases import CASES as GOLDEN
from tests.support.plan_cases import planned
from tests.support.worlds import GATEWAY, PLAIN, SETTINGS, WORLDS

_HTTPS = parse_objects(
    ClusterName("demo"),
    [
        gateway_class(),
        gateway(
            listener(),
            listener("made", 443, "HTTPS", hostname="shop.test", tls={"mode": "Terminate"}),
            listener("given", 8443, "HTTPS", tls={"certificateRefs": [{"name": "cert"}]}),
        ),
        service("api", {"port": 8080, "name": "8080"}),
        route(parentRefs=[parent()], rules=[{"backendRefs": [backend()]}]),
    ],
).gateway_api
_SECRET = ObjectOfCluster(ClusterName("demo"), TlsSecret(Named("shop", "cert"), Digest("ab" * 8)))
_SNAPSHOTS: Mapping[str, Snapshot] = {
    **WORLDS,
    "in manifests": replace(PLAIN, access={}),
    "certificates": replace(
        PLAIN,
        gateway_api=(*_HTTPS, _SECRET),
        authority=LocalAuthority(Fingerprint("ab"), ("test",), 20_000),
    ),
    "a spare for a Gateway": replace(
        PLAIN,
        gateway_api=GATEWAY.gateway_api,
        stack_proxies=(ProxyName("spare-1"),),
        http_proxies=frozenset({ProxyName("spare-1")}),
        assignments=(HeldProxyAssignment(ObjectKey.parse("demo/gateways/shop/web"), ProxyName("spare-1"), whole=True),),
    ),
    "no room": replace(PLAIN, host=HostFacts(watches=1)),
    "classes": replace(
        PLAIN,
        services=(),
        classes={ClusterName("demo"): {kind: ClassFacts() for kind in CLASS_KINDS}},
        gateway_api=(ObjectOfCluster(ClusterName("demo"), Gateway(Meta(Named("shop", "web")), "local-lb")),),
    ),
    "Nodes": replace(
        PLAIN,
        services=(),
        nodes=(Node(ClusterName("demo"), NodeName("a"), uid="1", taints=(TAINT,), provided=(ip_address("10.0.0.2"),)),),
    ),
}
_ZONES = [
    {"zone": "test", "embedded": "172.18.0.1:5300"},
    {
        "zone": "lab.example",
        "rfc2136": {"server": "192.0.2.1:5353", "tsig": "keys/lab.key", "owner": "laptop-1", "takeOver": "laptop-0"},
    },
]
_KEYS: Mapping[str, Mapping[str, Any]] = {
    "docker": {"runtime": "docker"},
    "docker, published": {"runtime": "docker", "network": {"publish": "kind"}, "limits": {"cpus": 0.5}},
    "podman": {"runtime": "podman"},
    "podman, published": {"runtime": "podman", "network": {"publish": "kind"}},
    "podman, shared": {"runtime": "podman", "proxies": {"mode": "shared"}},
    "routes in containers": {"runtime": "docker", "network": {"publish": "kind"}},
    "routes in containers of Podman": {"runtime": "podman", "network": {"publish": "kind"}},
    "initialized": {"nodes": "initialize"},
    "zones": {"dns": {"zones": _ZONES, "clusters": "stub", "template": "{name}.lab.example"}},
}
_ROUTES = (PodRoute(ip_network("10.244.1.0/24"), ip_address("172.18.0.3")),)
_CASES = [
    *((world, name) for world in ("plain", "Gateways") for name in (*SETTINGS, *_KEYS) if name != "initialized"),
    *(("held", name) for name in ("own", "spares", "mapped", "zones")),
    *((world, "own") for world in ("in manifests", "certificates", "a spare for a Gateway", "no room", "classes")),
    ("Nodes", "initialized"),
    ("in manifests", "mapped"),
    ("certificates", "podman"),
    ("a spare for a Gateway", "spares"),
]
CASES = (*GOLDEN, *(f"{world}; {name}" for world, name in _CASES), "withdrawn")
"""Names of plans."""


def plan_of(case: str) -> Plan:
    if case in GOLDEN:
        return planned(case)
    if case == "withdrawn":
        plan = make_plan(WORLDS["Gateways"], SETTINGS["own"])
        return withdraw(plan, {plan.placements[0].proxy})
    world, _, name = case.partition("; ")
    keys = {"sources": [{"kubernetes": {"name": "demo"}}], **_KEYS.get(name, {})}
    plan = make_plan(_SNAPSHOTS[world], SETTINGS.get(name) or parse_settings(keys))
    if "routes in containers" not in name:
        return plan
    return replace(plan, proxies=tuple(replace(planned, routes=_ROUTES) for planned in plan.proxies))
