"""The first read of a cluster that takes long: others don't wait, and it counts only for the cluster that it is of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from locallb.config.settings import Settings
from locallb.kubernetes.object_parsing import Parsed
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey
from locallb.sources import SourceError
from locallb.sources.entries import KubernetesSource
from locallb.sources.kubernetes import source as module
from locallb.sources.kubernetes.source import Following
from locallb.sources.snapshot_cache import Changes, SnapshotCache
from locallb.sources.source import SourceRead, SourceResult
from tests.support.fake_api import kubeconfig
from tests.support.waiting import becomes

NAME = ClusterName("demo")
LATE = SourceRead(SourceResult(Parsed(), ("the late one",)))
UNREAD = "source demo: the cluster can't be read: it hasn't answered within 0.05 s"


@dataclass
class Case:
    """A cluster whose first read ends when the test says so."""

    root: Path
    ending: threading.Event = field(default_factory=threading.Event)
    outcome: SourceRead | SourceError = LATE
    changes: list[ClusterName] = field(default_factory=list)

    def __post_init__(self) -> None:
        kubeconfig(self.root / "kubeconfig", 1, "credential")
        self.following = Following(Home("p", "s", str(self.root)), self.changes.append)

    def read_late(self, *_: object, **__: object) -> SourceRead:
        """Stand in for the read of a cluster."""
        assert self.ending.wait(60)
        if isinstance(self.outcome, SourceError):
            raise self.outcome
        return self.outcome

    def read(self, existing: tuple[ObjectKey, ...] = (), *, moved: bool = False) -> tuple[str, ...]:
        """Return why what is known may be old."""
        source = KubernetesSource(NAME, str(self.root / "kubeconfig"), ContextName("here"))
        return self.following.read(source, existing, everything=False, moved=moved).reading.stale


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    made = Case(tmp_path)
    monkeypatch.setattr(module, "read_cluster", made.read_late)
    monkeypatch.setattr(module, "OPENING", 0.05)
    yield made
    made.ending.set()
    made.following.stop()


def _has_ended() -> bool:
    return not any(thread.name == f"first read of {NAME}" for thread in threading.enumerate())


@pytest.mark.parametrize("outcome", [LATE, SourceError("no")])
def test_others_go_on_without_a_cluster_and_its_late_answer_counts(
    case: Case, outcome: SourceRead | SourceError
) -> None:
    """Where it fails, the sentence stays."""
    case.outcome = outcome
    (sentence,) = case.read()
    assert sentence.startswith(UNREAD)
    case.changes.clear()
    case.ending.set()
    becomes(_has_ended)
    becomes(lambda: NAME in case.changes)
    assert case.read() == (("the late one",) if outcome is LATE else (sentence,))


def test_a_late_answer_of_a_cluster_that_is_reached_otherwise_now_counts_no_more(case: Case) -> None:
    """The kubeconfig names another one since."""
    (sentence,) = case.read()
    kubeconfig(case.root / "kubeconfig", 2, "another credential")
    assert case.read(moved=True) != (sentence,)
    case.ending.set()
    becomes(_has_ended)
    assert "the late one" not in case.read()


def test_nothing_is_planned_without_a_cluster_that_holds_something_and_has_no_reading(case: Case) -> None:
    """Its load balancers would be removed otherwise."""
    held = (ObjectKey(NAME, "n", "web"),)
    waiting = threading.Timer(0.5, case.ending.set)
    waiting.start()
    assert case.read(held) == ("the late one",)
    waiting.join()


def test_first_reads_of_several_clusters_are_under_way_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that dead ones hold up a start no longer than one of them."""
    access, begun = kubeconfig(tmp_path / "kubeconfig", 1, "credential"), threading.Barrier(3)

    def read(*_: object, **__: object) -> SourceRead:
        with suppress(threading.BrokenBarrierError):
            begun.wait(5)
            return LATE
        raise SourceError("it was read alone")

    monkeypatch.setattr(module, "read_cluster", read)
    monkeypatch.setattr(module, "OPENING", 60.0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALLB_LEDGER", str(tmp_path / "ledger"))
    names = (ClusterName("one"), ClusterName("two"), ClusterName("three"))
    sources = tuple(KubernetesSource(name, access.kubeconfig, access.context) for name in names)
    cache = SnapshotCache(Home("p", "s", str(tmp_path)), Settings(sources, ()), tuple, lambda _name: None)
    try:
        cache.read(Changes(everything=True))
        assert dict.fromkeys(names, "the late one") == cache.stale()
    finally:
        cache.stop()
