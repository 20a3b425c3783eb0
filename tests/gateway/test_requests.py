"""Whoever asks is answered by the route that the specification names, whatever listeners and routes there are.

The oracle takes a request through the rules one by one: the listener, then hostnames, then matches, then age and name.
What the proxy gets is asked as a proxy asks it: the most specific virtual host, and there the first route that matches.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from locallb.gateway.kinds import parse_api_object
from locallb.gateway.listeners import covers, specificity
from locallb.gateway.parsing import SECRET_REFERENCE
from locallb.gateway.translation import BoundGateway, bind
from locallb.model.gateway_objects import Gateway, GatewayRoute
from locallb.model.http_routes import DirectResponse, Forward, PathKind, PathMatch
from locallb.model.http_serving import ANY, Chain, HttpRoutes
from locallb.model.memory import Memo
from tests.support.gateway_objects import (
    JsonObject,
    backend,
    bound,
    gateway,
    gateway_class,
    listener,
    objects,
    route,
    service,
)

_HOSTS = ("", "*.t", "*.a.t", "a.t", "b.t", "b.a.t")
_PATHS = ("/", "/x", "/x/y")
_hostnames = st.sampled_from(_HOSTS)
_matches = st.tuples(st.sampled_from(["Exact", "PathPrefix"]), st.sampled_from(_PATHS))
_routes = st.tuples(
    st.lists(_hostnames.filter(bool), max_size=2, unique=True),
    st.lists(st.lists(_matches, min_size=1, max_size=2), min_size=1, max_size=2),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
)
_listeners = st.lists(_hostnames, min_size=1, max_size=3, unique=True)
_requests = st.tuples(st.sampled_from(["a.t", "b.t", "b.a.t", "c.a.t", "t", "else"]), st.sampled_from([*_PATHS, "/xy"]))
Drawn = tuple[list[str], list[list[tuple[str, str]]], str]


def _documents(hostnames: list[str], routes: list[Drawn]) -> list[JsonObject]:
    listeners = [listener(f"l{number}", hostname=name) for number, name in enumerate(hostnames)]
    made, services = [], []
    for number, (names, rules, created) in enumerate(routes):
        spec = [
            {
                "matches": [{"path": {"type": kind, "value": value}} for kind, value in rule],
                "backendRefs": [backend(f"s{number}-{place}")],
            }
            for place, rule in enumerate(rules)
        ]
        services += [service(f"s{number}-{place}") for place in range(len(rules))]
        made.append(route(*spec, name=f"r{number}", created=created, hostnames=names))
    return [gateway(*listeners), *made, *services]


def _expected(hostnames: list[str], routes: list[Drawn], host: str, path: str) -> str:
    """Return the Service that the specification names; empty for none."""
    listening = min((name for name in hostnames if covers(name, host)), key=specificity, default=None)
    if listening is None:
        return ""
    found = []
    for number, (names, rules, created) in enumerate(routes):
        having = [name for name in names or [listening] if covers(name, host) and _meet(name, listening)]
        if not having:
            continue
        name = min((name if covers(listening, name) else listening for name in having), key=specificity)
        for place, rule in enumerate(rules):
            for order, (kind, value) in enumerate(rule):
                if _fits(kind, value, path):
                    precise = (0, 0) if kind == "Exact" else (1, -len(value.rstrip("/")))
                    rank = specificity(name), precise, created, f"shop/r{number}", place, order
                    found.append((rank, f"s{number}-{place}"))
    return min(found)[1] if found else ""


def _meet(one: str, other: str) -> bool:
    return covers(one, other) or covers(other, one)


def _fits(kind: str, value: str, path: str) -> bool:
    prefix = value.rstrip("/")
    return path == value if kind == "Exact" else path == prefix or path.startswith(f"{prefix}/")


def _served(one: BoundGateway, host: str, path: str, sni: str = "") -> str | int:
    """Return the Service that a proxy asks, or the status that it answers with by itself."""
    chain = _chain(one.chains[80], sni)
    assert isinstance(chain.serves, HttpRoutes)
    tables = {domain: table.routes for table in chain.serves.hosts for domain in table.domains}
    labels = host.split(".")
    wildcards = ["*." + ".".join(labels[number:]) for number in range(1, len(labels))]
    for each in next((tables[name] for name in (host, *wildcards, ANY) if name in tables), ()):
        wanted = each.match.path or PathMatch(PathKind.PREFIX, "/")
        assert isinstance(wanted, PathMatch)
        if _fits("Exact" if wanted.kind is PathKind.EXACT else "PathPrefix", wanted.value, path):
            if isinstance(each.action, DirectResponse):
                return each.action.status
            assert isinstance(each.action, Forward)
            (target,) = each.action.targets
            return one.targets[target.upstream].service.name
    return ""


def _chain(chains: Sequence[Chain], sni: str) -> Chain:
    """Return the chain that a proxy takes for the name in a client's hello."""
    having = [chain for chain in chains if not chain.names or covers(chain.names[0], sni)]
    return min(having, key=lambda chain: specificity(chain.names[0] if chain.names else ""))


@given(_listeners, st.lists(_routes, max_size=3), _requests, st.sampled_from(["a.t", "b.t", "b.a.t", "else"]))
@example(["", "b.t"], [([], [[("PathPrefix", "/")]], "2026-01-01T00:00:00Z")], ("b.t", "/"), "a.t")
@example(["b.t"], [([], [[("PathPrefix", "/")]], "2026-01-01T00:00:00Z")], ("a.t", "/"), "b.t")
@example(["b.t", "*.t"], [([], [[("PathPrefix", "/")]], "2026-01-01T00:00:00Z")], ("a.t", "/"), "b.t")
@example(["b.t", ""], [([], [[("PathPrefix", "/")]], "2026-01-01T00:00:00Z")], ("else", "/"), "b.t")
def test_with_tls_a_request_for_a_host_of_another_listener_is_misdirected(
    hostnames: list[str], routes: list[Drawn], request: tuple[str, str], sni: str
) -> None:
    """The listener that took the connection serves its own hosts as it does without TLS, and no other ones.

    Listener.hostname: "If no other Listener matches the Host, the Gateway MUST return a 404".
    """
    tls = {"certificateRefs": [{"name": "cert"}]}
    listeners = [listener(f"l{number}", 80, "HTTPS", hostname=name, tls=tls) for number, name in enumerate(hostnames)]
    _, *others = _documents(hostnames, routes)
    secret = {**SECRET_REFERENCE, "metadata": {"name": "cert", "namespace": "shop"}, "spec": {"digest": "ab" * 32}}
    (one,) = bound(gateway(*listeners), *others, secret)
    taking, requested = (
        min((name for name in hostnames if covers(name, host)), key=specificity, default=None)
        for host in (sni, request[0])
    )
    if taking is not None:
        expected = _expected(hostnames, routes, *request) if requested in {taking, None} else 421
        assert _served(one, *request, sni) == expected


@given(_listeners, st.lists(_routes, max_size=3), _requests)
@example(["", "*.t"], [(["b.t"], [[("PathPrefix", "/")]], "2026-01-01T00:00:00Z")], ("b.t", "/"))
def test_a_request_goes_where_the_specification_says(
    hostnames: list[str], routes: list[Drawn], request: tuple[str, str]
) -> None:
    """By listener, hostname, match, age and name, in this order."""
    (one,) = bound(*_documents(hostnames, routes))
    assert _served(one, *request) == _expected(hostnames, routes, *request)


@given(_listeners, st.lists(_routes, max_size=3), st.randoms(use_true_random=False))
def test_the_order_in_which_objects_come_decides_nothing(
    hostnames: list[str], routes: list[Drawn], chance: object
) -> None:
    """Equal objects are bound equally."""
    documents = _documents(hostnames, routes)
    shuffled = list(documents)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert bound(*documents) == bound(*shuffled)


@given(_listeners, st.lists(_routes, max_size=3), st.lists(_routes, max_size=3))
def test_a_memory_of_what_was_bound_changes_nothing(
    hostnames: list[str], before: list[Drawn], now: list[Drawn]
) -> None:
    """What is bound with it is what is bound without it."""
    memory = Memo[BoundGateway]()
    for routes in (before, now):
        read = objects(gateway_class(), *_documents(hostnames, routes))
        assert bind(read, memory=memory) == bind(read)
        memory.evict_unused()


def test_parsed_objects_are_frozen() -> None:
    """Everything that a plan is made from can be remembered and compared."""
    read = [parse_api_object(one) for one in _documents([""], [([], [[("Exact", "/")]], "")])]
    assert [type(one) for one in read if isinstance(one, Gateway | GatewayRoute)] == [Gateway, GatewayRoute]
    assert read == [parse_api_object(one) for one in _documents([""], [([], [[("Exact", "/")]], "")])]
