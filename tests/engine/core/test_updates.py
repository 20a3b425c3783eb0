"""Updates of parts of a stack: what hangs stays under way, others are brought about, and the lock is given back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace

from locallb.engine.core.events import Op
from locallb.engine.core.lanes import Parties
from locallb.engine.core.updates import Updates
from locallb.engine.state.errors import LockHeld, StateUnwritable
from locallb.engine.state.journal import JournalLeftover, read_journal
from locallb.engine.state.urns import name_of, root_urn
from locallb.engine.store import Store
from locallb.model.desired import BALANCER, CONFIG, SERVICE_CONFIG, Group, Ref, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.identities import Digest
from tests.support.engine import Bench

NAMES = "a", "b"
ROOTS = {name: frozenset({root_urn("local-lb", "dev", BALANCER, name)}) for name in NAMES}
HANGING, LAST = "ProxyConfig::a", "ServiceConfig::a"


def groups(**versions: str) -> Mapping[ResourceKey, Group]:
    """Desire roots with two resources each, one after the other, in these versions."""
    made = {}
    for name, version in versions.items():
        root, first = ResourceKey(BALANCER, name), ResourceKey(CONFIG, name)
        members = (
            Resource(root, {"digest": version}, outputs={}),
            Resource(first, {"x": version}, root),
            Resource(ResourceKey(SERVICE_CONFIG, name), {"x": version}, root, (first,)),
        )
        made[root] = Group(members, Digest(version))
    return made


class Hang:
    """Holds an operation up until it is let go."""

    def __init__(self, bench: Bench) -> None:
        self._removed = threading.Event()
        bench.world.control["meanwhile"] = {HANGING: self.wait}

    def wait(self) -> None:
        self._removed.wait(60)

    def end(self) -> None:
        self._removed.set()


@pytest.fixture
def timer_fired() -> threading.Event:
    return threading.Event()


@pytest.fixture
def hang(bench: Bench) -> Iterator[Hang]:
    """Have an operation of the first part hang."""
    made = Hang(bench)
    yield made
    made.end()


@pytest.fixture
def updates(bench: Bench, timer_fired: threading.Event) -> Iterator[Updates]:
    made = bench.engine(parties=Parties(lambda one: one.type)).updates({}, timer_fired.set)
    yield made
    made.close()


def begin(
    updates: Updates, wanted: Mapping[ResourceKey, Group], *names: str, first: Callable[[], None] = lambda: None
) -> None:
    updates.begin(wanted, {name: ROOTS[name] for name in names}, inspect=False, outputs={"n": len(wanted)}, first=first)


def test_a_part_that_hangs_is_left_under_way_and_others_are_brought_about(
    bench: Bench, updates: Updates, hang: Hang, timer_fired: threading.Event
) -> None:
    """Other processes see both, by the journal, and the lock is held until the last has ended."""
    both = groups(a="1", b="1")
    begin(updates, both, *NAMES)
    updates.wait(["b"])
    ended = updates.take()
    assert (set(ended.parts), set(updates.under_way)) == ({"b"}, {"a"})
    assert not ended.failed
    assert ended.result.changes == {Op.CREATE: 3}
    another = bench.engine()
    assert {name_of(root) for root in another.unfinished()} == {"a"}
    assert {resource.name for resource in another.resources() if resource.custom} >= {"b"}
    begin(updates, groups(a="1", b="2"), "b")
    updates.wait(["b"])
    assert updates.take().result.changes == {Op.UPDATE: 3}
    with pytest.raises(LockHeld):
        bench.engine().destroy()
    timer_fired.clear()
    hang.end()
    assert timer_fired.wait(60)
    updates.wait(NAMES)
    assert updates.take().parts == {"a"}
    updates.release()
    assert bench.engine().destroy().ok


def test_updates_that_follow_at_once_share_one_writing_of_the_state(bench: Bench, updates: Updates) -> None:
    """Others see it by the journal; the state is written, and the stack given back, after a quiet moment."""
    path, observer = bench.project.state_file("dev"), bench.engine()
    begin(updates, groups(a="1"), "a")
    updates.wait("a")
    updates.release()
    written, stamps = path.read_bytes(), set[object]()
    engine = bench.engine(parties=Parties(lambda one: one.type))
    following = engine.updates({})
    for version in "234":
        begin(following, groups(a=version), "a")
        following.wait("a")
        assert following.take().result.changes == {Op.UPDATE: 3}
        stamps.add(engine.state_stamp())
        assert path.read_bytes() == written
        assert {one.inputs["x"] for one in observer.resources() if one.type == CONFIG} == {version}
    assert len(stamps) == 3
    with pytest.raises(LockHeld):
        bench.engine().destroy()
    quiet = threading.Event()
    while following.is_open:
        assert following.next_time is not None
        quiet.wait(max(0.0, following.next_time - time.monotonic()))
        following.go_on()
    assert engine.state_stamp() in stamps
    assert path.read_bytes() != written
    assert bench.engine().destroy().ok
    assert engine.state_stamp() not in stamps
    following.close()


def test_a_state_that_is_written_while_it_is_read_is_read_again(
    bench: Bench, updates: Updates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the file of before and the journal, which has gone into the new file by then."""
    begin(updates, groups(a="1"), "a")
    updates.wait("a")
    updates.release()
    observer = bench.engine()
    assert observer.resources()
    begin(updates, groups(a="2"), "a")
    updates.wait("a")

    def late(path: Path) -> JournalLeftover | None:
        updates.release()
        return read_journal(path)

    monkeypatch.setattr("locallb.engine.store.read_journal", late)
    assert {one.inputs["x"] for one in observer.resources() if one.type == CONFIG} == {"2"}


def test_a_command_that_waits_has_the_stack_at_once(bench: Bench, updates: Updates) -> None:
    begin(updates, groups(a="1"), "a")
    updates.wait("a")
    with Store(bench.project.backend, "local-lb", "dev").waiting():
        assert updates.is_open
        with pytest.raises(LockHeld, match="a command waits"):
            updates.give_way()
    assert bench.engine().destroy().ok


def test_what_follows_a_change_is_brought_about_although_another_update_begins(
    bench: Bench, updates: Updates, hang: Hang
) -> None:
    """Nobody asked for it by then: it reads what a part came to that was asked for."""

    def wanted(version: str) -> Mapping[ResourceKey, Group]:
        made = dict(groups(a=version, b="1", c="1"))
        root, first, last = made[ResourceKey(BALANCER, "b")].members
        reading = replace(first, inputs={"x": Ref(ResourceKey(CONFIG, "a"), ("x",))})
        next_one = replace(last, inputs={"x": Ref(reading.key, ("x",))})
        return {**made, root.key: Group((root, reading, next_one), Digest("1"))}

    late = Hang(bench)
    roots: dict[Hashable, frozenset[str]] = {
        name: frozenset({root_urn("local-lb", "dev", BALANCER, name)}) for name in "abc"
    }
    bench.world.control["meanwhile"] = {"ProxyConfig::c": hang.wait}
    updates.begin(wanted("1"), roots, inspect=False, outputs={}, first=lambda: None)
    updates.wait(NAMES)
    bench.world.control["meanwhile"] = {"ProxyConfig::b": late.wait}
    begin(updates, wanted("2"), "a")
    updates.wait("a", lambda: ("update", "ProxyConfig::b") in bench.world.called("update"))
    hang.end()
    updates.wait("ac")
    assert not updates.under_way
    begin(updates, wanted("2"), "a")
    late.end()
    updates.wait("a")
    deadline = time.monotonic() + 5
    while updates.is_open and time.monotonic() < deadline:
        updates.go_on()
        time.sleep(0.01)
    updates.release()
    assert {one.inputs["x"] for one in bench.engine().resources() if one.name == "b" and one.custom} == {"2"}


def test_whoever_waits_for_the_writing_of_the_state_is_not_woken_again_and_again(
    updates: Updates, timer_fired: threading.Event
) -> None:
    """A message that came as the last part ended is taken, so that it's no news any more."""

    def look() -> bool:
        updates.wake()
        return False

    begin(updates, groups(a="1"), "a")
    updates.wait("a", look)
    assert timer_fired.is_set()
    timer_fired.clear()
    updates.go_on()
    assert updates.is_open
    assert not timer_fired.is_set()


def test_of_what_cannot_be_kept_nothing_is_told_later(
    bench: Bench, updates: Updates, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of parts that had ended by then: the next update finds out what everything came to."""

    def look() -> bool:
        if "b" not in updates.under_way:
            monkeypatch.setattr(bench.files, "append", full)
            hang.end()
        return False

    def full(*_: object) -> NoReturn:
        raise StateUnwritable("no space left on device")

    begin(updates, groups(a="1", b="1"), *NAMES)
    with pytest.raises(StateUnwritable):
        updates.wait(NAMES, look)
    monkeypatch.undo()
    assert not updates.take().parts
    begin(updates, groups(a="1", b="1"), "a")
    updates.wait("a")
    assert updates.take().parts == {"a"}


def test_what_failed_is_tried_again_where_the_next_update_needs_it(bench: Bench, updates: Updates) -> None:
    """Also when the stack wasn't given back in between."""
    root, needed = ResourceKey(BALANCER, "b"), ResourceKey(CONFIG, "a")
    user = Resource(ResourceKey(SERVICE_CONFIG, "b"), {"x": "1"}, root, (needed,))
    wanted = {**groups(a="1"), root: Group((Resource(root, {"digest": "1"}, outputs={}), user), Digest("1"))}
    bench.world.control["fail"] = {"ProxyConfig::a": "no"}
    begin(updates, wanted, *NAMES)
    updates.wait(NAMES)
    assert {*updates.take().failed} == {*NAMES}
    bench.world.control["fail"] = {}
    assert updates.is_open
    begin(updates, wanted, "b")
    updates.wait("b")
    assert updates.take().result.ok


@pytest.mark.parametrize("more", [False, True])
def test_a_part_under_way_is_brought_to_what_is_desired_when_another_is_begun(
    bench: Bench, updates: Updates, hang: Hang, *, more: bool
) -> None:
    """Also what of it was as desired before, and what is new in it."""
    bench.world.control["meanwhile"] = {LAST: hang.wait}
    begin(updates, groups(a="1"), "a")
    updates.wait(["a"], lambda: any("ProxyConfig::a" in thing for thing in bench.world.things))
    wanted = dict(groups(a="2", b="1"))
    root, added = ResourceKey(BALANCER, "a"), ResourceKey(CONFIG, "added")
    if more:
        members = (*wanted[root].members, Resource(added, {"x": "2"}, root))
        wanted[root] = Group(members, Digest("more"))
    begin(updates, wanted, "b")
    updates.wait(["b"])
    assert updates.take().parts == {"b"}
    hang.end()
    updates.wait(["a"])
    ended = updates.take()
    assert ended.parts == {"a"}
    assert not ended.failed
    made = {name: thing["x"] for name, thing in bench.world.things.items() if not name.endswith("::b")}
    assert set(made.values()) == {"2"}
    assert any(name.endswith("::added") for name in made) == more


def test_what_hangs_is_brought_to_what_is_desired_by_then(bench: Bench, updates: Updates, hang: Hang) -> None:
    """Its operation ends first; the resource is never worked on twice at a time."""
    begin(updates, groups(a="1"), "a")
    updates.wait(["a"], lambda: True)
    begin(updates, groups(a="2"), "a")
    updates.wait(["a"], lambda: True)
    assert not updates.take().parts
    hang.end()
    updates.wait(["a"])
    assert not updates.take().failed
    assert {thing["x"] for thing in bench.world.things.values()} == {"2"}
    assert [call for call in bench.world.called("create", "update") if call[1] == HANGING] == [
        ("create", HANGING),
        ("update", HANGING),
    ]


def test_a_failure_is_told_with_its_sentence_and_tried_again_when_it_is_asked_for(
    bench: Bench, updates: Updates
) -> None:
    """Not before: whoever asks knows when."""
    bench.world.control = {"fail": {HANGING: "no room"}}
    begin(updates, groups(a="1", b="1"), *NAMES)
    updates.wait(NAMES)
    ended = updates.take()
    assert ended.failed == {"a": "no room"}
    assert ended.parts == set(NAMES)
    assert ended.result.failed_types == {CONFIG}
    bench.world.control = {}
    begin(updates, groups(a="1", b="1"), "a")
    updates.wait(NAMES)
    assert not updates.take().failed
    assert bench.engine().resources()


def test_what_is_not_desired_any_more_goes_and_outputs_are_kept(bench: Bench, updates: Updates) -> None:
    """As they are told."""
    begin(updates, groups(a="1", b="1"), *NAMES)
    updates.wait(NAMES)
    begin(updates, groups(b="1"), "a")
    updates.wait(NAMES)
    assert not updates.take().failed
    assert {thing for thing in bench.world.things if thing.endswith("::a")} == set()
    assert updates.outputs == {"n": 1}


def test_a_stack_that_another_process_updates_is_left_to_it(bench: Bench, updates: Updates) -> None:
    """Nothing is under way then, and the next try may succeed."""
    engine = bench.engine()
    with engine._store.session(lambda _text: None), pytest.raises(LockHeld):
        begin(updates, groups(a="1"), "a", first=pytest.fail)
    assert not updates.under_way
    begin(updates, groups(a="1"), "a")
    updates.wait(["a"])
    assert updates.take().parts == {"a"}


def test_a_stop_lets_what_runs_end_and_begins_nothing(bench: Bench, hang: Hang) -> None:
    """What wasn't begun is told as interrupted."""
    engine = bench.engine(parties=Parties(lambda one: one.type))
    updates = engine.updates({})
    begin(updates, groups(a="1"), "a")
    updates.wait(["a"], lambda: True)
    engine.cancel()
    threading.Timer(0.2, hang.end).start()
    updates.close()
    ended = updates.take()
    assert "interrupted" in ended.failed["a"]
    assert not ended.result.is_whole
    assert {*bench.world.things} == {HANGING}
