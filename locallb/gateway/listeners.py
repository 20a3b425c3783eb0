"""The listeners of one Gateway, its own and those of ListenerSets: conflicts, certificates, hostnames, and limits.

Listeners of the Gateway come first, then those of ListenerSets, the oldest first. Between objects the earlier one wins;
of conflicting listeners of one object, unless an earlier one excludes them, none is served. In hostnames, `*.` matches
any number of labels, one at least; an empty hostname matches every name. `Grants` are the ReferenceGrants that
references into other namespaces need.

Not here: routes (`routes`, `attachment`), conditions (`statuses`), the form of hostnames (`model.http_checks`), and
reading Secrets and ConfigMaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.certificates import local
from locallb.model.gateway_objects import (
    GROUP,
    FrontendValidation,
    Gateway,
    GatewayListener,
    ListenerProtocol,
    ListenerSet,
    Meta,
    Named,
    Reference,
    ReferenceGrant,
    RouteKind,
    TlsMode,
    ValidationMode,
)
from locallb.model.gateway_of_cluster import AuthorityBundle, GatewayObjects, TlsSecret
from locallb.model.http_checks import MAX_AUTHORITIES
from locallb.model.http_serving import Certificate, ClientValidation
from locallb.model.identities import Protocol
from locallb.model.reasons import INVALID, INVALID_ROUTE_KINDS, Failure
from locallb.model.snapshot import LocalAuthority


class Grants:
    """The ReferenceGrants of a cluster, by the namespace of what is referred to."""

    def __init__(self, grants: Iterable[ReferenceGrant]) -> None:
        self._by_namespace: dict[str, list[ReferenceGrant]] = {}
        for grant in grants:
            self._by_namespace.setdefault(grant.namespace, []).append(grant)

    def allow(self, source: Reference, target: Reference) -> bool:
        """Return whether `source` may refer to `target`: in its own namespace always."""
        if source.key.namespace == target.key.namespace:
            return True
        requested = source.group, source.kind, source.key.namespace
        wanted = {(target.group, target.kind, name) for name in ("", target.key.name)}
        grants = self._by_namespace.get(target.key.namespace, ())
        return any(requested in grant.sources and wanted & grant.targets for grant in grants)


def not_permitted(source: Reference, target: Reference) -> Failure:
    """Explain that a reference into another namespace needs a grant there."""
    why = f"no ReferenceGrant in namespace {target.key.namespace} lets {source.kind} of {source.key.namespace}"
    return Failure("RefNotPermitted", f"{why} refer to {target.kind} {target.key.name}; make one")


_WILDCARD = "*."


def covers(general: str, special: str) -> bool:
    """Return whether `general` matches every name that `special` matches."""
    if general in {"", special}:
        return True
    return general.startswith(_WILDCARD) and special.removeprefix(_WILDCARD).endswith(general[1:])


@lru_cache(maxsize=1 << 16)
def covering(name: str) -> tuple[str, ...]:
    """Return every hostname that covers `name`, the most specific one first."""
    labels = name.removeprefix(_WILDCARD).split(".")
    wider = (_WILDCARD + ".".join(labels[number:]) for number in range(1, len(labels)))
    return tuple(dict.fromkeys((name, *wider, "")))


def intersection(name: str, other: str) -> str | None:
    """Return the more specific name, if it is included in the other; else None."""
    if covers(name, other):
        return other
    return name if covers(other, name) else None


def intersections(listener: str, route: Iterable[str] | None) -> tuple[str, ...]:
    """Return the common hostnames of a listener and a route; a route without hostnames takes all of the listener's.

    None is a route with hostnames that match no request.
    """
    names = () if route is None else tuple(route) or ("",)
    both = (intersection(listener, name) for name in names)
    return tuple(dict.fromkeys(name for name in both if name is not None))


def specificity(name: str) -> tuple[bool, int]:
    """Return what to sort by, most specific first: names, then wildcards, longer ones first."""
    return is_general(name), -len(name)


def is_general(name: str) -> bool:
    """Return whether a hostname matches several names."""
    return not name or name.startswith(_WILDCARD)


MAX_ENTRIES = 20_000
"""Matches of all hosts of a Gateway, of which a large expression counts as several: some tens of megabytes."""
MAX_GATEWAY_AUTHORITIES = 16 << 20
"""Bytes of the authorities, in PEM, of all backends to which a proxy speaks: each has a copy of its own."""


class Capacity(Struct):
    """The remaining matches and hostnames of all routes of one Gateway; the count may be too high, never too low.

    A proxy gets each match of a route once for every host that the route accepts, so few objects can need much. Routes
    are attached one after the other; one that exceeds the remaining number is refused, and others are served. Bounds of
    single objects are checked where these are parsed.
    """

    remaining: int
    _hosts: set[tuple[int, str]] = field(default_factory=set)
    _hosts_under: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Number of hosts under a hostname, including itself, by number of the listener."""
    _matches: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Number of matches that were attached to a hostname."""

    def open(self, listener: int, hostname: str) -> None:
        """Take a host over, which has the matches of whatever covers it."""
        if (listener, hostname) not in self._hosts:
            self._hosts.add((listener, hostname))
            self._hosts_under.update((listener, name) for name in covering(hostname))

    def wanted(self, listener: int, names: Sequence[str], matches: int) -> int:
        """Return the number of entries of a route with `matches`, at these hostnames of a listener."""
        return sum(self._wanted(listener, name, names, matches) for name in names)

    def attach(self, listener: int, names: Sequence[str], matches: int, wanted: int) -> None:
        """Attach a route with `matches`, of which `wanted` returned the entries."""
        self.remaining -= wanted
        for name in names:
            self.open(listener, name)
            self._matches[listener, name] += matches

    def _wanted(self, listener: int, name: str, names: Sequence[str], matches: int) -> int:
        """Count the matches of this route at all hosts of a name, and the matches of other routes at a new host."""
        new = [other for other in names if (listener, other) not in self._hosts and covers(name, other)]
        hosts = self._hosts_under[listener, name] + len(new)
        others = 0 if (listener, name) in self._hosts else sum(self._matches[listener, t] for t in covering(name))
        return matches * hosts + others


_SECRET = ("", "Secret")


def named_pair(
    owner: Reference, named: Reference, objects: GatewayObjects, grants: Grants, reason: str
) -> Certificate | Failure:
    """Return the certificate in a Secret, or why it can't be used: for `reason`, if `owner` may reference it."""
    if named[:2] != _SECRET:
        why = f"{named.group or 'core'}/{named.kind} {named.key} can't be a certificate; name a Secret"
        return Failure(reason, why)
    if not grants.allow(owner, named):
        return not_permitted(owner, named)
    return pair_in(objects, named.key, reason)


def pair_in(objects: GatewayObjects, key: Named, reason: str, names: str = "") -> Certificate | Failure:
    """Return the certificate in a Secret, or why it can't be used, for `names`."""
    secret = objects.secrets.get(key, TlsSecret(key))
    if secret.digest and not secret.problem:
        return Certificate(objects.cluster, *key, secret.digest, secret.file, secret.tcp_only)
    why = secret.problem or "it isn't there; make it, of type kubernetes.io/tls"
    return Failure(reason, f"Secret {key}{f', for {names},' if names else ''} can't be used: {why}")


def client_pair(gateway: Gateway, objects: GatewayObjects) -> Certificate | Failure | None:
    """Return what a Gateway shows to backends, by its spec.tls.backend; None where that is nothing."""
    named, reason = gateway.client_certificate, "InvalidClientCertificateRef"
    return named_pair(gateway.reference, named, objects, Grants(objects.grants), reason) if named else None


_CONFIG_MAP = ("", "ConfigMap")
_REF, _KIND = "InvalidCACertificateRef", "InvalidCACertificateKind"


class Clients(Struct, frozen=True):
    """Validation of client certificates at a port."""

    validation: ClientValidation | None = None
    """None where none of the authorities can be used, and where nothing is asked for."""
    accepted: Failure | None = None
    """The reason that no client can be accepted."""
    resolved: Failure | None = None
    """The reason that an authority can't be used."""


def clients_by_port(gateway: Gateway, objects: GatewayObjects) -> Mapping[int, Clients]:
    """Return the client certificate validation (spec.tls.frontend) by port; 0 is every other port.

    It applies to every HTTPS listener, also of ListenerSets: a connection may be used for all hosts of a port. A port
    for which no client can be accepted is closed, with the reason.
    """
    if not gateway.validations:
        return {}
    grants = Grants(objects.grants)
    return {
        port: _clients(requested, gateway, objects, grants) if requested else Clients()
        for port, requested in gateway.validations.items()
    }


def _clients(requested: FrontendValidation, gateway: Gateway, objects: GatewayObjects, grants: Grants) -> Clients:
    """Combine the usable authorities; report the first unusable one."""
    if requested.problem:
        return Clients(accepted=Failure("UnsupportedValue", requested.problem))
    text, failures = "", list[Failure]()
    for named in requested.authorities:
        bundle = _bundle(named, gateway, objects, grants)
        if isinstance(bundle, Failure):
            failures.append(bundle)
        elif len(text) + len(bundle.authorities) > MAX_AUTHORITIES:
            why = f"with those before it, it has more than {MAX_AUTHORITIES >> 10} KiB; leave what is needed"
            failures.append(Failure(_REF, f"ConfigMap {named.key} can't be used: {why}"))
        else:
            text += bundle.authorities
    resolved = next(iter(failures), None)
    try:
        validation = ClientValidation(text, requested.mode is ValidationMode.INSECURE)
    except ValueError:
        message = resolved.message if resolved else f"{requested.authorities[0].key} has none"
        return Clients(None, Failure("NoValidCACertificate", f"no authority can be used: {message}"), resolved)
    return Clients(validation, None, resolved)


def _bundle(named: Reference, gateway: Gateway, objects: GatewayObjects, grants: Grants) -> AuthorityBundle | Failure:
    """Return a ConfigMap that a Gateway names, or why it can't be used."""
    if named[:2] != _CONFIG_MAP:
        why = f"{named.group or 'core'}/{named.kind} {named.key} can't be an authority; name a ConfigMap"
        return Failure(_KIND, why)
    if not grants.allow(gateway.reference, named):
        return not_permitted(gateway.reference, named)
    bundle = objects.bundles.get(named.key, AuthorityBundle(named.key))
    if bundle.problem or not bundle.authorities:
        why = bundle.problem or "it isn't there; make it, with certificates in its ca.crt"
        return Failure(_REF, f"ConfigMap {named.key} can't be used: {why}")
    return bundle


_MAX_AUTHORITIES = 1 << 20
"""Characters of all authorities of a Gateway: each listener has its own copy."""
KINDS: Mapping[str, tuple[RouteKind, ...]] = {
    ListenerProtocol.HTTP: (RouteKind.HTTP, RouteKind.GRPC),
    ListenerProtocol.HTTPS: (RouteKind.HTTP, RouteKind.GRPC),
    ListenerProtocol.TLS: (RouteKind.TLS,),
    ListenerProtocol.TCP: (RouteKind.TCP,),
    ListenerProtocol.UDP: (RouteKind.UDP,),
}
"""The kinds of routes that may attach to listeners of a protocol."""
_WITH_NAMES = frozenset({ListenerProtocol.HTTPS.value, ListenerProtocol.TLS.value})
"""Protocols that may share a port where their hostnames differ, besides two listeners of HTTP."""


class BoundListener(Struct, frozen=True):
    """A listener, the routes it may serve, and the reason if it isn't served."""

    owner: Reference
    listener: GatewayListener
    kinds: tuple[RouteKind, ...] = ()
    """The kinds of routes that may attach to it."""
    accepted: Failure | None = None
    """The reason that it isn't accepted, except conflicts."""
    conflict: Failure | None = None
    resolved: Failure | None = None
    """The reason that a reference of it can't be resolved."""
    certificates: tuple[Certificate, ...] = ()
    authority: LocalAuthority | None = None
    """Authority of its certificate; None if it names existing certificates, or needs none."""
    clients: ClientValidation | None = None
    """Validation of its clients' certificates."""

    @property
    def transport(self) -> Protocol:
        """The transport of its port: TCP, or UDP."""
        return Protocol.UDP if self.listener.protocol == ListenerProtocol.UDP else Protocol.TCP

    @property
    def serves(self) -> bool:
        """Return whether the proxy listens for it."""
        return not (self.accepted or self.conflict) and bool(self.kinds) and not self._lacks_certificate

    @property
    def refusal(self) -> str:
        """Return the refused parts as a text without the name of its Gateway; empty if none is."""
        failure = self.conflict or self.accepted or self.resolved
        if not failure and not self.serves:
            failure = Failure(INVALID, "nothing of it can be served")
        return f"listener {self.listener.name}: {failure.reason}: {failure.message}" if failure else ""

    @property
    def _lacks_certificate(self) -> bool:
        tls = self.listener.tls
        return tls is not None and tls.mode is TlsMode.TERMINATE and not (self.certificates or self.authority)


def attached_sets(gateway: Gateway, objects: GatewayObjects) -> tuple[ListenerSet, ...]:
    """Return the ListenerSets that name the Gateway and may attach to it, in the order of precedence."""
    if not objects.listener_sets:
        return ()
    mine = gateway.reference
    allowed = (
        listener_set
        for listener_set in objects.listener_sets
        if listener_set.parent == mine and is_allowed(listener_set, gateway, objects.namespaces)
    )
    return tuple(sorted(allowed, key=lambda listener_set: listener_set.meta.age))


def is_allowed(listener_set: ListenerSet, gateway: Gateway, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether the Gateway lets a ListenerSet attach."""
    other = listener_set.meta.key.namespace
    return gateway.listener_sets.admits(gateway.meta.key.namespace, other, namespaces.get(other))


def bound_listeners(
    gateway: Gateway, sets: Iterable[ListenerSet], objects: GatewayObjects, authority: LocalAuthority | None = None
) -> tuple[BoundListener, ...]:
    """Bind all listeners of a Gateway, `sets` in order; `authority` makes certificates for listeners without one."""
    grants, requested = Grants(objects.grants), clients_by_port(gateway, objects)
    owned = [("Gateway", gateway.meta, gateway.listeners)]
    owned += [("ListenerSet", listener_set.meta, listener_set.listeners) for listener_set in sets]
    bound = [
        _validated(_certified(_bound(_owner(kind, meta), listener, objects, grants), authority), requested)
        for kind, meta, listeners in owned
        for listener in listeners
    ]
    return tuple(_within_bound(_without_conflicts(bound)))


def _owner(kind: str, meta: Meta) -> Reference:
    return Reference(GROUP, kind, meta.key)


def _bound(owner: Reference, listener: GatewayListener, objects: GatewayObjects, grants: Grants) -> BoundListener:
    accepted = _unsupported(listener)
    possible = KINDS.get(listener.protocol, ())
    requested = listener.allowed.kinds
    kinds = tuple(kind for kind in possible if not requested or (GROUP, kind.value) in requested)
    odd = [f"{group}/{kind}" for group, kind in requested if group != GROUP or kind not in possible]
    certificates, resolved = _certificates(owner, listener, objects, grants)
    if odd:
        why = f"listener {listener.name} speaks {listener.protocol} and takes no {', '.join(odd)}"
        resolved = Failure(INVALID_ROUTE_KINDS, f"{why}; allow {' or '.join(possible)}")
    return BoundListener(owner, listener, kinds, accepted, None, resolved, certificates)


def _certified(bound: BoundListener, authority: LocalAuthority | None) -> BoundListener:
    """Request a certificate from the local authority for a listener that names none, where its hostname allows one."""
    tls, name = bound.listener.tls, bound.listener.hostname
    if authority is None or tls is None or tls.mode is TlsMode.PASSTHROUGH or tls.certificates:
        return bound
    if name and not local.certifies(authority, name):
        why = f"listener {bound.listener.name} names no certificate, and {local.refusal(authority, name)}"
        return replace(bound, resolved=Failure("InvalidCertificateRef", why))
    kinds_only = bound.resolved if bound.resolved and bound.resolved.reason == INVALID_ROUTE_KINDS else None
    return replace(bound, resolved=kinds_only, authority=authority)


def _validated(bound: BoundListener, requested: Mapping[int, Clients]) -> BoundListener:
    """Require from clients of HTTPS what the Gateway requires at the port, else at all ports."""
    listener = bound.listener
    clients = requested.get(listener.port, requested.get(0)) if listener.protocol == ListenerProtocol.HTTPS else None
    if clients is None:
        return bound
    accepted, resolved = bound.accepted or clients.accepted, bound.resolved or clients.resolved
    return replace(bound, accepted=accepted, resolved=resolved, clients=clients.validation)


def _unsupported(listener: GatewayListener) -> Failure | None:
    """Return why a listener isn't accepted, whatever else there is."""
    if listener.problem:
        return Failure("UnsupportedValue", listener.problem)
    if listener.protocol not in set(ListenerProtocol):
        why = (
            f"listener {listener.name} has the protocol {listener.protocol!r}; use one of {', '.join(ListenerProtocol)}"
        )
        return Failure("UnsupportedProtocol", why)
    return _odd_tls(listener)


def _odd_tls(listener: GatewayListener) -> Failure | None:
    with_tls = listener.protocol in _WITH_NAMES
    if with_tls != (listener.tls is not None):
        fix = "give it tls" if with_tls else "leave tls out"
        return Failure("UnsupportedValue", f"listener {listener.name} speaks {listener.protocol}; {fix}")
    if listener.protocol == ListenerProtocol.HTTPS and listener.tls and listener.tls.mode is TlsMode.PASSTHROUGH:
        return Failure("UnsupportedValue", f"listener {listener.name} can't pass HTTPS through; use the protocol TLS")
    return None


def _certificates(
    owner: Reference, listener: GatewayListener, objects: GatewayObjects, grants: Grants
) -> tuple[tuple[Certificate, ...], Failure | None]:
    """Return the certificates that can be used, and why another one can't."""
    tls = listener.tls
    if tls is None or tls.mode is TlsMode.PASSTHROUGH:
        return (), None
    pairs = [
        named_pair(owner, certificate, objects, grants, "InvalidCertificateRef") for certificate in tls.certificates
    ]
    usable = [pair for pair in pairs if isinstance(pair, Certificate)]
    failures = [pair for pair in pairs if isinstance(pair, Failure)]
    if not tls.certificates:
        failures.append(Failure("InvalidCertificateRef", f"listener {listener.name} names no certificate; name one"))
    return tuple(usable), next(iter(failures), None)


def _within_bound(bound: Iterable[BoundListener]) -> Iterator[BoundListener]:
    """Refuse a listener if its clients' authorities exceed the limit, together with those of earlier listeners."""
    remaining = _MAX_AUTHORITIES
    for listener in bound:
        size = len(listener.clients.authorities) if listener.clients and listener.serves else 0
        fits = size <= remaining
        remaining -= size if fits else 0
        why = f"with those of listeners before it, its authorities have more than {_MAX_AUTHORITIES >> 20} MiB"
        refused = Failure("NoValidCACertificate", f"{why}; leave what is needed")
        yield listener if fits else replace(listener, accepted=refused)


def _without_conflicts(bound: Sequence[BoundListener]) -> tuple[BoundListener, ...]:
    """Mark conflicting listeners: between objects the later ones, within one object all of them."""
    retained: list[BoundListener] = []
    checked: list[BoundListener] = []
    for _, group in groupby(bound, key=lambda listener: listener.owner):
        among = [replace(listener, conflict=_conflict(listener, retained)) for listener in group]
        remaining = [listener for listener in among if not listener.conflict]
        conflicts = [listener.conflict or _conflict(listener, _without(listener, remaining)) for listener in among]
        among = [replace(listener, conflict=conflict) for listener, conflict in zip(among, conflicts, strict=True)]
        retained += [listener for listener in among if not listener.conflict and _is_understood(listener)]
        checked += among
    return tuple(checked)


def _without(listener: BoundListener, listeners: Iterable[BoundListener]) -> Iterable[BoundListener]:
    return (other for other in listeners if other is not listener)


def _is_understood(listener: BoundListener) -> bool:
    """Return whether a listener says which traffic is its own, be it served or not."""
    return not listener.listener.problem and listener.listener.protocol in set(ListenerProtocol)


def _conflict(listener: BoundListener, others: Iterable[BoundListener]) -> Failure | None:
    """Return why traffic couldn't be distinguished; a listener that isn't understood conflicts with none."""
    mine = listener.listener
    for other in others if _is_understood(listener) else ():
        theirs = other.listener
        if not _is_understood(other) or (mine.port, listener.transport) != (theirs.port, other.transport):
            continue
        what = f"port {mine.port} with {theirs.name} of {other.owner.key}"
        if not _compatible(mine.protocol, theirs.protocol):
            why = f"listener {mine.name} shares {what}, which speaks {theirs.protocol}; give it a port of its own"
            return Failure("ProtocolConflict", why)
        if mine.hostname == theirs.hostname:
            name = mine.hostname or "every hostname"
            return Failure("HostnameConflict", f"listener {mine.name} shares {what}, and {name}; change one of them")
    return None


def _compatible(protocol: str, other: str) -> bool:
    return {protocol, other} <= _WITH_NAMES or protocol == other == ListenerProtocol.HTTP
