"""What writers are told by those who follow a cluster, kind by kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.events import Identity
from locallb.kubernetes.relevant import Document
from locallb.model.identities import ContextName, Home, ObjectKey, ObjectKind, Owner, Uid
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.write_hints import WriteHints
from tests.support.fake_api import NAME

SERVICE, GATEWAY = "Service", "Gateway"
KINDS = {SERVICE: ObjectKind.SERVICE, GATEWAY: ObjectKind.GATEWAY}


@pytest.fixture
def access() -> Iterator[Access]:
    """Return a cluster, and forget afterwards what was told of it."""
    yield Access("k", ContextName("told"))
    RECENT.forget(Access("k", ContextName("told")))


def document(kind: str, name: str = "web") -> Document:
    """Write an object that has nothing but its name."""
    return {"kind": kind, "metadata": {"namespace": "n", "name": name, "uid": kind}}


def is_reported(access: Access, kind: str, name: str = "web") -> bool:
    """Return whether a writer to this very object is told what it is, and need not ask."""
    owner = Owner(Home("p", "s", "/r"), ObjectKey(NAME, "n", name, KINDS[kind]), Uid(kind))
    return live_object.is_watched_to_be(access, owner, lambda live: live == document(kind, name))


@pytest.mark.parametrize(("kind", "other"), [(SERVICE, GATEWAY), (GATEWAY, SERVICE)])
def test_writers_learn_of_each_kind_from_its_own_watch(access: Access, kind: str, other: str) -> None:
    """Two of one name are two: no list, deletion or end of a watch of one kind says anything of the other."""
    writers = WriteHints(access)
    for name in (kind, other):
        writers.listed(name, {Identity.of(document(name)): document(name)}, ())
    assert not is_reported(access, kind)
    with writers.watching(other):
        writers.opened(other)
        with writers.watching(kind):
            writers.opened(kind)
            writers.changed(Identity.of(document(kind, "new")), document(kind, "new"))
            assert is_reported(access, kind)
            assert is_reported(access, kind, "new")
            assert not is_reported(access, other, "new")
            writers.changed(Identity.of(document(kind)), None)
            assert not is_reported(access, kind)
            writers.listed(kind, {}, ())
        assert not is_reported(access, kind, "new")
        assert is_reported(access, other)
    assert not is_reported(access, other)
    writers.end()


def test_writers_learn_of_gateways_and_routes_until_those_are_left(access: Access) -> None:
    """Each kind whose status is written, under the key that writers have."""
    writers, reported = WriteHints(access), document("HTTPRoute")
    writers.listed("HTTPRoute", {Identity.of(reported): reported}, ())
    assert RECENT.find(access, "n", "web", ObjectKind.HTTP_ROUTE) is reported
    local: Document = {"kind": "GatewayClass", "metadata": {"name": "local"}}
    writers.changed(Identity.of(local), local)
    assert RECENT.find(access, "", "local", ObjectKind.GATEWAY_CLASS) is local
    writers.remaining(["HTTPRoute", "Node"])
    assert RECENT.find(access, "n", "web", ObjectKind.HTTP_ROUTE) is None
    assert RECENT.find(access, "", "local", ObjectKind.GATEWAY_CLASS) is local
    writers.end()


def test_nodes_are_not_passed_to_writers(access: Access) -> None:
    """Nobody writes to them."""
    writers, node = WriteHints(access), document("Node")
    writers.listed("Node", {Identity.of(node): node}, ())
    writers.opened("Node")
    writers.changed(Identity.of(node), node)
    assert all(RECENT.find(access, "n", "web", kind) is None for kind in ObjectKind)
    writers.end()


def test_ended_follower_passes_nothing_to_writers(access: Access) -> None:
    """Another one follows by then, and what that passes on is newer."""
    writers, late = WriteHints(access), document(SERVICE)
    writers.end()
    writers.listed(SERVICE, {Identity.of(late): late}, ())
    writers.changed(Identity.of(late), late)
    writers.opened(SERVICE)
    assert RECENT.find(access, "n", "web") is None
    RECENT.note(access, "n", "web", late)
    writers.changed(Identity.of(late), None)
    assert RECENT.find(access, "n", "web") is late
    assert RECENT.watched(access, "n", "web") is None
