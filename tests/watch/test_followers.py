"""Followers of a cluster against an API that answers anything: no answer ends one, and none makes it ask too often."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
import pytest

from locallb.kubernetes import watch_pace
from locallb.kubernetes.answers import OddError
from locallb.kubernetes.api import client, feed
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.errors import Fault, KubeError
from locallb.kubernetes.api.page_guard import PageGuard
from locallb.kubernetes.api.quota import EACH, OWED, SPAN, Quotas
from locallb.kubernetes.api.quota import MOST as QUOTA
from locallb.kubernetes.api.recent import RECENT
from locallb.kubernetes.parsing import Document, Identity
from locallb.kubernetes.watch_pace import MOST
from locallb.model.identities import ClusterName
from locallb.model.pacing import Pace
from locallb.model.snapshot import Access
from locallb.sources.kubernetes import told_writers
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from tests.kubernetes.test_answers import ENDLESS, ODD_LISTS, ODD_WATCHES, line
from tests.watch.api import Api, balancer, becomes, node, served

NAME = ClusterName("demo")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[Api, Access]]:
    """Serve an API."""
    with served(tmp_path) as made:
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon."""
    for name in ("LISTS", "WATCHES"):
        monkeypatch.setattr(watch_pace, name, Pace(first=0.02, longest=0.05, floor=0.02))


SOME_LISTS = ("nothing", "an object", "a list", "an item as a text", "null metadata", ENDLESS)
SOME_WATCHES = ("no JSON", "an array", "an unknown type", "an error without an object", "no metadata", "too deep")
LISTS_FOR_COMMANDS = ("nothing", "an object", "a list", "an item as a text", "null metadata", "no items", "too deep")


def follower(access: Access) -> FollowedCluster:
    """Follow a cluster, and wait until everything is listed."""
    followed = FollowedCluster(NAME, access, lambda: None)
    becomes(followed.ready, followed.stale)
    return followed


def names(followed: FollowedCluster) -> set[str]:
    """Return the names of the Nodes that are known."""
    return {str(one.name) for one in followed.parsed().nodes}


def is_followed_again(followed: FollowedCluster, api: Api) -> None:
    """Heal the API: what is new there becomes known, and nothing counts as old."""
    api.nodes, api.listed, api.watched = [node("a"), node("b")], None, None
    api.end_watches()
    becomes(lambda: names(followed) == {"a", "b"} and not followed.stale(), followed.stale)


@pytest.mark.parametrize("name", SOME_LISTS)
@pytest.mark.usefixtures("quick")
def test_an_odd_list_is_an_error_of_the_source_and_what_is_known_stays(api: tuple[Api, Access], name: str) -> None:
    """It is told in a sentence, nothing counts as gone, and it is asked again until the answer is one."""
    answers, access = api
    answers.nodes = [node("a")]
    followed = follower(access)
    try:
        answers.listed, answers.watched = (200, ODD_LISTS[name]), (410, b"{}")
        answers.end_watches()
        becomes(lambda: "isn't a Kubernetes API's" in followed.stale(), followed.stale)
        assert names(followed) == {"a"}
        is_followed_again(followed, answers)
    finally:
        followed.stop()


@pytest.mark.parametrize("name", SOME_WATCHES)
@pytest.mark.usefixtures("quick")
def test_an_odd_line_of_a_watch_is_an_error_of_the_source(api: tuple[Api, Access], name: str) -> None:
    """As above; the list is good, so it is made again."""
    answers, access = api
    answers.nodes = [node("a")]
    told: list[str] = []
    followed = FollowedCluster(NAME, access, lambda: told.append(followed.stale()))
    try:
        becomes(followed.ready, followed.stale)
        answers.watched = (200, ODD_WATCHES[name])
        answers.end_watches()
        becomes(lambda: any("http://127.0.0.1" in one for one in tuple(told)), lambda: told)
        assert names(followed) == {"a"}
        is_followed_again(followed, answers)
    finally:
        followed.stop()


@pytest.mark.parametrize("status", [204, 302, 401, 503])
@pytest.mark.usefixtures("quick")
def test_a_refusal_is_an_error_of_the_source(api: tuple[Api, Access], status: int) -> None:
    """Of lists and of watches, also what is neither an answer nor an error."""
    answers, access = api
    followed = follower(access)
    try:
        body = b"" if status == 204 else b"no"
        answers.listed = answers.watched = (status, body)
        answers.end_watches()
        becomes(lambda: f"({status}: " in followed.stale(), followed.stale)
        is_followed_again(followed, answers)
    finally:
        followed.stop()


@pytest.mark.usefixtures("quick")
@pytest.mark.usefixtures("quick")
def test_an_answer_without_an_end_is_an_error(api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line, a page, a list that turns pages for ever, one that drips in."""
    answers, access = api
    monkeypatch.setattr(feed, "PATIENCE", 0.2)
    monkeypatch.setattr(feed, "_TIMEOUT", httpx2.Timeout(1.0))
    monkeypatch.setattr(feed, "LARGEST", 1 << 20)
    followed = follower(access)
    try:
        answers.watched = (200, b"x" * (17 << 20))
        answers.end_watches()
        becomes(lambda: "longer than 16 MiB" in followed.stale(), followed.stale)
        is_followed_again(followed, answers)
        answers.listed, answers.watched = (200, b" " * (2 << 20)), (410, b"")
        answers.end_watches()
        becomes(lambda: "larger than 1 MiB" in followed.stale(), followed.stale)
        is_followed_again(followed, answers)
        answers.listed, answers.watched, answers.drip = (200, b" " * 10_000), (410, b""), 0.02
        answers.end_watches()
        becomes(lambda: "takes longer than" in followed.stale(), followed.stale)
        answers.drip = 0.0
        is_followed_again(followed, answers)
    finally:
        followed.stop()


@pytest.mark.parametrize("name", LISTS_FOR_COMMANDS)
def test_an_odd_list_is_told_to_commands_as_well(
    api: tuple[Api, Access], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` reads a cluster by another client: a sentence, no traceback, and never an empty cluster."""
    answers, access = api
    monkeypatch.setattr("locallb.kubernetes.api.client._PAUSES", ())
    answers.listed = (200, ODD_LISTS[name])
    with pytest.raises(KubeError, match="isn't a Kubernetes API's") as caught:
        Cluster(access).objects()
    assert caught.value.fault is Fault.UNREACHABLE


@pytest.mark.parametrize("tokens", [["x"], ["x", "y"]])
def test_a_list_that_goes_round_in_circles_is_told_to_commands_as_well(
    api: tuple[Api, Access], tokens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends once a page comes again, not when memory does; the next list begins at its beginning."""
    answers, access = api
    monkeypatch.setattr("locallb.kubernetes.api.client._PAUSES", ())
    pages = cycle(tokens)
    monkeypatch.setattr(
        Api, "listed", property(lambda _api: (200, odd_page(next(pages))), lambda _api, _value: None), raising=False
    )
    cluster = Cluster(access)
    for _ in range(2):
        before = len(answers.asked)
        with pytest.raises(KubeError, match="turns no page"):
            cluster.objects()
        assert len(answers.asked) == before + 1 + len(tokens)


def test_a_page_that_is_asked_for_with_another_credential_is_no_circle() -> None:
    """A token ends while a long list is read: the very same request goes once more."""

    class Renewing(httpx2.Auth):
        def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
            response = yield request
            if response.status_code == httpx2.codes.UNAUTHORIZED:
                yield request

    answers = iter((401, 200, 200))
    asked = httpx2.Client(
        auth=Renewing(),
        transport=httpx2.MockTransport(lambda _request: httpx2.Response(next(answers))),
        event_hooks={"request": [PageGuard().look]},
    )
    page = "https://api.invalid/api/v1/services?limit=500&continue=x"
    assert asked.get(page).status_code == httpx2.codes.OK
    with pytest.raises(OddError, match="turns no page"):
        asked.get(page)


def odd_page(token: str) -> bytes:
    """Write an empty page of a list that names the next one."""
    return json.dumps({"metadata": {"resourceVersion": "1", "continue": token}, "items": []}).encode()


WORST: dict[str, dict[str, Any]] = {
    "watches that close at once": {"watched": (200, b"")},
    "watches that are gone": {"watched": (410, b"")},
    "watches that are gone after they were opened": {"watched": (200, line("ERROR", {"code": 410}))},
    "watches of rubbish": {"watched": (200, b"hello\n")},
    "refused watches": {"watched": (503, b"")},
    "lists of rubbish": {"listed": (200, b"{}"), "watched": (410, b"")},
    "lists that are gone": {"listed": (410, b""), "watched": (410, b"")},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORST)
def test_whatever_the_api_answers_it_is_not_asked_too_often(api: tuple[Api, Access], name: str) -> None:
    """In any second, all followers of a cluster together: counted where the requests arrive."""
    answers, access = api
    followed = follower(access)
    try:
        for key, value in WORST[name].items():
            setattr(answers, key, value)
        answers.end_watches()
        threading.Event().wait(4)  # how long it is watched, not how long something takes
        is_followed_again(followed, answers)
    finally:
        followed.stop()
    times = [at for at, _ in answers.asked]
    most = max(sum(begun <= at < begun + 1 for at in times) for begun in times)
    assert most <= 3 * MOST
    lists = [at for at, what in answers.asked if what == "list"]
    assert max(sum(begun <= at < begun + 0.95 for at in lists) for begun in lists) <= 3


def resources() -> tuple[int, int]:
    """Count threads and open descriptors of this process."""
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


def test_who_follows_no_more_tells_nothing_that_comes_late() -> None:
    """Another one follows by then, and what that tells is newer."""
    access = Access("k", "late")
    writers = told_writers.ToldWriters(access)
    late: Document = {"kind": "Service", "metadata": {"namespace": "n", "name": "web"}}
    identity = Identity.of(late)
    writers.end()
    writers.listed({identity: late}, ())
    writers.changed(identity, late)
    writers.opened()
    assert RECENT.find(access, "n", "web") is None
    RECENT.note(access, "n", "web", late)
    writers.changed(identity, None)
    assert RECENT.find(access, "n", "web") is late
    assert RECENT.watched(access, "n", "web") is None
    RECENT.forget(access)


@pytest.mark.parametrize("silent", [False, True])
def test_a_follower_that_is_stopped_leaves_nothing(api: tuple[Api, Access], *, silent: bool) -> None:
    """Neither threads nor descriptors, also where the API never answers: stopping interrupts whatever is awaited."""
    answers, access = api
    before = resources()
    for _ in range(10):
        answers.silent = False
        followed = follower(access)
        answers.silent = silent
        if silent:
            seen = len(answers.asked)
            answers.end_watches()
            becomes(partial(lambda limit: len(answers.asked) > limit, seen))
        followed.stop()
    becomes(lambda: resources() <= before, resources)


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
    for _ in range(QUOTA):
        Cluster(access).objects()
    assert moment.slept == []
    before = len(answers.asked)
    followed = follower(access)
    becomes(lambda: answers.count("watch") == 3)
    while len(answers.asked) - before < 2 * QUOTA:
        Cluster(access).objects()
    waited = (len(answers.asked) - before - 1) // QUOTA
    assert moment.slept == [pytest.approx(SPAN)] * waited
    followed.stop()
    moment.slept.clear()
    for _ in range(QUOTA):
        Cluster(access).objects()
    assert moment.slept == []


@pytest.mark.parametrize(
    ("method", "path", "patches", "waits_for_turn"),
    [
        ("GET", "/api/v1/services", QUOTA, True),
        ("GET", "/api/v1/namespaces/n/services/leases-of-cars", QUOTA, True),
        ("POST", "/apis/events.k8s.io/v1/namespaces/n/events", QUOTA, True),
        ("POST", "/apis/events.k8s.io/v1/namespaces/n/events", QUOTA - 1, False),
        ("PATCH", "/api/v1/namespaces/n/services/web/status", QUOTA + OWED - 1, False),
        ("PATCH", "/api/v1/namespaces/n/services/web/status", QUOTA + OWED, True),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", QUOTA + OWED, False),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", QUOTA + OWED, False),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/n/leases", QUOTA + OWED, False),
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
    answers.services = [balancer(f"s{number}") for number in range(QUOTA + 2)]
    answers.services += [{**balancer(f"t{number}"), "spec": {"type": "ClusterIP"}} for number in range(100)]
    followed = follower(access)
    becomes(lambda: answers.count("watch") == 3)
    for _ in range(10):
        Cluster(access).objects()
    assert moment.slept == [pytest.approx(SPAN)] * ((3 + 3 + 30 - 1) // (QUOTA + 2 * EACH))
    followed.stop()
