"""Faults in every kind of API call, between us and a real API server: what is tried again, what is told, what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from locallb.kubernetes.api import client, connected, live_object
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.servers import ForbiddenError, KubeError, RefusedError, UnreachableError
from locallb.kubernetes.status import FINALIZER
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, Owner, Uid
from locallb.model.snapshot import Access
from locallb.model.texts import owner_fields
from locallb.resources.resource_type import ProviderError
from tests.support.control_plane import ControlPlane, Document, Objects
from tests.support.faulty_api import FaultyApi, faulty_api
from tests.support.manifests import port, service
from tests.support.provider import Driver
from tests.support.stages import Stage

pytestmark = pytest.mark.cluster

LISTS = (r"GET /api/v1/services\?", r"GET /api/v1/nodes\?", r"GET /apis/discovery.k8s.io/v1/endpointslices\?")
READ, WRITE, TELL = r"GET .*/services/web$", r"PATCH .*/services/web/status", r"POST .*/events"
PASSING: dict[str, dict[str, Any]] = {
    "429": {"status": 429, "retry_after": 1},
    "429 without a wish": {"status": 429},
    "500": {"status": 500},
    "502 of something between": {"status": 502, "body": "<html>bad gateway</html>"},
    "503": {"status": 503},
    "504": {"status": 504},
    "reset": {"cut": True},
}
"""Faults that pass: another attempt succeeds."""
LASTING: dict[str, tuple[dict[str, Any], type[KubeError]]] = {
    "401": ({"status": 401}, RefusedError),
    "403": ({"status": 403}, ForbiddenError),
    "422": ({"status": 422}, RefusedError),
    "503 and again": ({"status": 503}, UnreachableError),
    "reset and again": ({"cut": True}, UnreachableError),
    "nonsense": ({"status": 200, "body": "<html>hello</html>"}, UnreachableError),
    "silence": ({"hang": 2.0}, UnreachableError),
}
"""Faults that stay, and what each counts as."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Wait for nothing; where the API is silent, not for long."""
    monkeypatch.setattr(client, "_PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(connected, "_LONGEST_WISH", 0.0)
    if "silence" in request.node.name:
        monkeypatch.setattr(connected, "TIMEOUT", httpx2.Timeout(1.0))


@pytest.fixture
def api(plane: ControlPlane, cluster: Objects, tmp_path: Path) -> Iterator[FaultyApi]:
    """Reach the cluster through a proxy that can fail."""
    del cluster
    with faulty_api(plane, tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each write begin with a read: the answer to an earlier one is forgotten."""
    monkeypatch.setattr(live_object, "_reported", lambda _access, _owner: None)


class Hand:
    """Our resources of one Service, as the engine asks for them."""

    def __init__(self, api: FaultyApi, found: Document, root: Path) -> None:
        key = ObjectKey(ClusterName("real"), "n", found["metadata"]["name"])
        owner = Owner(Home("shop", "dev", str(root)), key, Uid(found["metadata"]["uid"]))
        self.base: dict[str, Any] = {
            "access": {"kubeconfig": str(api.kubeconfig), "context": "real"},
            "owner": dict(owner_fields(owner)),
        }
        ports = [{"port": 8080, "protocol": "TCP", "error": ""}]
        condition = {"type": "local-lb.dev/Serving", "status": "True", "reason": "Serves", "message": ""}
        self.status = {**self.base, "ingress": [{"ip": "127.77.0.9", "mode": "Proxy", "ports": ports}]}
        self.status |= {"conditions": [condition], "alone": False}
        event = {"type": "Normal", "reason": "EnsuredLoadBalancer", "note": "serves"}
        self.events = {**self.base, "events": [event]}
        self.driver = Driver(root)


@pytest.fixture
def hand(api: FaultyApi, cluster: Objects, tmp_path: Path) -> Hand:
    """Make a Service and our resources of it."""
    return Hand(api, cluster.service(service("web", port(8080, 0))), tmp_path)


def everything(cluster: Cluster) -> list[Mapping[str, Any]]:
    return [*cluster.objects(), *cluster.slices()]


def test_a_list_is_read_again(api: FaultyApi, hand: Hand) -> None:
    """Whatever passes, whichever kind is listed: the objects arrive whole."""
    del hand
    cluster = Cluster(Access(str(api.kubeconfig), ContextName("real")))
    for given in (*PASSING.values(), {"status": 410}):
        injected = [api.inject(line, times=3, **given) for line in LISTS]
        assert {item["kind"] for item in everything(cluster)} == {"Service", "Node"}
        assert [fault.times for fault in injected] == [0, 0, 0], given


@pytest.mark.parametrize("fault", LASTING)
def test_a_list_that_stays_away_is_reported(api: FaultyApi, fault: str) -> None:
    """As what it is, in a sentence that names the server."""
    given, meaning = LASTING[fault]
    cluster = Cluster(Access(str(api.kubeconfig), ContextName("real")))
    for line in LISTS if fault != "silence" else LISTS[:1]:
        injected = api.inject(line, times=99, **given)
        with pytest.raises(KubeError, match=r"http://127\.0\.0\.1") as caught:
            everything(cluster)
        assert (type(caught.value), "\n" in str(caught.value)) == (meaning, False), line
        injected.times = 0


@pytest.mark.parametrize("fault", [*PASSING, "lost answer", "409"])
def test_finalizer_and_status_arrive_and_go(cluster: Objects, api: FaultyApi, hand: Hand, fault: str) -> None:
    """Each of our writes meets the fault, when it reads and when it writes; nothing is lost or written twice."""
    given = PASSING.get(fault, {"cut": True, "late": True} if fault == "lost answer" else {"status": 409})
    lines = [WRITE] if fault == "409" else [READ, WRITE]  # nobody answers so to who only reads

    def meet(do: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the driver gives
        injected = [api.inject(line, times=2, **given) for line in lines]
        done = do()
        assert not any(fault.times for fault in injected)
        return done

    claim = meet(lambda: hand.driver.create("ServiceClaim", hand.base))
    status = meet(lambda: hand.driver.create("ServiceStatus", hand.status))
    document = cluster.read("web")
    assert document is not None
    assert document["metadata"]["finalizers"] == [FINALIZER]
    assert [entry["ip"] for entry in document["status"]["loadBalancer"]["ingress"]] == ["127.77.0.9"]
    assert len(document["status"]["conditions"]) == 1
    meet(lambda: hand.driver.delete("ServiceStatus", status))
    meet(lambda: hand.driver.delete("ServiceClaim", claim))
    document = cluster.read("web")
    assert document is not None
    assert "finalizers" not in document["metadata"]
    assert document["status"] == {"loadBalancer": {}}


@pytest.mark.parametrize("line", [READ, WRITE])
@pytest.mark.parametrize("fault", LASTING)
def test_failed_write_is_an_error_and_succeeds_later(
    cluster: Objects, api: FaultyApi, hand: Hand, line: str, fault: str
) -> None:
    """One sentence; the same call succeeds when the fault is gone."""
    injected = api.inject(line, times=99, **LASTING[fault][0])
    with pytest.raises((KubeError, ProviderError)) as caught:
        hand.driver.create("ServiceClaim", hand.base)
    assert "\n" not in str(caught.value)
    injected.times = 0
    claim = hand.driver.create("ServiceClaim", hand.base)
    injected.times = 99
    with pytest.raises((KubeError, ProviderError)):
        hand.driver.delete("ServiceClaim", claim)
    injected.times = 0
    hand.driver.delete("ServiceClaim", claim)
    assert "finalizers" not in (cluster.read("web") or {})["metadata"]


def test_a_conflict_that_never_ends_is_reported(api: FaultyApi, hand: Hand) -> None:
    """Who else writes is not known; what helps is."""
    api.inject(WRITE, times=99, status=409)
    with pytest.raises(ProviderError, match="is changed by somebody again and again; run up once more"):
        hand.driver.create("ServiceClaim", hand.base)


@pytest.mark.parametrize("line", [READ, WRITE])
def test_a_service_that_vanishes_in_between(cluster: Objects, api: FaultyApi, hand: Hand, line: str) -> None:
    """Deleted between our reading and our writing: creating says so, deleting is content."""
    claim = hand.driver.create("ServiceClaim", hand.base)

    def vanish() -> None:
        cluster.change("web", {"metadata": {"finalizers": None}})
        cluster.delete("web")

    api.inject(line, status=404, first=vanish)
    with pytest.raises(ProviderError, match="was deleted meanwhile; run again"):
        hand.driver.create("ServiceStatus", hand.status)
    assert hand.driver.read("ServiceClaim", claim) is None
    hand.driver.delete("ServiceClaim", claim)


def test_lost_event_is_no_error(api: FaultyApi, hand: Hand) -> None:
    """Neither for a temporary fault nor for a lasting one."""
    for given in (*PASSING.values(), *(given for given, _ in LASTING.values() if "hang" not in given)):
        injected = api.inject(TELL, times=99, **given)
        assert hand.driver.create("ServiceEvents", hand.events)["events"] == hand.events["events"]
        injected.times = 0


def test_a_refresh_takes_nothing_for_gone(api: FaultyApi, hand: Hand) -> None:
    """An API that can't answer says nothing about what is there."""
    claim = hand.driver.create("ServiceClaim", hand.base)
    status = hand.driver.create("ServiceStatus", hand.status)
    api.inject("GET", times=99, status=503)
    assert hand.driver.read("ServiceClaim", claim) == claim
    assert hand.driver.read("ServiceStatus", status) == status


def test_long_lists_come_in_pages(cluster: Objects, api: FaultyApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """No object is lost between pages, and a list that breaks on the way is read from the start."""
    for number in range(7):
        cluster.service(service(f"s{number}", port(8080, 0)))
    monkeypatch.setattr(client, "_PAGE", 3)
    api.inject("continue=", status=410)
    found = Cluster(Access(str(api.kubeconfig), ContextName("real"))).objects()
    names = [item["metadata"]["name"] for item in found if item["metadata"].get("namespace") == "n"]
    assert sorted(names) == [f"s{number}" for number in range(7)]
    assert any("limit=3" in line and "continue=" in line for line in api.lines)


@pytest.mark.envoy
def test_a_whole_run_survives_a_bad_day(cluster: Objects, api: FaultyApi, play: Stage) -> None:
    """Every fifth request fails in some way; the run ends well, the next has nothing to do."""
    for name in ("one", "two", "three"):
        cluster.service(service(name, port(8080, 0)))
    play.configure(sources=[api.source])
    requested = [0]

    def pass_on(line: str) -> Any:  # noqa: ANN401 - a fault or none
        api.lines.append(line)
        requested[0] += 1
        kinds: list[dict[str, Any]] = [
            {"status": 429},
            {"status": 500},
            {"cut": True},
            {"cut": True, "late": True},
            {"status": 503},
        ]
        return api.inject(line, 0, **kinds[requested[0] // 5 % 5]) if requested[0] % 5 == 0 else None

    api.take = pass_on  # type: ignore[method-assign]
    done = play.run("up", "--yes")
    assert done.code == 0, done.out + done.err
    assert requested[0] > 15
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    play.configure(sources=[cluster.plane.source])
