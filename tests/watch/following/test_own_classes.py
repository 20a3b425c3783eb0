"""What is known of classes in a cluster that gets some: read once or followed, with this user's rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locallb.ingress.parsing import INGRESS_KINDS
from locallb.model.gateway_objects import CONTROLLER
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER
from locallb.model.identities import Home, ObjectKind
from locallb.model.own_classes import DEFAULT_ANNOTATION, FINALIZER, NAME, OWNER_LABEL, ClassFacts, ObservedClass
from locallb.model.snapshot import Access
from locallb.sources.entries import KubernetesSource
from locallb.sources.kubernetes import informers as discovered_kinds
from locallb.sources.kubernetes.reading import read_cluster, read_kubernetes
from locallb.sources.kubernetes.source import Following
from tests.support.fake_api import NAME as CLUSTER
from tests.support.fake_api import Api, follower, served
from tests.support.waiting import becomes

GATEWAYS, INGRESSES = "gatewayclasses", "ingressclasses"
GATEWAY, INGRESS = ObjectKind.GATEWAY_CLASS, ObjectKind.INGRESS_CLASS
NOTHING = {GATEWAY: ClassFacts(), INGRESS: ClassFacts()}
CLASS: dict[str, Any] = {
    "metadata": {"name": NAME, "labels": {OWNER_LABEL: "x"}},
    "spec": {"controllerName": CONTROLLER},
}
OBSERVED = ObservedClass(CONTROLLER, "x")


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Api, Access]]:
    """Serve an API that has the kinds and no object, and is asked often for kinds and rights."""
    monkeypatch.setattr(discovered_kinds, "EVERY", 0.1)
    with served(tmp_path) as (answers, access):
        kinds = (GATEWAYS, "gateways", *(kind.plural for kind in INGRESS_KINDS.values()))
        answers.others = {plural: [] for plural in kinds}
        yield answers, access


def source(access: Access, *, classes: bool = True) -> KubernetesSource:
    return KubernetesSource(CLUSTER, kubeconfig=access.kubeconfig, loopback_backends=True, classes=classes)


def home(directory: Path) -> Home:
    return Home("p", "s", str(directory))


def test_a_single_read_knows_what_there_is(api: tuple[Api, Access], tmp_path: Path) -> None:
    """No class of ours, then ours, and another default."""
    answers, access = api
    read = read_kubernetes(source(access), tmp_path, tmp_path)
    assert read.classes == NOTHING
    answers.write(GATEWAYS, NAME, CLASS)
    default = {"name": "nginx", "annotations": {DEFAULT_ANNOTATION: "true"}}
    answers.write(INGRESSES, "nginx", {"metadata": default, "spec": {"controller": "k8s.io/nginx"}})
    read = read_kubernetes(source(access), tmp_path, tmp_path)
    assert read.classes == {GATEWAY: ClassFacts(OBSERVED), INGRESS: ClassFacts(has_other_default=True)}


def test_a_source_that_gets_none_is_asked_for_no_right_but_the_usual_one(
    api: tuple[Api, Access], tmp_path: Path
) -> None:
    """Once, for Ingresses, as ever."""
    answers, access = api
    read = read_cluster(source(access, classes=False), home(tmp_path), (), keep=False)
    assert (read.classes, answers.reviewed) == ({}, 1)
    followed = follower(access)
    becomes(lambda: answers.reviewed > 3)
    assert followed.classes() == {}
    followed.stop()


def test_a_cluster_that_cannot_be_read_gets_classes_of_which_nothing_is_known(
    api: tuple[Api, Access], tmp_path: Path
) -> None:
    """So that the plan keeps what the state has."""
    answers, access = api
    answers.listed = (503, b"{}")
    read = read_cluster(source(access), home(tmp_path), (), keep=False)
    assert read.classes == {CLUSTER: {}}
    answers.listed = None
    answers.discoveries = {}
    answers.reviews = (500, b"{}")
    read = read_cluster(source(access), home(tmp_path), (), keep=False)
    assert read.classes == {CLUSTER: {}}


@pytest.mark.parametrize("verb", ["get", "create", "patch", "delete"])
@pytest.mark.parametrize("plural", [GATEWAYS, INGRESSES])
def test_each_missing_right_is_named(api: tuple[Api, Access], tmp_path: Path, plural: str, verb: str) -> None:
    """By both ways of reading; one that is given later is noticed."""
    answers, access = api
    answers.forbidden = {f"{verb} {plural}"}
    expected = {**NOTHING, ObjectKind(plural): ClassFacts(lacks=(verb,))}
    assert read_kubernetes(source(access), tmp_path, tmp_path).classes == expected
    followed = follower(access, classes=True)
    becomes(lambda: followed.classes() == expected, followed.classes)
    answers.forbidden = set()
    becomes(lambda: followed.classes() == NOTHING, followed.classes)
    followed.stop()


def test_rights_that_are_there_are_asked_for_once(api: tuple[Api, Access]) -> None:
    """However often the kinds are."""
    answers, access = api
    followed = follower(access, classes=True)
    becomes(lambda: followed.classes() == NOTHING, followed.classes)
    asked = answers.reviewed
    discovered = answers.count("discovery")
    becomes(lambda: answers.count("discovery") > discovered + 9)
    assert asked <= 5
    ingresses_alone = answers.reviewed - asked
    assert ingresses_alone <= answers.count("discovery")
    followed.stop()


def test_absent_kinds_and_unlisted_classes_are_told_apart(api: tuple[Api, Access], tmp_path: Path) -> None:
    """Without Gateway API there is nothing to make; without the right to list classes that is what is lacking."""
    answers, access = api
    for plural in (GATEWAYS, "gateways"):
        del answers.others[plural]
    answers.refused = {INGRESSES}
    expected = {GATEWAY: ClassFacts(is_served=False), INGRESS: ClassFacts(lacks=("list",))}
    assert read_kubernetes(source(access), tmp_path, tmp_path).classes == expected
    followed = follower(access, classes=True)
    becomes(lambda: followed.classes() == expected, followed.classes)
    answers.others |= {GATEWAYS: [], "gateways": []}
    answers.refused = set()
    becomes(lambda: followed.classes() == NOTHING, followed.classes)
    followed.stop()


def test_every_change_that_counts_is_noticed(api: tuple[Api, Access], tmp_path: Path) -> None:
    """Of our class: it comes, gets and loses its parts, and goes; each calls for another look."""
    answers, access = api
    changes: list[str] = []
    following = Following(home(tmp_path), lambda _: changes.append("changed"))

    def facts() -> ClassFacts | None:
        read = following.read(source(access), (), everything=False, moved=False)
        return read.classes[CLUSTER].get(GATEWAY)

    becomes(lambda: facts() == ClassFacts(), facts)
    for metadata, observed in (
        ({}, OBSERVED),
        ({"finalizers": [FINALIZER]}, ObservedClass(CONTROLLER, "x", is_held=True)),
        ({"labels": {}}, ObservedClass(CONTROLLER)),
    ):
        changes.clear()
        answers.write(GATEWAYS, NAME, {**CLASS, "metadata": {**CLASS["metadata"], **metadata}})
        becomes(lambda: changes)
        becomes(lambda observed=observed: facts() == ClassFacts(observed), facts)  # type: ignore[misc]
    changes.clear()
    answers.write(GATEWAYS, NAME, None)
    becomes(lambda: changes)
    becomes(lambda: facts() == ClassFacts(), facts)
    following.stop()


def test_what_was_known_counts_as_old_while_classes_cannot_be_followed(api: tuple[Api, Access], tmp_path: Path) -> None:
    """Nothing is repaired by that."""
    answers, access = api
    answers.write(GATEWAYS, NAME, CLASS)
    ingress = {"metadata": {"name": NAME}, "spec": {"controller": INGRESS_CONTROLLER}}
    answers.write(INGRESSES, NAME, ingress)
    following = Following(home(tmp_path), lambda _: None)

    def facts() -> ClassFacts | None:
        return following.read(source(access), (), everything=False, moved=False).classes[CLUSTER].get(GATEWAY)

    becomes(lambda: facts() == ClassFacts(OBSERVED), facts)
    answers.refused = {GATEWAYS}
    answers.end_watches()
    becomes(lambda: facts() == ClassFacts(OBSERVED, is_current=False), facts)
    answers.refused = set()
    becomes(lambda: facts() == ClassFacts(OBSERVED), facts)
    following.stop()
