"""The resources of our provider, for the program.

Made from locallb/provider/schema.json by `python -m locallb.provider.generate`: change that file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, Unpack

import pulumi

_Options = pulumi.ResourceOptions | None


class _Resource(pulumi.CustomResource):
    """A resource of our provider: its inputs, and its outputs, which aren't known yet."""

    def __init__(self, name: str, opts: _Options, inputs: Mapping[str, Any], needed: str) -> None:
        """Raise TypeError for an input that is missing; `needed` are names, by spaces."""
        for key in needed.split():
            if inputs.get(key) is None:
                raise TypeError(f"Missing required property '{key}'")
        properties = {**dict.fromkeys(type(self).__annotations__), **inputs}
        super().__init__(f"locallb:index:{type(self).__name__}", name, properties, opts)


class _LoopbackAddress(TypedDict):
    address: pulumi.Input[str]
    owner: pulumi.Input[Mapping[str, Any]]
    sharing: pulumi.Input[str]


class LoopbackAddress(_Resource):
    """An address of this host, claimed in the ledger that all stacks share. Its id is the address."""

    address: pulumi.Output[str]
    owner: pulumi.Output[Mapping[str, Any]]
    sharing: pulumi.Output[str]
    claim: pulumi.Output[str]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_LoopbackAddress]) -> None:
        super().__init__(resource_name, opts, inputs, "address owner sharing")


class _LoopbackPorts(TypedDict):
    address: pulumi.Input[str]
    owner: pulumi.Input[Mapping[str, Any]]
    ports: pulumi.Input[Sequence[pulumi.Input[str]]]


class LoopbackPorts(_Resource):
    """Ports of a loopback address that all Services share, claimed in the ledger.

    Its id is the address, a slash and the Service.
    """

    address: pulumi.Output[str]
    owner: pulumi.Output[Mapping[str, Any]]
    ports: pulumi.Output[Sequence[str]]
    claim: pulumi.Output[str]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_LoopbackPorts]) -> None:
        super().__init__(resource_name, opts, inputs, "address owner ports")


class _ProxyConfig(TypedDict):
    proxy: pulumi.Input[str]
    name: pulumi.Input[str]
    owner: pulumi.Input[Mapping[str, Any]]
    files: pulumi.Input[Mapping[str, pulumi.Input[str]]]
    versions: pulumi.Input[Mapping[str, Any]]
    shared: pulumi.Input[bool]
    serves: NotRequired[pulumi.Input[str]]


class ProxyConfig(_Resource):
    """The directory of a proxy and Envoy's files in it.

    Its id is the proxy. A running proxy gets changes in an order in which every listener always has its cluster.
    """

    proxy: pulumi.Output[str]
    name: pulumi.Output[str]
    owner: pulumi.Output[Mapping[str, Any]]
    files: pulumi.Output[Mapping[str, str]]
    versions: pulumi.Output[Mapping[str, Any]]
    shared: pulumi.Output[bool]
    serves: pulumi.Output[str]
    directory: pulumi.Output[str]
    bootstrap: pulumi.Output[str]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_ProxyConfig]) -> None:
        super().__init__(resource_name, opts, inputs, "proxy name owner files versions shared")


class _ServedCertificate(TypedDict):
    proxy: pulumi.Input[str]
    name: pulumi.Input[str]
    owner: pulumi.Input[Mapping[str, Any]]
    access: pulumi.Input[Mapping[str, Any]]
    file: pulumi.Input[str]
    namespace: pulumi.Input[str]
    secret: pulumi.Input[str]
    digest: pulumi.Input[str]
    shared: pulumi.Input[bool]
    serves: NotRequired[pulumi.Input[str]]


class ServedCertificate(_Resource):
    """A certificate and its key, from a Secret, in the directory of a proxy: files that only Envoy reads.

    Its id names them. The key is in no state, plan or log.
    """

    proxy: pulumi.Output[str]
    name: pulumi.Output[str]
    owner: pulumi.Output[Mapping[str, Any]]
    access: pulumi.Output[Mapping[str, Any]]
    file: pulumi.Output[str]
    namespace: pulumi.Output[str]
    secret: pulumi.Output[str]
    digest: pulumi.Output[str]
    shared: pulumi.Output[bool]
    serves: pulumi.Output[str]
    chain: pulumi.Output[str]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_ServedCertificate]) -> None:
        super().__init__(resource_name, opts, inputs, "proxy name owner access file namespace secret digest shared")


class _LocalCertificate(TypedDict):
    proxy: pulumi.Input[str]
    name: pulumi.Input[str]
    owner: pulumi.Input[Mapping[str, Any]]
    certificate: pulumi.Input[str]
    hosts: pulumi.Input[Sequence[pulumi.Input[str]]]
    authority: pulumi.Input[str]
    period: pulumi.Input[int]
    shared: pulumi.Input[bool]


class LocalCertificate(_Resource):
    """A certificate of this user's own authority and its key, in the directory of a proxy: files that only Envoy reads.

    Its id names them. The keys of both are in no state, plan or log.
    """

    proxy: pulumi.Output[str]
    name: pulumi.Output[str]
    owner: pulumi.Output[Mapping[str, Any]]
    certificate: pulumi.Output[str]
    hosts: pulumi.Output[Sequence[str]]
    authority: pulumi.Output[str]
    period: pulumi.Output[int]
    shared: pulumi.Output[bool]
    chain: pulumi.Output[str]
    serial: pulumi.Output[str]
    expires: pulumi.Output[str]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_LocalCertificate]) -> None:
        super().__init__(resource_name, opts, inputs, "proxy name owner certificate hosts authority period shared")


class _EnvoyProcess(TypedDict):
    proxy: pulumi.Input[str]
    owner: pulumi.Input[Mapping[str, Any]]
    bootstrap: pulumi.Input[str]
    version: pulumi.Input[str]


class EnvoyProcess(_Resource):
    """An Envoy on this host, in its proxy's directory.

    Its id is the proxy. It keeps running when the process that started it ends. Replaced delete before create.
    """

    proxy: pulumi.Output[str]
    owner: pulumi.Output[Mapping[str, Any]]
    bootstrap: pulumi.Output[str]
    version: pulumi.Output[str]
    pid: pulumi.Output[int]
    started: pulumi.Output[str]
    binary: pulumi.Output[str]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_EnvoyProcess]) -> None:
        super().__init__(resource_name, opts, inputs, "proxy owner bootstrap version")


class _PodmanContainer(TypedDict):
    proxy: pulumi.Input[str]
    owner: pulumi.Input[Mapping[str, Any]]
    bootstrap: pulumi.Input[str]
    name: pulumi.Input[str]
    image: pulumi.Input[str]
    pull: pulumi.Input[str]
    command: pulumi.Input[Sequence[pulumi.Input[str]]]
    user: pulumi.Input[str]
    memory: pulumi.Input[int]
    cpus: pulumi.Input[str]
    network: pulumi.Input[str]
    addresses: pulumi.Input[Sequence[pulumi.Input[str]]]
    ports: pulumi.Input[Sequence[pulumi.Input[str]]]
    labels: pulumi.Input[Mapping[str, pulumi.Input[str]]]


class PodmanContainer(_Resource):
    """A container of Podman that runs a proxy's Envoy.

    Its id is the container. A container that isn't running, or is stopping, counts as deleted; creating it again
    restarts it. Replaced delete before create.
    """

    proxy: pulumi.Output[str]
    owner: pulumi.Output[Mapping[str, Any]]
    bootstrap: pulumi.Output[str]
    name: pulumi.Output[str]
    image: pulumi.Output[str]
    pull: pulumi.Output[str]
    command: pulumi.Output[Sequence[str]]
    user: pulumi.Output[str]
    memory: pulumi.Output[int]
    cpus: pulumi.Output[str]
    network: pulumi.Output[str]
    addresses: pulumi.Output[Sequence[str]]
    ports: pulumi.Output[Sequence[str]]
    labels: pulumi.Output[Mapping[str, str]]
    container: pulumi.Output[str]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_PodmanContainer]) -> None:
        needed = "proxy owner bootstrap name image pull command user memory cpus network addresses ports labels"
        super().__init__(resource_name, opts, inputs, needed)


class _ServiceConfig(TypedDict):
    proxy: pulumi.Input[str]
    part: pulumi.Input[str]
    owner: pulumi.Input[Mapping[str, Any]]
    listeners: pulumi.Input[Mapping[str, pulumi.Input[str]]]
    clusters: pulumi.Input[Mapping[str, pulumi.Input[str]]]


class ServiceConfig(_Resource):
    """A Service's part of the listeners and clusters of a proxy that serves several.

    Its id is the part. Once deleted, the proxy no longer listens there.
    """

    proxy: pulumi.Output[str]
    part: pulumi.Output[str]
    owner: pulumi.Output[Mapping[str, Any]]
    listeners: pulumi.Output[Mapping[str, str]]
    clusters: pulumi.Output[Mapping[str, str]]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_ServiceConfig]) -> None:
        super().__init__(resource_name, opts, inputs, "proxy part owner listeners clusters")


class _Reachable(TypedDict):
    proxy: pulumi.Input[str]
    part: pulumi.Input[str]
    process: pulumi.Input[str]
    listeners: pulumi.Input[Sequence[pulumi.Input[str]]]
    versions: pulumi.Input[Mapping[str, Any]]
    probes: pulumi.Input[Sequence[pulumi.Input[str]]]
    published: pulumi.Input[bool]


class Reachable(_Resource):
    """The proof that a proxy serves: these versions are active and every listener is bound. Its id is the proxy."""

    proxy: pulumi.Output[str]
    part: pulumi.Output[str]
    process: pulumi.Output[str]
    listeners: pulumi.Output[Sequence[str]]
    versions: pulumi.Output[Mapping[str, Any]]
    probes: pulumi.Output[Sequence[str]]
    published: pulumi.Output[bool]
    ports: pulumi.Output[Sequence[Mapping[str, Any]]]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_Reachable]) -> None:
        super().__init__(resource_name, opts, inputs, "proxy part process listeners versions probes published")


class _ServiceClaim(TypedDict):
    access: pulumi.Input[Mapping[str, Any]]
    owner: pulumi.Input[Mapping[str, Any]]


class ServiceClaim(_Resource):
    """The finalizer on a Service of a live cluster.

    It is added before anything is created for the Service and removed after everything is deleted. Its id is the
    Service.
    """

    access: pulumi.Output[Mapping[str, Any]]
    owner: pulumi.Output[Mapping[str, Any]]
    finalizer: pulumi.Output[str]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_ServiceClaim]) -> None:
        super().__init__(resource_name, opts, inputs, "access owner")


class _ServiceStatus(TypedDict):
    access: pulumi.Input[Mapping[str, Any]]
    owner: pulumi.Input[Mapping[str, Any]]
    ingress: pulumi.Input[Sequence[pulumi.Input[Mapping[str, Any]]]]
    conditions: pulumi.Input[Sequence[pulumi.Input[Mapping[str, Any]]]]
    alone: pulumi.Input[bool]


class ServiceStatus(_Resource):
    """Status of a Service of a live cluster: its addresses, ports and conditions.

    Written once they serve, withdrawn before they stop. Its id is the Service.
    """

    access: pulumi.Output[Mapping[str, Any]]
    owner: pulumi.Output[Mapping[str, Any]]
    ingress: pulumi.Output[Sequence[Mapping[str, Any]]]
    conditions: pulumi.Output[Sequence[Mapping[str, Any]]]
    alone: pulumi.Output[bool]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_ServiceStatus]) -> None:
        super().__init__(resource_name, opts, inputs, "access owner ingress conditions alone")


class _GatewayStatus(TypedDict):
    access: pulumi.Input[Mapping[str, Any]]
    owner: pulumi.Input[Mapping[str, Any]]
    status: pulumi.Input[str]
    generation: pulumi.Input[int]


class GatewayStatus(_Resource):
    """Status of a Gateway API object in a live cluster: conditions and, for routes, local-lb's parents.

    Data of other controllers stays; a deleted object is no error. After deletion of this resource, the object waits for
    a controller again. Its id is the object.
    """

    access: pulumi.Output[Mapping[str, Any]]
    owner: pulumi.Output[Mapping[str, Any]]
    status: pulumi.Output[str]
    generation: pulumi.Output[int]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_GatewayStatus]) -> None:
        super().__init__(resource_name, opts, inputs, "access owner status generation")


class _ServiceEvents(TypedDict):
    access: pulumi.Input[Mapping[str, Any]]
    owner: pulumi.Input[Mapping[str, Any]]
    events: pulumi.Input[Sequence[pulumi.Input[Mapping[str, Any]]]]


class ServiceEvents(_Resource):
    """Events of a Service of a live cluster.

    New ones are sent, best effort and with client-go's rate limit; an event that stays is not sent again. Its id is the
    Service.
    """

    access: pulumi.Output[Mapping[str, Any]]
    owner: pulumi.Output[Mapping[str, Any]]
    events: pulumi.Output[Sequence[Mapping[str, Any]]]
    tokens: pulumi.Output[int]
    since: pulumi.Output[int]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_ServiceEvents]) -> None:
        super().__init__(resource_name, opts, inputs, "access owner events")


class _PodRoutes(TypedDict):
    owner: pulumi.Input[Mapping[str, Any]]
    container: pulumi.Input[str]
    routes: pulumi.Input[Sequence[pulumi.Input[str]]]


class PodRoutes(_Resource):
    """Routes to a cluster's pods by its Nodes, in this host's table or in a proxy container's network namespace.

    Other routes are never touched. Its id is the table and the metric.
    """

    owner: pulumi.Output[Mapping[str, Any]]
    container: pulumi.Output[str]
    routes: pulumi.Output[Sequence[str]]
    metric: pulumi.Output[int]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_PodRoutes]) -> None:
        super().__init__(resource_name, opts, inputs, "owner container routes")


class _DnsName(TypedDict):
    owner: pulumi.Input[Mapping[str, Any]]
    zone: pulumi.Input[str]
    name: pulumi.Input[str]
    server: pulumi.Input[str]
    port: pulumi.Input[int]
    tsig: pulumi.Input[str]
    mark: pulumi.Input[str]
    takes: pulumi.Input[str]
    ttl: pulumi.Input[int]
    records: pulumi.Input[Sequence[pulumi.Input[str]]]


class DnsName(_Resource):
    """A name in a zone whose server accepts dynamic updates (RFC 2136), with its ownership records.

    Records without this stack's ownership record are never changed. Its id is the name.
    """

    owner: pulumi.Output[Mapping[str, Any]]
    zone: pulumi.Output[str]
    name: pulumi.Output[str]
    server: pulumi.Output[str]
    port: pulumi.Output[int]
    tsig: pulumi.Output[str]
    mark: pulumi.Output[str]
    takes: pulumi.Output[str]
    marked: pulumi.Output[str]
    ttl: pulumi.Output[int]
    records: pulumi.Output[Sequence[str]]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_DnsName]) -> None:
        super().__init__(resource_name, opts, inputs, "owner zone name server port tsig mark takes ttl records")


class _StubZones(TypedDict):
    owner: pulumi.Input[Mapping[str, Any]]
    access: pulumi.Input[Mapping[str, Any]]
    zones: pulumi.Input[Sequence[pulumi.Input[str]]]


class StubZones(_Resource):
    """The stack's zones in the CoreDNS of a running cluster: a marked block of stub zones.

    Content of others is left alone. Its id is the mark.
    """

    owner: pulumi.Output[Mapping[str, Any]]
    access: pulumi.Output[Mapping[str, Any]]
    zones: pulumi.Output[Sequence[str]]
    config_map: pulumi.Output[str]
    key: pulumi.Output[str]
    block: pulumi.Output[str]

    def __init__(self, resource_name: str, /, *, opts: _Options = None, **inputs: Unpack[_StubZones]) -> None:
        super().__init__(resource_name, opts, inputs, "owner access zones")
