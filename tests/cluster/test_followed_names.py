"""A real API and watches of single Secrets: which rights suffice, and what is heard of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lightkube import Client

from locallb.gateway.kinds import CONFIG_MAP, SECRET
from locallb.kubernetes.object_parsing import Parsed
from locallb.model.gateway_objects import Named, Reference
from locallb.model.identities import ClusterName, ContextName
from locallb.model.pacing import Pace
from locallb.model.snapshot import Access
from locallb.sources.kubernetes import named_objects
from locallb.sources.kubernetes.informers import Follow
from locallb.sources.kubernetes.named_objects import FollowedNames
from locallb.sources.kubernetes.write_hints import WriteHints
from tests.support import client_kinds
from tests.support.control_plane import ControlPlane
from tests.support.ingress_rights import IN_NAMESPACE, ROLE, SUBJECT
from tests.support.rbac_manifests import roles_of
from tests.support.waiting import becomes

pytestmark = pytest.mark.cluster

KINDS: dict[str, Any] = {SECRET: client_kinds.SECRET, CONFIG_MAP: client_kinds.CONFIG_MAP}
MINE, THEIRS = "mine", "theirs"


@pytest.fixture
def owner(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Return the owner of a cluster with two Secrets and two ConfigMaps; rights are tried soon again."""
    monkeypatch.setattr(named_objects, "WATCH_RETRY_DELAY", Pace(first=0.05, longest=0.05))
    monkeypatch.setattr(named_objects, "REFUSED", 0.05)
    with plane.client() as api:
        for kind in KINDS.values():
            for name in (MINE, THEIRS):
                api.create(kind.from_dict({"metadata": {"name": name}}), namespace="n")
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "watching"}
        binding = {"metadata": {"name": "watching"}, "roleRef": role, "subjects": [SUBJECT]}
        api.create(IN_NAMESPACE.from_dict(binding), namespace="n")
        yield api
        api.delete(IN_NAMESPACE, "watching", namespace="n")
        api.delete(ROLE, "watching")
        for kind in KINDS.values():
            for name in (MINE, THEIRS):
                api.delete(kind, name, namespace="n")


def references(name: str) -> set[Reference]:
    return {Reference("", kind, Named("n", name)) for kind in KINDS}


def allow(api: Client, *names: str) -> None:
    """Let local-lb watch the objects of these names, or all."""
    named = {"resourceNames": list(names)} if names else {}
    rules = [{**rule, **named} for rule in roles_of("rbac-certificates.yaml")["local-lb-certificates"]]
    made: Any = ROLE.from_dict({"metadata": {"name": "watching"}, "rules": rules})
    api.apply(made, field_manager="tests", force=True)


@pytest.fixture
def names(plane: ControlPlane) -> Iterator[FollowedNames]:
    access, name = Access(str(plane.kubeconfig), ContextName(plane.name)), ClusterName("real")
    writers = WriteHints(access)
    made = FollowedNames(Follow(name, access, {}, lambda _: Parsed(), lambda: None, writers), lambda: None)
    yield made
    made.stop()
    writers.end()  # while a cluster is followed, requests to it wait for turns, and events are sent in threads


def test_a_right_for_one_name_suffices_for_it_and_for_no_other(owner: Client, names: FollowedNames) -> None:
    """What was there, what changes and what goes is heard; others are refused, until their right is given as well."""
    allow(owner, MINE)
    mine, theirs = references(MINE), references(THEIRS)
    names.follow({*mine, *theirs})
    heard = set[Reference]()

    def hears(some: set[Reference]) -> bool:
        heard.update(names.due({*mine, *theirs}, retry=False))
        return heard >= some

    becomes(lambda: hears(mine))
    becomes(names.hints)
    assert heard == mine
    assert THEIRS in names.hints()[0]
    becomes(lambda: names.due({*mine, *theirs}, retry=True) == theirs)  # a watch may report once more what was listed
    heard.clear()
    api: Any = owner  # whose overloads know no type that is chosen at run time
    changed = {"metadata": {"name": MINE}, "data": {"a": "YQ=="}}
    for kind in KINDS.values():
        api.apply(kind.from_dict(changed), namespace="n", field_manager="tests", force=True)
    becomes(lambda: hears(mine))
    allow(owner)
    becomes(lambda: hears(theirs))
    becomes(lambda: not names.hints())
