"""Typed properties of our resources, for the provider.

Made from locallb/provider/schema.json by `python -m locallb.provider.generate`: change that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from locallb.model.identities import Owner, PartId, ProxyId, ProxyName
from locallb.model.snapshot import Access
from locallb.model.status_entries import Condition, Event, Ingress


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of a proxy's configuration, as in the `version_info` of its files."""

    lds: str
    """Version of the listeners."""
    cds: str
    """Version of the clusters."""


@dataclass(frozen=True, slots=True)
class ListenerState:
    """What a proxy makes of a listener."""

    listener: str
    """Name, `<address>:<port>/<protocol>`."""
    state: str
    """`serving` or `failed`."""
    reason: str
    """Why it failed; empty while it serves."""


@dataclass(frozen=True, slots=True)
class LoopbackAddressInputs:
    """What a program says of its `LoopbackAddress`."""

    address: str
    """IPv4 or IPv6 address. Another one replaces the claim, new before old."""
    owner: Owner
    """Who claims it. Another one takes over in one step, but never from a project that still exists elsewhere."""
    sharing: str
    """Sharing key of the Service: others of this stack that have one may hold the address, too.

    Empty: nobody else may.
    """


@dataclass(frozen=True, slots=True)
class LoopbackAddressState(LoopbackAddressInputs):
    """What is known of one `LoopbackAddress`: its inputs and its outputs."""

    claim: str
    """Path of the ledger that has the claim."""


@dataclass(frozen=True, slots=True)
class LoopbackPortsInputs:
    """What a program says of its `LoopbackPorts`."""

    address: str
    """Loopback address. Another one replaces the claim, new before old."""
    owner: Owner
    """Who claims them. Another one takes over in one step, but never from a project that still exists elsewhere."""
    ports: tuple[str, ...]
    """`<port>/<protocol>=<number>` each: a port of the Service, and where clients find it.

    Others are claimed in one step.
    """


@dataclass(frozen=True, slots=True)
class LoopbackPortsState(LoopbackPortsInputs):
    """What is known of one `LoopbackPorts`: its inputs and its outputs."""

    claim: str
    """Path of the ledger that has the claim."""


@dataclass(frozen=True, slots=True)
class ProxyConfigInputs:
    """What a program says of its `ProxyConfig`."""

    proxy: ProxyId
    """Id of the proxy: twelve hex digits, the name of its directory. Another one replaces it."""
    name: ProxyName
    """Readable name of the proxy."""
    owner: Owner
    """Whose proxy it is."""
    files: Mapping[str, str]
    """Text by file name: bootstrap.json, lds.json, cds.json, one eds-<upstream>.json an upstream.

    HTTP listeners refer to rds-*.json and sds-*.json. The bootstrap alone where parts say the rest.
    """
    versions: Versions
    """Versions that lds.json and cds.json carry."""
    shared: bool
    """This user's group may use the directory too: a container works in it."""
    serves: str = field(default="", kw_only=True)
    """Key of the Gateway, or of the Ingresses, that a proxy of the stack serves and nobody else; may be missing."""


@dataclass(frozen=True, slots=True)
class ProxyConfigState(ProxyConfigInputs):
    """What is known of one `ProxyConfig`: its inputs and its outputs."""

    directory: str
    """Path of the proxy's directory."""
    bootstrap: str
    """sha256 (hex) of bootstrap.json."""


@dataclass(frozen=True, slots=True)
class ServedCertificateInputs:
    """What a program says of its `ServedCertificate`."""

    proxy: ProxyId
    """Id of the proxy. Another one replaces it."""
    name: ProxyName
    """Readable name of the proxy."""
    owner: Owner
    """Whose proxy it is."""
    access: Access
    """Where the Secret lives; both fields are empty where a file of manifests has it."""
    file: str
    """Path of the file of manifests that has the Secret; empty for one of a live cluster. Another one replaces it."""
    namespace: str
    """Namespace of the Secret. Another one replaces it."""
    secret: str
    """Name of the Secret. Another one replaces it."""
    digest: str
    """Digest (hex) of what is in the Secret.

    Another one replaces it, new before old: both are there until nobody refers to the old one.
    """
    shared: bool
    """This user's group may read the files too: a container works in the directory."""
    serves: str = field(default="", kw_only=True)
    """Key of whom a proxy of the stack serves and nobody else; may be missing. One of another cluster replaces it."""


@dataclass(frozen=True, slots=True)
class ServedCertificateState(ServedCertificateInputs):
    """What is known of one `ServedCertificate`: its inputs and its outputs."""

    chain: str
    """Name of the certificate's file."""


@dataclass(frozen=True, slots=True)
class LocalCertificateInputs:
    """What a program says of its `LocalCertificate`."""

    proxy: ProxyId
    """Id of the proxy. Another one replaces it."""
    name: ProxyName
    """Readable name of the proxy."""
    owner: Owner
    """Whose proxy it is."""
    certificate: str
    """What the certificate is called among those of the proxy. Another one replaces it."""
    hosts: tuple[str, ...]
    """Hostnames and IP addresses that it is for. Others replace it."""
    authority: str
    """Fingerprint (sha256, hex) of the authority; empty where it isn't made yet. Another one replaces it."""
    period: int
    """Which stretch of 30 days it is for.

    Another one replaces it, new before old: both are there until nobody refers to the old one.
    """
    shared: bool
    """This user's group may read the files too: a container works in the directory."""


@dataclass(frozen=True, slots=True)
class LocalCertificateState(LocalCertificateInputs):
    """What is known of one `LocalCertificate`: its inputs and its outputs."""

    chain: str
    """Name of the certificate's file."""
    serial: str
    """Serial number (hex) of the certificate."""
    expires: str
    """When it ends (RFC 3339)."""


@dataclass(frozen=True, slots=True)
class EnvoyProcessInputs:
    """What a program says of its `EnvoyProcess`."""

    proxy: ProxyId
    """Id of the proxy. Another one replaces the process."""
    owner: Owner
    """Whose proxy it is."""
    bootstrap: str
    """sha256 (hex) of the bootstrap.json that it reads. Another one replaces the process."""
    version: str
    """Version of Envoy. Another one takes over from the process."""


@dataclass(frozen=True, slots=True)
class EnvoyProcessState(EnvoyProcessInputs):
    """What is known of one `EnvoyProcess`: its inputs and its outputs."""

    pid: int
    """Process id."""
    started: str
    """Boot and clock tick of its start, so that a pid used again isn't taken for it."""
    binary: str
    """Path of the program."""


@dataclass(frozen=True, slots=True)
class PodmanContainerInputs:
    """What a program says of its `PodmanContainer`."""

    proxy: ProxyId
    """Id of the proxy. Another one replaces the container."""
    owner: Owner
    """Whose proxy it is; stands in labels of the container."""
    bootstrap: str
    """sha256 (hex) of the bootstrap.json that it reads. Another one replaces the container."""
    name: str
    """Name of the container."""
    image: str
    """Image. Another one replaces the container."""
    pull: str
    """When the image is fetched: `Always`, `IfNotPresent` or `Never`."""
    command: tuple[str, ...]
    """What the image's program is told."""
    user: str
    """User and group in the container."""
    memory: int
    """MiB at most, also of memory and swap together."""
    cpus: str
    """CPUs at most, a decimal number; empty for no limit."""
    network: str
    """Podman's network on which `ports` are published; empty for the host's own."""
    addresses: tuple[str, ...]
    """Its fixed addresses on that network."""
    ports: tuple[str, ...]
    """Published ports, `<address>:<port>/<protocol> <port inside>`."""
    labels: Mapping[str, str]
    """Labels besides those that every container of ours has."""


@dataclass(frozen=True, slots=True)
class PodmanContainerState(PodmanContainerInputs):
    """What is known of one `PodmanContainer`: its inputs and its outputs."""

    container: str
    """Id of the container."""


@dataclass(frozen=True, slots=True)
class ServiceConfigInputs:
    """What a program says of its `ServiceConfig`."""

    proxy: ProxyId
    """Id of the proxy. Another one replaces the part, old before new: both want the same addresses."""
    part: PartId
    """Id of the part: twelve hex digits, one for each Service. Another one replaces it."""
    owner: Owner
    """The Service."""
    listeners: Mapping[str, str]
    """Envoy listeners by name, as canonical JSON with their tag."""
    clusters: Mapping[str, str]
    """Envoy clusters by name, as canonical JSON with their tag."""


@dataclass(frozen=True, slots=True)
class ServiceConfigState(ServiceConfigInputs):
    """What is known of one `ServiceConfig`: its inputs and its outputs."""


@dataclass(frozen=True, slots=True)
class ReachableInputs:
    """What a program says of its `Reachable`."""

    proxy: ProxyId
    """Id of the proxy. Another one replaces the proof."""
    part: PartId
    """Id of the part that is to be proven; empty for a proxy as a whole. Another one replaces the proof."""
    process: str
    """Which run of the proxy's process: another one has to prove itself again."""
    listeners: tuple[str, ...]
    """Names of the listeners that must be bound."""
    versions: Versions
    """Versions that must be active: those of the proxy's files or, of a part, those of its listeners and clusters."""
    probes: tuple[str, ...]
    """`<address>:<port>` places that must accept one TCP connection when they are first published."""
    published: bool
    """Docker publishes the listeners' ports: connections to them must arrive at the proxy."""


@dataclass(frozen=True, slots=True)
class ReachableState(ReachableInputs):
    """What is known of one `Reachable`: its inputs and its outputs."""

    ports: tuple[ListenerState, ...]
    """What was seen of each listener."""


@dataclass(frozen=True, slots=True)
class ServiceClaimInputs:
    """What a program says of its `ServiceClaim`."""

    access: Access
    """Where the Service lives."""
    owner: Owner
    """Which Service, by its uid too: the same name with another uid is another Service."""


@dataclass(frozen=True, slots=True)
class ServiceClaimState(ServiceClaimInputs):
    """What is known of one `ServiceClaim`: its inputs and its outputs."""

    finalizer: str
    """The finalizer."""


@dataclass(frozen=True, slots=True)
class ServiceStatusInputs:
    """What a program says of its `ServiceStatus`."""

    access: Access
    """Where the Service lives."""
    owner: Owner
    """Which Service, by its uid too: the same name with another uid is another Service."""
    ingress: tuple[Ingress, ...]
    """Entries of ours; those of others stay."""
    conditions: tuple[Condition, ...]
    """Conditions of ours; those of others stay."""
    alone: bool
    """Entries of other controllers are removed."""


@dataclass(frozen=True, slots=True)
class ServiceStatusState(ServiceStatusInputs):
    """What is known of one `ServiceStatus`: its inputs and its outputs."""


@dataclass(frozen=True, slots=True)
class GatewayStatusInputs:
    """What a program says of its `GatewayStatus`."""

    access: Access
    """Where the object lives."""
    owner: Owner
    """Which object, by its kind and uid too: the same name with another uid is another object."""
    status: str
    """What of its status is ours, as JSON, without times and generations."""
    generation: int
    """Generation of the object that this was made from."""


@dataclass(frozen=True, slots=True)
class GatewayStatusState(GatewayStatusInputs):
    """What is known of one `GatewayStatus`: its inputs and its outputs."""


@dataclass(frozen=True, slots=True)
class ServiceEventsInputs:
    """What a program says of its `ServiceEvents`."""

    access: Access
    """Where the Service lives."""
    owner: Owner
    """Which Service, by its uid too: the same name with another uid is another Service."""
    events: tuple[Event, ...]
    """What is to be told as things are."""


@dataclass(frozen=True, slots=True)
class ServiceEventsState(ServiceEventsInputs):
    """What is known of one `ServiceEvents`: its inputs and its outputs."""

    tokens: int
    """How many events may be sent at once from here on."""
    since: int
    """Unix seconds from which on more of them may be sent."""


@dataclass(frozen=True, slots=True)
class PodRoutesInputs:
    """What a program says of its `PodRoutes`."""

    owner: Owner
    """Whose they are. Another one replaces them."""
    container: str
    """Id of the container in whose network namespace they are, behind `podman:` if it is Podman's.

    Empty: this host's own table. Another one replaces them.
    """
    routes: tuple[str, ...]
    """Each as `ip route` writes it, such as `10.244.1.0/24 via 172.18.0.3`."""


@dataclass(frozen=True, slots=True)
class PodRoutesState(PodRoutesInputs):
    """What is known of one `PodRoutes`: its inputs and its outputs."""

    metric: int
    """Their metric, which with protocol 78 tells them from everybody else's."""


@dataclass(frozen=True, slots=True)
class DnsNameInputs:
    """What a program says of its `DnsName`."""

    owner: Owner
    """Whose the name is."""
    zone: str
    """The zone. Another one replaces the name."""
    name: str
    """The name, without the dot at its end. Another one replaces it."""
    server: str
    """Address of the zone's server. Another one replaces the name."""
    port: int
    """Its port. Another one replaces the name."""
    tsig: str
    """Path of the file that has the key for updates, relative to the project; empty for none.

    The key is in no state.
    """
    mark: str
    """The owner that its marks name; empty for the stack's own id."""
    takes: str
    """The owner whose records of this name become ours; empty for nobody."""
    ttl: int
    """Seconds for which an answer may be kept."""
    records: tuple[str, ...]
    """Types and values, such as `A 127.77.0.5`, sorted."""


@dataclass(frozen=True, slots=True)
class DnsNameState(DnsNameInputs):
    """What is known of one `DnsName`: its inputs and its outputs."""

    marked: str
    """The owner that its marks name, whatever that is."""


@dataclass(frozen=True, slots=True)
class StubZonesInputs:
    """What a program says of its `StubZones`."""

    owner: Owner
    """Whose the block is. Another one replaces it."""
    access: Access
    """How the cluster's API is reached. Another one replaces the block."""
    zones: tuple[str, ...]
    """Zones with their servers, such as `test 172.18.0.1:5300`, sorted."""


@dataclass(frozen=True, slots=True)
class StubZonesState(StubZonesInputs):
    """What is known of one `StubZones`: its inputs and its outputs."""

    config_map: str
    """The ConfigMap of kube-system that has the block."""
    key: str
    """The key of its data that has it."""
    block: str
    """The block, with its marks."""
