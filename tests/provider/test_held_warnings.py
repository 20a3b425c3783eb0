"""Warnings of a process that goes on are sent when their problem has lasted; those of a single run at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Event as Signal
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.kubernetes.api import live_object
from locallb.kubernetes.api import writes as held_warnings
from locallb.kubernetes.api.writes import LASTING, QUOTAS, HeldWarnings
from locallb.kubernetes.events import ENSURED, FAILED, NORMAL, UNAVAILABLE, WARNING
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, Owner, Uid
from locallb.model.reasons import OF_THE_OBJECT, Event
from locallb.model.snapshot import Access
from locallb.outputs import events
from locallb.outputs.events import ServiceEvents
from locallb.planning.notices import NODES
from locallb.resources.properties import ServiceEventsInputs, ServiceEventsState

ACCESS = Access("/kubeconfig", ContextName("demo"))
KEY = ObjectKey(ClusterName("demo"), "n", "web")
SERVES = Event(NORMAL, ENSURED, "serves 80/TCP at 127.77.0.1")
NO_BACKENDS = Event(WARNING, UNAVAILABLE, "NoBackends: no ready endpoint")
NO_ADDRESS = Event(WARNING, FAILED, "PoolExhausted: nothing is free")


def owner(uid: str = "web") -> Owner:
    return Owner(Home("p", "s", "/r"), KEY, Uid(uid))


@dataclass
class World:
    """A Service's events over time, without threads."""

    now: float = 0.0
    sent: list[tuple[float, str]] = field(default_factory=list)
    """When each event arrived at the API, and its note."""
    state: ServiceEventsState | None = None

    def create_event(self, _namespace: str, body: Mapping[str, object]) -> None:
        self.sent.append((self.now, str(body["note"])))

    def situation(self, *events: Event, uid: str = "web") -> None:
        """Let these be the events of now."""
        new, resource = ServiceEventsInputs(access=ACCESS, owner=owner(uid), events=events), ServiceEvents(None)
        self.state = resource.update(self.state, new) if self.state else resource.create(new)[1]

    def notes(self) -> list[str]:
        return [note for _, note in self.sent]


@contextmanager
def world(*, goes_on: bool = True) -> Iterator[tuple[World, HeldWarnings]]:
    """Make a world in which this process follows the cluster, or is a single run."""
    made = World()
    held = HeldWarnings(lambda: made.now, lambda _work: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_object, "_at", lambda _access: made)
        patch.setattr(live_object, "do_once", lambda _task, _name, work: work())
        patch.setattr(live_object, "HELD_WARNINGS", held)
        patch.setattr(events, "HELD_WARNINGS", held)
        if goes_on:
            QUOTAS.put(ACCESS, 1)
        try:
            yield made, held
        finally:
            QUOTAS.drop(ACCESS)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.25, 0.5, 1.0, 1.5, 4.0]), st.sets(st.sampled_from([NO_BACKENDS, NO_ADDRESS]))),
        min_size=1,
        max_size=8,
    )
)
def test_a_warning_is_sent_exactly_if_its_problem_lasted(steps: list[tuple[float, set[Event]]]) -> None:
    """Once each time that it lasted, not before, and never for what recovered in time."""
    expected: list[tuple[float, str]] = []
    moments = [0.0]
    with world() as (made, held):
        for seconds, problems in steps:
            made.situation(SERVES, *sorted(problems, key=str))
            for _ in range(int(seconds / 0.25)):
                made.now += 0.25
                held.send_due()
            moments.append(made.now)
    for problem in (NO_BACKENDS, NO_ADDRESS):
        since = None
        for (_, problems), (begin, end) in zip(steps, pairwise(moments), strict=True):
            since = None if problem not in problems else begin if since is None else since
            if since is not None and begin < since + LASTING <= end:
                expected.append((since + LASTING, problem.note))
    assert sorted(one for one in made.sent if one[1] != SERVES.note) == sorted(expected)


@pytest.mark.parametrize(
    ("reason", "note", "is_held"),
    [
        (UNAVAILABLE, "NoBackends: no ready endpoint", True),
        (FAILED, "PortInUse: another process has it", True),
        (FAILED, "ServedByAnother: metallb", True),
        (FAILED, "Service shop/web isn't there; make it, or correct the backend", True),
        ("BackendNotFound", "Service shop/web isn't there", True),
        ("RefNotPermitted", "no ReferenceGrant allows it", True),
        (NODES, "its only Node isn't ready", True),
        *((FAILED, f"{reason}: what it is", False) for reason in sorted(OF_THE_OBJECT)),
        ("UnsupportedValue", "rewrite-target of /a: no such group", False),
        ("IncompatibleFilters", "a redirect and a rewrite", False),
        ("InvalidRouteKinds", "listener a takes no TCPRoute", False),
    ],
)
def test_a_refusal_that_depends_on_the_object_alone_is_sent_at_once(reason: str, note: str, *, is_held: bool) -> None:
    """Nothing but a change of the object ends it; whatever another object or the host may end is held."""
    with world() as (made, held):
        made.situation(Event(WARNING, reason, note))
        assert made.sent == ([] if is_held else [(0.0, note)])
        made.now = LASTING
        held.send_due()
        assert made.notes() == [note]


def test_a_problem_that_changes_its_words_is_warned_of_in_time() -> None:
    """What lasts is the problem: its sentence may say another number each time."""
    with world() as (made, held):
        for number in range(7):
            made.situation(Event(WARNING, UNAVAILABLE, f"NoBackends: {number} are not ready"))
            made.now += 0.25
            held.send_due()
        assert made.sent == [(LASTING, "NoBackends: 5 are not ready")]


def test_a_service_that_goes_or_is_another_one_leaves_no_warning_behind() -> None:
    """Nor does the other one inherit the time that it waited."""
    with world() as (made, held):
        made.situation(NO_BACKENDS)
        made.now = 1.0
        made.situation(NO_BACKENDS, uid="another")
        made.now = 2.0
        held.send_due()
        assert made.sent == []
        assert made.state
        ServiceEvents(None).delete(made.state)
        made.now = 9.0
        held.send_due()
        assert made.sent == []


def test_warnings_that_were_never_sent_cost_nothing() -> None:
    """A hundred rollouts leave enough for a real problem."""
    with world() as (made, held):
        for _ in range(100):
            made.situation(SERVES, NO_BACKENDS)
            made.situation(SERVES)
        made.situation(SERVES, NO_ADDRESS)
        made.now += LASTING
        held.send_due()
        assert made.notes() == [SERVES.note, NO_ADDRESS.note]


def test_a_single_run_says_at_once_what_is_wrong() -> None:
    """It can't see the problem end."""
    with world(goes_on=False) as (made, _):
        made.situation(NO_BACKENDS)
        assert made.notes() == [NO_BACKENDS.note]


def test_a_held_warning_is_sent_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else has to happen; a thread is there for as long as any is held, and again for the next one."""
    monkeypatch.setattr(held_warnings, "LASTING", 0.01)
    held = HeldWarnings()
    for event in (NO_BACKENDS, NO_ADDRESS, NO_BACKENDS):
        sent = Signal()
        held.hold(owner(), event, sent.set)
        assert sent.wait(60)


def test_an_exception_while_sending_stops_no_later_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that can't be started, for instance."""
    monkeypatch.setattr(held_warnings, "LASTING", 0.0)
    works = SimpleNamespace(begun=[])
    held = HeldWarnings(start=works.begun.append)

    def fail() -> None:
        raise RuntimeError

    held.hold(owner(), NO_BACKENDS, fail)
    with pytest.raises(RuntimeError):
        works.begun.pop()()
    sent = Signal()
    held.hold(owner(), NO_ADDRESS, sent.set)
    works.begun.pop()()
    assert sent.is_set()
