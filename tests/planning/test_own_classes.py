"""Classes of ours in a plan: which clusters get which, as the default or not, and why not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import IngressSettings, Settings
from locallb.dns.updates import early_owner_id
from locallb.model.gateway_objects import Gateway, Meta, Named
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER, ObjectOfCluster
from locallb.model.identities import ClusterName, ContextName, ObjectKind
from locallb.model.own_classes import (
    NAME,
    ClassFacts,
    HeldClass,
    ObservedClass,
    WantedClass,
    class_differences,
    controller_of,
)
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.own_classes import RIGHTS, with_classes
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan, PlannedClass
from tests.support.worlds import HOME, OWN

GATEWAY, INGRESS = ObjectKind.GATEWAY_CLASS, ObjectKind.INGRESS_CLASS
DEMO = ClusterName("demo")
OURS = early_owner_id(HOME)
EVERY = {GATEWAY: ClassFacts(), INGRESS: ClassFacts()}
Facts = Mapping[ObjectKind, ClassFacts]


def world(facts: Facts, *held: HeldClass, used: bool = False) -> Snapshot:
    gateways = (ObjectOfCluster(DEMO, Gateway(Meta(Named("shop", "web")), NAME)),) if used else ()
    access = {DEMO: Access("/kubeconfig", ContextName("demo"))}
    return Snapshot(HOME, access=access, classes={DEMO: facts}, held_classes=held, gateway_api=gateways)


def plan(snapshot: Snapshot, settings: Settings = OWN) -> Plan:
    return with_classes(Plan(), snapshot, settings)


def wanted(snapshot: Snapshot, settings: Settings = OWN) -> list[WantedClass]:
    return [each.wanted for each in plan(snapshot, settings).classes]


def test_a_cluster_gets_both_and_another_one_none() -> None:
    """The class of Ingresses is the default one, as there is no other."""
    assert wanted(world(EVERY)) == [WantedClass(GATEWAY, OURS, DEMO), WantedClass(INGRESS, OURS, DEMO, is_default=True)]
    assert [str(each.key) for each in plan(world(EVERY)).classes] == ["demo/gateway-class", "demo/ingress-class"]
    assert plan(replace(world(EVERY), classes={})) == Plan()
    assert plan(replace(world(EVERY), access={})) == Plan()


def test_whole_plans_have_them() -> None:
    """And the stack's notices."""
    made = make_plan(world({GATEWAY: ClassFacts(lacks=("create",))}), OWN)
    assert any(RIGHTS in notice for notice in made.notices)
    assert make_plan(world(EVERY), OWN).classes == plan(world(EVERY)).classes


def test_another_default_class_stays_the_only_one() -> None:
    """Ours gives way also after it was made."""
    own = ObservedClass(INGRESS_CONTROLLER, OURS, is_default=True)
    (planned,) = plan(world({INGRESS: ClassFacts(own, has_other_default=True)})).classes
    assert planned.wanted == WantedClass(INGRESS, OURS, DEMO)
    assert planned.differing == ("annotations",)


def test_a_class_that_a_gateway_names_has_the_finalizer() -> None:
    """Of the cluster that has the Gateway, and of no other."""
    assert [each.is_used for each in wanted(world(EVERY, used=True))] == [True, False]
    other = replace(world(EVERY, used=True), classes={ClusterName("b"): EVERY})
    other = replace(other, access={ClusterName("b"): Access("/k", ContextName("b"))})
    assert [each.is_used for each in wanted(other)] == [False, False]


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        (replace(OWN, gateway_classes=frozenset()), [INGRESS]),
        (replace(OWN, gateway_classes=frozenset({"mine"})), [INGRESS]),
        (replace(OWN, gateway_classes=frozenset({"mine", NAME})), [GATEWAY, INGRESS]),
        (replace(OWN, ingress=IngressSettings(is_off=True)), [GATEWAY]),
        (replace(OWN, ingress=IngressSettings("nginx")), [GATEWAY]),
        (replace(OWN, ingress=IngressSettings(NAME)), [GATEWAY, INGRESS]),
    ],
)
def test_no_class_is_made_that_the_stack_does_not_serve(settings: Settings, kinds: list[ObjectKind]) -> None:
    """By its keys for either."""
    assert [each.kind for each in wanted(world(EVERY), settings)] == kinds


def test_a_cluster_without_gateway_api_gets_no_gateway_class() -> None:
    """That is nothing to report."""
    made = plan(world({**EVERY, GATEWAY: ClassFacts(is_served=False)}))
    assert [each.wanted.kind for each in made.classes] == [INGRESS]
    assert made.notices == ()


@pytest.mark.parametrize("kind", [GATEWAY, INGRESS])
@pytest.mark.parametrize("owner", ["", "local-lb-000000000000"])
def test_a_class_of_others_is_left_alone(kind: ObjectKind, owner: str) -> None:
    """A user's, or another stack's, serves as well; one of another controller is reported."""
    same = world({kind: ClassFacts(ObservedClass(controller_of(kind), owner))})
    assert plan(same) == Plan()
    other = plan(world({kind: ClassFacts(ObservedClass("k8s.io/other", owner))}))
    assert other.classes == ()
    (notice,) = other.notices
    assert "has the controller k8s.io/other, so it is left alone" in notice


@pytest.mark.parametrize("kind", [GATEWAY, INGRESS])
def test_a_class_that_somebody_gave_another_controller_is_reported(kind: ObjectKind) -> None:
    """Although it still has the label."""
    replaced = plan(world({kind: ClassFacts(ObservedClass("k8s.io/other", OURS, DEMO))}))
    assert replaced.classes == ()
    (notice,) = replaced.notices
    assert "has the controller k8s.io/other, so it is left alone" in notice


def test_missing_rights_are_one_sentence_for_a_cluster() -> None:
    """With the file that has them, and the way to do without; what the state has stays as it is."""
    lacking = {GATEWAY: ClassFacts(lacks=("create", "delete")), INGRESS: ClassFacts(lacks=("list",))}
    held = HeldClass(DEMO, INGRESS, is_default=True, is_used=False)
    made = plan(world(lacking, held))
    (notice,) = made.notices
    assert notice == (
        "source demo: this user may not create, delete gatewayclasses and list ingressclasses, so no GatewayClass and"
        " IngressClass local-lb is made or kept; give it the rights of deploy/rbac-classes.yaml"
    )
    (notice,) = plan(world(lacking)).notices
    assert notice.endswith("of deploy/rbac-classes.yaml, or write `classes: false` into the source")
    assert [(each.wanted, each.differing) for each in made.classes] == [
        (WantedClass(INGRESS, OURS, DEMO, is_default=True), ())
    ]


def test_what_is_not_current_repairs_nothing() -> None:
    """It was so when it was read last, perhaps before it was made."""
    (before,) = plan(world({INGRESS: ClassFacts()})).classes
    (after,) = plan(world({INGRESS: ClassFacts(is_current=False)})).classes
    assert (before.differing, after) == (("existence",), replace(before, differing=()))


held_classes = st.builds(HeldClass, st.just(DEMO), st.sampled_from([GATEWAY, INGRESS]), st.booleans(), st.booleans())


@given(st.lists(held_classes, unique_by=lambda held: held.kind))
def test_while_nothing_is_known_the_state_counts(held: list[HeldClass]) -> None:
    """So that an API that doesn't answer costs no class."""
    made = plan(world({}, *held))
    planned = {(each.wanted.kind, each.wanted.is_default, each.wanted.is_used) for each in made.classes}
    assert planned == {(each.kind, each.is_default, each.is_used) for each in held}
    assert all(each.differing == () for each in made.classes)
    assert made.notices == ()


observed_classes = st.builds(
    ObservedClass,
    st.sampled_from([INGRESS_CONTROLLER, "k8s.io/other"]),
    st.sampled_from([OURS, "", "local-lb-000000000000"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
facts_of_a_kind = st.builds(
    ClassFacts, st.none() | observed_classes, st.booleans(), st.just(()) | st.just(("create",)), st.booleans()
)


@given(
    st.dictionaries(st.sampled_from([GATEWAY, INGRESS]), facts_of_a_kind),
    st.lists(held_classes),
    st.sampled_from(["", NAME]),
)
def test_only_absent_classes_and_those_of_this_stack_are_planned(
    facts: Facts, held: list[HeldClass], named: str
) -> None:
    """Whatever else is so; and never two defaults by ours."""
    for each in plan(world(facts, *held, used=bool(named))).classes:
        known = facts.get(each.wanted.kind)
        if known is None:
            continue
        assert known.is_served
        assert known.own is None or known.own.owner == OURS
        if not known.lacks:
            assert each == PlannedClass(DEMO, HOME, each.access, each.wanted, class_differences(known.own, each.wanted))
            assert not (each.wanted.is_default and known.has_other_default)
