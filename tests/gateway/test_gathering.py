"""Sorting a cluster's routes by parent again and again: the same as sorting them once, at the cost of what changed."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway import translation as gathering
from locallb.gateway.kinds import gathered, parse_api_object
from locallb.gateway.translation import RoutesByParent
from locallb.model.gateway_objects import Gateway
from locallb.model.gateway_of_cluster import ApiObject, GatewayObjects, ObjectOfCluster
from locallb.model.identities import ClusterName
from tests.support.gateway_objects import backend, gateway, gateway_class, parent, route, rule

CLUSTERS = [ClusterName("a"), ClusterName("b")]


def read(document: dict[str, object]) -> ApiObject:
    made = parse_api_object(document)
    assert made
    return made


_parents = st.lists(st.sampled_from([parent("web"), parent("other"), parent("web", sectionName="x")]), max_size=3)
_routes = st.builds(
    lambda number, parents, kind, path: read(
        route(rule(path, backends=[backend("api")]), name=f"r{number}", kind=kind, parentRefs=parents)
    ),
    st.integers(0, 3),
    _parents,
    st.sampled_from(["HTTPRoute", "GRPCRoute"]),
    st.sampled_from(["/", "/v1"]),
)
_others = st.sampled_from([gateway(), gateway(name="other"), gateway_class()]).map(read)
_objects = st.lists(st.builds(ObjectOfCluster, st.sampled_from(CLUSTERS), _routes | _others), max_size=8)


PARENTS = tuple(
    tuple(made.reference for name in names if isinstance(made := read(gateway(name=name)), Gateway))
    for names in (("web", "none", "other"), ("other",))
)
"""Of which Gateways the routes are asked for together."""


@st.composite
def histories(draw: st.DrawFn) -> Sequence[Sequence[ObjectOfCluster]]:
    """Draw what is there, and what it becomes: objects that stay are the very same ones, wherever they stand then."""
    now = draw(_objects)
    history = [now]
    for _ in range(draw(st.integers(1, 4))):
        now = list(now)
        match draw(st.sampled_from(["replace", "replace", "again", "move", "all"])):
            case "replace" if now:
                number = draw(st.integers(0, len(now) - 1))
                now[number] = ObjectOfCluster(now[number].cluster, draw(_routes))
            case "again" if now:
                now.append(draw(st.sampled_from(now)))
            case "move" if now:
                now[0] = ObjectOfCluster(draw(st.sampled_from(CLUSTERS)), now[0].object)
            case _:
                now = draw(_objects)
        history.append(now)
    return history


@given(histories())
def test_with_and_without_what_was_made_before_it_is_the_same(history: Sequence[Sequence[ObjectOfCluster]]) -> None:
    """Whatever changes."""
    by_parent = {cluster: RoutesByParent() for cluster in CLUSTERS}
    for now in history:
        plain = gathered(now)
        for cluster, routes in by_parent.items():
            present = plain.get(cluster, GatewayObjects(cluster)).routes
            retry, requested = RoutesByParent(), PARENTS[len(present) % 2]
            assert routes.of(present) == retry.of(present)
            assert routes.each(requested) == retry.each(requested)


def test_a_changed_route_is_put_in_its_place() -> None:
    """Nothing is sorted, and what others have stays the very same."""
    cluster, by_parent = CLUSTERS[0], RoutesByParent()

    def one(name: str, to: str, host: str) -> ObjectOfCluster:
        return ObjectOfCluster(cluster, read(route(name=name, parentRefs=[parent(to)], hostnames=[host])))

    others = [one("r2", "other", "b.test"), ObjectOfCluster(cluster, read(gateway()))]
    before = by_parent.of(gathered([one("r1", "web", "a.test"), *others])[cluster].routes)
    made = gathered([one("r1", "web", "c.test"), *others])[cluster]
    with mock.patch.object(gathering, "_by_parent") as sorting:
        after = by_parent.of(made.routes)
    assert not sorting.called
    assert [each.hostnames for each in made.routes] == [("c.test",), ("b.test",)]
    (web, mine), (other, theirs) = after.items()
    assert (mine, theirs) == ((made.routes[0],), before[other])
    assert theirs is before[other]
    assert web != other
