"""Typed arguments of a program's load balancers: the stack's keys as Python writes them, each possibly an output.

Names are those of the configuration in Python's spelling (`gateway_classes` for `gatewayClasses`); a test compares them
with what the configuration accepts. Not here: what a key means, which docs/configuration.md says, and how its value is
checked (`locallb.config`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal, Required, TypeAlias, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from pulumi import Input, Output

Texts: TypeAlias = Input[Sequence[Input[str]]]
Labels: TypeAlias = Input[Mapping[str, Input[str]]]


class Nodes(TypedDict, total=False):
    """The cluster that runs another one's Nodes as pods."""

    kubeconfig: Input[str]
    context: Input[str]
    namespace: Input[str]


class Cluster(TypedDict, total=False):
    """A running cluster, by a kubeconfig's path."""

    name: Input[str]
    kubeconfig: Input[str]
    context: Input[str]
    pod_cidrs: Texts
    loopback_backends: Input[bool]
    classes: Input[bool]
    nodes: Input[Nodes]


class Shoots(TypedDict, total=False):
    """Shoots of Gardener's local setup."""

    name: Input[str]
    kubeconfig: Input[str]
    context: Input[str]
    shoots: Input[Any]
    classes: Input[bool]


class Source(TypedDict, total=False):
    """Where Services come from: one of `manifests`, `kubernetes`, `kind` and `gardener`."""

    manifests: Input[str]
    name: Input[str]
    kubernetes: Input[Cluster]
    kind: Input[str | Sequence[str]]
    loopback_backends: Input[bool]
    classes: Input[bool]
    gardener: Input[Shoots]


class Pool(TypedDict, total=False):
    """Addresses to hand out."""

    name: Required[Input[str]]
    addresses: Required[Texts]
    exclude: Texts
    priority: Input[int]
    namespaces: Texts
    selector: Labels


class Classes(TypedDict, total=False):
    """Which `spec.loadBalancerClass` is served."""

    default: Input[bool]
    names: Texts


class Services(TypedDict, total=False):
    """Services of other types than LoadBalancer that are served."""

    types: Input[Sequence[Input[Literal["ClusterIP", "NodePort"]]]]
    namespaces: Texts
    selector: Labels


class Ingress(TypedDict, total=False):
    """Which Ingresses are served, and where."""

    class_: Input[str]
    http: Input[int]
    https: Input[int]
    address: Input[Literal["class", "namespace", "ingress"]]
    annotations: Input[Sequence[Input[Literal["nginx", "traefik"]]]]


class Rfc2136(TypedDict, total=False):
    """A name server that takes updates."""

    server: Required[Input[str]]
    tsig: Input[str]
    owner: Input[str]
    take_over: Input[str]


class Zone(TypedDict, total=False):
    """A zone, and the server that answers for it: `embedded` or `rfc2136`."""

    zone: Required[Input[str]]
    embedded: Input[str | bool]
    rfc2136: Input[Rfc2136]


class Dns(TypedDict, total=False):
    """Names of load balancers."""

    zones: Required[Input[Sequence[Input[Zone]]]]
    template: Input[str | Literal[False]]
    ttl: Input[int]
    records: Input[Mapping[str, Texts]]
    in_status: Input[bool]
    short_names: Input[str]
    clusters: Input[Literal["stub"]]


class Policies(TypedDict, total=False):
    """Reasons to refuse a preview and an update."""

    address_changes: Input[Literal["allowed", "forbidden"]]
    source_ranges: Input[Literal["optional", "required"]]
    ports: Input[Sequence[Input[int | str]]]
    headroom: Input[int | str]
    hostnames: Texts
    tls: Input[Literal["optional", "required"]]
    advisory: Input[Sequence[Input[Literal["addressChanges", "sourceRanges", "ports", "headroom", "hostnames", "tls"]]]]


class Image(TypedDict, total=False):
    """The image of proxies in containers."""

    name: Input[str]
    pull_policy: Input[Literal["Always", "IfNotPresent", "Never"]]
    mirror: Input[str]


class Limits(TypedDict, total=False):
    """What a proxy's container may take: MiB, and a number of CPUs."""

    memory: Input[int]
    cpus: Input[int | float | str]


class Network(TypedDict):
    """The network on which containers publish their ports."""

    publish: Input[str]


class Proxies(TypedDict, total=False):
    """How Services share proxies."""

    mode: Input[Literal["per-service", "shared"]]
    count: Input[int]
    spares: Input[int]


class LeaderElection(TypedDict, total=False):
    """The Lease by which several processes elect the one that serves."""

    enabled: Input[bool]
    cluster: Input[str]
    lease: Input[str]
    namespace: Input[str]
    lease_duration: Input[float]
    renew_deadline: Input[float]
    retry_period: Input[float]


class Arguments(TypedDict, total=False):
    """All keys of a stack."""

    sources: Required[Input[Sequence[Input[Source]]]]
    runtime: Input[Literal["process", "docker", "podman"]]
    network: Input[Literal["host", "publish"] | Network]
    port_mapping: Input[Literal["loopback", "off"]]
    pools: Input[Sequence[Input[Pool]]]
    pins: Input[Mapping[str, Texts]]
    classes: Input[Classes]
    namespaces: Texts
    selector: Labels
    services: Input[Services]
    nodes: Input[Literal["leave", "initialize"]]
    pod_routes: Input[Literal["auto", "off", "host", "container", "api"]]
    pod_cidrs: Input[Mapping[str, Texts]]
    backends: Input[Literal["auto", "pods", "nodePorts"]]
    proxies: Input[Literal["per-service", "shared"] | Proxies]
    image: Input[str | Image]
    limits: Input[Limits]
    compat: Input[Literal["gardener"]]
    policies: Input[Policies]
    metrics: Input[str]
    leader_election: Input[LeaderElection]
    take_over: Input[bool]
    ip_mode: Input[Literal["Proxy", "VIP"]]
    status_order: Input[Literal["ipFamilies", "ipv4First"]]
    gateway_classes: Texts
    ingress: Input[Ingress | Literal[False]]
    dns: Input[Dns]
    traffic_details: Input[bool]
    traffic_metrics: Input[bool | int]
    access_logs: Input[bool]
    certificates: Input[Literal["secrets", "local"]]
    http3: Input[bool]
    page: Input[str]
    localhost: Input[bool]


_SPELLED = {"pod_cidrs": "podCIDRs", "class_": "class"}
"""Keys that aren't Python's spelling turned around."""


def key_of(name: str) -> str:
    """Return the key of the configuration that an argument is."""
    first, *rest = name.split("_")
    return _SPELLED.get(name) or first + "".join(word.capitalize() for word in rest)


def configuration(arguments: Mapping[str, object]) -> dict[str, Any]:
    """Return resolved arguments as the configuration has them; names that no argument has are left to its checks."""
    return dict(_converted(arguments, (Arguments,)))


def _converted(value: Any, types: Sequence[Any]) -> Any:  # noqa: ANN401 - a JSON-like value
    """Spell keys of records as the configuration does; those of maps are the user's own."""
    if isinstance(value, Mapping):
        records = [each for each in types if is_typeddict(each)]
        if not records:
            inner = [each for one in types if get_origin(one) is Mapping for each in alternatives(get_args(one)[1])]
            return {name: _converted(item, inner) for name, item in value.items()}
        hints = {name: hint for record in records for name, hint in fields(record).items()}
        by_name = {**{key_of(name): hint for name, hint in hints.items()}, **hints}
        return {
            key_of(name) if name in hints else name: _converted(item, list(alternatives(by_name.get(name))))
            for name, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        inner = [each for one in types if get_origin(one) is Sequence for each in alternatives(get_args(one)[0])]
        return [_converted(item, inner) for item in value]
    return value


def fields(record: Any) -> dict[str, Any]:  # noqa: ANN401 - a type
    """Return the types of a record's fields; the SDK's Input refers to its Output by a name of its own module."""
    return get_type_hints(record, localns={"Output": Output, "T": Any}, include_extras=True)


def alternatives(hint: Any) -> list[Any]:  # noqa: ANN401 - a type
    """Return the types that a value may have, without what only says that it may come later."""
    if hint is None or (origin := get_origin(hint)) in {Output, Awaitable}:
        return []
    if origin in {Mapping, Sequence} or not get_args(hint) or origin is Literal:
        return [hint]
    return [each for one in get_args(hint) for each in alternatives(one)]
