"""The routes and certificates of each host, merged from all Ingresses that share an address. Pure.

A request takes the rule of exactly its host, then of the wildcard above it, then one without a host: of each the exact
path first, then the longest prefix, then the older Ingress. A host without paths goes to the default backend of its
Ingress, as by the path /. Requests without a rule go to the default backend of an Ingress that has the host, else to
the oldest one. Of several certificates for a host, the one of the oldest Ingress counts.

Not here: the routes of one path and its backends (`rules`), and private keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.certificates import local
from locallb.gateway.listeners import covering, pair_in, specificity
from locallb.gateway.routes import refused_origin
from locallb.model.gateway_objects import NO_HOST, Named, PlacedMatch, ordered
from locallb.model.gateway_of_cluster import (
    EVERY_PATH,
    FIRST,
    GatewayObjects,
    Ingress,
    IngressBackend,
    IngressPath,
    IngressRule,
    IngressTls,
    everything_refused,
)
from locallb.model.http_routes import DirectResponse, HttpRoute, Match, PathKind, PathMatch, ValueMatch
from locallb.model.http_serving import (
    ANY,
    AnyCertificate,
    Chain,
    HttpRoutes,
    LocalCertificate,
    Termination,
    VirtualHost,
)
from locallb.model.objects import EMPTY
from locallb.model.reasons import Failure
from locallb.model.snapshot import LocalAuthority
from locallb.patterns import pattern


class TlsProblem(NamedTuple):
    """The reason that an entry of spec.tls shows no certificate for a name."""

    ingress: Ingress
    message: str


class Certificates(NamedTuple):
    """The certificate of each name, an empty one for every other name; and why some names have none."""

    by_name: dict[str, AnyCertificate]
    problems: tuple[TlsProblem, ...]
    namespaces: Mapping[str, str] = EMPTY
    """Of the Ingress that shows it, by name."""


def certificates(
    ingresses: Sequence[Ingress], objects: GatewayObjects, authority: LocalAuthority | None = None
) -> Certificates:
    """Return what clients see, `ingresses` the oldest first."""
    by_name: dict[str, AnyCertificate] = {}
    owners: dict[str, Ingress] = {}
    problems = []
    for ingress in ingresses:
        for entry in ingress.tls:
            shown = certificate(ingress, entry, objects, authority)
            if isinstance(shown, Failure):
                problems.append(TlsProblem(ingress, shown.message))
                continue
            for name in entry.hosts or ("",):
                if by_name.setdefault(name, shown) != shown and not isinstance(shown, LocalCertificate):
                    older = owners[name].meta.key
                    why = f"for {name or 'every other name'} the older Ingress {older} shows another certificate"
                    problems.append(TlsProblem(ingress, f"{why}; name the same Secret, or another host"))
                owners.setdefault(name, ingress)
    return Certificates(by_name, tuple(problems), {name: owner.meta.key.namespace for name, owner in owners.items()})


def certificate(
    ingress: Ingress, entry: IngressTls, objects: GatewayObjects, authority: LocalAuthority | None
) -> AnyCertificate | Failure:
    """Return what an entry of spec.tls shows, or why it can't."""
    names = ", ".join(entry.hosts) or "every name"
    if not entry.secret and authority:
        return _local(ingress, entry, authority)
    if not entry.secret:
        return Failure("NoSecret", f"spec.tls names no Secret for {names}; name one of type kubernetes.io/tls")
    return pair_in(objects, Named(ingress.meta.key.namespace, entry.secret), "NoSecret", names)


def _local(ingress: Ingress, entry: IngressTls, authority: LocalAuthority) -> LocalCertificate | Failure:
    """Return the certificate of our own that an Ingress has for all its hosts without a Secret."""
    for host in entry.hosts:
        if not local.certifies(authority, host):
            return Failure("NoSecret", f"spec.tls names no Secret, and {local.refusal(authority, host)}")
    every = [without_secret for without_secret in ingress.tls if not without_secret.secret]
    hosts = [
        host
        for without_secret in every
        for host in without_secret.hosts or ingress.hosts
        if local.certifies(authority, host)
    ]
    return local.certificate(authority, f"ingresses/{ingress.meta.key}", hosts)


def chains(shown: Certificates, hosts: Hosts) -> Iterator[Chain]:
    """Yield the chains of TLS connections: one for each certificate, and one for all other names.

    A host is served by the chain that a connection to it takes, and by that of every other name: not by each of all the
    wildcards that cover it.
    """
    by_name = {name: presented for name, presented in shown.by_name.items() if name}
    names: dict[AnyCertificate, list[str]] = {}
    below: dict[AnyCertificate, list[str]] = {}
    elsewhere: dict[AnyCertificate, list[str]] = {}
    for name, presented in by_name.items():
        names.setdefault(presented, []).append(name)
        wider = _nearest(name, by_name, itself=False)
        if wider and by_name[wider] != presented:
            elsewhere.setdefault(by_name[wider], []).append(name)
    for host in hosts.names:
        if name := _nearest(host, by_name):
            below.setdefault(by_name[name], []).append(host)
    for presented, served_names in names.items():
        table = hosts.table_within(served_names, below.get(presented, ()), elsewhere.get(presented, ()))
        yield Chain(table, tuple(sorted(served_names)), Termination((presented,)))
    if last := shown.by_name.get(""):
        yield Chain(hosts.table(hosts.names), (), Termination((last,)))


def _nearest(host: str, names: Container[str], *, itself: bool = True) -> str:
    """Return the most specific of `names` that covers a host; empty if none does."""
    return next((name for name in covering(host) if name in names and (itself or name != host)), "")


Routes: TypeAlias = tuple[HttpRoute, ...]
Act: TypeAlias = Callable[[Ingress, str, IngressPath], Routes]
"""Returns the routes of a path of a host, or, without a match, of all requests without a rule: tried one after the
other, each with the path.
"""
UNAVAILABLE = DirectResponse(503)
"""The answer if a path has no backend, or isn't understood."""
MISDIRECTED = 421
"""Status for a request to another host than the connection's: the client then connects again."""
_WILDCARD = "*."
_ESCAPED = pattern(r"\\(?=.)")


class Conflict(NamedTuple):
    """A path of a host that an older Ingress, or an earlier rule, has already."""

    ingress: Ingress
    host: str
    path: str
    winner: Ingress


class _Entry(NamedTuple):
    rank: tuple[bool, int]
    """Exact paths, then the longest, be it a prefix or an expression."""
    number: int
    routes: Routes
    namespace: str
    among_others: tuple[bool, int]
    """Its rank among paths of other namespaces: for a refused path the rank of its understood part."""


class Hosts(Struct):
    """All hosts of some Ingresses."""

    by_source: bool = False
    """As `HttpRoutes` has it."""
    conflicts: list[Conflict] = field(default_factory=list)
    shadowed: list[tuple[Ingress, Ingress]] = field(default_factory=list)
    """Ingresses with a default backend for requests of their own hosts only, with the older one for the rest."""
    _entries: dict[str, list[_Entry]] = field(default_factory=dict)
    _defaults: dict[str, Routes] = field(default_factory=dict)
    """Default backends by host, of the oldest Ingress with a rule for it; without host, of the oldest Ingress."""
    _default_of: Ingress | None = None
    """The Ingress with the default backend for requests that no rule matches."""
    _owners: dict[tuple[str, PathKind, str], Ingress] = field(default_factory=dict)
    _paths: set[tuple[str, PathMatch]] = field(default_factory=set)

    @classmethod
    def of(cls, ingresses: Sequence[Ingress], act: Act, *, by_source: bool = False) -> Hosts:
        """Gather what Ingresses say, the oldest first."""
        hosts = cls(by_source)
        for ingress in ingresses:
            hosts._take(ingress, act)
        return hosts

    @property
    def names(self) -> frozenset[str]:
        """Return the hosts of rules; empty for every other one."""
        return frozenset((*self._entries, *self._defaults))

    def table(self, names: Iterable[str]) -> HttpRoutes:
        """Return the routes of these hosts, each once."""
        ordered = sorted(set(names), key=lambda name: (specificity(name), name))
        return HttpRoutes(tuple(map(self._host, ordered)), self.by_source)

    def table_within(self, names: Iterable[str], below: Iterable[str], elsewhere: Iterable[str]) -> HttpRoutes:
        """Return the routes of a TLS connection to one of `names`: of these hosts, and of hosts `below`.

        Requests to all other hosts are answered 421, also to hosts `elsewhere` that a wildcard among `names` covers.
        """
        away = (HttpRoute(Match(), DirectResponse(MISDIRECTED)),)
        others = [VirtualHost(tuple(sorted(domains)), away) for domains in (elsewhere, (ANY,)) if domains]
        return HttpRoutes((*self.table((*names, *below)).hosts, *others), self.by_source)

    def _take(self, ingress: Ingress, act: Act) -> None:
        rules = [rule for rule in ingress.rules if rule.host != NO_HOST]
        for rule in rules:
            self._entries.setdefault(rule.host, [])
            for path in rule.paths:
                self._add(ingress, rule.host, path, act(ingress, rule.host, path))
        if ingress.default:
            for rule in rules:
                if _is_whole(rule) and self._owners.get((rule.host, PathKind.PREFIX, "")) is not ingress:
                    whole = IngressPath(EVERY_PATH, ingress.default, "/")
                    self._add(ingress, rule.host, whole, act(ingress, rule.host, whole))
            self._default_of = self._default_of or ingress
            if self._default_of is not ingress:
                self.shadowed.append((ingress, self._default_of))
            path = IngressPath(None, ingress.default)
            for host in ("", *(rule.host for rule in rules)):
                self._defaults.setdefault(host, act(ingress, host, path))

    def _add(self, ingress: Ingress, host: str, path: IngressPath, routes: Routes) -> None:
        match = path.match or EVERY_PATH
        entries = self._entries[host]
        if path.problem:
            own = path.rank or FIRST
            entries.append(_Entry(own, len(entries), routes, ingress.meta.key.namespace, max(own, _understood(match))))
            return
        value = match.value.rstrip("/") if match.kind is PathKind.PREFIX else match.value
        winner = self._owners.setdefault((host, match.kind, value), ingress)
        length = len((path.written if match.kind is PathKind.REGEX else match.value).rstrip("/"))
        rank = (match.kind is not PathKind.EXACT, -length)
        entry = _Entry(rank, len(entries), routes, ingress.meta.key.namespace, rank)
        if winner is ingress and (host, match) not in self._paths:
            self._paths.add((host, match))
            entries.append(entry)
        else:
            self.conflicts.append(Conflict(ingress, host, path.written, winner))

    def _host(self, name: str) -> VirtualHost:
        """Return one host with its routes, up to the first that takes everything."""
        routes, hostnames = [], []
        for host, route in self._every(name):
            routes.append(route)
            hostnames.append(host)
            if route.match in _EVERYTHING:
                break
        return VirtualHost((name or ANY,), tuple(routes), hostnames=tuple(hostnames))

    def _every(self, name: str) -> Iterator[tuple[str, HttpRoute]]:
        """Yield the routes of one host, and the host that each is written for."""
        for host in dict.fromkeys((name, *above(name), "")):
            placed = (
                PlacedMatch(entry.namespace, (entry.rank, entry.number), (entry.among_others, entry.number), "", entry)
                for entry in self._entries.get(host, ())
            )
            for entry, is_refused in ordered(placed):
                routes = (
                    tuple(
                        HttpRoute(each.match, UNAVAILABLE, origin=refused_origin(each.origin)) for each in entry.routes
                    )
                    if is_refused
                    else entry.routes
                )
                yield from ((host, route) for route in _of_host(routes, name, host))
        for host in dict.fromkeys((name, *above(name), "")):
            yield from ((host, route) for route in _of_host(self._defaults.get(host, ()), name, host))


def within_bounds(ingresses: Sequence[Ingress], maximum: int) -> Iterator[Ingress]:
    """Return Ingresses, the oldest first; a later one that exceeds the remaining room is refused, others are served.

    Requests for hosts of a refused one are refused, of at most so many hosts again.
    """
    room, remaining = _Room(maximum), maximum
    for ingress in ingresses:
        if ingress.problem or room.takes(ingress):
            yield ingress
            continue
        why = f"with it its address would have more than {maximum} routes of all hosts, of which a large expression"
        why += " counts as several; name hosts in its rules, or use simpler expressions"
        hosts = dict.fromkeys(rule.host for rule in ingress.rules if rule.host != NO_HOST)
        closed = (
            tuple(IngressRule(host, (everything_refused(why),)) for host in hosts) if len(hosts) <= remaining else ()
        )
        remaining -= len(closed)
        default = IngressBackend(problem=why) if ingress.default else None
        yield replace(ingress, rules=closed, tls=(), default=default, problem=why, refused=())


class _Room(Struct):
    """Remaining number of routes of all hosts: each host has its own, and those of wildcards that cover it."""

    remaining: int
    _routes: Counter[str] = field(default_factory=Counter)
    """Routes of each host, plus one for its only default, whatever the number of its Ingresses."""
    _under: Counter[str] = field(default_factory=Counter)
    """Number of hosts that each covers."""

    def takes(self, ingress: Ingress) -> bool:
        added = _paths_of(ingress)
        new = added.keys() - self._routes.keys()
        added.update({host: _entries(host, None) for host in new})
        under = Counter(wider for host in new for wider in _wider(host))
        wanted = sum(count * (1 + self._under[host] + under[host]) for host, count in added.items())
        wanted += sum(self._routes[wider] * count for wider, count in under.items())
        if wanted > self.remaining:
            return False
        self.remaining -= wanted
        self._routes.update(added)
        self._under.update(under)
        return True


def _paths_of(ingress: Ingress) -> Counter[str]:
    """Return how many paths each host of an Ingress has; that for every host is always among them."""
    paths = Counter(dict.fromkeys(("", *ingress.hosts), 0))
    for rule in ingress.rules:
        if rule.host != NO_HOST:
            count = sum(_entries(rule.host, path.match) for path in rule.paths) or _is_whole(rule)
            paths[rule.host] += count * ingress.routes_a_path
    return paths


def _understood(match: PathMatch) -> tuple[bool, int]:
    """Return the rank of what a refused path closes: of its beginning, or after all paths where it has none."""
    if match == EVERY_PATH:
        return True, 1
    beginning = match.value.removeprefix("(?i)").removesuffix(".*") if match.kind is PathKind.REGEX else match.value
    return match.kind is not PathKind.EXACT, -len(_ESCAPED.sub("", beginning).rstrip("/"))


def _entries(host: str, path: PathMatch | None) -> int:
    return Match(path, _condition(host, host)).entries


def _wider(host: str) -> AbstractSet[str]:
    return {*above(host), ""} - {host}


def _is_whole(rule: IngressRule) -> bool:
    """Return whether a rule sends all of its host to the default backend of its Ingress."""
    return bool(rule.host) and not rule.paths


_EVERYTHING = (Match(), Match(EVERY_PATH))


def above(name: str) -> tuple[str, ...]:
    """Return the wildcard that covers a name: of one label, so that none covers another wildcard."""
    _, dot, rest = name.partition(".")
    return (f"{_WILDCARD}{rest}",) if dot and not name.startswith(_WILDCARD) else ()


def _of_host(routes: Routes, name: str, host: str) -> Routes:
    """Return the routes of a rule's host as those of a virtual host have them."""
    if not (condition := _condition(name, host)):
        return routes
    return tuple(
        replace(route, match=replace(route.match, headers=(*condition, *route.match.headers))) for route in routes
    )


def _condition(name: str, host: str) -> tuple[ValueMatch, ...]:
    """Return what else must hold where the proxy takes a wildcard for any number of labels, and the API for one."""
    if not name.startswith(_WILDCARD) or host != name:
        return ()
    return (ValueMatch("host", rf"(?i:[^.]+{re.escape(name[1:]).replace(chr(92) + '-', '-')})(:[0-9]+)?", regex=True),)
