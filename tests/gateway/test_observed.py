"""What a status says of what is ours: read from whatever stands there, compared as the update compares it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway.status_patch import ObservedRouteStatus, contains, observed_statuses, status_patch
from locallb.model.gateway_objects import CONTROLLER
from locallb.model.identities import ObjectKey, ObjectKind
from tests.support.gateway_objects import DEMO, JsonObject, api_object, gateway, gateway_class, namespace, route

NOW = "2026-11-22T20:00:00Z"
FINE = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
THEIRS = {"type": "example.com/Fine", "status": "True", "reason": "Fine", "message": ""}
PARENT = {"parentRef": {"name": "web"}, "controllerName": CONTROLLER, "conditions": [FINE]}
THEIR_PARENT = {"parentRef": {"name": "web"}, "controllerName": "example.com/controller", "conditions": []}
OF_GATEWAY: JsonObject = {
    "conditions": [FINE, {**FINE, "type": "Programmed"}],
    "addresses": [{"type": "IPAddress", "value": "127.77.0.9"}],
    "listeners": [{"name": "http", "supportedKinds": [], "attachedRoutes": 1, "conditions": [FINE]}],
    "attachedListenerSets": 0,
}
OF_ROUTE: JsonObject = {"parents": [PARENT]}
ANCESTOR = {"ancestorRef": {"name": "web"}, "controllerName": CONTROLLER, "conditions": [FINE]}
THEIR_ANCESTOR = {"ancestorRef": {"name": "web"}, "controllerName": "example.com/controller", "conditions": []}
OF_POLICY: JsonObject = {"ancestors": [ANCESTOR]}
POLICY = api_object("BackendTLSPolicy", "tls", spec={})
WANTED: Mapping[str, tuple[JsonObject, JsonObject]] = {
    "gateway": (gateway(), OF_GATEWAY),
    "route": (route(), OF_ROUTE),
    "policy": (POLICY, OF_POLICY),
}
THEIRS_OF: Mapping[str, JsonObject] = {
    "gateway": {"conditions": [THEIRS]},
    "route": {"parents": [THEIR_PARENT]},
    "policy": {"ancestors": [THEIR_ANCESTOR]},
}


def live(document: JsonObject, wanted: JsonObject, stated: JsonObject) -> JsonObject:
    """Return an object on which our status was written over `stated`, which others wrote."""
    before = {**document, "metadata": {**document["metadata"], "resourceVersion": "1"}, "status": stated}
    patch = status_patch(before, wanted, 3, NOW)
    assert patch
    status: Any = patch["status"]
    return {**before, "status": deepcopy({**stated, **status})}


def observed_status(document: JsonObject) -> ObservedRouteStatus:
    ((_key, stated),) = observed_statuses(DEMO, document)
    return stated


def _nothing(_stated: JsonObject) -> None:
    pass


TAMPERINGS: Mapping[str, tuple[str, Callable[[JsonObject], object], tuple[str, ...]]] = {
    "nothing": ("gateway", _nothing, ()),
    "an address": ("gateway", lambda stated: stated["addresses"].clear(), ("addresses",)),
    "a condition": ("gateway", lambda stated: stated["conditions"][1].update(status="False"), ("conditions",)),
    "a condition's time": ("gateway", lambda stated: stated["conditions"][1].update(lastTransitionTime="x"), ()),
    "another's condition": ("gateway", lambda stated: stated["conditions"].remove(THEIRS), ()),
    "a count of routes": ("gateway", lambda stated: stated["listeners"][0].update(attachedRoutes=7), ("listeners",)),
    "everything": ("gateway", dict.clear, ("conditions", "addresses", "listeners")),
    "listeners that are none": ("gateway", lambda stated: stated.update(listeners=["x", {"name": []}]), ("listeners",)),
    "conditions that are none": ("gateway", lambda stated: stated.update(conditions={"a": 1}), ("conditions",)),
    "our parent": ("route", lambda stated: stated["parents"].pop(), ("parents",)),
    "our parent's reference": ("route", lambda stated: stated["parents"][-1].update(parentRef=[{}]), ("parents",)),
    "another's parent": ("route", lambda stated: stated["parents"].pop(0), ()),
    "our ancestor": ("policy", lambda stated: stated["ancestors"].pop(), ("ancestors",)),
    "another's ancestor": ("policy", lambda stated: stated["ancestors"].pop(0), ()),
    "ancestors that are none": ("policy", lambda stated: stated.update(ancestors=7), ("ancestors",)),
    "a word of a newer generation": (
        "route",
        lambda stated: stated["parents"][-1].update(conditions=[{**FINE, "status": "False", "observedGeneration": 4}]),
        (),
    ),
}
"""Of which object, what somebody changes, and which fields an update would write."""


@pytest.mark.parametrize("what", TAMPERINGS)
def test_only_changes_of_our_status_entries_are_observed(what: str) -> None:
    """Also where what they write makes no sense."""
    which, change, names = TAMPERINGS[what]
    document, wanted = WANTED[which]
    made = live(document, wanted, THEIRS_OF[which])
    assert observed_status(made).differences(wanted, 3) == ()
    change(made["status"])
    assert observed_status(made).differences(wanted, 3) == names


def test_changes_of_other_controllers_entries_are_ignored() -> None:
    """It is no part of what stands there."""
    before = live(gateway(), OF_GATEWAY, {"conditions": [THEIRS]})
    after = deepcopy(before)
    after["status"]["conditions"].remove(THEIRS)
    assert observed_status(before) == observed_status(after)


def test_each_kind_whose_status_is_written_is_read() -> None:
    """Under the key by which it is planned; of others nobody is told."""
    set_ = api_object("ListenerSet", "more", spec={})
    read = [
        key
        for one in (gateway_class(), gateway(), set_, route(), POLICY, namespace("shop"))
        for key, _ in observed_statuses(DEMO, one)
    ]
    assert read == [
        ObjectKey(DEMO, "", "local", ObjectKind.GATEWAY_CLASS),
        ObjectKey(DEMO, "shop", "web", ObjectKind.GATEWAY),
        ObjectKey(DEMO, "shop", "more", ObjectKind.LISTENER_SET),
        ObjectKey(DEMO, "shop", "route", ObjectKind.HTTP_ROUTE),
        ObjectKey(DEMO, "shop", "tls", ObjectKind.BACKEND_TLS_POLICY),
    ]


scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "Accepted", CONTROLLER, "http"])
names = st.sampled_from(["type", "status", "name", "controllerName", "conditions", "parentRef", "observedGeneration"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)
statuses = values | st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("conditions", "listeners", "parents", "ancestors", "addresses", "attachedListenerSets"), values
    ),
)


@given(statuses, st.sampled_from(sorted(WANTED)))
def test_no_status_is_too_odd_to_be_compared(status: object, which: str) -> None:
    """Anybody with the right may write anything into it where a CRD lets them."""
    document, wanted = WANTED[which]
    found = observed_status({**document, "status": status}).differences(wanted, 3)
    assert set(found) <= wanted.keys()


@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=3), st.integers(1, 5), st.sampled_from(sorted(WANTED)))
def test_the_loop_and_the_update_decide_alike(messages: list[str], generation: int, which: str) -> None:
    """Whatever is changed of well-formed conditions: what the loop calls repaired needs no write."""
    document, wanted = WANTED[which]
    made = live(document, wanted, {})
    entries = {"route": "parents", "policy": "ancestors"}
    own = (made["status"][entries[which]][0] if which in entries else made["status"])["conditions"]
    for condition, message in zip(own, messages, strict=False):
        condition.update(message=message, observedGeneration=generation)
    assert contains(made, wanted, 3) == (observed_status(made).differences(wanted, 3) == ())
