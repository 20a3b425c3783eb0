"""The resource OwnClass against a small API: made, repaired, let go of; what is others' is never touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.kubeconfig import UNWRITTEN
from locallb.model.gateway_objects import CONTROLLER
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, ObjectKind, Owner, OwnerId
from locallb.model.own_classes import CLUSTER_ANNOTATION, DEFAULT_ANNOTATION, FINALIZER, NAME, OWNER_LABEL
from locallb.model.snapshot import Access
from locallb.planning.own_classes import RIGHTS
from locallb.provider.own_class import OwnClass
from locallb.resources.properties import OwnClassInputs
from locallb.resources.resource_type import ProviderError
from tests.support.fake_api import Api, served

GATEWAYS, INGRESSES = "gatewayclasses", "ingressclasses"
OWNER = OwnerId("local-lb-0123456789ab")
TYPE = OwnClass(None)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[Api, Access]]:
    """Serve an API that has all kinds and no object."""
    with served(tmp_path) as (answers, access):
        answers.others = {plural: [] for plural in (GATEWAYS, INGRESSES, "gateways", "ingresses")}
        yield answers, access
    UNWRITTEN.clear()


def wanted(access: Access, kind: str = GATEWAYS, *, default: bool = False, used: bool = False) -> OwnClassInputs:
    owner = Owner(Home("p", "s", "/srv"), ObjectKey(ClusterName(""), "", "demo/class"))
    controller = CONTROLLER if kind == GATEWAYS else INGRESS_CONTROLLER
    return OwnClassInputs(
        owner=owner,
        access=access,
        cluster="demo",
        kind=kind,
        label=OWNER,
        controller=controller,
        default=default,
        used=used,
    )


def changed(answers: Api, plural: str, **metadata: object) -> None:
    found = answers.named(plural, NAME) or {}
    answers.write(plural, NAME, {**found, "metadata": {**found["metadata"], **metadata}})


def metadata(answers: Api, plural: str) -> dict[str, Any]:
    found = answers.named(plural, NAME)
    assert found is not None
    made: dict[str, Any] = found["metadata"]
    return made


@pytest.mark.parametrize("plural", [GATEWAYS, INGRESSES])
def test_it_is_made_read_and_removed(api: tuple[Api, Access], plural: str) -> None:
    """With the label; a second creation takes it over, and one that is gone is none."""
    answers, access = api
    identity, state = TYPE.create(wanted(access, plural))
    assert identity == f"{plural}/{NAME}"
    assert metadata(answers, plural)["labels"] == {OWNER_LABEL: OWNER}
    assert TYPE.read(state) == state
    assert not TYPE.leaves_nothing(state)
    assert TYPE.create(wanted(access, plural))[1] == state
    assert answers.written == [f"create {plural}"]
    TYPE.delete(state)
    assert answers.named(plural, NAME) is None
    assert TYPE.read(state) is None
    assert TYPE.leaves_nothing(state)
    TYPE.delete(state)
    assert answers.written == [f"create {plural}", f"delete {plural}"]


def test_what_others_change_is_read_and_repaired(api: tuple[Api, Access]) -> None:
    """And what they add stays."""
    answers, access = api
    new = wanted(access, INGRESSES, default=True)
    _, state = TYPE.create(new)
    changed(answers, INGRESSES, annotations={"a": "b"}, finalizers=["c/d"])
    assert TYPE.read(state) is None
    changed(answers, INGRESSES, annotations={"a": "b", CLUSTER_ANNOTATION: "demo"})
    observed = TYPE.read(state)
    assert observed == replace(state, default=False)
    assert TYPE.update(observed, new) == state
    made = metadata(answers, INGRESSES)
    assert made["annotations"] == {"a": "b", CLUSTER_ANNOTATION: "demo", DEFAULT_ANNOTATION: "true"}
    assert made["finalizers"] == ["c/d"]
    found = answers.named(INGRESSES, NAME) or {}
    answers.write(INGRESSES, NAME, {**found, "spec": {**found["spec"], "parameters": {"kind": "X"}}})
    observed = TYPE.read(state)
    assert observed == replace(state, controller="")
    TYPE.update(observed, new)
    assert TYPE.read(state) == state


def test_the_finalizer_comes_and_goes_with_gateways(api: tuple[Api, Access]) -> None:
    """A class that a user deletes meanwhile goes with the last one, and is made anew."""
    answers, access = api
    _, state = TYPE.create(wanted(access, used=True))
    assert metadata(answers, GATEWAYS)["finalizers"] == [FINALIZER]
    answers.delete(GATEWAYS, NAME)
    assert "deletionTimestamp" in metadata(answers, GATEWAYS)
    assert TYPE.update(state, wanted(access, used=True)) == state
    assert "deletionTimestamp" in metadata(answers, GATEWAYS)
    before = metadata(answers, GATEWAYS)["uid"]
    state = TYPE.update(state, wanted(access))
    assert metadata(answers, GATEWAYS)["uid"] != before
    assert metadata(answers, GATEWAYS).keys() == {"name", "labels", "annotations", "uid", "resourceVersion"}
    assert TYPE.read(state) == state


@pytest.mark.parametrize(
    ("plural", "named", "spec"),
    [(GATEWAYS, "gateways", {"gatewayClassName": NAME}), (INGRESSES, "ingresses", {"ingressClassName": NAME})],
)
def test_a_class_that_objects_name_stays_without_our_finalizer_and_is_no_default(
    api: tuple[Api, Access], plural: str, named: str, spec: dict[str, Any]
) -> None:
    """So that it can be deleted later, and gets no new object; a next creation takes it over."""
    answers, access = api
    new = wanted(access, plural, default=plural == INGRESSES, used=plural == GATEWAYS)
    _, state = TYPE.create(new)
    item = {"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"}, "spec": spec}
    answers.others[named] = [item]
    TYPE.delete(state)
    assert not metadata(answers, plural).get("finalizers")
    assert metadata(answers, plural)["annotations"] == {CLUSTER_ANNOTATION: "demo"}
    assert metadata(answers, plural)["labels"] == {OWNER_LABEL: OWNER}
    assert TYPE.create(new)[1] == state
    answers.others[named] = []
    TYPE.delete(state)
    assert answers.named(plural, NAME) is None


@pytest.mark.parametrize("labels", [{}, {OWNER_LABEL: "local-lb-000000000000"}])
def test_a_class_of_others_is_never_touched(api: tuple[Api, Access], labels: dict[str, str]) -> None:
    """Neither made anew nor changed nor removed."""
    answers, access = api
    _, state = TYPE.create(wanted(access))
    changed(answers, GATEWAYS, labels=labels)
    answers.written.clear()
    assert TYPE.read(state) is None
    assert TYPE.leaves_nothing(state)
    with pytest.raises(
        ProviderError, match="GatewayClass local-lb of demo exists and isn't this stack's, so it is left"
    ):
        TYPE.create(wanted(access))
    TYPE.delete(state)
    assert answers.written == []


def test_another_object_of_its_name_is_not_deleted(api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it takes its place between the reading and the deletion."""
    answers, access = api
    _, state = TYPE.create(wanted(access))

    def replace_first(*_: object) -> bool:
        answers.write(GATEWAYS, NAME, None)
        answers.write(GATEWAYS, NAME, {"metadata": {"name": NAME}, "spec": {"controllerName": "k8s.io/other"}})
        return False

    monkeypatch.setattr(live_object, "class_is_named", replace_first)
    TYPE.delete(state)
    assert (answers.named(GATEWAYS, NAME) or {})["spec"] == {"controllerName": "k8s.io/other"}


def test_the_same_object_changed_meanwhile_is_patched_anew(
    api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict is read again."""
    answers, access = api
    _, state = TYPE.create(wanted(access))
    times, patch = [], live_object.patch_class
    changed(answers, GATEWAYS, labels={OWNER_LABEL: OWNER, "a": "b"})

    def patch_late(access: Access, kind: ObjectKind, body: Mapping[str, object]) -> None:
        times.append(1)
        if len(times) == 1:
            changed(answers, GATEWAYS, labels={OWNER_LABEL: OWNER, "c": "d"})
        patch(access, kind, body)

    monkeypatch.setattr(live_object, "patch_class", patch_late)
    TYPE.update(state, wanted(access, used=True))
    assert len(times) == 2
    assert metadata(answers, GATEWAYS)["labels"] == {OWNER_LABEL: OWNER, "c": "d"}
    assert TYPE.read(state) == replace(state, used=True)


def test_a_class_that_lost_its_label_meanwhile_is_not_deleted(
    api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading and the deletion somebody made it theirs."""
    answers, access = api
    _, state = TYPE.create(wanted(access))

    def take(*_: object) -> bool:
        changed(answers, GATEWAYS, labels={})
        return False

    monkeypatch.setattr(live_object, "class_is_named", take)
    TYPE.delete(state)
    assert metadata(answers, GATEWAYS)["labels"] == {}


def test_a_class_with_another_controller_is_somebody_elses(api: tuple[Api, Access]) -> None:
    """Whoever replaced it kept the label."""
    answers, access = api
    _, state = TYPE.create(wanted(access))
    found = answers.named(GATEWAYS, NAME) or {}
    answers.write(GATEWAYS, NAME, {**found, "spec": {"controllerName": "k8s.io/other"}})
    assert TYPE.read(state) is None
    with pytest.raises(ProviderError, match="isn't this stack's"):
        TYPE.create(wanted(access))
    TYPE.delete(state)
    assert answers.named(GATEWAYS, NAME) is not None


def test_a_source_that_got_another_name_keeps_the_class(api: tuple[Api, Access]) -> None:
    """The resource under the new name takes it over before the one under the old name goes."""
    answers, access = api
    _, old = TYPE.create(wanted(access))
    renamed = replace(wanted(access), cluster="lab")
    _, state = TYPE.create(renamed)
    assert TYPE.leaves_nothing(old)
    TYPE.delete(old)
    assert TYPE.read(state) == state
    TYPE.delete(state)
    assert answers.named(GATEWAYS, NAME) is None


@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
def test_a_missing_right_is_reported_with_the_file_that_has_it(api: tuple[Api, Access], verb: str) -> None:
    """Rights may be taken away after they were asked for."""
    answers, access = api
    _, state = TYPE.create(wanted(access))
    answers.forbidden = {f"{verb} {GATEWAYS}"}
    if verb == "create":
        answers.write(GATEWAYS, NAME, None)
    with pytest.raises(ProviderError, match=RIGHTS):
        TYPE.delete(state) if verb == "delete" else TYPE.update(state, wanted(access, used=True))


def test_a_cluster_without_the_kind_is_reported(api: tuple[Api, Access]) -> None:
    """Its definitions may be removed while it is made."""
    answers, access = api
    del answers.others[GATEWAYS]
    with pytest.raises(ProviderError, match="the cluster has no kind GatewayClass"):
        TYPE.create(wanted(access))


def test_an_api_that_does_not_answer_proves_nothing(tmp_path: Path) -> None:
    """What was made counts as it was; it can't be removed, and the remedy is said. A removed cluster has none."""
    with served(tmp_path) as (answers, access):
        answers.others = {GATEWAYS: [], "gateways": []}
        _, state = TYPE.create(wanted(access))
    assert TYPE.read(state) == state
    assert not TYPE.leaves_nothing(state)
    with pytest.raises(ProviderError, match=r"can't be removed.*kubectl config delete-context here"):
        TYPE.delete(state)
    gone = replace(state, access=Access(access.kubeconfig, ContextName("gone")))
    TYPE.delete(gone)
    assert TYPE.leaves_nothing(gone)


def test_a_copy_of_a_project_leaves_the_original_s_class(api: tuple[Api, Access], tmp_path: Path) -> None:
    """Its state was copied; the class wasn't."""
    answers, access = api
    original = tmp_path / "original"
    original.mkdir()
    (tmp_path / "copy").mkdir()
    new = replace(wanted(access), owner=Owner(Home("p", "s", str(original)), wanted(access).owner.service))
    _, state = TYPE.create(new)
    OwnClass(tmp_path / "copy").delete(state)
    assert answers.named(GATEWAYS, NAME) is not None
    OwnClass(original).delete(state)
    assert answers.named(GATEWAYS, NAME) is None
