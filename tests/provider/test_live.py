"""Writing to a Service of a live cluster: what was told of it saves a request and decides nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.api.servers import ConflictError, KubeError
from locallb.kubernetes.api.writes import QUOTAS, UNREACHABLE
from locallb.kubernetes.events import ENSURED, NORMAL
from locallb.kubernetes.status import FINALIZER, SERVING, Published, claiming, publishing
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, Owner, Uid
from locallb.model.reasons import Condition, Event, Ingress, IngressPort
from locallb.model.snapshot import Access
from locallb.outputs.status import ServiceStatus
from locallb.provider.claims import ServiceClaim
from locallb.resources import properties
from locallb.resources.resource_type import ProviderError

ACCESS = Access(kubeconfig="/k", context=ContextName("c"))
OWNER = Owner(Home("p", "s", "/r"), ObjectKey(ClusterName("c"), "n", "web"), Uid("u1"))


def service(version: int, *finalizers: str, uid: str = "u1") -> dict[str, Any]:
    metadata = {"namespace": "n", "name": "web", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": {**metadata, "finalizers": list(finalizers)}}


@dataclass
class FakeCluster:
    """An API server with one Service, or none."""

    present: dict[str, Any] | None
    requested: list[str] = field(default_factory=list)

    def service(self, _namespace: str, _name: str, *_kind: object) -> dict[str, Any] | None:
        self.requested.append("get")
        return self.present

    def patch_status(
        self, _namespace: str, _name: str, patch: Mapping[str, Any], *_kind: object
    ) -> dict[str, Any] | None:
        """Change its metadata, if the patch is for this version."""
        self.requested.append("patch")
        if self.present is None:
            return None
        before = self.present["metadata"]
        if patch["metadata"]["resourceVersion"] != before["resourceVersion"]:
            raise ConflictError("somebody was quicker")
        version = str(int(before["resourceVersion"]) + 1)
        self.present = {"metadata": {**before, **patch["metadata"], "resourceVersion": version}}
        return self.present


@pytest.fixture
def reported() -> Iterator[Access]:
    yield ACCESS
    RECENT.forget(ACCESS)


CASES: Mapping[str, tuple[dict[str, Any] | None, dict[str, Any] | None, list[str]]] = {
    "nobody told anything": (None, service(3), ["get", "patch"]),
    "what was told is true": (service(3), service(3), ["patch"]),
    "what was told is old": (service(2), service(3), ["patch", "get", "patch"]),
    "what was told is done, which is true": (service(3, FINALIZER), service(3, FINALIZER), ["get"]),
    "what was told is done, which is old": (service(2, FINALIZER), service(3), ["get", "patch"]),
    "another Service had the name": (service(3, uid="u0"), service(3), ["get", "patch"]),
    "it is gone": (service(3), None, ["patch"]),
}


@pytest.mark.parametrize("name", CASES)
def test_stale_cached_object_is_corrected_by_the_api(
    name: str, reported: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the end the Service is as it should be, with the fewest requests."""
    guess, present, requested = CASES[name]
    cluster = FakeCluster(present)
    monkeypatch.setattr(live_object, "_at", lambda _access: cluster)
    if guess is not None:
        RECENT.note(reported, "n", "web", guess)
    made = live_object.write(ACCESS, OWNER, claiming)
    assert cluster.requested == requested
    assert made == cluster.present
    assert made is None or made["metadata"]["finalizers"] == [FINALIZER]


def test_the_answer_to_a_patch_is_the_next_guess(reported: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service that is claimed and then told its address is read once."""
    del reported
    cluster = FakeCluster(service(3))
    monkeypatch.setattr(live_object, "_at", lambda _access: cluster)

    def mark(found: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"], "labels": {"x": "y"}}}

    live_object.write(ACCESS, OWNER, claiming)
    live_object.write(ACCESS, OWNER, mark)
    assert cluster.requested == ["get", "patch", "patch"]


@dataclass
class BusyCluster(FakeCluster):
    """An API server with a Service that its owner changes after each read."""

    def service(self, namespace: str, name: str, *kind: object) -> dict[str, Any] | None:
        """Return it as it was a moment ago."""
        before = super().service(namespace, name, *kind)
        assert before is not None
        self.present = service(int(before["metadata"]["resourceVersion"]) + 1)
        return before


@pytest.mark.parametrize(("followed", "tries", "remedy"), [([ACCESS], 2, "it is tried again"), ([], 10, "run up")])
def test_a_service_that_is_changed_all_the_time_holds_up_others_for_two_attempts(
    followed: list[Access], tries: int, remedy: str, reported: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch brings the next version; a command has nobody to bring it, and tries longer."""
    cluster, waits = BusyCluster(service(3)), list[float]()
    monkeypatch.setattr(live_object, "_at", lambda _access: cluster)
    monkeypatch.setattr(time, "sleep", waits.append)
    for access in followed:
        QUOTAS.put(access, 1)
    try:
        with pytest.raises(ProviderError, match=f"is changed by somebody again and again; {remedy}"):
            live_object.write(ACCESS, OWNER, claiming)
    finally:
        QUOTAS.drop(reported)
    assert cluster.requested == ["get", "patch"] * tries
    assert len(waits) == tries


WATCHED: Mapping[str, tuple[dict[str, Any], bool, dict[str, Any] | None, bool, list[str]]] = {
    "it is as it was": (service(3, FINALIZER), True, service(3, FINALIZER), True, []),
    "no watch is open": (service(3, FINALIZER), False, service(4), False, ["get"]),
    "it lacks something": (service(3), True, service(3), False, ["get"]),
    "it lacked something": (service(3), True, service(4, FINALIZER), True, ["get"]),
    "another Service had the name": (service(3, FINALIZER, uid="u0"), True, service(4), False, ["get"]),
    "it is gone": (service(3), True, None, False, ["get"]),
}


@pytest.mark.parametrize("name", WATCHED)
def test_a_service_is_read_unless_an_open_watch_says_that_it_is_as_it_was(
    name: str, reported: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a watch says to be different may be old news, as is everything once the watch has ended."""
    stated, is_open, present, remains, requested = WATCHED[name]
    cluster = FakeCluster(present)
    monkeypatch.setattr(live_object, "_at", lambda _access: cluster)
    RECENT.note(reported, "n", "web", stated)
    RECENT.opened(reported, is_open=is_open)
    claim = properties.ServiceClaimState(access=ACCESS, owner=OWNER, finalizer=FINALIZER)
    assert ServiceClaim(None).read(claim) == (claim if remains else None)
    assert cluster.requested == requested


@pytest.mark.parametrize("name", ["what was published", "nothing"])
def test_a_status_is_read_unless_an_open_watch_says_that_it_is_as_it_was(
    name: str, reported: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above. What is left of a resource that nobody knows to be gone is read in any case."""
    ingress, conditions, same = SAID[name]
    present = {**service(3), "status": {"loadBalancer": {"ingress": ingress}, "conditions": conditions}}
    cluster = FakeCluster(present)
    monkeypatch.setattr(live_object, "_at", lambda _access: cluster)
    RECENT.note(reported, "n", "web", present)
    RECENT.opened(reported, is_open=True)
    assert (ServiceStatus(None).read(STATE) == STATE) == same
    assert cluster.requested == ([] if same else ["get"])
    ServiceStatus(None).leaves_nothing(STATE)
    assert cluster.requested[-1:] == ["get"]


def test_writes_that_others_forestall_wait_longer_each_time_and_end(
    reported: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told is old news, so the first read follows at once; then somebody writes at every moment."""

    class Duel(FakeCluster):
        def service(self, namespace: str, name: str, *_kind: object) -> dict[str, Any] | None:
            read = super().service(namespace, name)
            version = int(read["metadata"]["resourceVersion"]) if read else 0
            self.present = service(version + 1)
            return read

    cluster, waits = Duel(service(3)), list[float]()
    monkeypatch.setattr(live_object, "_at", lambda _access: cluster)
    monkeypatch.setattr(live_object, "time", SimpleNamespace(sleep=waits.append))
    monkeypatch.setattr(live_object, "jitter", lambda: 0.0)
    RECENT.note(reported, "n", "web", service(2))
    with pytest.raises(ProviderError, match="n/web is changed by somebody again and again"):
        live_object.write(ACCESS, OWNER, claiming)
    assert waits[:4] == [0.0, 0.02, 0.04, 0.08]
    assert waits == sorted(waits)
    assert waits[-1] == 1.0
    assert len(waits) == cluster.requested.count("get") == 10


@pytest.fixture
def silent() -> Iterator[None]:
    """Know of the cluster that it doesn't answer."""
    UNREACHABLE.put({ACCESS: "it doesn't answer"})
    yield
    UNREACHABLE.put({})


@pytest.mark.usefixtures("silent")
def test_a_cluster_that_is_known_not_to_answer_is_not_asked(reported: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read counts as it was, what is written fails at once, events are lost; until it is back."""
    cluster = FakeCluster(service(3))
    monkeypatch.setattr(live_object, "_clusters", lambda: SimpleNamespace(at=lambda _access: cluster))
    claim = properties.ServiceClaimState(access=ACCESS, owner=OWNER, finalizer=FINALIZER)
    assert ServiceClaim(None).read(claim) == claim
    assert ServiceStatus(None).read(STATE) == STATE
    for guess in (None, service(3)):
        if guess:
            RECENT.note(reported, "n", "web", guess)
        with pytest.raises(KubeError, match="it doesn't answer"):
            live_object.write(ACCESS, OWNER, claiming)
    live_object.report_to(ACCESS, OWNER, Event(NORMAL, ENSURED, "serves"))
    assert cluster.requested == []
    UNREACHABLE.put({})
    assert ServiceClaim(None).read(claim) is None
    assert cluster.requested == ["get"]


PORT = {"port": 80, "protocol": "TCP"}
ENTRY = {"ip": "127.77.0.5", "ipMode": "Proxy", "ports": [PORT]}
THEIRS = {"ip": "192.0.2.1", "ipMode": "VIP"}
FINE = {"type": SERVING, "status": "True", "reason": "Serves", "message": ""}
STATE = properties.ServiceStatusState(
    access=ACCESS,
    owner=OWNER,
    ingress=(Ingress("127.77.0.5", "Proxy", (IngressPort(80, "TCP"),)),),
    conditions=(Condition(**FINE),),
    alone=False,
)
SAID: Mapping[str, tuple[list[dict[str, Any]], list[dict[str, Any]], bool]] = {
    "what was published": ([ENTRY], [FINE], True),
    "an entry of others as well": ([THEIRS, ENTRY], [FINE], True),
    "nothing": ([], [], False),
    "another port": ([{**ENTRY, "ports": [{**PORT, "port": 81}]}], [FINE], False),
    "an error at the port": ([{**ENTRY, "ports": [{**PORT, "error": "x/Y"}]}], [FINE], False),
    "another ipMode": ([{**ENTRY, "ipMode": "VIP"}], [FINE], False),
    "no ipMode, as an old API server keeps none": ([{"ip": ENTRY["ip"], "ports": [PORT]}], [FINE], True),
    "the address twice": ([ENTRY, ENTRY], [FINE], False),
    "another condition": ([ENTRY], [{**FINE, "status": "False"}], False),
    "a condition with a date": ([ENTRY], [{**FINE, "lastTransitionTime": "2026-01-01T00:00:00Z"}], True),
}


@pytest.mark.parametrize("name", SAID)
def test_a_refresh_finds_a_difference_where_an_update_would_write(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nowhere else: what the loop, the refresh and the patch see is one decision."""
    ingress, conditions, same = SAID[name]
    present = {**service(3), "status": {"loadBalancer": {"ingress": ingress}, "conditions": conditions}}
    monkeypatch.setattr(live_object, "_at", lambda _access: FakeCluster(present))
    kind = ServiceStatus(None)
    observed = kind.read(STATE)
    assert observed is not None
    assert (kind.diff(observed, STATE).changed == frozenset()) == same
    wanted = Published(STATE.ingress, STATE.conditions)
    assert (publishing(present, ["127.77.0.5"], wanted, "2026-01-02T00:00:00Z") is None) == same
