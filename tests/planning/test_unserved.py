"""Gateways and Ingresses of a class that nobody made: said in the plan, and to the object in a cluster of ours."""

from __future__ import annotations

import shlex

import pytest
from msgspec.structs import replace

from locallb.desired import desired
from locallb.ingress.parsing import CLASS_ANNOTATION
from locallb.kubernetes.events import FAILED, ingress_events, may_pass
from locallb.model.desired import GATEWAY_OBJECT, SERVICE_EVENTS
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER
from locallb.model.identities import ContextName, ObjectKind
from locallb.model.own_classes import NAME, ClassFacts
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.selection import MOST
from tests.support.gateway_objects import DEMO, JsonObject, gateway, gateway_class, listener
from tests.support.ingress_objects import ingress, ingress_class, path, rule
from tests.support.planned_gateways import SETTINGS, snapshot

CLASSES = [gateway_class(NAME), ingress_class(NAME)]
GATEWAY = gateway(listener(), name="front", gatewayClassName="envoy")
INGRESS = ingress(rule(path()), name="example", class_name="nginx")
ANNOTATED = ingress(rule(path()), class_name=None, metadata={"annotations": {CLASS_ANNOTATION: "nginx"}})


def live(*documents: JsonObject) -> Snapshot:
    """Read a running cluster that gets classes."""
    access = Access("/kubeconfig", ContextName("demo"))
    facts = {kind: ClassFacts() for kind in (ObjectKind.GATEWAY_CLASS, ObjectKind.INGRESS_CLASS)}
    return replace(snapshot([*documents]), access={DEMO: access}, classes={DEMO: facts})


def planned(read: Snapshot) -> Plan:
    """Plan it, with the settings of every test."""
    return make_plan(read, SETTINGS)


def sentences(plan: Plan) -> list[str]:
    """Return what is said of objects that are left out."""
    return [text for text in plan.left_out if "left out" in text]


@pytest.mark.parametrize(
    ("document", "start", "command"),
    [
        (
            GATEWAY,
            "1 Gateway left out: demo has no GatewayClass envoy: demo/gateways/shop/front; ",
            [
                *("kubectl", "-n", "shop", "patch", "gateways.gateway.networking.k8s.io/front"),
                *("--type", "merge", "-p", '{"spec": {"gatewayClassName": "local-lb"}}'),
            ],
        ),
        (
            INGRESS,
            "1 Ingress left out: demo has no IngressClass nginx: demo/ingresses/shop/example; ",
            [
                *("kubectl", "-n", "shop", "patch", "ingresses.networking.k8s.io/example"),
                *("--type", "merge", "-p", '{"spec": {"ingressClassName": "local-lb"}}'),
            ],
        ),
        (
            ANNOTATED,
            "1 Ingress left out: demo has no IngressClass nginx: demo/ingresses/shop/web; ",
            [
                *("kubectl", "-n", "shop", "annotate", "ingresses.networking.k8s.io/web"),
                *("--overwrite", "kubernetes.io/ingress.class=local-lb"),
            ],
        ),
    ],
    ids=["gateway", "ingress", "annotated"],
)
def test_the_command_that_helps_is_said_everywhere(document: JsonObject, start: str, command: list[str]) -> None:
    """In a sentence of the plan, which `status` and `watch` print, and in an event of the object."""
    plan = planned(live(*CLASSES, document))
    (sentence,) = sentences(plan)
    assert sentence.startswith(start)
    assert shlex.split(sentence.split("`")[1]) == command
    if document is ANNOTATED:  # its controller may need no IngressClass
        assert plan.unserved == ()
        return
    (news,) = plan.unserved
    (event,) = ingress_events(news)
    assert (event.type, event.reason) == ("Warning", FAILED)
    assert event.note.startswith("nobody serves it: the cluster has no ")
    assert shlex.split(event.note.split("`")[1]) == command
    assert may_pass(event)  # its class may come with the next manifest


def test_an_object_of_a_class_that_is_there_gets_no_event() -> None:
    """It is another controller's, and the sentence says so as before."""
    others = [gateway_class("envoy", "theirs.test/controller"), ingress_class("nginx", "theirs.test/controller")]
    plan = planned(live(*CLASSES, *others, GATEWAY, INGRESS))
    assert plan.unserved == ()
    assert [text.partition(" (")[0] for text in sentences(plan)] == [
        "1 Gateway left out: of another class",
        "1 Ingress left out: of another class",
    ]


def test_manifests_and_clusters_without_classes_of_ours_get_the_sentence_alone() -> None:
    """Who doesn't ask for classes may have a controller that needs none, as those of clouds."""
    read = live(*CLASSES, INGRESS)
    assert planned(replace(read, classes={})).unserved == ()
    (sentence,) = sentences(planned(replace(snapshot([*CLASSES, INGRESS]), access={})))
    assert sentence.endswith("; spec.ingressClassName: local-lb gives it to local-lb")
    (sentence,) = sentences(planned(replace(snapshot([INGRESS]), access={})))
    assert sentence.endswith(f"make the class, with the controller {INGRESS_CONTROLLER} if local-lb is to serve it")
    chosen = replace(SETTINGS, namespaces=frozenset({"team"}))
    assert make_plan(read, chosen).unserved == ()


def test_an_object_of_a_class_that_is_about_to_be_made_is_none_of_them() -> None:
    """Ours comes with this plan, and the next one serves the object."""
    own = gateway(listener(), gatewayClassName=NAME)
    assert (planned(live(own)).unserved, sentences(planned(live(own)))) == ((), [])


def test_events_are_resources_of_their_objects_and_bounded() -> None:
    """One for each of the oldest objects, in groups of their own."""
    many = [ingress(rule(path()), name=f"i{number:03}", class_name="nginx") for number in range(MOST + 5)]
    plan = planned(live(*CLASSES, *many, GATEWAY))
    assert len(plan.unserved) == MOST + 1
    found = desired(plan)
    for news in plan.unserved:
        (group,) = found.by_owner[news.key]
        assert [resource.key.type for resource in group.members] == [GATEWAY_OBJECT, SERVICE_EVENTS]
