"""Which rule takes a request: the proxy's routes against the API's words, for any Ingresses and any request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.gateway.kinds import parse_api_object
from locallb.gateway.listeners import MAX_ENTRIES, covers, specificity
from locallb.ingress.hosts import Certificates, Hosts, Routes, chains, within_bounds
from locallb.ingress.parsing import INGRESS_KINDS
from locallb.model.gateway_of_cluster import Ingress, IngressPath
from locallb.model.http_routes import DirectResponse, HttpRoute, Match, PathKind, PathMatch
from locallb.model.http_serving import ANY, AnyCertificate, Certificate, Chain, HttpRoutes
from locallb.model.identities import Digest
from tests.support.gateway_objects import DEMO
from tests.support.ingress_objects import backend, ingress, path, rule

HOSTS = ("", "a.test", "b.a.test", "*.a.test", "*.b.a.test", "*.test")
QUERIED = ("a.test", "b.a.test", "c.a.test", "c.b.a.test", "d.c.b.a.test", "test", "x.test", "else.example")
PATHS = ("/", "/a", "/a/", "/a/b", "/a/b/", "/ab", "/b")
KINDS = ("Exact", "Prefix", "ImplementationSpecific")
_paths = st.builds(path, st.sampled_from(PATHS), st.sampled_from(KINDS), st.just("?"))
_rules = st.builds(lambda host, paths: (host, paths), st.sampled_from(HOSTS), st.lists(_paths, max_size=3))
_ingresses = st.lists(st.tuples(st.lists(_rules, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=4)
Drawn = list[tuple[list[tuple[str, list[dict[str, object]]]], bool]]


def made(drawn: Drawn) -> list[Ingress]:
    """Make Ingresses, the oldest first, in which every path and default leads to a Service of its own."""
    read = []
    for number, (rules, has_default) in enumerate(drawn):
        spec = [
            rule(*(each | {"backend": backend(f"s{number}-{r}-{p}")} for p, each in enumerate(paths)), host=host)
            for r, (host, paths) in enumerate(rules)
        ]
        default = {"defaultBackend": backend(f"d{number}")} if has_default else {}
        one = ingress(*spec, name=f"i{number}")
        parsed = parse_api_object({**one, "spec": {**one["spec"], **default}}, INGRESS_KINDS)
        assert isinstance(parsed, Ingress)
        read.append(parsed)
    return read


def stated(_: Ingress, __: str, path: IngressPath) -> Routes:
    """Answer with the name of the backend."""
    return (HttpRoute(Match(path.match), DirectResponse(200, path.backend.service)),)


def answered(table: HttpRoutes, host: str, requested: str) -> DirectResponse:
    """Return what a request is answered, as the proxy finds out: the most specific host, then the first route."""
    domains = {"" if domain == ANY else domain: each for each in table.hosts for domain in each.domains}
    having = sorted((domain for domain in domains if covers(domain, host)), key=specificity)
    routes = domains[having[0]].routes if having else ()
    action = next((route.action for route in routes if _takes(route, host, requested)), DirectResponse(404))
    assert isinstance(action, DirectResponse)
    return action


def served(hosts: Hosts, host: str, requested: str) -> str:
    """Return who answers a request by plain HTTP."""
    return answered(hosts.table(hosts.names), host, requested).body


def _takes(route: HttpRoute, host: str, requested: str) -> bool:
    compared = route.match.path
    fits = all(re.fullmatch(header.value, host) for header in route.match.headers)
    if compared is None:
        return fits
    assert isinstance(compared, PathMatch)
    return fits and _fits(compared.kind is PathKind.EXACT, compared.value, requested)


def _fits(exact: bool, value: str, requested: str) -> bool:  # noqa: FBT001 - the type of a path
    """Return whether a path matches, element by element."""
    if exact:
        return value == requested
    wanted, given_ = (list(filter(None, text.split("/"))) for text in (value, requested))
    return given_[: len(wanted)] == wanted


def _is_of(host: str, requested: str) -> bool:
    """Return whether a rule's host stands for a request's: a wildcard for one label."""
    if host.startswith("*."):
        return requested.partition(".")[2] == host[2:]
    return host in {"", requested}


def taking(
    ingresses: Sequence[Ingress], host: str, requested: str
) -> Iterator[tuple[tuple[bool, int], bool, int, str]]:
    """Return the paths that take a request, the older first, as they are compared; and to whom each leads."""
    for one in ingresses:
        for each in one.rules:
            for entry in each.paths if _is_of(each.host, host) else ():
                assert entry.match
                exact = entry.match.kind is PathKind.EXACT
                if _fits(exact, entry.match.value, requested):
                    length = len(entry.match.value.rstrip("/"))
                    yield specificity(each.host), not exact, -length, entry.backend.service
        for each in one.rules:
            if one.default and each.host and not each.paths and _is_of(each.host, host):
                yield specificity(each.host), True, 0, one.default.service


def expected(ingresses: Sequence[Ingress], host: str, requested: str) -> str:
    """Return who answers, as the API says it."""
    if paths := list(taking(ingresses, host, requested)):
        return min(paths, key=lambda each: each[:3])[-1]
    hosts = (host, f"*.{host.partition('.')[2]}")
    for named in hosts:
        for one in ingresses:
            if one.default and any(each.host == named for each in one.rules):
                return one.default.service
    return next((one.default.service for one in ingresses if one.default), "")


@given(_ingresses, st.sampled_from(QUERIED), st.sampled_from((*PATHS, "/a/b/c", "/abc", "/else")))
def test_every_request_goes_where_the_api_says(drawn: Drawn, host: str, requested: str) -> None:
    """Exact host, wildcard of one label, none; exact path, longest prefix; the older; then defaults."""
    ingresses = made(drawn)
    assert served(Hosts.of(ingresses, stated), host, requested) == expected(ingresses, host, requested)


SENT_AWAY = DirectResponse(421)
AWAY = (HttpRoute(Match(), SENT_AWAY),)
CERTIFICATES = st.dictionaries(
    st.sampled_from((*HOSTS, "c.b.a.test", "x.test")),
    st.sampled_from([Certificate(DEMO, "shop", name, Digest("ab" * 8)) for name in "abc"]),
    min_size=1,
)


def taking_chain(found: Sequence[Chain], host: str) -> Chain | None:
    """Return the chain that a TLS connection to a host takes."""
    having = [(name, chain) for chain in found for name in chain.names or ("",) if covers(name, host)]
    return min(having, key=lambda each: specificity(each[0]))[1] if having else None


@given(_ingresses, CERTIFICATES, st.sampled_from(QUERIED), st.sampled_from(QUERIED), st.sampled_from(PATHS))
def test_a_tls_connection_finds_what_plain_http_does(
    drawn: Drawn, shown: dict[str, AnyCertificate], connected: str, host: str, requested: str
) -> None:
    """For a host whose connections take that chain; who asks it for another one is sent away, or hears the same."""
    ingresses = made(drawn)
    hosts = Hosts.of(ingresses, stated)
    found = list(chains(Certificates(shown, ()), hosts))
    chain = taking_chain(found, connected)
    if chain is None:
        assert "" not in shown
        return
    assert isinstance(chain.serves, HttpRoutes)
    answer = answered(chain.serves, host, requested)
    if taking_chain(found, host) == chain or not chain.names:
        assert answer.body == expected(ingresses, host, requested)
    else:
        assert answer == SENT_AWAY


@given(_ingresses, CERTIFICATES)
def test_certificates_of_nested_wildcards_multiply_no_routes(drawn: Drawn, shown: dict[str, AnyCertificate]) -> None:
    """Each host of a rule is in one chain with names alone, if any name stands for it."""
    hosts = Hosts.of(made(drawn), stated)
    tables = [chain.serves for chain in chains(Certificates(shown, ()), hosts) if chain.names]
    every = [each for table in tables if isinstance(table, HttpRoutes) for each in table.hosts]
    listed = [domain for each in every if each.routes != AWAY for domain in each.domains]
    assert len(listed) == len(set(listed))
    assert {name for name in hosts.names if name and any(covers(wide, name) for wide in shown if wide)} <= set(listed)


@given(_ingresses, st.integers(0, 40))
def test_an_address_never_has_more_routes_than_it_may(drawn: Drawn, maximum: int) -> None:
    """Who wants more than is left is refused, whoever comes after it and fits is served, and the rest is as it was."""
    ingresses = made(drawn)
    bounded = list(within_bounds(ingresses, maximum))
    hosts = Hosts.of([each for each in bounded if not each.problem], stated)
    assert sum(len(each.routes) for each in hosts.table(hosts.names).hosts) <= maximum
    for before, after in zip(ingresses, bounded, strict=True):
        assert after == before or (after.problem and not after.hosts)
        assert after == before or all(entry.problem for rule in after.rules for entry in rule.paths)
    assert list(within_bounds(ingresses, 10**6)) == ingresses


def test_thousands_of_usual_ingresses_fit_at_one_address() -> None:
    """Each with a host of its own: the default of an address counts but once for each."""
    (usual,) = made([([("h.test", [path()])], True)])
    rules = [replace(usual.rules[0], host=f"h{number}.test") for number in range(MAX_ENTRIES // 2)]
    every = [replace(usual, rules=(each,)) for each in rules]
    served = [each for each in within_bounds(every, MAX_ENTRIES) if not each.problem]
    assert served == every[: (MAX_ENTRIES - 1) // 3]
