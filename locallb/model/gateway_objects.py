"""Gateway API's objects as far as they are used: frozen, under the API's own names; and the order of routes' matches.

A fault of an object is kept as its `problem`, half a sentence, so that its status can report it. A rule of a route is
complete if it names no other object, and by reference if it does. A value that can't be served is the rule's
`problem`, so that the other rules are served. Of matches more specific ones come first, then those of older routes. The
proxy takes the first match that fits, so sorting is all that the API's rules of precedence need; a refused match that
closes more than is written precedes matches of its own namespace only (`ordered`).

Not here: parsing (`gateway.parsing`), hostnames, which decide before (`gateway.listeners`), and effects of the objects:
bindings (`gateway.attachment`), grants (`gateway.listeners`), backends (`gateway.routes`, `gateway.backend_tls`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.model.faults import Fault
from locallb.model.http_routes import (
    NO_CHANGES,
    Cors,
    GrpcMethod,
    HeaderChanges,
    Match,
    PathKind,
    PathMatch,
    PathRewrite,
    Redirect,
    RetryRule,
    SessionAffinity,
)
from locallb.model.identities import KEY_PREFIX, IPAddress, Uid
from locallb.model.objects import EMPTY

_Item = TypeVar("_Item")
Rank: TypeAlias = tuple[int, int, int, bool, int, int]
FIRST: Rank = (-1, 0, 0, False, 0, 0)
"""Before every match."""
PATH_RANKS = {PathKind.EXACT: 0, PathKind.REGEX: 1, PathKind.PREFIX: 2}
"""Exact paths, then regular expressions, of which the API leaves it open, then prefixes."""
_WITHOUT_PATH = 3
_LAST: Rank = (_WITHOUT_PATH, 0, 0, True, 0, 0)
_ANY = "any"
_WHOLE = (None, PathMatch(PathKind.PREFIX, "/"))


class PlacedMatch(NamedTuple, Generic[_Item]):
    """A match among those of all namespaces."""

    namespace: str
    order: tuple[Any, ...]
    """Its place among matches of its own namespace."""
    among_others: tuple[Any, ...]
    """Its place among those of others: later than `order` where a refused match closes more than is written."""
    method: str
    item: _Item


def ordered(matches: Iterable[PlacedMatch[_Item]]) -> Iterator[tuple[_Item, bool]]:
    """Return matches in the order in which requests are compared, each with whether its requests are refused.

    They are refused where a refused match of the same namespace precedes them, but comes after those of others.
    """
    listed = sorted(matches, key=lambda match: match.order)
    if len({match.namespace for match in listed}) < 2:  # noqa: PLR2004 - only others can be harmed
        yield from ((match.item, False) for match in listed)
        return
    closed: dict[tuple[str, str], tuple[Any, ...]] = {}
    found = []
    for match in listed:
        kinds = (match.method, "") if match.method else (_ANY,)
        is_closed = any(match.among_others < closed.get((match.namespace, kind), ()) for kind in kinds)
        found.append((match.among_others, match.item, is_closed))
        if match.among_others > match.order:
            for kind in (match.method, _ANY):
                key = (match.namespace, kind)
                closed[key] = max(closed.get(key, ()), match.among_others)
    yield from ((item, is_closed) for _, item, is_closed in sorted(found, key=lambda each: each[0]))


def rank(match: Match) -> Rank:
    """Return what matches of any routes are sorted by.

    Kind of path; the longest; has a method; most headers; most parameters of the query.
    """
    kind, first, second = path_rank(match.path)
    return kind, first, second, not match.method, -len(match.headers), -len(match.query)


def rank_among_others(match: Match, own: Rank) -> Rank:
    """Return the rank of a match among matches of other namespaces; `own` is the rank as written.

    A refused match has the rank of the paths it closes, and comes last if its path isn't understood at all.
    """
    compared = rank(match)
    if own >= compared:
        return own
    return _LAST if match.path in _WHOLE and own[:3] != compared[:3] else compared


def path_rank(path: PathMatch | GrpcMethod | None) -> tuple[int, int, int]:
    """Return the kind of a path and how long it is; of gRPC the service counts, then the method."""
    match path:
        case PathMatch(kind, value):
            return written_path_rank(kind, value)
        case GrpcMethod(service, method, regex):
            return int(regex), -len(service), -len(method)
        case None:
            return _WITHOUT_PATH, 0, 0


def written_path_rank(kind: PathKind, value: str) -> tuple[int, int, int]:
    """Return the rank of a path of this kind, whether it can be compared or not."""
    return (PATH_RANKS[kind], 0 if kind is PathKind.EXACT else -len(value.rstrip("/")), 0)


class BackendRef(Struct, frozen=True):
    """A reference to a backend, its namespace filled in."""

    group: str
    kind: str
    namespace: str
    name: str
    port: int = 0
    weight: int = 1
    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" + (f":{self.port}" if self.port else "")


class MirrorRef(Struct, frozen=True):
    """A backend that gets copies of a share of the requests."""

    backend: BackendRef
    per_million: int = 1_000_000


class Filters(Struct, frozen=True):
    """Changes of requests and answers, for all clients."""

    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES
    redirect: Redirect | None = None
    hostname: str = ""
    path: PathRewrite | None = None
    mirrors: tuple[MirrorRef, ...] = ()
    cors: Cors | None = None

    @property
    def rewrites(self) -> bool:
        """Return whether backends are asked for something else than clients ask for."""
        return bool(self.hostname or self.path)


class RouteRule(Struct, frozen=True):
    """A rule. One without a backend answers by itself: with a redirect, or 500. Times are milliseconds."""

    matches: tuple[Match, ...] = (Match(),)
    filters: Filters = Filters()
    backends: tuple[BackendRef, ...] = ()
    name: str = ""
    timeout: int = 0
    """0 for none."""
    attempt_timeout: int = 0
    retry: RetryRule | None = None
    session: SessionAffinity | None = None
    problem: str = ""
    """The reason that it isn't served: half a sentence. Its requests are answered with an error, by no other rule."""
    incompatible: bool = False
    """Its filters contradict each other."""
    ranks: tuple[Rank, ...] = ()
    """The precedence of each match, where one is broader than the rule writes it; empty: their own."""

    @property
    def ranked(self) -> Iterable[tuple[Match, Rank]]:
        """Return the matches, each with its precedence."""
        return zip(self.matches, self.ranks or map(rank, self.matches), strict=True)

    @property
    def references(self) -> tuple[BackendRef, ...]:
        """Return every backend that it names: of requests, and of copies of them."""
        return (*self.backends, *(mirror.backend for mirror in self.filters.mirrors))

    def refused(self, problem: str) -> RouteRule:
        """Return this rule as an unserved one, for its own problem or this one."""
        return self if self.problem else replace(self, problem=problem)


ANYTHING = RouteRule(ranks=(FIRST,))
"""A rule that takes every request before all others: for rules that aren't understood at all."""


class From(StrEnum):
    """Namespaces that may attach."""

    ALL = "All"
    SAME = "Same"
    SELECTOR = "Selector"
    NONE = "None"


class Requirement(Struct, frozen=True):
    """An entry of a label selector's matchExpressions."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()


class Selector(Struct, frozen=True):
    """A label selector; an empty one selects all."""

    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object with these labels is selected; where they aren't known, only by an empty one."""
        if labels is None:
            return not (self.labels or self.requirements)
        same = all(labels.get(key) == value for key, value in self.labels.items())
        return same and all(_meets(requirement, labels) for requirement in self.requirements)


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet a requirement; False for an unknown operator."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


class Allowed(Struct, frozen=True):
    """Namespaces, by name or by label, that may attach to a listener or Gateway, and kinds of routes."""

    namespaces: From = From.SAME
    selector: Selector | None = None
    """None selects nothing."""
    kinds: tuple[tuple[str, str], ...] = ()
    """Groups and kinds; empty for all that the protocol has."""

    def admits(self, home: str, other: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object of the namespace `other` may attach to one of `home`.

        `labels` are those of that namespace; None where they aren't known.
        """
        match self.namespaces:
            case From.ALL:
                return True
            case From.SAME:
                return home == other
            case From.SELECTOR:
                return self.selector is not None and self.selector.selects(labels)
            case From.NONE:
                return False


class ReferenceGrant(Struct, frozen=True):
    """References into a grant's namespace that it allows."""

    namespace: str
    sources: frozenset[tuple[str, str, str]] = frozenset()
    """Groups, kinds and namespaces of the referring objects."""
    targets: frozenset[tuple[str, str, str]] = frozenset()
    """Groups, kinds and names of what is referred to; an empty name for all."""


class PolicyTarget(NamedTuple):
    """The target of a policy in its own namespace."""

    group: str
    kind: str
    name: str
    section: str = ""
    """The name of a Service's port; empty for every port."""


class BackendTlsPolicy(Struct, frozen=True):
    """Settings of TLS to the backends of Services."""

    meta: Meta
    targets: tuple[PolicyTarget, ...] = ()
    hostname: str = ""
    authorities: tuple[Reference, ...] = ()
    is_well_known: str = ""
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    """Names of which a certificate must have one, in place of the hostname."""
    unsupported: tuple[str, ...] = ()
    """Fields that are set and that nothing is made of here."""
    problem: str = ""

    @property
    def reference(self) -> Reference:
        """Return what it is called."""
        return Reference(GROUP, "BackendTLSPolicy", self.meta.key)

    @property
    def services(self) -> tuple[PolicyTarget, ...]:
        """Return its targets that are Services: the only supported ones."""
        return tuple(target for target in self.targets if (target.group, target.kind) == ("", "Service"))

    def service(self, target: PolicyTarget) -> Named:
        return Named(self.meta.key.namespace, target.name)


GROUP = "gateway.networking.k8s.io"
CONTROLLER = f"{KEY_PREFIX}gateway-controller"
"""The controllerName of our GatewayClasses."""


class Named(NamedTuple):
    """Name of an object of one kind; a GatewayClass has no namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


NO_HOST = "."
"""The hostname of a listener with an invalid one: it matches no request."""


class RouteKind(StrEnum):
    """The kinds of routes."""

    HTTP = "HTTPRoute"
    GRPC = "GRPCRoute"
    TLS = "TLSRoute"
    TCP = "TCPRoute"
    UDP = "UDPRoute"


class ListenerProtocol(StrEnum):
    """The protocol of a listener."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"
    TLS = "TLS"
    TCP = "TCP"
    UDP = "UDP"


class TlsMode(StrEnum):
    """Where TLS ends."""

    TERMINATE = "Terminate"
    PASSTHROUGH = "Passthrough"


class Meta(Struct, frozen=True):
    """Metadata of an object."""

    key: Named
    uid: Uid = Uid("")
    generation: int = 0
    created: str = ""
    """As written (RFC 3339, so it sorts); empty in manifests."""
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    fault: Fault | None = None
    """The annotation `local-lb.dev/fault`."""
    problem: str = ""
    """The fault of it. Nothing of the object is served then."""

    @property
    def failing(self) -> Fault | None:
        """The fault that is injected into its requests, if one is ordered."""
        return self.fault.of_requests if self.fault else None

    @property
    def age(self) -> tuple[str, str]:
        """Return what conflicts are decided by: the oldest first, then by name."""
        return self.created, str(self.key)


class Reference(NamedTuple):
    """A reference to an object, its namespace filled in."""

    group: str
    kind: str
    key: Named


class ListenerTls(Struct, frozen=True):
    """TLS of a listener."""

    mode: TlsMode = TlsMode.TERMINATE
    certificates: tuple[Reference, ...] = ()
    options: Mapping[str, str] = field(default_factory=lambda: EMPTY)


class ValidationMode(StrEnum):
    """Admission of clients that are asked for a certificate."""

    VALID_ONLY = "AllowValidOnly"
    INSECURE = "AllowInsecureFallback"


class FrontendValidation(Struct, frozen=True):
    """Validation of client certificates: signed by an authority of these objects."""

    authorities: tuple[Reference, ...]
    mode: ValidationMode = ValidationMode.VALID_ONLY
    problem: str = ""


class GatewayListener(Struct, frozen=True):
    """An entry of the listeners of a Gateway or a ListenerSet."""

    name: str
    port: int
    protocol: str
    """As written; what no ListenerProtocol is isn't supported."""
    hostname: str = ""
    """Lower-case; empty for every name."""
    tls: ListenerTls | None = None
    allowed: Allowed = field(default_factory=Allowed)
    problem: str = ""


class GatewayClass(Struct, frozen=True):
    """A GatewayClass."""

    meta: Meta
    controller: str
    has_parameters: bool = False


class WantedAddress(Struct, frozen=True):
    """An entry of spec.addresses: an address, or why it is none that we can give."""

    text: str
    type: str = "IPAddress"
    address: IPAddress | None = None
    """None where any address of the type will do, or where `type` is another one."""


class Gateway(Struct, frozen=True):
    """A Gateway."""

    meta: Meta
    class_name: str
    listeners: tuple[GatewayListener, ...] = ()
    addresses: tuple[WantedAddress, ...] = ()
    listener_sets: Allowed = field(default_factory=lambda: Allowed(From.NONE))
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Of spec.infrastructure."""
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Likewise."""
    has_parameters: bool = False
    validations: Mapping[int, FrontendValidation | None] = field(default_factory=dict)
    """Of spec.tls.frontend: by port, and at 0 for all other ports; None where no certificate is asked for."""
    client_certificate: Reference | None = None
    """Of spec.tls.backend: what backends are shown."""
    unsupported: tuple[str, ...] = ()
    """Fields that are set and that nothing is made of here."""
    problem: str = ""

    @property
    def reference(self) -> Reference:
        """Return what it is called."""
        return Reference(GROUP, "Gateway", self.meta.key)


class ListenerSet(Struct, frozen=True):
    """A ListenerSet: listeners for another's Gateway."""

    meta: Meta
    parent: Reference
    listeners: tuple[GatewayListener, ...] = ()
    problem: str = ""

    @property
    def reference(self) -> Reference:
        """Return what it is called."""
        return Reference(GROUP, "ListenerSet", self.meta.key)


class ParentRef(Struct, frozen=True):
    """An entry of a route's parentRefs."""

    group: str
    kind: str
    key: Named
    section: str = ""
    port: int = 0
    written: tuple[tuple[str, str | int], ...] = ()
    """The reference as written in the route, for its status."""

    @property
    def reference(self) -> Reference:
        return Reference(self.group, self.kind, self.key)


class GatewayRoute(Struct, frozen=True):
    """A route of any kind; those of TCP, UDP and TLS have rules with backends only."""

    kind: RouteKind
    meta: Meta
    parents: tuple[ParentRef, ...] = ()
    hostnames: tuple[str, ...] | None = ()
    """Empty for all of a listener's; None where it has some, and none of them can be a request's."""
    rules: tuple[RouteRule, ...] = ()
    problem: str = ""
    """The reason that nothing of it is served. Its requests are answered with an error, and by no other route."""

    @property
    def reference(self) -> Reference:
        return Reference(GROUP, self.kind.value, self.meta.key)
