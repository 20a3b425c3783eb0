"""Typed properties of our resources, for the provider.

Made from locallb/provider/schema.json by `python -m locallb.provider.generate`: change that file.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from locallb.model.identities import (
    ContainerId,
    Digest,
    Fingerprint,
    ImageName,
    Owner,
    OwnerId,
    PartId,
    ProxyId,
    ProxyName,
    SharingKey,
    ZoneName,
)
from locallb.model.reasons import Condition, Event, Ingress
from locallb.model.snapshot import Access


class Versions(Struct, frozen=True):
    """Versions of a proxy's configuration, as in the `version_info` of its files."""

    lds: str
    """Version of the listeners."""
    cds: str
    """Version of the clusters."""


class ListenerState(Struct, frozen=True):
    """State of a listener in a proxy."""

    listener: str
    """Name, `<address>:<port>/<protocol>`."""
    state: str
    """`serving` or `failed`."""
    reason: str
    """Reason of the failure; empty while it serves."""


class LoopbackAddressInputs(Struct, frozen=True):
    address: str
    """IPv4 or IPv6 address. A change replaces the claim, new before old."""
    owner: Owner
    """Owner of the claim.

    A new owner takes it over in one step, but never from a project that still exists elsewhere.
    """
    sharing: SharingKey
    """Sharing key of the Service: other Services of this stack with a sharing key may hold the address too.

    Empty: no other may.
    """


class LoopbackAddressState(LoopbackAddressInputs, frozen=True):
    claim: str
    """Path of the ledger with the claim."""


class LoopbackPortsInputs(Struct, frozen=True):
    address: str
    """Loopback address. A change replaces the claim, new before old."""
    owner: Owner
    """Owner of the claims.

    A new owner takes them over in one step, but never from a project that still exists elsewhere.
    """
    ports: tuple[str, ...]
    """`<port>/<protocol>=<number>` each: a port of the Service, and the port for clients.

    Changes are claimed in one step.
    """


class LoopbackPortsState(LoopbackPortsInputs, frozen=True):
    claim: str
    """Path of the ledger with the claim."""


class ProxyConfigInputs(Struct, frozen=True, kw_only=True):
    proxy: ProxyId
    """Id of the proxy: twelve hex digits, the name of its directory. A change replaces the resource."""
    name: ProxyName
    """Readable name of the proxy."""
    owner: Owner
    """Owner of the proxy."""
    files: Mapping[str, str]
    """Text by file name: bootstrap.json, lds.json, cds.json, one eds-<upstream>.json per upstream.

    HTTP listeners refer to rds-*.json and sds-*.json. Only the bootstrap if parts contain the rest.
    """
    versions: Versions
    """Versions in lds.json and cds.json."""
    shared: bool
    """Whether this user's group may use the directory too, for a container."""
    serves: str = ""
    """Key of the only Gateway, or the only Ingresses, that a proxy of the stack serves; optional."""
    released: str = ""
    """Places of UDP listeners that the proxy had since it was started and has no more, separated by spaces; optional.

    Only kept here, with the listeners: its process releases those that its Service gives up.
    """


class ProxyConfigState(ProxyConfigInputs, frozen=True, kw_only=True):
    directory: str
    """Path of the proxy's directory."""
    bootstrap: Digest
    """sha256 (hex) of bootstrap.json."""


class ServedCertificateInputs(Struct, frozen=True, kw_only=True):
    proxy: ProxyId
    """Id of the proxy. A change replaces the resource."""
    name: ProxyName
    """Readable name of the proxy."""
    owner: Owner
    """Owner of the proxy."""
    access: Access
    """Cluster of the Secret; both fields are empty if a file of manifests has it."""
    file: str
    """Path of the file of manifests with the Secret; empty for a live cluster. A change replaces the resource."""
    namespace: str
    """Namespace of the Secret. A change replaces the resource."""
    secret: str
    """Name of the Secret. A change replaces the resource."""
    digest: Digest
    """Digest (hex) of the Secret's content.

    A change replaces the resource, new before old: both exist until nothing refers to the old one.
    """
    shared: bool
    """Whether this user's group may read the files too, for a container."""
    serves: str = ""
    """Key of the only object that a proxy of the stack serves; optional.

    One of another cluster replaces the resource.
    """


class ServedCertificateState(ServedCertificateInputs, frozen=True, kw_only=True):
    chain: str
    """Name of the certificate's file."""


class LocalCertificateInputs(Struct, frozen=True):
    proxy: ProxyId
    """Id of the proxy. A change replaces the resource."""
    name: ProxyName
    """Readable name of the proxy."""
    owner: Owner
    """Owner of the proxy."""
    certificate: str
    """Name of the certificate, unique for the proxy. A change replaces the resource."""
    hosts: tuple[str, ...]
    """Hostnames and IP addresses in it. A change replaces the resource."""
    authority: Fingerprint
    """Fingerprint (sha256, hex) of the authority; empty if it doesn't exist yet. A change replaces the resource."""
    period: int
    """Number of the period of 30 days that it is for.

    A change replaces the resource, new before old: both exist until nothing refers to the old one.
    """
    shared: bool
    """Whether this user's group may read the files too, for a container."""


class LocalCertificateState(LocalCertificateInputs, frozen=True):
    chain: str
    """Name of the certificate's file."""
    serial: str
    """Serial number (hex) of the certificate."""
    expires: str
    """Expiry time (RFC 3339)."""


class EnvoyProcessInputs(Struct, frozen=True, kw_only=True):
    proxy: ProxyId
    """Id of the proxy. A change replaces the process."""
    owner: Owner
    """Owner of the proxy."""
    bootstrap: Digest
    """sha256 (hex) of its bootstrap.json. A change replaces the process."""
    version: str
    """Version of Envoy. A process of the new version takes over from the old one."""
    released: str = ""
    """Places of UDP listeners that it has given up since it was started, separated by spaces; optional.

    As Envoy keeps their sockets, a process of the same version takes over from it for a new one, once no client uses
    it.
    """


class EnvoyProcessState(EnvoyProcessInputs, frozen=True, kw_only=True):
    pid: int
    """Process id."""
    started: str
    """Boot and clock tick of its start, to recognize a reused pid."""
    binary: str
    """Path of the program."""


class PodmanContainerInputs(Struct, frozen=True):
    proxy: ProxyId
    """Id of the proxy. A change replaces the container."""
    owner: Owner
    """Owner of the proxy, also in labels of the container."""
    bootstrap: Digest
    """sha256 (hex) of its bootstrap.json. A change replaces the container."""
    name: str
    """Name of the container."""
    image: ImageName
    """Image. A change replaces the container."""
    pull: str
    """When the image is pulled: `Always`, `IfNotPresent` or `Never`."""
    command: tuple[str, ...]
    """Arguments of the image's program."""
    user: str
    """User and group in the container."""
    memory: int
    """Limit in MiB, also for memory and swap together."""
    cpus: str
    """Limit of CPUs, a decimal number; empty for none."""
    network: str
    """Podman's network on which `ports` are published; empty for the host's own."""
    addresses: tuple[str, ...]
    """Its fixed addresses on that network."""
    ports: tuple[str, ...]
    """Published ports, `<address>:<port>/<protocol> <port inside>`."""
    labels: Mapping[str, str]
    """Labels in addition to those of every local-lb container."""


class PodmanContainerState(PodmanContainerInputs, frozen=True):
    container: ContainerId
    """Id of the container."""


class ServiceConfigInputs(Struct, frozen=True):
    proxy: ProxyId
    """Id of the proxy. A change replaces the part, old before new, because both need the same addresses."""
    part: PartId
    """Id of the part: twelve hex digits, one per Service. A change replaces the resource."""
    owner: Owner
    """The Service."""
    listeners: Mapping[str, str]
    """Envoy listeners by name, as canonical JSON with their tag."""
    clusters: Mapping[str, str]
    """Envoy clusters by name, as canonical JSON with their tag."""


class ServiceConfigState(ServiceConfigInputs, frozen=True):
    pass


class ReachableInputs(Struct, frozen=True, kw_only=True):
    proxy: ProxyId
    """Id of the proxy. A change replaces the proof."""
    part: PartId
    """Id of the part to be proven; empty for a whole proxy. A change replaces the proof."""
    process: str
    """Run of the proxy's process. A new run needs a new proof."""
    listeners: tuple[str, ...]
    """Names of the listeners that must be bound."""
    versions: Versions
    """Versions that must be active: of the proxy's files or, for a part, of its listeners and clusters."""
    probes: tuple[str, ...]
    """Each `<address>:<port>` that must accept one TCP connection when it is first published."""
    published: bool
    """Whether Docker publishes the listeners' ports: connections to them must arrive at the proxy."""
    upstreams: tuple[str, ...] = ()
    """Upstreams of which a backend is to take connections.

    Places follow the name, and are tried, where a Node answers the checks. Optional; a change alone proves nothing
    again.
    """


class ReachableState(ReachableInputs, frozen=True, kw_only=True):
    waiting: str
    """Why it isn't known yet that a backend of each upstream takes connections; empty once it is."""
    ports: tuple[ListenerState, ...]
    """Observed state of each listener."""


class ServiceClaimInputs(Struct, frozen=True):
    access: Access
    """Cluster of the Service."""
    owner: Owner
    """The Service, including its uid: the same name with another uid is another Service."""


class ServiceClaimState(ServiceClaimInputs, frozen=True):
    finalizer: str
    """The finalizer."""


class ServiceStatusInputs(Struct, frozen=True, kw_only=True):
    access: Access
    """Cluster of the Service."""
    owner: Owner
    """The Service, including its uid: the same name with another uid is another Service."""
    ingress: tuple[Ingress, ...]
    """local-lb's entries; those of other controllers stay."""
    conditions: tuple[Condition, ...]
    """local-lb's conditions; those of other controllers stay."""
    alone: bool
    """Whether entries of other controllers are removed."""
    waiting: str = ""
    """Why it isn't known yet that it serves, which the condition `Serving` says instead of True; optional."""


class ServiceStatusState(ServiceStatusInputs, frozen=True, kw_only=True):
    pass


class GatewayStatusInputs(Struct, frozen=True):
    access: Access
    """Cluster of the object."""
    owner: Owner
    """The object, including its kind and uid: the same name with another uid is another object."""
    status: str
    """local-lb's part of its status, as JSON, without times and generations."""
    generation: int
    """Generation of the object that the status is for."""


class GatewayStatusState(GatewayStatusInputs, frozen=True):
    pass


class ServiceEventsInputs(Struct, frozen=True, kw_only=True):
    access: Access
    """Cluster of the Service."""
    owner: Owner
    """The Service, including its uid: the same name with another uid is another Service."""
    events: tuple[Event, ...]
    """Events for the current situation."""
    waiting: str = ""
    """Why it isn't known yet that it serves, which is no news until it is; optional."""


class ServiceEventsState(ServiceEventsInputs, frozen=True, kw_only=True):
    tokens: int
    """Number of events that may now be sent at once."""
    since: int
    """Time in Unix seconds from which this number grows again."""


class PodRoutesInputs(Struct, frozen=True):
    owner: Owner
    """Owner of the routes. A change replaces them."""
    container: str
    """Id of the container in whose network namespace they are, with the prefix `podman:` if it is Podman's.

    Empty: this host's own table. A change replaces them.
    """
    routes: tuple[str, ...]
    """Each as `ip route` writes it, such as `10.244.1.0/24 via 172.18.0.3`."""


class PodRoutesState(PodRoutesInputs, frozen=True):
    metric: int
    """Their metric, which together with protocol 78 distinguishes them from all other routes."""


class DnsNameInputs(Struct, frozen=True, kw_only=True):
    owner: Owner
    """Owner of the name."""
    zone: ZoneName
    """The zone. A change replaces the name."""
    name: str
    """The name, without the final dot. A change replaces the resource."""
    server: str
    """Address of the zone's server. A change replaces the name."""
    port: int
    """Its port. A change replaces the name."""
    tsig: str
    """Path of the file with the key for updates, relative to the project; empty for none. The key is in no state."""
    mark: OwnerId
    """The owner in its ownership records; empty for the stack's own id."""
    takes: OwnerId
    """The owner whose records of this name are taken over; empty for none."""
    ttl: int
    """Seconds for which an answer may be cached."""
    records: tuple[str, ...]
    """Types and values, such as `A 127.77.0.5`, sorted."""
    provider: str = ""
    """The DNS provider; absent for `rfc2136`. A change replaces the name."""
    options: tuple[str, ...] = ()
    """Values of its own keys, such as `api=http://127.0.0.1:8081`."""
    place: str = ""
    """Where the provider writes, by its own keys; absent where it writes to the server. A change replaces the name."""


class DnsNameState(DnsNameInputs, frozen=True, kw_only=True):
    marked: OwnerId
    """The owner that its ownership records actually have."""


class StubZonesInputs(Struct, frozen=True):
    owner: Owner
    """Owner of the block. A change replaces it."""
    access: Access
    """Access to the cluster's API. A change replaces the block."""
    zones: tuple[str, ...]
    """Zones with their servers, such as `test 172.18.0.1:5300`, sorted."""


class StubZonesState(StubZonesInputs, frozen=True):
    config_map: str
    """The ConfigMap of kube-system with the block."""
    key: str
    """The key of its data with the block."""
    block: str
    """The block, with its marks."""


class OwnClassInputs(Struct, frozen=True):
    owner: Owner
    """Owner of the class. A change replaces it."""
    access: Access
    """Access to the cluster's API. A change replaces the class."""
    cluster: str
    """Name of the cluster in the stack. A change replaces the class."""
    kind: str
    """`gatewayclasses` or `ingressclasses`. A change replaces the class."""
    label: OwnerId
    """Value of the label `local-lb.dev/owner`. A change replaces the class."""
    controller: str
    """Name of the controller in its spec."""
    default: bool
    """Whether it is the default IngressClass."""
    used: bool
    """Whether a Gateway names it: then it has Gateway API's finalizer."""


class OwnClassState(OwnClassInputs, frozen=True):
    pass


class InitializedNodeInputs(Struct, frozen=True):
    owner: Owner
    """Owner of the resource. A change replaces it."""
    access: Access
    """Access to the cluster's API. A change replaces the resource."""
    cluster: str
    """Name of the cluster in the stack. A change replaces the resource."""
    node: str
    """Name of the Node. A change replaces the resource."""
    uid: str
    """UID of the Node. A change replaces the resource."""
    provider: str
    """Its providerID."""
    addresses: tuple[str, ...]
    """InternalIPs that it has at least."""
    hostname: str
    """Its address of type Hostname, where it has none."""


class InitializedNodeState(InitializedNodeInputs, frozen=True):
    pass


class ApiRelayInputs(Struct, frozen=True):
    relay: str
    """Id of the relay, the name of its directory. A change replaces it."""
    owner: Owner
    """Owner of the relay. A change replaces it."""
    access: Access
    """Access to the cluster's API."""
    version: str
    """Version of its program. A process of another one ends before the new one starts."""
    ports: tuple[str, ...]
    """Each as the port of a Service and that of a pod, such as `demo/shop/web:80 shop/web-1:8080`."""


class ApiRelayState(ApiRelayInputs, frozen=True):
    pid: int
    """Process id."""
    started: str
    """Boot and clock tick of its start, to recognize a reused pid."""
