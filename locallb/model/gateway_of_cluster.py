"""Gateway API objects and Ingresses of one cluster, with the used parts of the objects that they refer to.

Ingresses and their classes (networking.k8s.io/v1), Services, Secrets and ConfigMaps are defined here, all frozen. A
fault of a rule, a path or a backend is kept as its `problem`, so that the others are served.

Not here: the kinds of Gateway API (`gateway_objects`), parsing (`gateway/parsing`, `ingress/parsing`), and the
selection of Ingresses by class (`ingress/parsing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from locallb.model.gateway_objects import (
    BackendTlsPolicy,
    Gateway,
    GatewayClass,
    GatewayRoute,
    ListenerSet,
    Meta,
    Named,
    Reference,
    ReferenceGrant,
)
from locallb.model.http_routes import PathKind, PathMatch
from locallb.model.identities import KEY_PREFIX, ClusterName, Digest
from locallb.model.objects import EMPTY, ServicePort

INGRESS_GROUP = "networking.k8s.io"
INGRESS_CONTROLLER = f"{KEY_PREFIX}ingress-controller"
"""spec.controller of our IngressClasses."""


class IngressClass(Struct, frozen=True):
    """An IngressClass."""

    meta: Meta
    controller: str
    is_default: bool = False
    """Ingresses without a class are of this one."""
    has_parameters: bool = False


class IngressBackend(Struct, frozen=True):
    """A port of a Service in the Ingress' namespace, by number or by name; or why it is none."""

    service: str = ""
    port: int = 0
    port_name: str = ""
    problem: str = ""


class IngressPath(Struct, frozen=True):
    """A path of a rule; `match` is None for what no rule takes."""

    match: PathMatch | None
    backend: IngressBackend
    written: str = ""
    problem: str = ""
    """The reason that it can't be compared. `match` then is not narrower than written, and its requests are refused."""
    rank: tuple[bool, int] | None = None
    """Its precedence where `match` is broader than written."""
    is_specific: bool = False
    """Of the type ImplementationSpecific, which annotations may make an expression."""
    leads_to: str = ""
    """A path of this host that clients are sent to in place of a backend."""


class IngressRule(Struct, frozen=True):
    """A rule: a host, empty for every one, and the backends of its paths; without paths the default takes all."""

    host: str = ""
    paths: tuple[IngressPath, ...] = ()
    problem: str = ""
    """The reason that nothing of it is served: its requests are refused. An invalid host is `NO_HOST`."""


class IngressTls(Struct, frozen=True):
    """An entry of spec.tls. Without hosts it is for every name, without a Secret for a maker of certificates."""

    hosts: tuple[str, ...] = ()
    secret: str = ""


EVERY_PATH = PathMatch(PathKind.PREFIX, "/")
FIRST = (False, -(2**31))
"""The rank of a path before every other one of a host."""


def everything_refused(problem: str) -> IngressPath:
    """Return a path to which all of a host's requests are, before any other one, and which serves none."""
    return IngressPath(EVERY_PATH, IngressBackend(problem=problem), "/", problem, FIRST)


class Ingress(Struct, frozen=True):
    """An Ingress."""

    meta: Meta
    class_name: str | None = None
    """Of the annotation, else of the spec; None where neither names one."""
    rules: tuple[IngressRule, ...] = ()
    tls: tuple[IngressTls, ...] = ()
    default: IngressBackend | None = None
    problem: str = ""
    """The reason that nothing of it is served: requests of its rules are refused."""
    refused: tuple[str, ...] = ()
    """Reasons that parts of its TLS aren't served."""
    routes_a_path: int = 1
    """Limit of routes for a path."""

    @property
    def reference(self) -> Reference:
        """Return what it is called."""
        return Reference(INGRESS_GROUP, "Ingress", self.meta.key)

    @property
    def services(self) -> frozenset[Named]:
        """Return the Services of its rules."""
        backends = [self.default, *(path.backend for rule in self.rules for path in rule.paths)]
        names = {backend.service for backend in backends if backend and backend.service}
        return frozenset(Named(self.meta.key.namespace, name) for name in names)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names that it is served by, `*.` and a name among them, each once."""
        if self.problem:
            return ()
        named = [rule.host for rule in self.rules if not rule.problem]
        named += [host for entry in self.tls for host in entry.hosts]
        return tuple(dict.fromkeys(host for host in named if host))


class BackendService(Struct, frozen=True):
    """A Service of any type as the backend of a route."""

    key: Named
    ports: tuple[ServicePort, ...] = ()
    protocols: tuple[str, ...] = ()
    """appProtocol of each port."""
    uses_name: bool = False
    """It is of type ExternalName, which routes may not refer to."""


class Namespace(Struct, frozen=True):
    """A Namespace, as far as selectors ask."""

    name: str
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)


class TlsSecret(Struct, frozen=True):
    """A Secret of type kubernetes.io/tls, by reference, or why it is no certificate."""

    key: Named
    digest: Digest = Digest("")
    """Of its certificate and key."""
    file: str = ""
    """The file of manifests that has it."""
    problem: str = ""
    tcp_only: bool = False
    """Whether its key is of a kind that Envoy doesn't support with QUIC."""


class AuthorityBundle(Struct, frozen=True):
    """A ConfigMap with certificates of authorities, or why there are none that can be used."""

    key: Named
    authorities: str = ""
    """PEM: certificates and nothing else of what is in it. They are public."""
    problem: str = ""


ApiObject: TypeAlias = (
    GatewayClass
    | Gateway
    | ListenerSet
    | GatewayRoute
    | ReferenceGrant
    | BackendTlsPolicy
    | IngressClass
    | Ingress
    | BackendService
    | Namespace
    | TlsSecret
    | AuthorityBundle
)


class ObjectOfCluster(NamedTuple):
    """An object and its cluster."""

    cluster: ClusterName
    object: ApiObject


class GatewayObjects(Struct, frozen=True):
    """All objects of Gateway API and Ingresses of one cluster, and the objects they refer to."""

    cluster: ClusterName
    classes: tuple[GatewayClass, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    listener_sets: tuple[ListenerSet, ...] = ()
    routes: tuple[GatewayRoute, ...] = ()
    grants: tuple[ReferenceGrant, ...] = ()
    policies: tuple[BackendTlsPolicy, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of Namespaces."""
    services: Mapping[Named, BackendService] = field(default_factory=dict)
    secrets: Mapping[Named, TlsSecret] = field(default_factory=dict)
    bundles: Mapping[Named, AuthorityBundle] = field(default_factory=dict)
    ingress_classes: tuple[IngressClass, ...] = ()
    ingresses: tuple[Ingress, ...] = ()
