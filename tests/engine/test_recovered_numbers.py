"""What a run that broke off had noted is recovered as that run had it, also where runs before had left something."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.stack_state import Drop, End, Free, Put, StackState, Supersede
from locallb.engine.state.urns import STACK_TYPE
from locallb.engine.store import Recorder, Store

URN = "urn:pulumi:dev::p::"
STACK = ResourceState(f"{URN}{STACK_TYPE}::p-dev", STACK_TYPE, custom=False)
PROVIDER = ResourceState(f"{URN}pulumi:providers:a::d", "pulumi:providers:a", custom=True, id="1", parent=STACK.urn)
NAMES = "abc"
IDS = count()


class KilledError(BaseException):
    """Ends a run as a signal that nobody handles."""


@pytest.fixture(autouse=True, scope="module")
def _unsynced() -> Iterator[None]:
    """Do without the disk: nothing here is about power cuts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


def resource(name: str, number: int | None = None) -> ResourceState:
    """Make a resource with an id of its own, or one that isn't made yet."""
    own = "" if number is None else f"{name}{number}"
    reference = f"{PROVIDER.urn}::{PROVIDER.id}"
    return ResourceState(f"{URN}a:b:C::{name}", "a:b:C", custom=True, id=own, provider=reference, parent=STACK.urn)


def stated(snapshot: StackState) -> tuple[Any, ...]:
    """Return all that a snapshot says, its own numbers aside."""
    pending = [(operation.kind, operation.resource.urn) for operation in snapshot.pending.values()]
    live = {urn: existing.id for urn, existing in snapshot.live.items()}
    return live, [old.id for old in snapshot.condemned.values()], pending


def do(recorder: Recorder, action: str, which: int) -> None:
    """Note one change, if there is what it changes."""
    snapshot, name = recorder.snapshot, NAMES[which % len(NAMES)]
    numbers = [*(snapshot.pending if action == "end" else snapshot.condemned)]
    match action:
        case "begin":
            recorder.begin(Pending("creating", resource(name)))
        case "end" if numbers:
            recorder.apply(End(numbers[which % len(numbers)]))
        case "free" if numbers:
            recorder.apply(Free(numbers[which % len(numbers)]))
        case "put":
            recorder.apply(Put(resource(name, next(IDS))))
        case "supersede" if resource(name).urn in snapshot.live:
            recorder.apply(Supersede(resource(name, next(IDS)), snapshot.take_number()))
        case "drop" if resource(name).urn in snapshot.live:
            recorder.apply(Drop(resource(name).urn))


ACTIONS = st.tuples(st.sampled_from(["begin", "end", "free", "put", "supersede", "drop"]), st.integers(0, 5))
RUNS = st.tuples(st.lists(ACTIONS, max_size=8), st.booleans(), st.booleans())


@settings(deadline=None, max_examples=60)
@given(st.lists(RUNS, min_size=1, max_size=6))
def test_a_run_finds_what_the_last_one_had_noted(history: list[tuple[list[tuple[str, int]], bool, bool]]) -> None:
    """Whether that was killed or ended, and whether the same process goes on; and so does who only looks."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder), "p", "dev")
        with store.session(lambda _notice: None) as recorder:
            recorder.apply(Put(STACK), Put(PROVIDER))
        noted = stated(store.peek())
        for actions, is_killed, is_same in history:
            store = store if is_same else Store(Path(folder), "p", "dev")
            assert stated(store.peek()) == noted
            with suppress(KilledError), store.session(lambda _notice: None) as recorder:
                assert stated(recorder.snapshot) == noted
                for action in actions:
                    do(recorder, *action)
                noted = stated(recorder.snapshot)
                if is_killed:
                    raise KilledError
        assert stated(Store(Path(folder), "p", "dev").peek()) == noted


def test_an_interrupted_creation_is_not_forgotten_by_a_second_interruption() -> None:
    """Of two, the run that recovered them had finished the first."""
    with TemporaryDirectory() as folder:
        for actions in ([("put", 0)], [("begin", 1), ("begin", 2)], [("end", 0)]):
            with suppress(KilledError), Store(Path(folder), "p", "dev").session(lambda _notice: None) as recorder:
                if not recorder.snapshot.live:
                    recorder.apply(Put(STACK), Put(PROVIDER))
                for action in actions:
                    do(recorder, *action)
                raise KilledError
        remaining = Store(Path(folder), "p", "dev").peek().pending.values()
        assert [operation.resource.name for operation in remaining] == ["c"]
