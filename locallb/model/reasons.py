"""Reasons why something can't be served: a code and a sentence each, the same in plan, table, status and JSON.

Next to them the ingress entries, conditions and events that publish them, with the fields of the Kubernetes API, and
the conditions of Gateway API: types, reasons, and how a verdict becomes them. The provider's schema has the same types.
Not here: the decisions, and how they become a patch (`kubernetes.status`, `kubernetes.events`, `gateway.status_patch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from locallb.model.fields import JsonObject
from locallb.model.identities import KEY_PREFIX


class Reason(StrEnum):
    """A reason code: CamelCase, as in the API's conditions and `ports[].error`."""

    MALFORMED = "Malformed"
    """The object isn't a valid Service."""
    POOL_EXHAUSTED = "PoolExhausted"
    """No free address in any pool that the Service may use."""
    NO_POOL = "NoPool"
    """No pool for this Service: none of the family, or none with namespaces or a selector that allow it."""
    OUT_OF_POOL = "OutOfPool"
    """The requested address is in no pool."""
    SELECTOR_MISMATCH = "SelectorMismatch"
    """The requested address is in a pool that this Service may not use."""
    IN_USE = "InUse"
    """The requested address belongs to another Service, stack, controller or process."""
    FAMILY_MISMATCH = "FamilyMismatch"
    """The requested address isn't of a family that the Service wants."""
    EXCLUDED = "Excluded"
    """The requested address is never handed out."""
    NOT_ON_HOST = "NotOnHost"
    """The address can't be bound on this host: no alias, no local route."""
    POOL_ON_LINK = "PoolOnLink"
    """An IPv6 pool lies in a network that this host is connected to: nodes could never reach it."""
    POOL_OVERLAPS = "PoolOverlaps"
    """A pool can't be made local without cutting off what is reached there now: a VPN, a Docker network."""
    NOT_NAMED = "NotNamed"
    """Host setup would do something for another user, or take public names or addresses, and no option names that."""
    HOST_LIMIT = "HostLimit"
    """The host allows no further proxy."""
    PORT_PRIVILEGED = "PortPrivileged"
    """The port is below the host's unprivileged start."""
    PORT_IN_USE = "PortInUse"
    """Another process holds the port."""
    PROTOCOL_UNSUPPORTED = "ProtocolNotSupported"
    """Envoy has no listener for the protocol (SCTP)."""
    UNREACHABLE = "Unreachable"
    """This host has no route to the endpoints of a port without nodePort, or to Nodes that don't answer."""
    BACKENDS_DOWN = "BackendsDown"
    """None of the port's backends takes a connection, by Envoy's health checks: clients are reset, or get 503."""
    NO_BACKENDS = "NoBackends"
    """No eligible Node or ready endpoint: the address stays, clients are refused."""

    LISTENERS_NOT_VALID = "ListenersNotValid"
    """None of a Gateway's listeners can be served now: the address stays, clients are refused."""
    SERVED_BY_ANOTHER = "ServedByAnother"
    """Its status has addresses of another controller, and nothing requests ours."""
    PROXY_DOWN = "ProxyDown"
    """The Service's proxy can't be repaired: the address stays claimed and isn't published until it serves again."""


PAGE = "reasons"
"""The page of the documentation that has a section for each."""


def section(reason: str) -> str:
    """Return where the documentation is about a reason."""
    return f"{PAGE}.md#{reason.lower()}"


_NOT_USABLE = (
    Reason.OUT_OF_POOL,
    Reason.SELECTOR_MISMATCH,
    Reason.IN_USE,
    Reason.FAMILY_MISMATCH,
    Reason.EXCLUDED,
    Reason.NOT_ON_HOST,
    Reason.POOL_ON_LINK,
    Reason.POOL_OVERLAPS,
)
"""Why an address that is requested, or all that are left, can't be used."""
WITHOUT_ADDRESS = frozenset(
    {
        Reason.MALFORMED,
        Reason.POOL_EXHAUSTED,
        Reason.NO_POOL,
        *_NOT_USABLE,
        Reason.HOST_LIMIT,
        Reason.SERVED_BY_ANOTHER,
    }
)
"""Reasons of Services that get no address at all."""
OF_THE_HOST = frozenset(
    {
        Reason.POOL_EXHAUSTED,
        Reason.IN_USE,
        Reason.NOT_ON_HOST,
        Reason.POOL_ON_LINK,
        Reason.POOL_OVERLAPS,
        Reason.HOST_LIMIT,
        Reason.PORT_PRIVILEGED,
        Reason.PORT_IN_USE,
    }
)
"""Reasons that may clear without an event: the obstacle is another process, stack or setting of this host."""


OF_THE_OBJECT = frozenset(
    {
        Reason.MALFORMED,
        Reason.NO_POOL,
        Reason.OUT_OF_POOL,
        Reason.SELECTOR_MISMATCH,
        Reason.FAMILY_MISMATCH,
        Reason.EXCLUDED,
        Reason.PROTOCOL_UNSUPPORTED,
    }
)
"""Reasons that stay until the object or the stack's configuration changes: none passes by itself."""


class Problem(Struct, frozen=True, order=True):
    """A reason code and one sentence: the object, the value, the remedy."""

    reason: Reason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class IngressPort(Struct, frozen=True):
    """A port of an ingress entry (core/v1 PortStatus)."""

    port: int
    protocol: str
    error: str = ""
    """The reason that it isn't served; empty while it is."""


class EntryName(NamedTuple):
    """The name of an ingress entry."""

    hostname: str = ""
    """A name of the load balancer; empty if it has none, or must not be published."""


NAMELESS = EntryName()


class Ingress(Struct, frozen=True):
    """An address in a Service's status (core/v1 LoadBalancerIngress)."""

    ip: str
    mode: str
    """`Proxy`: kube-proxy leaves the address alone."""
    ports: tuple[IngressPort, ...]
    """Every port of the Service."""
    named: EntryName = NAMELESS


class Condition(Struct, frozen=True):
    """A condition in a Service's status that isn't dated yet."""

    type: str
    """With our own prefix."""
    status: str
    """`True`, `False` or `Unknown`."""
    reason: str
    message: str


class Event(Struct, frozen=True, order=True):
    """An event of events.k8s.io/v1 that isn't dated yet."""

    type: str
    """`Normal` or `Warning`."""
    reason: str
    note: str


ACCEPTED, PROGRAMMED, RESOLVED = "Accepted", "Programmed", "ResolvedRefs"
CONFLICTED, PARTIALLY_INVALID, OVERLAPPING_TLS = "Conflicted", "PartiallyInvalid", "OverlappingTLSConfig"
INSECURE_VALIDATION = "InsecureFrontendValidationMode"
FAULT_ORDERED, DRAINED = f"{KEY_PREFIX}FaultOrdered", f"{KEY_PREFIX}Drained"
"""Of our own: a fault that was ordered."""
INVALID, PENDING, UNSUPPORTED = "Invalid", "Pending", "UnsupportedValue"
INCOMPATIBLE_FILTERS, INVALID_ROUTE_KINDS = "IncompatibleFilters", "InvalidRouteKinds"
OF_PROGRAMMED: Mapping[Reason, str] = {
    Reason.POOL_EXHAUSTED: "AddressNotAssigned",
    Reason.NO_POOL: "AddressNotAssigned",
    **dict.fromkeys(_NOT_USABLE, "AddressNotUsable"),
    Reason.HOST_LIMIT: "NoResources",
    Reason.PROXY_DOWN: PENDING,
}
"""The specification's reasons of Programmed; any other is Invalid."""
LISTENERS_NOT_VALID = Reason.LISTENERS_NOT_VALID.value
"""The reason of Accepted of a Gateway or ListenerSet with unserved listeners: some, or all."""
_LONGEST = 1024


class Failure(NamedTuple):
    """A problem: a reason of the specification, and a sentence."""

    reason: str
    message: str


def verdict(kind: str, failure: Failure | None, reason: str = "", message: str = "") -> Condition:
    """Return a condition that is true where there is no trouble; its reason then is its own name unless given."""
    if failure:
        return Condition(kind, "False", failure.reason, failure.message[:_LONGEST])
    return Condition(kind, "True", reason or kind, message[:_LONGEST])


def ordered(kind: str, message: str) -> Condition:
    """Return a condition of our own; its reason is its name."""
    return Condition(kind, "True", kind.rpartition("/")[2], message[:_LONGEST])


def conditions(*stated: Condition) -> JsonObject:
    """Return the field that has them."""
    return {"conditions": [asdict(condition) for condition in stated]}
