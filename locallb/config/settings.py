"""A stack's configuration, typed: the keys of `stacks/Pulumi.<stack>.yaml` in the namespace `local-lb`.

Not here: how keys are parsed (`parsing`), the key `dns` (`dns.zones`), and the interface of sources (`registry`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, field

from locallb.config.registry import Finder, Source
from locallb.dns.zones import DnsSettings
from locallb.model.identities import ClusterName, ImageName, IPAddress, IPNetwork
from locallb.model.identities import Protocol as Transport
from locallb.model.objects import EMPTY, BackendChoice, ServiceType
from locallb.model.ranges import AddressRange


class Timing(Struct, frozen=True):
    """Seconds, by client-go's names and defaults."""

    lease_duration: float = 15.0
    """Seconds after the last observed renewal until other candidates may acquire the Lease."""
    renew_deadline: float = 10.0
    """Seconds after its last requested renewal for which a leader counts itself as one."""
    retry_period: float = 2.0


class IpMode(StrEnum):
    """status.loadBalancer.ingress[].ipMode (KEP-1860)."""

    PROXY = "Proxy"
    """kube-proxy leaves the address alone: Pods come through the proxy too."""
    VIP = "VIP"
    """kube-proxy takes Pods' connections to the address straight to the endpoints."""


class StatusOrder(StrEnum):
    """In which order a dual-stack Service's entries of status.loadBalancer.ingress are."""

    IP_FAMILIES = "ipFamilies"
    """As spec.ipFamilies has them."""
    IPV4_FIRST = "ipv4First"
    """IPv4 before IPv6, as Gardener's own controller writes them, of which its DNS takes the last."""


class AddressPer(StrEnum):
    """Grouping of Ingresses by shared address."""

    CLASS = "class"
    NAMESPACE = "namespace"
    """Ingresses of a class in one namespace."""
    INGRESS = "ingress"
    """None: each has its own."""


class Dialect(StrEnum):
    """Other Ingress controllers with annotations that can be read."""

    NGINX = "nginx"
    """ingress-nginx: `nginx.ingress.kubernetes.io/`."""
    TRAEFIK = "traefik"
    """`traefik.ingress.kubernetes.io/`."""


class IngressSettings(Struct, frozen=True):
    """The served Ingresses, and their addresses."""

    class_name: str | None = None
    """The only served class, whether or not it exists as an object; None for all of our controller."""
    http: int = 80
    https: int = 443
    address: AddressPer = AddressPer.CLASS
    is_off: bool = False
    """None is served."""
    annotations: frozenset[Dialect] = frozenset()
    """Controllers with annotations that are understood."""


class SettingsError(Exception):
    """The configuration can't be used: one sentence a mistake, each with the key, the value and the remedy."""

    def __init__(self, sentences: tuple[str, ...]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


class PullPolicy(StrEnum):
    """When an image is fetched before a container is made: words and meaning of a Pod's imagePullPolicy (core/v1)."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Compat(StrEnum):
    """Tools with names and labels that containers have in addition to our own."""

    GARDENER = "gardener"


KIND_NETWORK = "kind"
"""The Docker network of kind's nodes."""


class Sharing(StrEnum):
    """Whether each proxy belongs to one Service, or is shared."""

    PER_SERVICE = "per-service"
    """Each Service has a proxy of its own."""
    SHARED = "shared"
    """All Services of the stack are served by a few proxies."""


class ProxySettings(Struct, frozen=True):
    """The number of proxies, and how Services share them."""

    mode: Sharing = Sharing.PER_SERVICE
    count: int = 0
    """The number of shared proxies; 0: as many as needed."""
    each: int = 100
    """The number of Services per shared proxy before another is added, where `count` is 0."""
    spares: int = 0
    """The number of started proxies that wait for a new Gateway, or for a Service where each has its own proxy."""
    logs: bool = False
    """Whether each can write a log on request; it then watches one more file."""


class PodRouting(StrEnum):
    """Where local-lb makes routes to the pods of clusters, if anywhere."""

    AUTO = "auto"
    """In this host's table, to pods of running clusters whose Nodes are containers or virtual machines of this host."""
    OFF = "off"
    """No routes are made here."""
    HOST = "host"
    """In this host's table."""
    CONTAINER = "container"
    """In the network namespace of each proxy that is a container with published ports."""
    API = "api"
    """Nowhere: connections to pods of running clusters go through the API servers."""


class ContainerSettings(Struct, frozen=True):
    """Settings of proxies' containers, for runtimes that make them."""

    image: ImageName = ImageName("")
    """The image's reference; empty for Envoy's official one."""
    memory: int = 512
    """MiB that a container may take."""
    cpus: str = ""
    """CPUs that a container may use at most, a decimal number; empty for no limit."""
    network: str = ""
    """The Docker network on which ports are published; empty where containers use the host's."""
    pull: PullPolicy = PullPolicy.IF_NOT_PRESENT
    mirror: str = ""
    """A registry, and optionally a path in it, in place of the registry in the image's reference."""
    compat: Compat | None = None


class Pool(Struct, frozen=True):
    """Addresses to hand out, and the Services that may get them: all if nothing but addresses is said."""

    name: str
    ranges: tuple[AddressRange, ...]
    exclude: tuple[AddressRange, ...] = ()
    priority: int = 0
    """Higher is tried first; equal ones in the order of the configuration."""
    namespaces: frozenset[str] = frozenset()
    selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    clusters: frozenset[ClusterName] = frozenset()
    """Only Services of these may use it; empty for all. No key: pools of several components of a program have it."""


class Classes(Struct, frozen=True):
    """Our values of spec.loadBalancerClass."""

    default: bool = True
    """Services without a class are ours."""
    names: frozenset[str] = frozenset()


class OtherServices(Struct, frozen=True):
    """Services of other types than LoadBalancer that get addresses as well, without a word written to their cluster."""

    types: frozenset[ServiceType] = frozenset()
    namespaces: frozenset[str] = frozenset()
    selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)


EVERY_SERVICE = OtherServices(frozenset({ServiceType.CLUSTER_IP, ServiceType.NODE_PORT}))


class PortRange(Struct, frozen=True):
    """Ports from `first` to `last`, both included, of one protocol or, with none, of any."""

    first: int
    last: int
    protocol: Transport | None = None

    def __str__(self) -> str:
        numbers = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{numbers}/{self.protocol}" if self.protocol else numbers


class Headroom(Struct, frozen=True):
    """The part that each pool must keep free: a number of addresses, or a percentage."""

    number: int
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)


class Policies(Struct, frozen=True):
    """Reasons to refuse a preview and an update."""

    address_changes_forbidden: bool = False
    source_ranges_required: bool = False
    ports: tuple[PortRange, ...] = ()
    """Ports that Services may have; empty allows all."""
    headroom: Headroom | None = None
    hostnames: tuple[str, ...] = ()
    """Hostnames, `*.test` too, that Gateways and Ingresses may serve; empty allows all."""
    tls_required: bool = False
    """No request is taken without TLS."""
    advisory: frozenset[str] = frozenset()
    """Names of the policies that refuse nothing and only warn."""


class LeaderElection(Struct, frozen=True):
    """The Lease by which several processes elect the one that serves the stack."""

    cluster: ClusterName
    """Of which source the API has the Lease."""
    lease: str = "local-lb"
    namespace: str = ""
    """Empty for that of the pod in which a process runs, and kube-system outside of pods."""
    timing: Timing = field(default_factory=Timing)


class Settings(Struct, frozen=True):
    """A stack's configuration."""

    sources: tuple[Source, ...]
    pools: tuple[Pool, ...]
    pins: Mapping[str, tuple[IPAddress, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Addresses by `<namespace>/<name>`, for Services without annotations. They override a Service's request."""
    classes: Classes = field(default_factory=Classes)
    namespaces: frozenset[str] = frozenset()
    """Only Services of these namespaces are ours; empty for all."""
    selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Only Services with all of these labels are ours."""
    services: OtherServices = field(default_factory=OtherServices)
    runtime: str = "process"
    """Runtime of proxies: a word of `registry.RUNTIMES`."""
    policies: Policies = field(default_factory=Policies)
    container: ContainerSettings = field(default_factory=ContainerSettings)
    metrics: str = ""
    """Where `locallb watch` serves metrics and health, such as 127.0.0.1:9477; empty for nowhere."""
    page: str = ""
    """Where `locallb watch` shows its live page, likewise."""
    proxies: ProxySettings = field(default_factory=ProxySettings)
    leader_election: LeaderElection | None = None
    backends: BackendChoice = BackendChoice.AUTO
    """Where connections go first, unless a Service says it itself."""
    ip_mode: IpMode = IpMode.PROXY
    status_order: StatusOrder = StatusOrder.IP_FAMILIES
    take_over: bool = False
    """Entries of other controllers go from the status of Services that are ours."""
    initializes_nodes: bool = False
    """Nodes of running clusters that wait for a cloud provider are initialized."""
    pod_routes: PodRouting = PodRouting.AUTO
    pod_cidrs: Mapping[ClusterName, tuple[IPNetwork, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Pod ranges of clusters, unless their source or their Nodes name them."""
    finders: tuple[Finder, ...] = ()
    """More sources, found when they are read."""
    gateway_classes: frozenset[str] | None = None
    """The GatewayClasses that are served; None for every one of our controller."""
    ingress: IngressSettings = field(default_factory=IngressSettings)
    dns: DnsSettings | None = None
    """The zones in which load balancers have names."""
    traffic_details: bool = False
    access_logs: bool = False
    traffic_metrics: int = 0
    """Number of ports in the metrics; 0: none, and no proxy is polled."""
    """Proxies count bytes and latencies as well."""
    http3: bool = False
    """Gateways and Ingresses serve HTTPS by HTTP/3 as well."""
    local_certificates: bool = False
    """Hosts without a Secret get certificates of this user's own authority."""
    localhost: bool = False
    """HTTP ports and routes are served at 127.0.0.1 as well, by names below `localhost`."""
    port_mapping: bool = False
    """Services are found at ports of the loopback addresses, and the stack has no pool."""

    @property
    def publishes(self) -> bool:
        """Whether Docker publishes the ports, so that its proxy has to bind every address."""
        return bool(self.container.network)
