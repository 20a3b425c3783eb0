"""Which routes are attached to which listeners, and what they are told otherwise."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway.listeners import covering, covers, intersection, specificity
from locallb.gateway.translation import bind
from tests.support.gateway_objects import (
    JsonObject,
    bound,
    gateway,
    gateway_class,
    grant,
    hosts,
    listener,
    namespace,
    objects,
    only,
    parent,
    route,
    rule,
    service,
)

_labels = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(".".join)
_hostnames = st.just("") | _labels | _labels.map(lambda name: f"*.{name}")
_requests = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)


def _takes(hostname: str, request: str) -> bool:
    """Return whether a hostname takes a request, label by label."""
    if not hostname:
        return True
    labels, requested = hostname.split("."), request.split(".")
    if labels[0] != "*":
        return labels == requested
    return len(requested) >= len(labels) and requested[1 - len(labels) :] == labels[1:]


@given(_hostnames, _hostnames, _requests)
def test_hostname_intersection_matches_what_both_match(one: str, other: str, request: str) -> None:
    """The intersection takes exactly the requests that both take."""
    common = intersection(one, other)
    both = _takes(one, request) and _takes(other, request)
    assert both == (common is not None and _takes(common, request))
    assert common == intersection(other, one)


@given(_hostnames, _hostnames)
def test_a_hostname_that_another_covers_is_more_specific(one: str, other: str) -> None:
    """Sorting by specificity never puts the general one first."""
    if covers(one, other) and one != other:
        assert specificity(other) < specificity(one)


@given(_hostnames, _hostnames)
def test_the_hostnames_that_cover_one_are_listed_the_most_specific_first(general: str, special: str) -> None:
    """All of them, and nothing else."""
    listed = covering(special)
    assert covers(general, special) == (general in listed)
    assert all(covers(one, special) for one in listed)
    assert sorted(listed, key=specificity) == list(listed)


def _calls(count: int) -> int:
    """Count the calls that it takes to bind routes with a hostname each."""
    documents = [route(name=f"r{number}", hostnames=[f"h{number}.test"]) for number in range(count)]
    read = objects(gateway_class(), gateway(), service(), *documents)
    calls = 0

    def count_it(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event.endswith("call")

    sys.setprofile(count_it)
    try:
        bind(read)
    finally:
        sys.setprofile(None)
    return calls


def test_the_work_grows_with_the_routes_and_not_with_their_square() -> None:
    """Whoever may attach routes to a Gateway must not stop its neighbours by their number."""
    assert _calls(800) < 2.5 * _calls(400)


def _allowing(**fields: object) -> JsonObject:
    return gateway(listener(allowedRoutes=fields))


OUTCOMES: dict[str, tuple[list[JsonObject], str]] = {
    "of the same namespace": ([gateway(), route()], ""),
    "of another namespace": ([gateway(), route(namespace="else")], "NotAllowedByListeners"),
    "of any": ([_allowing(namespaces={"from": "All"}), route(namespace="else")], ""),
    "of none": ([_allowing(namespaces={"from": "None"}), route()], "NotAllowedByListeners"),
    "selected": (
        [
            _allowing(namespaces={"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}),
            namespace("else", team="a"),
            route(namespace="else"),
        ],
        "",
    ),
    "not selected": (
        [
            _allowing(namespaces={"from": "Selector", "selector": {"matchLabels": {"team": "b"}}}),
            namespace("else", team="a"),
            route(namespace="else"),
        ],
        "NotAllowedByListeners",
    ),
    "selected by a selector that is missing": (
        [_allowing(namespaces={"from": "Selector"}), route()],
        "NotAllowedByListeners",
    ),
    "selected by a selector of everything": (
        [_allowing(namespaces={"from": "Selector", "selector": {}}), route(namespace="else")],
        "",
    ),
    "an absent label of a namespace that isn't known": (
        [
            _allowing(
                namespaces={
                    "from": "Selector",
                    "selector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
                }
            ),
            route(),
        ],
        "NotAllowedByListeners",
    ),
    "an expression without values": (
        [
            _allowing(
                namespaces={
                    "from": "Selector",
                    "selector": {"matchExpressions": [{"key": "team", "operator": "NotIn"}]},
                }
            ),
            namespace("shop"),
            route(),
        ],
        "NotAllowedByListeners",
    ),
    "selected by an expression": (
        [
            _allowing(
                namespaces={
                    "from": "Selector",
                    "selector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]},
                }
            ),
            namespace("else", team="a"),
            route(namespace="else"),
        ],
        "",
    ),
    "an operator that nobody knows": (
        [
            _allowing(
                namespaces={"from": "Selector", "selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}
            ),
            route(),
        ],
        "NotAllowedByListeners",
    ),
    "of a kind that isn't allowed": ([_allowing(kinds=[{"kind": "GRPCRoute"}]), route()], "NotAllowedByListeners"),
    "of a kind that the protocol hasn't": ([gateway(), route(kind="TCPRoute")], "NotAllowedByListeners"),
    "a listener that isn't there": ([gateway(), route(parentRefs=[parent(sectionName="x")])], "NoMatchingParent"),
    "a port that isn't there": ([gateway(), route(parentRefs=[parent(port=81)])], "NoMatchingParent"),
    "a listener by name and port": ([gateway(), route(parentRefs=[parent(sectionName="http", port=80)])], ""),
    "another hostname": (
        [gateway(listener(hostname="a.test")), route(hostnames=["b.test"])],
        "NoMatchingListenerHostname",
    ),
    "a hostname of a wildcard": ([gateway(listener(hostname="*.test")), route(hostnames=["a.b.test"])], ""),
    "a wildcard isn't its own domain": (
        [gateway(listener(hostname="*.test")), route(hostnames=["test"])],
        "NoMatchingListenerHostname",
    ),
    "nothing that is served": ([gateway(), route({"matches": [{"method": "BREW"}]})], "UnsupportedValue"),
    "filters against each other": (
        [gateway(), route(rule("/", filters=[{"type": "RequestRedirect"}]))],
        "IncompatibleFilters",
    ),
    "rules that aren't": ([gateway(), route(rules="all")], "UnsupportedValue"),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_a_parent_says_whether_it_takes_a_route(case: str) -> None:
    """With the specification's reason."""
    documents, reason = OUTCOMES[case]
    one = only(*documents)
    (verdict,) = one.attachment.verdicts
    assert (verdict.accepted.reason if verdict.accepted else "") == reason
    accepted = [attached for of_listener in one.attachment.routes.values() for attached in of_listener]
    assert any(attached.accepted for attached in accepted) == (reason == "")


def test_a_gateway_of_another_class_is_never_touched() -> None:
    """Nor are routes whose parents are others'."""
    other = gateway(name="other", gatewayClassName="theirs")
    (one,) = bound(gateway(), other, route(parentRefs=[parent("other")]))
    assert one.gateway.meta.key.name == "web"
    assert one.attachment.verdicts == ()


def test_a_listener_counts_a_route_once() -> None:
    """Two parents that lead to one listener attach the route once."""
    one = only(gateway(), route(parentRefs=[parent(), parent(sectionName="http")]))
    assert len(one.attachment.routes[0]) == 1
    assert len(one.attachment.verdicts) == 2


@pytest.mark.parametrize(("http", "grpc", "loser"), [("1", "2", "GRPCRoute"), ("2", "1", "HTTPRoute")])
def test_older_of_http_and_grpc_routes_for_a_hostname_is_accepted(http: str, grpc: str, loser: str) -> None:
    """The specification has exactly one of them accepted."""
    one = only(
        gateway(),
        route(name="h", created=f"2026-01-0{http}T00:00:00Z", hostnames=["a.test"]),
        route(name="g", kind="GRPCRoute", created=f"2026-01-0{grpc}T00:00:00Z", hostnames=["*.test"]),
    )
    refused = [verdict.route.kind for verdict in one.attachment.verdicts if verdict.accepted]
    assert refused == [loser]


def test_a_request_belongs_to_the_most_specific_listener_alone() -> None:
    """What isn't attached there isn't found, also where a more general listener has it."""
    one = only(
        gateway(listener("any"), listener("wild", hostname="*.test"), listener("a", hostname="a.test")),
        route(rule("/any"), name="any", parentRefs=[parent(sectionName="any")], hostnames=["a.test", "b.test", "c"]),
        route(rule("/wild"), name="wild", parentRefs=[parent(sectionName="wild")]),
    )
    found = {name: [str(one.match.path.value) for one in routes] for name, routes in hosts(one).items()}  # type: ignore[union-attr]
    assert found == {"*": [], "c": ["/any"], "*.test": ["/wild"], "a.test": []}


def test_references_across_namespaces_need_a_grant() -> None:
    """Without it the answer is 500, and the route says so; with one for another name, too."""
    refs = [{"name": "api", "namespace": "else", "port": 8080}]
    documents = [gateway(), route(rule("/", backends=refs)), service(namespace="else")]
    for grants, upstreams in (([], 0), ([grant("else")], 1), ([grant("else", name="x")], 0), ([grant("shop")], 0)):
        assert len(only(*documents, *grants).targets) == upstreams


@pytest.mark.parametrize(
    ("where", "kind", "why"),
    [
        (listener(), "TCPRoute", "TCPRoutes don't attach to listeners of protocol HTTP"),
        (listener(protocol="TCP"), "HTTPRoute", "HTTPRoutes don't attach to listeners of protocol TCP"),
        (listener(protocol="SCTP"), "TCPRoute", "TCPRoutes don't attach to listeners of protocol SCTP"),
        (
            listener(allowedRoutes={"kinds": [{"kind": "GRPCRoute"}]}),
            "HTTPRoute",
            "no listener of Gateway shop/web allows HTTPRoutes; look at the kinds of its allowedRoutes",
        ),
        (
            listener(allowedRoutes={"namespaces": {"from": "None"}}),
            "HTTPRoute",
            "no listener of Gateway shop/web allows HTTPRoutes of namespace shop; look at its allowedRoutes",
        ),
    ],
)
def test_the_message_names_what_keeps_a_route_out(where: JsonObject, kind: str, why: str) -> None:
    """The protocol of a listener, the kinds that it allows, or their namespaces."""
    (verdict,) = only(gateway(where), route(kind=kind)).attachment.verdicts
    assert verdict.accepted is not None
    assert verdict.accepted.reason == "NotAllowedByListeners"
    assert why in verdict.accepted.message
