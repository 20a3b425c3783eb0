"""The classes `local-lb` that a stack makes: laws of what is observed, wanted and patched."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.model.gateway_objects import CONTROLLER
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER
from locallb.model.identities import ClusterName, ObjectKind, OwnerId
from locallb.model.own_classes import (
    CLUSTER_ANNOTATION,
    DEFAULT_ANNOTATION,
    FINALIZER,
    NAME,
    OWNER_LABEL,
    ObservedClass,
    WantedClass,
    class_body,
    class_changed,
    class_differences,
    class_facts,
    class_named_by,
    class_patch,
    observed_class,
)
from tests.support.fake_api import merged

GATEWAY, INGRESS = ObjectKind.GATEWAY_CLASS, ObjectKind.INGRESS_CLASS
OWNER = OwnerId("local-lb-0123456789ab")
DEMO = ClusterName("demo")
names = st.sampled_from([OWNER_LABEL, DEFAULT_ANNOTATION, "other"])
texts = st.sampled_from([OWNER, "true", "false", ""])
kinds = st.sampled_from([GATEWAY, INGRESS])
wanted_classes = st.one_of(
    st.builds(WantedClass, st.just(GATEWAY), st.just(OWNER), st.just(DEMO), is_used=st.booleans()),
    st.builds(WantedClass, st.just(INGRESS), st.just(OWNER), st.just(DEMO), is_default=st.booleans()),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "metadata": values
        | st.fixed_dictionaries(
            {"resourceVersion": st.just("7")},
            optional={
                "name": st.sampled_from([NAME, "other"]),
                "labels": st.dictionaries(names, texts) | values,
                "annotations": st.dictionaries(names, texts) | values,
                "finalizers": st.lists(st.sampled_from([FINALIZER, "a/b", "c/d"]), unique=True) | values,
                "deletionTimestamp": st.just("2026-01-01T00:00:00Z"),
            },
        ),
        "spec": values | st.dictionaries(st.sampled_from(["controller", "controllerName", "parameters"]), texts),
    },
)
existing_objects = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"resourceVersion": st.just("7"), "name": st.just(NAME)},
            optional={
                "labels": st.dictionaries(names, texts),
                "annotations": st.dictionaries(names, texts),
                "finalizers": st.lists(st.sampled_from([FINALIZER, "a/b", "c/d"]), unique=True),
            },
        ),
        "spec": st.fixed_dictionaries(
            {}, optional={"parameters": st.just({"kind": "X"}), "parametersRef": st.just({"kind": "X"})}
        ),
    }
)


@given(kinds, documents)
def test_any_object_can_be_observed(kind: ObjectKind, document: dict[str, Any]) -> None:
    """Nothing is raised, and one object alone changes in nothing."""
    observed = observed_class(kind, document)
    assert class_facts(kind, [document]).own in {observed, None}
    assert not class_changed(kind, document, deepcopy(document))
    assert isinstance(class_named_by(kind, document), str)


@given(wanted_classes, existing_objects)
def test_patched_object_is_as_wanted_and_has_all_that_is_others(wanted: WantedClass, before: dict[str, Any]) -> None:
    """One patch is enough, over the version that was read; a second one there never is."""
    patch = class_patch(before, wanted)
    after = merged(before, patch or {})
    assert (patch is None) == (class_differences(observed_class(wanted.kind, before), wanted) == ())
    assert class_differences(observed_class(wanted.kind, after), wanted) == ()
    assert class_patch(after, wanted) is None
    assert after["metadata"]["resourceVersion"] == "7"
    for part in ("labels", "annotations"):
        kept, was = (each["metadata"].get(part, {}).get("other") for each in (after, before))
        assert kept == was
    others = [
        [name for name in each["metadata"].get("finalizers", []) if name != FINALIZER] for each in (after, before)
    ]
    assert others[0] == others[1]


@given(wanted_classes)
def test_created_object_is_as_wanted(wanted: WantedClass) -> None:
    """Nothing is left to a patch."""
    observed = observed_class(wanted.kind, class_body(wanted))
    assert class_differences(observed, wanted) == ()
    assert class_differences(None, wanted) == ("existence",)
    assert (observed.controller, observed.owner) == (wanted.controller, OWNER)


def test_each_kind_has_the_controller_that_is_served() -> None:
    """By the field that its API has for that."""
    assert class_body(WantedClass(GATEWAY, OWNER, DEMO, is_used=True)) == {
        "metadata": {
            "name": NAME,
            "labels": {OWNER_LABEL: OWNER},
            "annotations": {CLUSTER_ANNOTATION: "demo"},
            "finalizers": [FINALIZER],
        },
        "spec": {"controllerName": CONTROLLER},
    }
    assert class_body(WantedClass(INGRESS, OWNER, DEMO, is_default=True)) == {
        "metadata": {
            "name": NAME,
            "labels": {OWNER_LABEL: OWNER},
            "annotations": {CLUSTER_ANNOTATION: "demo", DEFAULT_ANNOTATION: "true"},
        },
        "spec": {"controller": INGRESS_CONTROLLER},
    }


def test_no_finalizer_is_added_to_what_is_being_deleted() -> None:
    """An API refuses that; one that is there goes with the last Gateway."""
    observed = ObservedClass(CONTROLLER, OWNER, DEMO, deleting=True)
    assert class_differences(observed, WantedClass(GATEWAY, OWNER, DEMO, is_used=True)) == ()
    held = ObservedClass(CONTROLLER, OWNER, DEMO, is_held=True, deleting=True)
    assert class_differences(held, WantedClass(GATEWAY, OWNER, DEMO)) == ("finalizers",)


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"spec": {"ingressClassName": "a"}}, "a"),
        ({"metadata": {"annotations": {"kubernetes.io/ingress.class": "b"}}, "spec": {"ingressClassName": "a"}}, "b"),
        ({}, ""),
    ],
)
def test_the_annotation_of_an_ingress_names_its_class_before_the_field(document: dict[str, Any], named: str) -> None:
    """As for serving."""
    assert class_named_by(INGRESS, document) == named


def test_only_another_class_is_another_default() -> None:
    """And only of Ingresses."""

    def named(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "annotations": {CLUSTER_ANNOTATION: "demo", DEFAULT_ANNOTATION: "true"}}}

    assert not class_facts(INGRESS, [named(NAME)]).has_other_default
    assert class_facts(INGRESS, [named(NAME), named("nginx")]).has_other_default
    assert not class_facts(GATEWAY, [named("nginx")]).has_other_default
