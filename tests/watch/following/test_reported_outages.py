"""An outage of an API is one sentence from its beginning to its end, and only about what the stack reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.kubernetes import answers as watch_pace
from locallb.kubernetes.api.servers import ForbiddenError, KubeError, RefusedError, UnreachableError
from locallb.model.pacing import Pace
from locallb.model.snapshot import Access
from locallb.sources.entries import KubernetesSource
from locallb.sources.kubernetes import informers as discovered_kinds
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from locallb.sources.kubernetes.informers import Fault, FollowedObjects, lasting
from locallb.sources.kubernetes.reading import read_kubernetes
from tests.support.fake_api import NAME, Api, follower, node, served, versioned
from tests.support.ingress_objects import ingress, ingress_class
from tests.support.waiting import becomes

SOON = Pace(first=0.02, longest=0.05, floor=0.02)
OUTAGES = [(503, b"{}"), (500, b"it broke"), (504, b"out of time"), (200, b"[1]")]
"""Answers that are none, each with a sentence of its own."""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Api, Access]]:
    """Serve an API that lets Ingresses be read, and is asked often."""
    monkeypatch.setattr(discovered_kinds, "EVERY", 0.05)
    for module, name in ((watch_pace, "LISTS"), (watch_pace, "WATCHES"), (discovered_kinds, "QUERIED")):
        monkeypatch.setattr(module, name, SOON)
    with served(tmp_path) as (answers, access):
        answers.nodes = [node("a")]
        answers.others |= {"ingressclasses": [], "ingresses": []}
        yield answers, access


def is_above(count: Callable[[], int], bound: int) -> bool:
    """Return whether a count is above a bound by now."""
    return count() > bound


@contextmanager
def closing_follower(access: Access) -> Iterator[FollowedCluster]:
    followed = follower(access)
    try:
        yield followed
    finally:
        followed.stop()


def serve_an_ingress(answers: Api) -> None:
    """Have an Ingress of a class of ours."""
    answers.others |= {"ingressclasses": [versioned(ingress_class())], "ingresses": [versioned(ingress())]}


@pytest.mark.parametrize("uses", [False, True])
def test_an_outage_is_one_sentence_about_what_is_read(api: tuple[Api, Access], *, uses: bool) -> None:
    """Whatever each attempt ends by; nothing where no Ingress is served, and nothing of rights that nobody took."""
    answers, access = api
    if uses:
        serve_an_ingress(answers)
    with closing_follower(access) as followed:
        becomes(lambda: "Ingress" in followed.ingresses._existing() or not uses)
        becomes(lambda: followed.ingresses.places)
        followed.parsed()
        noticed = set()
        for answers.reviews in OUTAGES:
            requested = answers.reviewed
            becomes(partial(is_above, lambda: answers.reviewed, requested + 1))
            noticed.add(followed.parsed().notices)
        sentences = {sentence for notices in noticed for sentence in notices}
        assert len(sentences) == uses
        assert all("until it answers" in sentence and "rights" not in sentence for sentence in sentences)
        answers.reviews = None
        becomes(lambda: followed.parsed().notices == ())
        assert followed.stale() == ""


def test_an_outage_of_everything_is_one_sentence_for_the_source(api: tuple[Api, Access]) -> None:
    """From when the first kind fails until the last one is back; it ends nothing else, either."""
    answers, access = api
    serve_an_ingress(answers)
    with closing_follower(access) as followed:
        becomes(lambda: "Ingress" in followed.ingresses._existing())
        reported = set()
        for answers.watched in OUTAGES[:3]:
            answers.listed = answers.reviews = answers.watched
            answers.end_watches()
            lists = answers.count("list")
            while answers.count("list") <= lists + 20:
                reported.add(followed.stale())
                time.sleep(0.005)
        assert len(reported - {""}) == 1
        answers.listed = answers.watched = answers.reviews = None
        becomes(lambda: followed.parsed().notices == () and not followed.stale())


def test_a_single_run_reports_an_outage_only_of_what_is_used(api: tuple[Api, Access], tmp_path: Path) -> None:
    """Of Ingresses that were read before; by the same rule as while a cluster is followed."""
    answers, access = api
    source = KubernetesSource(NAME, access.kubeconfig, access.context, loopback_backends=True)

    def notices() -> tuple[str, ...]:
        return read_kubernetes(source, tmp_path, tmp_path / "readings", keep=True).reading.parsed.notices

    assert notices() == ()
    answers.reviews = OUTAGES[0]
    assert notices() == ()
    serve_an_ingress(answers)
    answers.reviews = None
    assert notices() == ()
    answers.reviews = OUTAGES[0]
    (notice,) = notices()
    assert notice.endswith("what Ingresses need of it counts as last read until it answers")


ERRORS = st.builds(
    lambda kind, text: kind(text),
    st.sampled_from([UnreachableError, RefusedError, ForbiddenError]),
    st.text("ab", min_size=1),
)


@given(st.lists(ERRORS, min_size=1, max_size=8))
def test_a_fault_keeps_its_sentence_until_another_kind_of_error_comes(errors: list[KubeError]) -> None:
    """A cluster that is back with other credentials needs another remedy: that is told at once."""
    existing, first = FollowedObjects(), errors[0]
    for error in errors:
        first = first if type(first) is type(error) else error
        before = existing.fault
        reported = existing.fail(error, 0.0)
        assert existing.fault == Fault(str(first), type(first))
        assert reported or existing.fault == before
    assert existing.mend()
    assert not existing.fault


@given(st.lists(st.lists(ERRORS.map(Fault().then), max_size=4), max_size=8))
def test_of_several_faults_one_is_reported_for_as_long_as_its_kind_goes_on(moments: list[list[Fault]]) -> None:
    """Any while there are any, none when there are none."""
    reported = Fault()
    for faults in moments:
        before, reported = reported, lasting(reported, faults)
        assert bool(reported) == bool(faults)
        goes_on = bool(before) and any(fault.error is before.error for fault in faults)
        assert reported == before if goes_on else reported in [*faults, Fault()]
