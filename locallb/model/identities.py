"""Identities: which Service, cluster, stack and owner something is about. They name things and decide nothing."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple, NewType

from msgspec import Struct

DOMAIN = "local-lb.dev"
KEY_PREFIX = f"{DOMAIN}/"
"""What begins the names of our annotations, labels, conditions, controllers and classes."""
IPAddress = IPv4Address | IPv6Address


IPNetwork = IPv4Network | IPv6Network


ClusterName = NewType("ClusterName", str)
"""The name of a cluster within a stack: a DNS label, unique among the stack's sources."""


NodeName = NewType("NodeName", str)


_SERVICE_PARTS = 3
PROCESS = "process"
_DOCKER = "docker"
"""Name of the runtime with runs that are processes of this host."""
Uid = NewType("Uid", str)
"""metadata.uid; empty in manifests that never were in a cluster."""


ProxyName = NewType("ProxyName", str)
"""Name of a proxy: the key of the one Service that it serves, or `shared-1` or the like; never a path."""


ProxyId = NewType("ProxyId", str)
"""Twelve hex digits, unique on the host: the name of a proxy's directory."""


PartId = NewType("PartId", str)
"""Twelve hex digits, one for each Service of a stack: its share of a stack proxy."""


UpstreamName = NewType("UpstreamName", str)
"""A proxy's name for the backends of a port, unique in it, such as `tcp-8080-ipv4`; empty for none."""


ContainerId = NewType("ContainerId", str)
"""An engine's identifier of a container: 64 hex digits."""


ImageName = NewType("ImageName", str)
"""The reference of a container's image: `repository:tag` or `repository@digest`, perhaps with a registry."""


ContextName = NewType("ContextName", str)
"""The name of a context in a kubeconfig; empty for the current one."""


ZoneName = NewType("ZoneName", str)
"""A zone of the DNS, in lower case and without the dot at its end."""


OwnerId = NewType("OwnerId", str)
"""Owner of a name in a zone with several writers: the text in its marker, by default a stack's own."""


Fingerprint = NewType("Fingerprint", str)
"""sha256 of a whole certificate, hex; empty if none exists yet."""


Digest = NewType("Digest", str)
"""sha256 of something's inputs, hex: equal ones mean that nothing has changed. Empty for unknown."""


SharingKey = NewType("SharingKey", str)
"""Common key of a stack's Services that may share an address; empty if a Service shares none."""


class Protocol(StrEnum):
    """ServicePort.protocol of core/v1."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


class Family(StrEnum):
    """An entry of spec.ipFamilies."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"

    @classmethod
    def of(cls, address: IPAddress | IPNetwork) -> Family:
        return cls.IPV4 if address.version == 4 else cls.IPV6  # noqa: PLR2004 - IP version 4


def place(address: IPAddress, port: int) -> str:
    """Write an address and a port: `127.77.0.5:8080` or `[fd00::5]:8080`."""
    return f"{in_place(address)}:{port}"


def in_place(address: IPAddress) -> str:
    """Format an address as before a port, and in URLs: `[fd00::5]`."""
    return f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - IP version 6


class ObjectKind(StrEnum):
    """Kind of an object with addresses, or with a status about them. Its value is the kind's part of a key."""

    SERVICE = "services"
    GATEWAY = "gateways"
    INGRESS = "ingresses"
    INGRESS_CLASS = "ingressclasses"
    GATEWAY_CLASS = "gatewayclasses"
    LISTENER_SET = "listenersets"
    HTTP_ROUTE = "httproutes"
    GRPC_ROUTE = "grpcroutes"
    TLS_ROUTE = "tlsroutes"
    TCP_ROUTE = "tcproutes"
    UDP_ROUTE = "udproutes"
    BACKEND_TLS_POLICY = "backendtlspolicies"
    LOCALHOST = "localhost"
    """No object of a cluster: all names below `localhost` (`LOCALHOST`)."""


OF_INGRESSES = frozenset({ObjectKind.INGRESS, ObjectKind.INGRESS_CLASS})
"""An Ingress, and a class of which the Ingresses, all or those of a namespace, have an address together."""
ROUTED = OF_INGRESSES | {ObjectKind.GATEWAY, ObjectKind.LOCALHOST}
"""Kinds that are served by routes, each object from a proxy of its own."""


class ObjectKey(NamedTuple):
    """Key of an object of a stack: unique at any moment, reused after deletion (then with another uid).

    A stack proxy has such a key too, as its owner: its name, and neither cluster nor namespace. A tuple,
    because keys are hashed, compared and sorted some ten thousand times a plan.
    """

    cluster: ClusterName
    namespace: str
    name: str
    kind: ObjectKind = ObjectKind.SERVICE

    def __str__(self) -> str:
        if not self.cluster or (self.kind is ObjectKind.LOCALHOST and self == LOCALHOST):
            return self.name
        kind = "" if self.kind is ObjectKind.SERVICE else f"{self.kind}/"
        return f"{self.cluster}/{kind}{self.namespace}/{self.name}"

    @property
    def shown(self) -> str:
        """Its text for users, without an empty part for the namespace of an IngressClass, which has none."""
        return str(self).replace("//", "/")

    @classmethod
    def parse(cls, text: str) -> ObjectKey:
        """Return the key that prints as `text`. Names have no slash themselves."""
        parts = text.split("/")
        if text == LOCALHOST.name:
            return LOCALHOST
        if len(parts) < _SERVICE_PARTS:
            return cls(ClusterName(""), "", text)
        cluster, *rest = parts
        kinds = {kind.value: kind for kind in ObjectKind if kind is not ObjectKind.SERVICE}
        if len(rest) >= _SERVICE_PARTS and rest[0] in kinds:
            return cls(ClusterName(cluster), rest[1], rest[2], kinds[rest[0]])
        return cls(ClusterName(cluster), rest[0], rest[1])


LOCALHOST = ObjectKey(ClusterName("localhost"), "", "localhost", ObjectKind.LOCALHOST)
"""What serves the names below `localhost`: one in a stack, of no cluster."""


class RunIdentity(NamedTuple):
    """Identity of an Envoy's run: another run has to prove itself again.

    Prints as `<pid>@<start>` for a process and as `<runtime>:<id>` for any other, as states of all versions have it.
    """

    id: str
    runtime: str = PROCESS
    """The word of its runtime."""

    def __str__(self) -> str:
        return self.id if self.runtime == PROCESS else f"{self.runtime}:{self.id}"

    @classmethod
    def of_process(cls, pid: int | str, started: str) -> RunIdentity:
        """Name a process: a pid that is used again has another start."""
        return cls(f"{pid}@{started}")

    @property
    def container(self) -> str:
        """Return its container's name in states: its id, prefixed by the runtime unless that is Docker."""
        return self.id if self.runtime == _DOCKER else str(self)

    @classmethod
    def parse(cls, text: str) -> RunIdentity:
        """Return the run that prints as `text`."""
        runtime, colon, identity = text.partition(":")
        return cls(identity, runtime) if colon and "@" not in runtime else cls(text)


class Home(NamedTuple):
    """Identity of a stack on this host: the owner of claims, proxies and state. `root` is the project's real path."""

    project: str
    stack: str
    root: str

    def __str__(self) -> str:
        return f"{self.project}/{self.stack} at {self.root}"


class Owner(Struct, frozen=True, order=True):
    """The full identity of what owns an address or a proxy."""

    home: Home
    service: ObjectKey
    uid: Uid = Uid("")

    def __str__(self) -> str:
        return f"{self.service} of {self.home}"
