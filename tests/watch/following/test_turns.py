"""Whose turn it is at an API: all that is asked of a cluster that is followed waits for it, and what goes before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from locallb.kubernetes.api import connected
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.api.writes import EACH, LIFE, MAX, OWED, SPAN, Quotas
from locallb.kubernetes.object_parsing import Parsed, parse_objects
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from locallb.sources.kubernetes import write_hints
from locallb.sources.kubernetes.write_hints import _FIRST, _READINGS, WriteHints, hold_back
from tests.support.fake_api import NAME, Api, balancer, follower
from tests.support.gateway_objects import gateway, listener
from tests.support.waiting import becomes


class Moment:
    """A clock that goes on only while somebody sleeps, and how long that was. Safe to use from several threads."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()
        self.quotas = Quotas(lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def turns_left(self, access: Access) -> int:
        """Take all turns of writers that there are without waiting, and one more; return how many there were."""
        self.slept.clear()
        claimed = 0
        while not self.slept:
            self.quotas.wait(access, "PATCH", "/api/v1/namespaces/n/services/web/status")
            claimed += 1
        return claimed - 1


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Moment:
    """Replace the quotas by those of a moment that passes only while somebody waits for a turn."""
    moment = Moment()
    for module in (connected, write_hints):
        monkeypatch.setattr(module, "QUOTAS", moment.quotas)
    return moment


def test_all_requests_to_a_cluster_that_is_followed_wait_for_their_turn(
    api: tuple[Api, Access], moment: Moment
) -> None:
    """Those of writers as those of followers; without a follower nobody is held up."""
    answers, access = api
    for _ in range(MAX):
        Cluster(access).objects()
    assert moment.slept == []
    before = len(answers.requested)
    followed = follower(access)
    becomes(lambda: answers.count("watch") == 3 and answers.count("discovery") == 1)
    while len(answers.requested) - before < 2 * MAX:
        Cluster(access).objects()
    waited = (len(answers.requested) - before - 1) // MAX
    assert moment.slept == [pytest.approx(SPAN)] * waited
    followed.stop()
    moment.slept.clear()
    for _ in range(MAX):
        Cluster(access).objects()
    assert moment.slept == []


@pytest.mark.parametrize(
    ("method", "path", "patches", "waits_for_turn"),
    [
        ("GET", "/api/v1/services", MAX, True),
        ("GET", "/api/v1/namespaces/n/services/leases-of-cars", MAX, True),
        ("POST", "/apis/events.k8s.io/v1/namespaces/n/events", MAX, True),
        ("POST", "/apis/events.k8s.io/v1/namespaces/n/events", MAX - 1, False),
        ("PATCH", "/api/v1/namespaces/n/services/web/status", MAX + OWED - 1, False),
        ("PATCH", "/api/v1/namespaces/n/services/web/status", MAX + OWED, True),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", MAX + OWED, False),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", MAX + OWED, False),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/n/leases", MAX + OWED, False),
    ],
)
def test_patches_and_leases_go_before_reads_and_events(
    method: str, path: str, patches: int, *, waits_for_turn: bool
) -> None:
    """Patches up to a bound, leases always."""
    moment, access = Moment(), Access("k", ContextName("c"))
    quotas = moment.quotas
    quotas.put(access, 0)
    for number in range(patches):
        quotas.wait(access, "PATCH", f"/api/v1/namespaces/n/services/web{number}/status")
    assert moment.slept == []
    quotas.wait(access, method, path)
    assert moment.slept == [pytest.approx(SPAN)] * waits_for_turn


def test_more_load_balancers_allow_more_requests_at_once(api: tuple[Api, Access], moment: Moment) -> None:
    """Four requests for each above so many; other Services don't count."""
    answers, access = api
    answers.services = [balancer(f"s{number}") for number in range(MAX + 2)]
    answers.services += [{**balancer(f"t{number}"), "spec": {"type": "ClusterIP"}} for number in range(100)]
    followed = follower(access)
    becomes(lambda: answers.count("watch") == 3 and answers.count("discovery") == 1)
    for _ in range(10):
        Cluster(access).objects()
    assert moment.slept == [pytest.approx(SPAN)] * ((3 + 3 + 30 - 1) // (MAX + 2 * EACH))
    followed.stop()


def web(**changed: object) -> dict[str, Any]:
    """Write the Service that is there from the beginning, with other fields than those."""
    return {**balancer("web"), **changed}


STATUS = {"loadBalancer": {"ingress": [{"ip": "127.77.0.5"}]}}
SPEC = balancer("web")["spec"]
METADATA = balancer("web")["metadata"]
TOLD: Mapping[str, tuple[list[tuple[str, dict[str, Any]]], int]] = {
    "another port": ([("MODIFIED", web(spec={**SPEC, "ports": [{"port": 81, "nodePort": 30000}]}))], 1),
    "a flood of other ports": (
        [("MODIFIED", web(spec={**SPEC, "ports": [{"port": 81 + number}]})) for number in range(50)],
        1,
    ),
    "no address any more": ([("MODIFIED", web(spec={**SPEC, "type": "ClusterIP"}))], 1),
    "another status": ([("MODIFIED", web(status=STATUS)), ("MODIFIED", web())] * 20, 0),
    "our finalizer": ([("MODIFIED", web(metadata={**METADATA, "finalizers": ["local-lb.dev/address"]}))], 0),
    "the same again": ([("ADDED", web()), ("MODIFIED", web())], 0),
    "its deletion": ([("MODIFIED", web(metadata={**METADATA, "deletionTimestamp": "2026-01-01T00:00:00Z"}))], 1),
    "another port, then its deletion": (
        [
            ("MODIFIED", web(spec={**SPEC, "ports": [{"port": 81}]})),
            ("MODIFIED", web(metadata={**METADATA, "deletionTimestamp": "2026-01-01T00:00:00Z"})),
        ],
        2,
    ),
    "its end": ([("DELETED", web())], 0),
    "another of its name": ([("DELETED", web()), ("ADDED", web(metadata={**METADATA, "uid": "2"}))], 1),
    "nonsense in its place": ([("MODIFIED", web(spec={**SPEC, "ports": "x"}))], 1),
    "ten new ones": ([("ADDED", balancer(f"s{number}")) for number in range(10)], 10),
    "others than load balancers": (
        [("ADDED", {**balancer(f"s{number}"), "spec": {"type": "ClusterIP"}}) for number in range(10)],
        0,
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_only_changes_by_users_grant_a_service_extra_requests(
    name: str, api: tuple[Api, Access], moment: Moment
) -> None:
    """At a limited rate, however many events there are; statuses and finalizers don't count."""
    answers, access = api
    answers.services = [web()]
    followed = follower(access)
    becomes(lambda: answers.count("watch") == 3 and answers.count("discovery") == 1)
    moment.turns_left(access)
    events, changes = TOLD[name]
    answers.events = [*events, ("ADDED", {**balancer("last"), "spec": {"type": "ClusterIP"}})]
    becomes(lambda: RECENT.find(access, "n", "last"))
    moment.now += SPAN
    assert moment.turns_left(access) == MAX + OWED + changes * EACH
    moment.now += LIFE
    assert moment.turns_left(access) == MAX + OWED
    followed.stop()


def test_listed_objects_grant_no_extra_requests(api: tuple[Api, Access], moment: Moment) -> None:
    """At a start, or after a watch has ended, whatever is new there."""
    answers, access = api
    answers.services = [balancer(f"s{number}") for number in range(10)]
    followed = follower(access)
    becomes(lambda: answers.count("watch") == 3 and answers.count("discovery") == 1)
    moment.now += SPAN
    assert moment.turns_left(access) == MAX + OWED
    followed.stop()


def test_a_first_gateway_brings_the_turns_to_read_what_it_needs(moment: Moment) -> None:
    """Once in a while, however many come; one that changes is known by then, and brings its own."""
    access, first = Access("k", ContextName("c")), parse_objects(NAME, [gateway()])
    writers = WriteHints(access)
    writers.wanted(Parsed(), first)
    assert moment.turns_left(access) == MAX + OWED + (_READINGS + 1) * EACH
    writers.wanted(Parsed(), parse_objects(NAME, [gateway(name="other")]))
    writers.wanted(first, parse_objects(NAME, [gateway(listener("more", 81))]))
    moment.now += SPAN
    assert moment.turns_left(access) == MAX + OWED + EACH
    writers.end()


def test_a_cluster_that_is_opened_is_read_without_waiting(moment: Moment) -> None:
    """Once; whatever its first seconds don't use is lost, and following it brings no more."""
    access = Access("k", ContextName("c"))
    hold_back(access, opens=True)
    writers = WriteHints(access)
    assert moment.turns_left(access) == MAX + OWED + _FIRST * EACH
    writers.end()
    hold_back(access, opens=True)
    moment.now += LIFE
    assert moment.turns_left(access) == MAX + OWED
    writers.end()
