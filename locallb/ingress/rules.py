"""The routes for one path of an Ingress, with the settings of its annotations.

Not here: which path takes a request (`hosts`), and what annotations mean (`annotations`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from locallb.ingress.annotations.policy import Canary, Location, Policy
from locallb.ingress.backends import IngressBackends
from locallb.ingress.hosts import UNAVAILABLE, Routes, above
from locallb.model.gateway.ingresses import Ingress, IngressBackend, IngressPath
from locallb.model.gateway.objects import Named
from locallb.model.http.policies import HeaderChanges
from locallb.model.http.routes import Answer, Forward, Match, PathRewrite, Redirect, Route, Target
from locallb.model.identities import UpstreamName

_TO_HTTPS = 308
_CHALLENGE = "/.well-known/acme-challenge"
"""Path of ACME challenges by plain HTTP, before a certificate exists: never redirected to HTTPS."""


class Canaried(NamedTuple):
    """A path of a canary."""

    ingress: Ingress
    backend: IngressBackend
    canary: Canary


_Place: TypeAlias = tuple[str, str, str]
"""Namespace, host and path as they are written."""


class Rules:
    """The rules of Ingresses that have an address together."""

    def __init__(
        self, ingresses: Sequence[Ingress], policies: Mapping[Named, Policy], backends: IngressBackends
    ) -> None:
        """Take all of them, the oldest first, each with its policy."""
        self._policies, self._backends = policies, backends
        self.refused: list[tuple[Ingress, str]] = []
        self._canaries: dict[_Place, Canaried] = {}
        self._claimed: set[_Place] = set()
        for ingress in ingresses:
            if canary := policies[ingress.meta.key].canary:
                for rule, path in ((entry, path) for entry in ingress.rules for path in entry.paths):
                    place = _place(ingress, rule.host, path)
                    self._canaries.setdefault(place, Canaried(ingress, path.backend, canary))

    def canary_failures(self) -> Iterator[tuple[Ingress, str]]:
        """Yield canaries without a main Ingress for their path, with the reason."""
        for place, entry in self._canaries.items():
            if place not in self._claimed:
                where = f"{place[1] or 'every host'}{place[2]}"
                why = f"no other Ingress of its namespace has {where}, of which it would take a share; make one"
                yield entry.ingress, why

    def tls_failures(self, ingresses: Sequence[Ingress], certified: Container[str]) -> Iterator[tuple[Ingress, str]]:
        """Return what would be served by TLS alone, and has no certificate."""
        for ingress in ingresses:
            policy = self._policies[ingress.meta.key]
            for host in dict.fromkeys(rule.host for rule in ingress.rules if policy.secured and not policy.plain):
                if not standing_for(host, certified):
                    why = (
                        f"{host or 'every host'} is served by TLS alone, as its annotations say, and has no certificate"
                    )
                    yield ingress, f"{why}; name one in spec.tls"

    def plain(self, ingress: Ingress, host: str, path: IngressPath, certified: Mapping[str, str], https: int) -> Routes:
        """Return the routes of a request by plain HTTP.

        Hosts in `certified` have a certificate at the port `https`, named by an Ingress of the given namespace. A
        certificate of another namespace causes no redirect to HTTPS unless the Ingress requires one.
        """
        policy = self._policies[ingress.meta.key]
        if (
            policy.is_denied
            or path.problem
            or policy.location
            or not policy.to_https
            or path.written.startswith(_CHALLENGE)
        ):
            return self.secured(ingress, host, path)
        owners = [certified[name] for name in standing_for(host, certified)]
        if ingress.meta.key.namespace in owners or (owners and policy.must_be_https):
            return (Route(Match(path.match), Redirect(_TO_HTTPS, "https", port=https)),)
        if policy.must_be_https:
            why = f"{host or 'every host'} has no certificate, so nobody is sent to HTTPS; name one in spec.tls"
            self._backends.failures.append((ingress, why))
        return self.secured(ingress, host, path)

    def secured(self, ingress: Ingress, host: str, path: IngressPath) -> Routes:
        """Return the routes of a request by TLS, or by plain HTTP without a redirect."""
        routes, fault = self._served(ingress, host, path), ingress.meta.failing
        return tuple(replace(route, fault=fault) for route in routes) if fault else routes

    def _served(self, ingress: Ingress, host: str, path: IngressPath) -> Routes:
        policy = self._policies[ingress.meta.key]
        if policy.is_denied or path.problem or ingress.problem:
            return (_no_owner(path),)
        if policy.location:
            return (_sent(path, policy.location),)
        if path.leads_to:
            return (_sent(path, Location(302, path.leads_to)),)
        main = self._backends.upstream(ingress, path.backend, policy.spoken)
        canary = self._canaries.get(_place(ingress, host, path)) if path.match else None
        if canary is None:
            return (self._route(ingress, path, policy, (Target(main),)),) if main else (_no_owner(path),)
        self._claimed.add(_place(ingress, host, path))
        return tuple(self._shared(ingress, path, policy, main, canary))

    def _shared(
        self, ingress: Ingress, path: IngressPath, policy: Policy, main: UpstreamName, entry: Canaried
    ) -> Iterator[Route]:
        """Return the routes of a path of which a canary has a share."""
        other, canary = self._backends.upstream(entry.ingress, entry.backend, policy.spoken), entry.canary
        shares = (Target(main, canary.total - canary.weight), Target(other, canary.weight))
        whole = self._route(ingress, path, policy, (Target(main),)) if main else _no_owner(path)
        if not other:
            yield whole
            return
        leading = self._route(ingress, path, policy, (Target(other),))
        for header, route in ((canary.always, leading), (canary.never, whole)):
            if header:
                yield replace(route, match=Match(path.match, (header,)))
        if canary.weight == 0:
            yield whole
        elif canary.weight == canary.total:
            yield leading
        else:
            yield self._route(ingress, path, policy, shares)

    def _route(self, ingress: Ingress, path: IngressPath, policy: Policy, targets: tuple[Target, ...]) -> Route:
        has_groups = "\\" in policy.rewrite
        # What leads to the very path that is asked for is left as it is, with whatever follows.
        is_same = not policy.rewrite or policy.rewrite == (path.written or "/")
        try:
            rewrite = None if is_same else PathRewrite(policy.rewrite, groups=has_groups)
            forward = Forward(targets, path=rewrite, idle=policy.idle)
            return Route(Match(path.match), forward, cors=policy.cors, sources=policy.sources)
        except ValueError as error:
            self.refused.append((ingress, f"rewrite-target of {path.written}: {error}"))
            return _no_owner(path)


def standing_for(host: str, certified: Container[str]) -> list[str]:
    """Return the names with a certificate that cover a host."""
    return [name for name in (host, *above(host), "") if name in certified]


def _place(ingress: Ingress, host: str, path: IngressPath) -> _Place:
    return ingress.meta.key.namespace, host, path.written or "/"


def _no_owner(path: IngressPath) -> Route:
    return Route(Match(path.match), UNAVAILABLE)


def _sent(path: IngressPath, location: Location) -> Route:
    """Return a route that sends clients elsewhere: to the very URL, or with their path and query to another host."""
    if not location.keeps_request:
        return Route(
            Match(path.match), Answer(location.status), response=HeaderChanges(set=(("location", location.url),))
        )
    return Route(Match(path.match), location.redirect)
