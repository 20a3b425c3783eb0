"""What is kept of a resource to write it quickly is what writing it again gives: laws against the plain computation."""

from operator import is_
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.engine.state.blocks import MOST
from locallb.engine.state.checkpoint import FORMAT, VERSION, Checkpoint, format_checkpoint, parse_checkpoint
from locallb.engine.state.integrity import magic_of
from locallb.engine.state.joined import JoinedResources
from locallb.engine.state.resource import Pending, ResourceState, compact, resource_from_json
from locallb.engine.state.snapshot import Begin, Drop, End, Free, Mutation, Put, Snapshot, Supersede
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
URNS = st.lists(st.sampled_from(NAMES), max_size=3)


@st.composite
def resources(draw: st.DrawFn, *, referring: bool = True) -> ResourceState:
    """Make a component, or the entry of one, in any of its shapes."""
    return ResourceState(
        urn=draw(st.sampled_from(NAMES)),
        type="a:b:C",
        custom=False,
        inputs=draw(PROPERTIES),
        outputs=draw(PROPERTIES),
        parent=STACK,
        dependencies=tuple(draw(URNS)) if referring else (),
        property_dependencies=draw(st.none() | st.dictionaries(st.sampled_from("xy"), URNS.map(tuple), max_size=2))
        if referring
        else None,
        created=draw(st.sampled_from(["", TIME])),
        pending_replacement=draw(st.booleans()),
        extras=draw(st.dictionaries(st.sampled_from(["protect", "sourcePosition", "ourOwn"]), VALUES, max_size=2)),
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


def plainly(snapshot: Snapshot) -> bytes:
    """Write a state from nothing but the resources' fields."""
    latest: dict[str, Any] = {"manifest": {"time": TIME, "magic": magic_of(VERSION), "version": VERSION}}
    latest["resources"] = [resource.as_json() for resource in snapshot.in_order()]
    if snapshot.pending:
        latest["pending_operations"] = [operation.as_json() for operation in snapshot.pending.values()]
    latest["metadata"] = {}
    return compact({"version": FORMAT, "checkpoint": {"stack": "s", "latest": latest}}).encode()


def quickly(snapshot: Snapshot) -> bytes:
    """Write a state as the store does."""
    pieces = format_checkpoint(Checkpoint("s"), snapshot, TIME)
    return b"".join(piece.data + piece.separator for piece in pieces)


@given(st.lists(MUTATIONS, min_size=1, max_size=4))
def test_a_state_of_kept_texts_is_the_state_written_again(rounds: list[list[Mutation]]) -> None:
    """Byte for byte, after every few changes, and after it was read again in between."""
    snapshot = Snapshot([ResourceState(STACK, STACK_TYPE, custom=False)])
    for mutations in rounds:
        for mutation in mutations:
            snapshot.apply(mutation)
        written = quickly(snapshot)
        assert written == plainly(snapshot)
        snapshot = parse_checkpoint(written.decode(), "s", PATH).snapshot()
        assert quickly(snapshot) == written


MANY = [ResourceState(f"{NAMES[0]}-{number}", "a:b:C", custom=False) for number in range(400)]


def _refers(one: str, to: str) -> Mutation:
    """Set a resource that refers to another one, there or not."""
    return Put(ResourceState(f"{NAMES[0]}-{one}", "a:b:C", custom=False, dependencies=(f"{NAMES[0]}-{to}",)))


URNS_OF_MANY = st.sampled_from([resource.urn for resource in MANY])
CHANGES = st.lists(
    st.one_of(
        st.builds(
            lambda urn, inputs: Put(ResourceState(urn, "a:b:C", custom=False, inputs=inputs)), URNS_OF_MANY, PROPERTIES
        ),
        URNS_OF_MANY.map(Drop),
        st.builds(
            lambda urn, other: Put(ResourceState(urn, "a:b:C", custom=False, dependencies=(other,))),
            URNS_OF_MANY,
            URNS_OF_MANY,
        ),
    ),
    max_size=12,
)


def comes_in_a_circle(snapshot: Snapshot, mutation: Mutation) -> bool:
    """Return whether a resource would refer to itself, or to one that refers to it."""
    if not isinstance(mutation, Put):
        return False
    needed = snapshot.needed_by(mutation.resource.references)
    named = (snapshot.live[urn].references for urn in needed)  # some of them aren't there, and may come
    return mutation.resource.urn in mutation.resource.references.union(*named)


def assert_all_is_listed(snapshot: Snapshot, joined: JoinedResources) -> tuple[Any, ...]:
    """Check blocks and pieces against the list of all; return the blocks."""
    blocks = snapshot.in_blocks()
    listed = snapshot.in_order()
    assert [id(resource) for block in blocks for resource in block] == [*map(id, listed)]
    pieces = joined.pieces(blocks)
    assert b"".join(piece.data + piece.separator for piece in pieces) == b",".join(one.data for one in listed)
    return blocks


@given(st.integers(0, 300), st.lists(CHANGES, max_size=6))
@example(0, [[_refers("0", "1"), _refers("1", "0")]])
def test_blocks_hold_all_resources_in_order(size: int, history: list[list[Mutation]]) -> None:
    """Whatever changes, goes, comes, comes again or moves between two listings; and so do pieces of the file."""
    snapshot, joined = Snapshot(MANY[:size]), JoinedResources()
    for mutations in [[], *history]:
        for mutation in mutations:
            if not comes_in_a_circle(snapshot, mutation):
                snapshot.apply(mutation)
        blocks = assert_all_is_listed(snapshot, joined)
        assert all(0 < len(block) <= MOST for block in blocks)
        assert all(map(is_, blocks, snapshot.in_blocks()))


def test_old_instances_stand_in_a_block_behind_the_others() -> None:
    """It is the very same until one comes or goes."""
    snapshot, joined = Snapshot(MANY[:100]), JoinedResources()
    snapshot.apply(Supersede(MANY[3], 7))
    blocks = assert_all_is_listed(snapshot, joined)
    assert [resource.delete for resource in blocks[-1]] == [True]
    snapshot.apply(Put(MANY[5]))
    assert assert_all_is_listed(snapshot, joined)[-1] is blocks[-1]
    snapshot.apply(Free(7))
    assert len(assert_all_is_listed(snapshot, joined)) == len(blocks) - 1


@given(st.integers(0, 199))
def test_a_change_leaves_the_blocks_and_pieces_of_other_resources(changed: int) -> None:
    """They are the very same, not equal ones; and what comes one by one doesn't come to a block each."""
    snapshot, joined = Snapshot(MANY[:200]), JoinedResources()
    before = assert_all_is_listed(snapshot, joined)
    bytes_before = [piece.data for piece in joined.pieces(before)]
    snapshot.apply(Put(replace(MANY[changed], inputs={"x": 1})))
    after = assert_all_is_listed(snapshot, joined)
    assert sum(map(is_, before, after)) == len(before) - 1
    assert sum(map(is_, bytes_before, [piece.data for piece in joined.pieces(after)])) == len(before) - 1
    for resource in MANY[200:300]:
        snapshot.apply(Put(resource))
        blocks = assert_all_is_listed(snapshot, joined)
    assert len(blocks) == len(range(0, 300, MOST))


def test_resources_that_go_leave_few_blocks() -> None:
    """Blocks that became short are joined, also where a thousand went one by one."""
    snapshot, joined = Snapshot(), JoinedResources()
    for number in range(3000):
        snapshot.apply(Put(ResourceState(f"{NAMES[0]}-{number}", "a:b:C", custom=False)))
    full = assert_all_is_listed(snapshot, joined)
    for number in range(3000):
        if number % MOST:
            snapshot.apply(Drop(f"{NAMES[0]}-{number}"))
    assert len(snapshot.live) == len(full)
    assert len(assert_all_is_listed(snapshot, joined)) < len(full) / 2


def test_a_new_order_keeps_the_blocks_of_what_stays_in_its_place() -> None:
    """A resource that comes to refer to a later one moves; those before and behind stay in their blocks."""
    snapshot, joined = Snapshot(MANY[:384]), JoinedResources()
    before = assert_all_is_listed(snapshot, joined)
    snapshot.apply(Put(replace(MANY[130], dependencies=(MANY[140].urn,))))
    after = assert_all_is_listed(snapshot, joined)
    kept = {id(block) for block in before} & {id(block) for block in after}
    assert len(kept) == len(before) - 1


def test_a_block_of_which_all_went_is_none() -> None:
    """Also at the beginning, and what is left is found in its block."""
    snapshot, joined = Snapshot(MANY[:200]), JoinedResources()
    before = assert_all_is_listed(snapshot, joined)
    for resource in (*before[0], *before[2]):
        snapshot.apply(Drop(resource.urn))
    after = assert_all_is_listed(snapshot, joined)
    assert [*map(id, after)] == [id(before[1]), id(before[3])]
    snapshot.apply(Put(replace(before[3][0], inputs={"x": 1})))
    assert assert_all_is_listed(snapshot, joined)[0] is before[1]


@given(resources(), resources())
def test_unchanged_resources_keep_their_exact_json(resource: ResourceState, other: ResourceState) -> None:
    """Also where we would write it in another way."""
    text = compact({**other.as_json(), "ourOwn": resource.text})
    spaced = text.replace(":", " : ")
    assert resource_from_json(resource.as_json(), spaced).data == spaced.encode()
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
