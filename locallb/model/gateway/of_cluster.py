"""Gateway API objects and Ingresses of one cluster, with the parts that are used of the objects they refer to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from locallb.model.gateway.ingresses import Ingress, IngressClass
from locallb.model.gateway.objects import Gateway, GatewayClass, ListenerSet, Named, Route
from locallb.model.gateway.policies import BackendTlsPolicy, ReferenceGrant
from locallb.model.identities import ClusterName, Digest
from locallb.model.objects import EMPTY, ServicePort


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
    | Route
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
    routes: tuple[Route, ...] = ()
    grants: tuple[ReferenceGrant, ...] = ()
    policies: tuple[BackendTlsPolicy, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of Namespaces."""
    services: Mapping[Named, BackendService] = field(default_factory=dict)
    secrets: Mapping[Named, TlsSecret] = field(default_factory=dict)
    bundles: Mapping[Named, AuthorityBundle] = field(default_factory=dict)
    ingress_classes: tuple[IngressClass, ...] = ()
    ingresses: tuple[Ingress, ...] = ()
