"""What is kept of a resource to write it quickly is what writing it again gives: laws against the plain computation."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from locallb.engine.state.checkpoint import FORMAT, VERSION, Checkpoint, format_checkpoint, magic_of, parse_checkpoint
from locallb.engine.state.resource import Pending, ResourceState, compact, resource_from_json
from locallb.engine.state.stack_state import Begin, Drop, End, Mutation, Put, StackState
from locallb.engine.state.urns import STACK_TYPE

PATH = Path("state.json")
STACK = "urn:pulumi:dev::p::pulumi:pulumi:Stack::p-dev"
NAMES = [f"urn:pulumi:dev::p::a:b:C::{name}" for name in "abcd"]
TIME = "2026-01-01T00:00:00Z"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 1.5]) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
PROPERTIES = st.dictionaries(st.sampled_from(["x", "y", "resources"]), VALUES, max_size=2)
URNS = st.lists(st.sampled_from(NAMES), max_size=3).map(tuple)


def resources(*, referring: bool = True) -> st.SearchStrategy[ResourceState]:
    """Make components, or entries of them, in any of their shapes."""
    nothing = st.just(())
    by_property = st.none() | st.dictionaries(st.sampled_from("xy"), URNS, max_size=2)
    return st.builds(
        ResourceState,
        urn=st.sampled_from(NAMES),
        type=st.just("a:b:C"),
        custom=st.just(value=False),
        inputs=PROPERTIES,
        outputs=PROPERTIES,
        parent=st.just(STACK),
        dependencies=URNS if referring else nothing,
        property_dependencies=by_property if referring else st.none(),
        created=st.sampled_from(["", TIME]),
        pending_replacement=st.booleans(),
        extras=st.dictionaries(st.sampled_from(["protect", "sourcePosition", "ourOwn"]), VALUES, max_size=2),
    )


MUTATIONS = st.lists(
    st.one_of(
        resources(referring=False).map(Put),
        st.sampled_from(NAMES).map(Drop),
        st.builds(Begin, st.integers(1, 3), st.builds(Pending, st.just("creating"), resources(referring=False))),
        st.integers(1, 3).map(End),
    ),
    max_size=8,
)


def plainly(snapshot: StackState) -> bytes:
    """Write a state from nothing but the resources' fields."""
    latest: dict[str, Any] = {"manifest": {"time": TIME, "magic": magic_of(VERSION), "version": VERSION}}
    latest["resources"] = [resource.as_json() for resource in snapshot.in_order()]
    if snapshot.pending:
        latest["pending_operations"] = [
            {"resource": operation.resource.as_json(), "type": operation.kind}
            for operation in snapshot.pending.values()
        ]
    latest["metadata"] = {}
    return compact({"version": FORMAT, "checkpoint": {"stack": "s", "latest": latest}}).encode()


def quickly(snapshot: StackState) -> bytes:
    """Write a state as the store does."""
    return format_checkpoint(Checkpoint("s"), snapshot, TIME)


@given(st.lists(MUTATIONS, min_size=1, max_size=4))
def test_a_state_of_kept_texts_is_the_state_written_again(rounds: list[list[Mutation]]) -> None:
    """Byte for byte, after every few changes, and after it was read again in between."""
    snapshot = StackState([ResourceState(STACK, STACK_TYPE, custom=False)])
    for mutations in rounds:
        for mutation in mutations:
            snapshot.apply(mutation)
        written = quickly(snapshot)
        assert written == plainly(snapshot)
        snapshot = parse_checkpoint(written.decode(), "s", PATH).snapshot()
        assert quickly(snapshot) == written


@given(st.lists(resources(referring=False), unique_by=lambda one: one.urn), st.integers(1, 9000))
def test_a_state_that_earlier_versions_padded_is_read_and_written_without_padding(
    some: list[ResourceState], room: int
) -> None:
    """They left spaces before the last bracket of some resources of a large state."""
    written = quickly(StackState([ResourceState(STACK, STACK_TYPE, custom=False), *some]))
    padded = written
    for resource in some[::2]:
        padded = padded.replace(resource.data, resource.data[:-1] + b" " * room + b"}")
    assert json.loads(padded) == json.loads(written)
    assert quickly(parse_checkpoint(padded.decode(), "s", PATH).snapshot()) == written


@given(resources(), resources())
def test_unchanged_resources_keep_their_exact_json(resource: ResourceState, other: ResourceState) -> None:
    """Also where we would write it in another way, but in one line, as the journal needs it."""
    text = compact({**other.as_json(), "ourOwn": resource.text})
    spaced = text.replace(":", " : ")
    assert resource_from_json(resource.as_json(), spaced).data == spaced.encode()
    assert resource_from_json(resource.as_json(), text.replace(":", ":\n")).data == resource.data
    assert resource_from_json(resource.as_json()).data == resource.data == compact(resource.as_json()).encode()


def told_apart(state: ResourceState) -> dict[str, object]:
    """Return what the state file would say, the order of dependencies aside."""
    plain: dict[str, object] = dict(state.as_json())
    plain["dependencies"] = frozenset(state.dependencies)
    plain["propertyDependencies"] = {key: frozenset(urns) for key, urns in (state.property_dependencies or {}).items()}
    return plain


@given(resources(), resources(), st.randoms())
def test_resources_are_equal_when_the_state_would_say_the_same_of_them(
    resource: ResourceState,
    other: ResourceState,
    chance: Any,  # noqa: ANN401 - hypothesis' own
) -> None:
    """Whatever they are made of; the order of dependencies is nobody's."""
    assert resource.equals(other) == (told_apart(resource) == told_apart(other))
    raw = resource.as_json()
    for listed in (raw.get("dependencies", []), *dict(raw.get("propertyDependencies", {})).values()):  # type: ignore[arg-type]
        chance.shuffle(listed)
    twin = resource_from_json(raw)
    assert resource.equals(twin) == (told_apart(resource) == told_apart(twin))
