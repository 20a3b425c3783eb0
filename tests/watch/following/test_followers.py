"""Followers of a cluster against an API that answers anything: no answer ends one, and none makes it ask too often."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import httpx2
import pytest

from locallb.kubernetes import answers as watch_pace
from locallb.kubernetes.answers import MAX
from locallb.kubernetes.api import connected, feed
from locallb.model.pacing import Pace
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from tests.support.descriptors import resources
from tests.support.fake_api import NAME, Api, follower, node
from tests.support.odd_api import ENDLESS, ODD_LISTS, ODD_WATCHES, line
from tests.support.waiting import becomes


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LISTS", "WATCHES"):
        monkeypatch.setattr(watch_pace, name, Pace(first=0.02, longest=0.05, floor=0.02))


SOME_LISTS = ("nothing", "an object", "a list", "an item as a text", "null metadata", ENDLESS)
SOME_WATCHES = ("no JSON", "an array", "an unknown type", "an error without an object", "no metadata", "too deep")


def names(followed: FollowedCluster) -> set[str]:
    """Return the names of the Nodes that are known."""
    return {str(node.name) for node in followed.parsed().nodes}


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


def follower_that_collects(access: Access, texts: list[str]) -> FollowedCluster:
    """Follow a cluster, and collect at each wake why it is stale. A wake may come before the constructor returns."""
    followers: list[FollowedCluster] = []
    followers.append(
        FollowedCluster(NAME, access, lambda: texts.extend(each.stale() for each in followers), loopback=True)
    )
    return followers[0]


@pytest.mark.parametrize("name", SOME_WATCHES)
@pytest.mark.usefixtures("quick")
def test_an_odd_line_of_a_watch_is_an_error_of_the_source(api: tuple[Api, Access], name: str) -> None:
    """As above; the list is good, so it is made again."""
    answers, access = api
    answers.nodes = [node("a")]
    reported: list[str] = []
    followed = follower_that_collects(access, reported)
    try:
        becomes(followed.ready, followed.stale)
        answers.watched = (200, ODD_WATCHES[name])
        answers.end_watches()
        becomes(lambda: any("http://127.0.0.1" in text for text in tuple(reported)), lambda: reported)
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


@pytest.mark.parametrize(
    ("listed", "watched", "drip", "timeout", "sentence"),
    [
        (None, b"x" * (17 << 20), 0.0, 20.0, "longer than 16 MiB"),
        (b" " * (2 << 20), b"", 0.0, 20.0, "larger than 1 MiB"),
        (b" " * 10_000, b"", 0.02, 0.2, "takes longer than"),
    ],
    ids=["a line", "a page", "one that drips in"],
)
@pytest.mark.usefixtures("quick")
def test_an_answer_without_an_end_is_an_error(  # noqa: PLR0913, PLR0917 - one of each
    api: tuple[Api, Access],
    monkeypatch: pytest.MonkeyPatch,
    listed: bytes | None,
    watched: bytes,
    drip: float,
    timeout: float,
    sentence: str,
) -> None:
    """Of a watch as of a list; an outage keeps its first sentence."""
    answers, access = api
    monkeypatch.setattr(connected, "TIMEOUT", httpx2.Timeout(1.0))
    monkeypatch.setattr(feed, "LARGEST", 1 << 20)
    followed = follower(access)
    try:
        monkeypatch.setattr(feed, "TIMEOUT", timeout)
        answers.drip = drip
        answers.listed = (200, listed) if listed else None
        answers.watched = (200 if watched else 410, watched)
        answers.end_watches()
        becomes(lambda: sentence in followed.stale(), followed.stale)
        answers.drip = 0.0
        is_followed_again(followed, answers)
    finally:
        followed.stop()


@pytest.mark.usefixtures("quick")
def test_a_watch_without_bookmarks_is_opened_again_and_nothing_counts_as_old(
    api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some API servers send no bookmark while nothing changes; one that is gone doesn't answer the next watch."""
    answers, access = api
    monkeypatch.setattr(feed, "SILENCE", 0.1)
    stale: list[str] = []
    followed = follower_that_collects(access, stale)
    try:
        becomes(followed.ready, followed.stale)
        lists, watches = answers.count("list"), answers.count("watch")
        becomes(lambda: answers.count("watch") > watches + 9, lambda: answers.count("watch"))
        assert [why for why in stale if why] == []
        assert answers.count("list") == lists
        monkeypatch.setattr(feed, "TIMEOUT", 0.2)
        monkeypatch.setattr(feed, "SILENCE", 600.0)  # who begins to answer may be silent for longer
        answers.silent = True
        answers.end_watches()
        becomes(lambda: "doesn't answer" in followed.stale(), followed.stale)
        answers.silent = False
        is_followed_again(followed, answers)
    finally:
        followed.stop()


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
def test_followers_bound_their_requests_whatever_the_api_answers(api: tuple[Api, Access], name: str) -> None:
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
    times = [at for at, _ in answers.requested]
    maximum = max(sum(begun <= at < begun + 1 for at in times) for begun in times)
    assert maximum <= 3 * MAX
    lists = [at for at, what in answers.requested if what == "list"]
    assert max(sum(begun <= at < begun + 0.95 for at in lists) for begun in lists) <= 3


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
            observed = len(answers.requested)
            answers.end_watches()
            becomes(partial(lambda limit: len(answers.requested) > limit, observed))
        followed.stop()
    becomes(lambda: resources() <= before, resources)
