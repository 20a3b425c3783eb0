"""Whose turn it is at an API: all that is asked of a cluster that is followed waits for it, and what goes before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.kubernetes.api import client, feed
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.quota import EACH, MOST, OWED, SPAN, Quotas
from locallb.model.snapshot import Access
from locallb.sources.kubernetes import told_writers
from tests.watch.api import Api, balancer, becomes, follower, served


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[Api, Access]]:
    """Serve an API."""
    with served(tmp_path) as made:
        yield made


class Moment:
    """A clock that goes on only while somebody sleeps, and how long that was. Safe to use from several threads."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Moment:
    """Replace the quotas by those of a moment that passes only while somebody waits for a turn."""
    moment = Moment()
    made = Quotas(lambda: moment.now, moment.sleep)
    for module in (client, feed, told_writers):
        monkeypatch.setattr(module, "QUOTAS", made)
    return moment


def test_all_requests_to_a_cluster_that_is_followed_wait_for_their_turn(
    api: tuple[Api, Access], moment: Moment
) -> None:
    """Those of writers as those of followers; without a follower nobody is held up."""
    answers, access = api
    for _ in range(MOST):
        Cluster(access).objects()
    assert moment.slept == []
    before = len(answers.asked)
    followed = follower(access)
    becomes(lambda: answers.count("watch") == 3)
    while len(answers.asked) - before < 2 * MOST:
        Cluster(access).objects()
    waited = (len(answers.asked) - before - 1) // MOST
    assert moment.slept == [pytest.approx(SPAN)] * waited
    followed.stop()
    moment.slept.clear()
    for _ in range(MOST):
        Cluster(access).objects()
    assert moment.slept == []


@pytest.mark.parametrize(
    ("method", "path", "patches", "waits_for_turn"),
    [
        ("GET", "/api/v1/services", MOST, True),
        ("GET", "/api/v1/namespaces/n/services/leases-of-cars", MOST, True),
        ("POST", "/apis/events.k8s.io/v1/namespaces/n/events", MOST, True),
        ("POST", "/apis/events.k8s.io/v1/namespaces/n/events", MOST - 1, False),
        ("PATCH", "/api/v1/namespaces/n/services/web/status", MOST + OWED - 1, False),
        ("PATCH", "/api/v1/namespaces/n/services/web/status", MOST + OWED, True),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", MOST + OWED, False),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", MOST + OWED, False),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/n/leases", MOST + OWED, False),
    ],
)
def test_what_somebody_waits_for_goes_before_what_waits(
    method: str, path: str, patches: int, *, waits_for_turn: bool
) -> None:
    """Patches before reads and events, though not without bound; leases always."""
    moment, access = Moment(), Access("k", "c")
    quotas = Quotas(lambda: moment.now, moment.sleep)
    quotas.put(access, 0)
    for number in range(patches):
        quotas.wait(access, "PATCH", f"/api/v1/namespaces/n/services/web{number}/status")
    assert moment.slept == []
    quotas.wait(access, method, path)
    assert moment.slept == [pytest.approx(SPAN)] * waits_for_turn


def test_more_load_balancers_may_be_told_more_at_once(api: tuple[Api, Access], moment: Moment) -> None:
    """Four requests for each above so many; other Services don't count."""
    answers, access = api
    answers.services = [balancer(f"s{number}") for number in range(MOST + 2)]
    answers.services += [{**balancer(f"t{number}"), "spec": {"type": "ClusterIP"}} for number in range(100)]
    followed = follower(access)
    becomes(lambda: answers.count("watch") == 3)
    for _ in range(10):
        Cluster(access).objects()
    assert moment.slept == [pytest.approx(SPAN)] * ((3 + 3 + 30 - 1) // (MOST + 2 * EACH))
    followed.stop()
