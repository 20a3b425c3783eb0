"""Refusals of Envoy in a plan: of the object that had that content, as the same object each time, and no other."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from locallb.model.gateway_objects import GatewayRoute, Meta, Named, RouteKind, RouteRule
from locallb.model.gateway_of_cluster import ObjectOfCluster
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.objects import Service
from locallb.model.snapshot import Snapshot
from locallb.planning.refused import EnvoyRefusal, RefusedObjects, content_of, name_of, sibling

CLUSTER = ClusterName("c")
ROUTE = GatewayRoute(
    RouteKind.HTTP, Meta(Named("shop", "bad"), generation=1), hostnames=("a.test",), rules=(RouteRule(),)
)
OTHER = GatewayRoute(RouteKind.GRPC, Meta(Named("shop", "bad"), generation=1))
SERVICE = Service(ObjectKey(CLUSTER, "shop", "bad"), ())


def refusal(thing: GatewayRoute | Service, *, wholly: bool = True) -> EnvoyRefusal:
    return EnvoyRefusal(name_of(CLUSTER, thing), content_of(thing), "too long", wholly)


def snapshot(*routes: GatewayRoute) -> Snapshot:
    """Make a snapshot of routes and the Service."""
    objects = tuple(ObjectOfCluster(CLUSTER, route) for route in routes)
    return Snapshot(Home("p", "s", "/r"), services=(SERVICE,), gateway_api=objects)


def test_nothing_is_different_without_refusals() -> None:
    """The snapshot is the identical one."""
    read = snapshot(ROUTE, OTHER)
    assert RefusedObjects().of(read, ()) is read


def test_a_refused_route_keeps_its_cause_and_leads_nowhere() -> None:
    """Or its requests are answered with an error; a route of its name and another kind is as it was."""
    read = snapshot(ROUTE, OTHER)
    bad, other = (each.object for each in RefusedObjects().of(read, (refusal(ROUTE),)).gateway_api)
    assert isinstance(bad, GatewayRoute)
    assert (bad.problem, bad.rules, bad.hostnames) == ("Envoy refuses its configuration: too long", (), None)
    assert other is OTHER
    gentle = RefusedObjects().of(read, (refusal(ROUTE, wholly=False),)).gateway_api[0].object
    assert gentle == replace(ROUTE, problem="Envoy refuses its configuration: too long")


def test_another_content_is_not_refused() -> None:
    """However little of it is different."""
    changed = replace(ROUTE, hostnames=("b.test",))
    planned = RefusedObjects().of(snapshot(changed), (refusal(ROUTE),))
    assert planned.gateway_api[0].object is changed


@pytest.mark.parametrize(("together", "is_refused"), [(True, False), (False, True)])
def test_one_refused_together_with_others_is_not_beside_others(*, together: bool, is_refused: bool) -> None:
    """One that is refused by itself stays so, whatever becomes of other routes."""
    read, changed = snapshot(ROUTE, OTHER), snapshot(ROUTE, replace(OTHER, hostnames=("b.test",)))
    digest = sibling(read.gateway_api, CLUSTER, together=together)
    existing = (replace(refusal(ROUTE), sibling=digest, together=together),)
    assert RefusedObjects().of(read, existing).gateway_api[0].object is not ROUTE
    assert (RefusedObjects().of(changed, existing).gateway_api[0].object is not ROUTE) is is_refused


def test_the_same_object_stands_in_place_of_a_refused_one_each_time() -> None:
    """So that plans of later snapshots, with other objects, are planned by what differs alone."""
    existing = RefusedObjects()
    first = existing.of(snapshot(ROUTE), (refusal(ROUTE),)).gateway_api[0].object
    assert existing.of(snapshot(ROUTE, OTHER), (refusal(ROUTE),)).gateway_api[0].object is first


def test_a_refused_service_is_rejected() -> None:
    """With the cause and what to do; whatever is ordered for it makes no difference."""
    planned = RefusedObjects().of(snapshot(), (refusal(SERVICE),))
    assert planned.services == ()
    (malformed,) = planned.malformed
    assert malformed.problem.message == "c/shop/bad: Envoy refuses its configuration: too long; change the Service"


def test_what_changed_last_is_known_until_something_else_does() -> None:
    """Reading the same again, or with other refusals, changes nothing; a first snapshot has no former one."""
    first, existing = snapshot(ROUTE), RefusedObjects()
    existing.of(first, ())
    assert existing.changed == frozenset()
    other = replace(ROUTE, meta=replace(ROUTE.meta, key=Named("shop", "new")))
    second = replace(first, gateway_api=(*first.gateway_api, ObjectOfCluster(CLUSTER, other)))
    for read, refusals in ((second, ()), (replace(second), ()), (second, (refusal(ROUTE),))):
        existing.of(read, refusals)
        assert existing.changed == {name_of(CLUSTER, other)}
