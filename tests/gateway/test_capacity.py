"""What one Gateway may ask of its proxy is bounded, whoever writes its routes, and the bound harms nobody else."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway import attachment
from locallb.gateway.listeners import MAX_ENTRIES, MAX_GATEWAY_AUTHORITIES
from locallb.gateway.texts import sentences
from locallb.gateway.translation import BoundGateway, bind
from locallb.model import http_checks as regexes
from locallb.model.http_checks import MAX_AUTHORITIES
from locallb.model.http_routes import DirectResponse
from locallb.model.identities import Protocol
from tests.support.backend_tls import PEM, REF, bundle, policy
from tests.support.gateway_objects import (
    JsonObject,
    backend,
    gateway,
    gateway_class,
    hosts,
    listener,
    objects,
    only,
    parent,
    route,
    rule,
    service,
)

FEW = 12


def entries(one: BoundGateway) -> int:
    """Count what the proxy gets: the matches of each host of each port, of which one at most refuses all the rest."""
    ports = [port.port for port in one.want.ports if port.protocol is Protocol.TCP]
    tables = [routes for port in ports for routes in hosts(one, port).values()]
    refusing = [[route for route in routes if route.action == DirectResponse(500)] for routes in tables]
    assert all(refusals in ([], list(routes[-1:])) for refusals, routes in zip(refusing, tables, strict=True))
    return sum(map(len, tables)) - sum(map(len, refusing))


def refused(one: BoundGateway) -> dict[str, str]:
    """Return which routes aren't accepted, and for which reason."""
    return {each.route.meta.key.name: each.accepted.reason for each in one.attachment.verdicts if each.accepted}


def aged(number: int, *names: str, matches: int = 1, name: str = "") -> JsonObject:
    """Make a route that is younger than those with a lower number."""
    made = route(rule(*(f"/{path}" for path in range(matches))), name=name or f"r{number}", hostnames=list(names))
    made["metadata"]["creationTimestamp"] = f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z"
    return made


_names = st.sampled_from(["a.test", "b.test", "*.test", "a.b.test", "*.b.test"])
_routes = st.lists(st.tuples(st.lists(_names, max_size=4, unique=True), st.integers(1, 4)), max_size=8)
_listeners = st.lists(st.sampled_from(["", "*.test", "*.b.test", "a.test"]), min_size=1, max_size=3, unique=True)


@given(_routes, _listeners)
def test_no_routes_come_to_more_than_the_bound(routes: list[tuple[list[str], int]], names: list[str]) -> None:
    """Whatever their hostnames and those of listeners have in common."""
    listeners = [listener(f"l{number}", hostname=name) for number, name in enumerate(names)]
    made = [aged(number, *those, matches=matches) for number, (those, matches) in enumerate(routes)]
    with mock.patch.object(attachment, "MAX_ENTRIES", FEW):
        one = only(gateway(*listeners), service(), *made)
    assert entries(one) <= FEW


@given(st.lists(st.tuples(st.sampled_from(["a.test", "b.test", "c.test"]), st.integers(1, 5)), max_size=8))
def test_a_route_is_refused_where_it_would_exceed_the_bound_and_only_there(routes: list[tuple[str, int]]) -> None:
    """In the order of age; smaller ones after it still have what is left, but for hosts that refuse requests."""
    made = [aged(number, name, matches=matches) for number, (name, matches) in enumerate(routes)]
    with mock.patch.object(attachment, "MAX_ENTRIES", FEW):
        one = only(gateway(), service(), *made)
    remaining, too_much = FEW, set()
    for number, (_name, matches) in enumerate(routes):
        if matches > remaining:
            too_much.add(f"r{number}")
        else:
            remaining -= matches
    assert refused(one) == dict.fromkeys(too_much, "UnsupportedValue")
    assert entries(one) <= FEW - remaining
    assert too_much or entries(one) == FEW - remaining
    refusing = {name for name, table in hosts(one).items() if table and table[-1].action == DirectResponse(500)}
    assert refusing == {name for number, (name, _) in enumerate(routes) if f"r{number}" in too_much}


def hostile() -> list[JsonObject]:
    """Make routes that are small each, and together want hundreds of thousands of entries."""
    return [
        aged(number, *(f"h{number}-{each}.a.test" for each in range(15)), "*.a.test", matches=60, name=f"evil{number}")
        for number in range(1, 40)
    ]


def test_hostile_routes_cannot_exhaust_a_gateways_proxy() -> None:
    """Older routes are served, and so are small ones that come later."""
    before, after = aged(0, "old.test"), aged(100, "new.test")
    one = only(gateway(), service(), before, *hostile(), after)
    assert {"r0", "r100"}.isdisjoint(refused(one))
    assert set(refused(one).values()) == {"UnsupportedValue"}
    assert {"old.test", "new.test"} <= hosts(one).keys()
    assert entries(one) <= MAX_ENTRIES


_OF_ROUTE = ("RequestHeaderModifier", "requestHeaderModifier"), ("ResponseHeaderModifier", "responseHeaderModifier")


@pytest.mark.parametrize("of_backend", [True, False])
@pytest.mark.parametrize(("kind", "field"), _OF_ROUTE)
@pytest.mark.parametrize("change", ["set", "add", "remove"])
def test_header_changes_count_once_for_each_match(change: str, kind: str, field: str, of_backend: bool) -> None:  # noqa: FBT001 - a case
    """By their names and separators: a proxy gets them with every match, and what removes other spellings."""
    names = [f"x{number:02}{'-a' * 120}" for number in range(16)]
    changed = names if change == "remove" else [{"name": name, "value": "v"} for name in names]
    filters = [{"type": kind, field: {change: changed}}]
    changing = {"backends": [{**backend(), "filters": filters}]} if of_backend else {"filters": filters}
    few, many = (
        route(rule(*(f"/{number}" for number in range(matches)), **changing), name=name, hostnames=[f"{name}.test"])
        for matches, name in ((1, "few"), (64, "many"))
    )
    assert refused(only(gateway(), service(), few)) == {}
    assert refused(only(gateway(), service(), few, many)) == {"many": "UnsupportedValue"}


def test_usual_header_changes_leave_room_for_many_matches() -> None:
    """A few of them, in hundreds of matches."""
    changes = {"set": [{"name": "x-request-source", "value": "edge"}], "remove": ["x-debug"]}
    filters = [{"type": "RequestHeaderModifier", "requestHeaderModifier": changes}]
    rules = [rule(*(f"/{each}/{number}" for number in range(64)), filters=filters) for each in range(2)]
    routes = [route(*rules, name=f"r{each}", hostnames=[f"{each}.test"]) for each in range(8)]
    assert refused(only(gateway(), service(), *routes)) == {}


def test_a_gateway_beside_it_is_not_concerned() -> None:
    """Each has a proxy of its own, and a bound of its own."""
    other = route(name="other", parentRefs=[{"name": "other"}])
    documents = [gateway_class(), gateway(), gateway(name="other"), service(), *hostile(), other]
    quiet = next(one for one in bind(objects(*documents)) if one.key.name == "other")
    assert refused(quiet) == {}
    assert entries(quiet) == 1


@pytest.mark.parametrize("names", [1, 3])
def test_five_hundred_usual_routes_fit(names: int) -> None:
    """With several matches each, and a route that takes every host."""
    made = [aged(number, *(f"h{number}-{each}.test" for each in range(names)), matches=3) for number in range(500)]
    assert refused(only(gateway(), service(), *made, aged(600, matches=2))) == {}


LARGE = "/" + "(?:ab){610}" * 4
"""An expression that is as large as one may be, nearly."""


def test_large_expressions_count_as_what_they_take() -> None:
    """A few hundred fill a proxy, wherever in a match they stand; usual ones count as one match."""

    def large(number: int) -> JsonObject:
        made = aged(number, f"h{number}.test")
        match = {"headers": [{"type": "RegularExpression", "name": "x", "value": LARGE}]} if number % 2 else {}
        path = {"type": "RegularExpression", "value": LARGE if not match else "/[a-z]{3}/.*"}
        made["spec"]["rules"][0]["matches"] = [{"path": path, **match} for _ in range(8)]
        return made

    one = only(gateway(), service(), aged(0, "old.test"), *map(large, range(1, 99)), aged(100, "new.test"))
    reported = refused(one)
    assert {"r0", "r1", "r100"}.isdisjoint(reported)
    assert set(reported) == {f"r{number}" for number in range(52, 99)}
    assert {"h1.test", "new.test"} <= hosts(one).keys()


def test_expressions_are_measured_as_a_route_is_read_and_never_again() -> None:
    """However many listeners it wants to be attached to: else one large route would hold up each plan for all."""
    listeners = [listener(f"l{number}", hostname=f"h{number}.test") for number in range(8)]
    made = aged(0)
    made["spec"]["parentRefs"] = [parent(namespace="shop", sectionName=each["name"]) for each in listeners]
    made["spec"]["rules"][0]["matches"] = [{"path": {"type": "RegularExpression", "value": LARGE}}] * 64
    read = objects(gateway_class(), gateway(*listeners), service(), made)
    regexes._measured.cache_clear()
    (one,) = bind(read)
    assert regexes._measured.cache_info().misses == 0
    assert set(refused(one).values()) == {"UnsupportedValue"}


def test_authorities_of_backends_have_one_bound_in_a_proxy() -> None:
    """Who comes later and has no room isn't spoken to, in clear text neither, which is told; others go on."""
    large = bundle("large")
    large["spec"]["authorities"] = PEM * (MAX_AUTHORITIES // len(PEM))
    documents, count = [large, bundle(), policy("own", target={"name": "last"})], 80
    for number in range(count):
        name = f"s{number:02}"
        reference = {**REF, "name": "large"}
        documents += [service(name), policy(name, target={"name": name}, caCertificateRefs=[reference])]
        documents.append(aged(number, f"{name}.test"))
        documents[-1]["spec"]["rules"][0]["backendRefs"] = [backend(name)]
    documents += [service("last"), aged(count, "last.test")]
    documents[-1]["spec"]["rules"][0]["backendRefs"] = [backend("last")]
    one = only(gateway(), *documents)
    spoken_to = {target.service.name: target.tls for target in one.targets.values()}
    assert all(spoken_to.values())
    claimed = MAX_GATEWAY_AUTHORITIES // len(large["spec"]["authorities"])
    assert spoken_to.keys() == {*(f"s{number:02}" for number in range(claimed)), "last"}
    assert len(one.without_room) == count - claimed
    assert one.without_room[0] == (
        f"Service shop/s{claimed} isn't spoken to: with its authorities those of all backends of this proxy would "
        f"be more"
        " than 16 MiB; name smaller bundles in caCertificateRefs"
    )
    assert f"{one.key}: {one.without_room[0]}" in set(sentences(objects(gateway_class(), gateway(), *documents), [one]))


def test_origins_that_become_expressions_need_room_for_each_match() -> None:
    """By their length: without it 64 origins of 253 letters would count as nothing at every match."""
    origin = f"https://*.{'a' * 60}.test"
    sizes = []
    for origins in (["*"], [f"https://{number}.test" for number in range(64)], [origin], [origin] * 64):
        cors = [{"type": "CORS", "cors": {"allowOrigins": origins}}]
        one = only(gateway(), route({"matches": [{}, {"method": "GET"}], "filters": cors}))
        sizes.append(attachment.entries_of(one.attachment.verdicts[0].route))
    assert sizes[:3] == [3, 3, 3]
    assert sizes[3] > 100


def test_preflights_of_a_method_need_room_too() -> None:
    """The proxy has a further entry for them, but for none where the match takes them by itself."""
    cors = [{"type": "CORS", "cors": {"allowOrigins": ["*"]}}]
    sizes = {
        method: attachment.entries_of(
            only(gateway(), route({"matches": [{"method": method} if method else {}], "filters": filters}))
            .attachment.verdicts[0]
            .route
        )
        for method, filters in (("", cors), ("GET", cors), ("OPTIONS", cors), ("PUT", []))
    }
    assert sizes == {"": 1, "GET": 2, "OPTIONS": 1, "PUT": 1}
