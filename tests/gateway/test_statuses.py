"""What statuses say: the specification's conditions and reasons, beside what others wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway.routes import Backends
from locallb.gateway.status_patch import contains, status_patch, withdrawn
from locallb.gateway.statuses import (
    ApiStatus,
    GatewayResult,
    class_status,
    gateway_status,
    listener_set_status,
    route_status,
    verdicts_by_route,
)
from locallb.gateway.translation import bind
from locallb.model.gateway_objects import CONTROLLER
from locallb.model.gateway_of_cluster import GatewayObjects, TlsSecret
from locallb.model.identities import Protocol
from locallb.model.reasons import Failure
from tests.gateway.conditions import ADDRESS, SERVING, conditions
from tests.support.gateway_objects import (
    JsonObject,
    api_object,
    backend,
    gateway,
    gateway_class,
    grant,
    listener,
    objects,
    only,
    route,
    rule,
    service,
)

NOW = "2026-11-22T20:00:00Z"


def of_gateway(*documents: object, outcome: GatewayResult = SERVING) -> ApiStatus:
    return gateway_status(only(*documents), outcome)


def routes_told(read: GatewayObjects) -> Iterator[ApiStatus]:
    return (route_status(stated, Backends(read)) for _, stated in verdicts_by_route(bind(read)))


def of_routes(*documents: object) -> list[list[dict[str, tuple[str, str]]]]:
    read = objects(gateway_class(), service(), *documents)
    return [[conditions(parent) for parent in reported.status["parents"]] for reported in routes_told(read)]


def test_a_gateway_that_serves_says_so() -> None:
    """With its address, and each listener with what is attached to it."""
    status = of_gateway(gateway(), route()).status
    assert conditions(status) == {"Accepted": ("True", "Accepted"), "Programmed": ("True", "Programmed")}
    assert status["addresses"] == [{"type": "IPAddress", "value": "127.77.0.9"}]
    (one,) = status["listeners"]
    assert one["attachedRoutes"] == 1
    assert [kind["kind"] for kind in one["supportedKinds"]] == ["HTTPRoute", "GRPCRoute"]
    assert conditions(one) == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("True", "Programmed"),
        "ResolvedRefs": ("True", "ResolvedRefs"),
        "Conflicted": ("False", "NoConflicts"),
    }


TLS: JsonObject = {"tls": {"certificateRefs": [{"name": "cert"}]}}
LISTENERS: dict[str, tuple[list[JsonObject], dict[str, tuple[str, str]]]] = {
    "a protocol that nobody knows": ([listener(protocol="SMTP")], {"Accepted": ("False", "UnsupportedProtocol")}),
    "two protocols on a port": (
        [listener("a"), listener("b", protocol="HTTPS", **TLS)],
        {"Conflicted": ("True", "ProtocolConflict"), "Accepted": ("False", "ProtocolConflict")},
    ),
    "one hostname twice": (
        [listener("a"), listener("b")],
        {"Conflicted": ("True", "HostnameConflict"), "Programmed": ("False", "HostnameConflict")},
    ),
    "TCP beside HTTP": ([listener("a"), listener("b", protocol="TCP")], {"Conflicted": ("True", "ProtocolConflict")}),
    "no certificate": (
        [listener("a", 443, "HTTPS", **TLS)],
        {"ResolvedRefs": ("False", "InvalidCertificateRef"), "Programmed": ("False", "Invalid")},
    ),
    "somebody else's certificate": (
        [listener("a", 443, "HTTPS", tls={"certificateRefs": [{"name": "cert", "namespace": "else"}]})],
        {"ResolvedRefs": ("False", "RefNotPermitted")},
    ),
    "a kind that isn't there": (
        [listener(allowedRoutes={"kinds": [{"kind": "HTTPRoute"}, {"kind": "NoRoute"}]})],
        {"ResolvedRefs": ("False", "InvalidRouteKinds"), "Accepted": ("True", "Accepted")},
    ),
    "TLS for HTTP": ([listener(**TLS)], {"Accepted": ("False", "UnsupportedValue")}),
}


@pytest.mark.parametrize("case", LISTENERS)
def test_a_listener_says_what_is_wrong(case: str) -> None:
    """With the specification's condition and reason."""
    listeners, expected = LISTENERS[case]
    status = of_gateway(gateway(*listeners)).status
    assert expected.items() <= conditions(status["listeners"][0]).items()
    assert conditions(status)["Accepted"][1] == "ListenersNotValid" or case == "a kind that isn't there"


GATEWAYS: dict[str, tuple[JsonObject, GatewayResult, str, str]] = {
    "a name for an address": (
        {"addresses": [{"type": "Hostname", "value": "a.test"}]},
        SERVING,
        "Accepted",
        "UnsupportedAddress",
    ),
    "an address that is none": ({"addresses": [{"value": "1.2.3"}]}, SERVING, "Accepted", "UnsupportedAddress"),
    "parameters": (
        {"infrastructure": {"parametersRef": {"group": "a", "kind": "B", "name": "c"}}},
        SERVING,
        "Accepted",
        "InvalidParameters",
    ),
    "two validations of clients for a port": (
        {"tls": {"frontend": {"perPort": [{"port": 1}, {"port": 1}]}}},
        SERVING,
        "Accepted",
        "Invalid",
    ),
    "no address": (
        {},
        GatewayResult(failure=Failure("AddressNotAssigned", "none")),
        "Programmed",
        "AddressNotAssigned",
    ),
}


@pytest.mark.parametrize("case", GATEWAYS)
def test_a_gateway_says_what_is_wrong(case: str) -> None:
    """With the specification's condition and reason, and is never programmed then."""
    spec, outcome, kind, reason = GATEWAYS[case]
    stated = conditions(of_gateway(gateway(**spec), outcome=outcome).status)
    assert stated[kind] == ("False", reason)
    assert stated["Programmed"][0] == "False"


def test_a_port_that_is_taken_is_its_listeners_trouble() -> None:
    """The others go on."""
    outcome = GatewayResult((ADDRESS,), ports={(80, Protocol.TCP): Failure("PortUnavailable", "taken")})
    status = of_gateway(gateway(listener("a"), listener("b", 81)), outcome=outcome).status
    first, second = map(conditions, status["listeners"])
    assert first["Accepted"] == ("False", "PortUnavailable")
    assert second["Programmed"] == ("True", "Programmed")


REFS: dict[str, tuple[list[JsonObject], str]] = {
    "a Service": ([], "ResolvedRefs"),
    "a Service that isn't there": ([backend("gone")], "BackendNotFound"),
    "a port that isn't there": ([backend(port=81)], "BackendNotFound"),
    "a kind that isn't served": ([backend(kind="Pod")], "InvalidKind"),
    "another namespace": ([backend(namespace="else")], "RefNotPermitted"),
    "a name elsewhere": ([backend("outside")], "InvalidKind"),
    "a protocol that isn't served": ([backend("wss")], "UnsupportedProtocol"),
}


@pytest.mark.parametrize("case", REFS)
def test_a_route_says_which_reference_leads_nowhere(case: str) -> None:
    """It stays accepted."""
    refs, reason = REFS[case]
    outside = service("outside", type="ExternalName")
    odd = service("wss", {"port": 8080, "appProtocol": "kubernetes.io/wss"})
    (parents,) = of_routes(gateway(), outside, odd, grant("no"), route(rule("/", backends=[backend(), *refs])))
    assert parents[0]["ResolvedRefs"] == ("True" if reason == "ResolvedRefs" else "False", reason)
    assert parents[0]["Accepted"] == ("True", "Accepted")


def test_a_route_of_which_some_rules_are_served_says_which_are_not() -> None:
    """PartiallyInvalid is there only then."""
    odd = {"matches": [{"method": "BREW"}]}
    parents = [
        one for (one,) in of_routes(gateway(), route(), route(rule("/"), odd, name="some"), route(odd, name="z"))
    ]
    assert [one.get("PartiallyInvalid") for one in parents] == [None, ("True", "UnsupportedValue"), None]


def _set(name: str, *listeners: JsonObject, namespace: str = "shop", created: str = "") -> JsonObject:
    spec = {"parentRef": {"name": "web", "namespace": "shop"}, "listeners": list(listeners)}
    return api_object("ListenerSet", name, namespace=namespace, spec=spec, metadata={"creationTimestamp": created})


def of_sets(*documents: object) -> dict[str, tuple[tuple[str, str], list[tuple[str, str]]]]:
    """Return by name what each ListenerSet says of being accepted, and of its listeners' conflicts."""
    read = objects(gateway_class(), service(), *documents)
    bound = bind(read)
    return {
        reported.meta.key.name: (
            conditions(reported.status)["Accepted"],
            [conditions(one)["Conflicted"] for one in reported.status.get("listeners", ())],
        )
        for reported in (
            listener_set_status(one, gateway_of, SERVING, read)
            for gateway_of in bound
            for one in read.listener_sets
            if one.parent == gateway_of.gateway.reference
        )
    }


OPEN: JsonObject = {"allowedListeners": {"namespaces": {"from": "Same"}}}
FINE, BAD = ("False", "NoConflicts"), ("True", "HostnameConflict")


def test_listener_sets_attach_where_the_gateway_lets_them() -> None:
    """Nobody may by default."""
    extra = _set("extra", listener("more", 81))
    assert of_sets(gateway(), extra) == {"extra": (("False", "NotAllowed"), [])}
    assert of_sets(gateway(**OPEN), extra) == {"extra": (("True", "Accepted"), [FINE])}
    assert of_sets(gateway(**OPEN), _set("far", listener("more", 81), namespace="else"))["far"][0][1] == "NotAllowed"


def test_a_listener_that_an_earlier_object_keeps_out_takes_nothing_from_its_siblings() -> None:
    """Only what would be served without it can be contested."""
    sets = of_sets(
        gateway(listener("http", hostname="a.test"), **OPEN),
        _set("a", listener("x", hostname="b.test"), listener("y", protocol="TCP")),
        _set("b", listener("x", 81, hostname="b.test"), listener("y", 81, protocol="TCP")),
    )
    lost = ("True", "ProtocolConflict")
    assert sets["a"] == (("True", "ListenersNotValid"), [FINE, lost])
    assert sets["b"] == (("False", "ListenersNotValid"), [lost, lost])


def test_the_gateways_listeners_go_before_those_of_sets_and_the_oldest_set_first() -> None:
    """A listener that comes later loses, and a set that has lost all isn't accepted."""
    sets = of_sets(
        gateway(**OPEN),
        _set("a", listener("x", hostname="a.test"), listener("y"), created="2026-01-02T00:00:00Z"),
        _set("b", listener("x", hostname="a.test"), created="2026-01-01T00:00:00Z"),
        _set("c", listener("x", hostname="a.test"), created="2026-01-03T00:00:00Z"),
    )
    assert sets["b"] == (("True", "Accepted"), [FINE])
    assert sets["a"] == (("False", "ListenersNotValid"), [BAD, BAD])
    assert sets["c"] == (("False", "ListenersNotValid"), [BAD])


def _live(status: object, generation: int = 1) -> JsonObject:
    return {"metadata": {"resourceVersion": "7", "generation": generation}, "status": status}


_types = st.sampled_from(["Accepted", "Programmed", "theirs.test/Fine", "ResolvedRefs"])
_condition = st.fixed_dictionaries(
    {
        "type": _types,
        "status": st.sampled_from(["True", "False", "Unknown"]),
        "reason": st.sampled_from(["Pending", "Accepted"]),
        "message": st.just(""),
        "lastTransitionTime": st.just("2026-01-01T00:00:00Z"),
    }
)
_conditions = st.lists(_condition, max_size=4, unique_by=lambda one: one["type"])
_parents = st.lists(
    st.fixed_dictionaries(
        {
            "parentRef": st.sampled_from([{"name": "web", "namespace": "shop"}, {"name": "other"}]),
            "controllerName": st.sampled_from([CONTROLLER, "theirs.test/controller"]),
            "conditions": _conditions,
        }
    ),
    max_size=3,
    unique_by=lambda one: (str(one["parentRef"]), one["controllerName"]),
)
_STATUSES: tuple[Mapping[str, Any], ...] = (of_gateway(gateway(), route()).status, {"parents": []}, {})


def _wanted_of_a_route() -> Mapping[str, Any]:
    read = objects(gateway_class(), service(), gateway(), route())
    return next(routes_told(read)).status


@given(_conditions, _parents, st.sampled_from([*_STATUSES, _wanted_of_a_route()]))
def test_a_patch_says_it_all_at_once_and_leaves_others_alone(
    stated: list[JsonObject], parents: list[JsonObject], wanted: Mapping[str, Any]
) -> None:
    """After one patch there is nothing to patch, and what others wrote is as it was, in its order."""
    live = _live({"conditions": stated, "parents": parents, "theirs": 1})
    patch = status_patch(live, wanted, 1, NOW)
    after = {**live["status"], **(patch["status"] if patch else {})}  # type: ignore[dict-item]
    assert contains(_live(after), wanted, 1)
    theirs = [one for one in parents if one["controllerName"] != CONTROLLER]
    assert [one for one in after["parents"] if one["controllerName"] != CONTROLLER] == theirs
    foreign = [one for one in stated if "/" in one["type"]]
    assert [one for one in after["conditions"] if "/" in one["type"]] == foreign
    if not wanted:
        assert after["parents"] == theirs


_FINE: JsonObject = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
_ancestors = st.lists(
    st.fixed_dictionaries(
        {
            "ancestorRef": st.builds(lambda number: {"name": f"g{number}"}, st.integers(0, 30)),
            "controllerName": st.sampled_from([CONTROLLER, "theirs.test/controller"]),
            "conditions": _conditions,
        }
    ),
    max_size=16,
    unique_by=lambda one: (str(one["ancestorRef"]), one["controllerName"]),
)


@given(_ancestors, _ancestors)
def test_a_policy_says_what_it_has_room_for_and_leaves_others_alone(
    stated: list[JsonObject], mine: list[JsonObject]
) -> None:
    """The API takes 16 entries; one that hasn't room isn't tried again and again, and taken back all are gone."""
    own = {str(one["ancestorRef"]): {**one, "controllerName": CONTROLLER, "conditions": [_FINE]} for one in mine}
    wanted = {"ancestors": list(own.values())}
    live = _live({"ancestors": stated})
    patch = status_patch(live, wanted, 1, NOW)
    after = {**live["status"], **(patch["status"] if patch else {})}  # type: ignore[dict-item]
    assert contains(_live(after), wanted, 1)
    theirs = [one for one in stated if one["controllerName"] != CONTROLLER]
    assert [one for one in after["ancestors"] if one["controllerName"] != CONTROLLER] == theirs
    assert len(after["ancestors"]) == min(16, len(theirs) + len(own))
    back = status_patch(_live(after), withdrawn(wanted), 1, NOW)
    assert (back["status"]["ancestors"] if back else after["ancestors"]) == theirs  # type: ignore[index]


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    """A new reason, message or generation is no transition."""
    wanted = of_gateway(gateway()).status
    first = status_patch(_live({}), wanted, 1, NOW)
    assert first
    later = status_patch(_live(first["status"], 2), wanted, 2, "2027-01-01T00:00:00Z")
    assert later
    (accepted, programmed) = later["status"]["conditions"]  # type: ignore[index]
    assert {one["lastTransitionTime"] for one in (accepted, programmed)} == {NOW}
    assert {one["observedGeneration"] for one in (accepted, programmed)} == {2}


def test_status_of_a_newer_generation_is_not_overwritten() -> None:
    """What we know is old then."""
    wanted = of_gateway(gateway()).status
    newer = status_patch(_live({}), wanted, 5, NOW)
    assert newer
    assert status_patch(_live(newer["status"]), {**wanted, "addresses": []}, 4, NOW) is None


def test_a_certificate_that_is_there_is_used() -> None:
    """A Secret that is no certificate says why."""
    read = objects(gateway_class(), gateway(listener("a", 443, "HTTPS", **TLS)))
    (key,) = [one.tls.certificates[0].key for one in read.gateways[0].listeners if one.tls]
    (one,) = bind(
        type(read)(read.cluster, read.classes, read.gateways, secrets={key: TlsSecret(key, problem="it is empty")})
    )
    assert one.listeners[0].resolved == Failure("InvalidCertificateRef", "Secret shop/cert can't be used: it is empty")


def test_a_field_that_the_api_does_not_keep_is_not_written_again() -> None:
    """A cluster of an older version has no place for the number of ListenerSets, of which it has none."""
    wanted = of_gateway(gateway()).status
    live: JsonObject = {"metadata": {"resourceVersion": "1"}}
    patch = status_patch(live, wanted, 1, NOW)
    assert isinstance(patch, dict)
    retained = {key: value for key, value in patch["status"].items() if key != "attachedListenerSets"}
    assert contains({**live, "status": retained}, wanted, 1)


def test_a_class_says_what_it_supports() -> None:
    """In the order of names, as the API asks; a cluster that has no place for that isn't told again and again."""
    (ours,) = objects(gateway_class()).classes
    wanted = class_status(ours).status
    names = [each["name"] for each in wanted["supportedFeatures"]]
    assert names == sorted(set(names))
    live: JsonObject = {"metadata": {"resourceVersion": "1"}}
    patch = status_patch(live, wanted, 1, NOW)
    assert isinstance(patch, dict)
    assert patch["status"]["supportedFeatures"] == wanted["supportedFeatures"]
    retained = {key: value for key, value in patch["status"].items() if key != "supportedFeatures"}
    assert contains({**live, "status": retained}, wanted, 1)
    assert not contains({**live, "status": {**retained, "supportedFeatures": []}}, wanted, 1)
    assert withdrawn(wanted)["supportedFeatures"] == []
