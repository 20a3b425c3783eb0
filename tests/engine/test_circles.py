"""References that go in a circle: never begun, never silent, and an order wherever there is one."""

import json
from graphlib import CycleError

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.engine.deploy.deletion import Deleter, order_of
from locallb.engine.deploy.scope import only
from locallb.engine.state.errors import FullScopeNeeded, StateBroken
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.snapshot import Put, Snapshot
from locallb.engine.state.urns import root_urn
from tests.engine.support import Bench, Thing, messages, short

URN = "urn:pulumi:dev::local-lb::locallb:index:Reachable::"


def resource(name: str, *needs: str) -> ResourceState:
    """Make a resource that refers to others."""
    kind = "locallb:index:Reachable"
    return ResourceState(f"{URN}{name}", kind, custom=True, id=name, dependencies=tuple(URN + name for name in needs))


@st.composite
def graphs(draw: st.DrawFn) -> dict[int | str, ResourceState]:
    """Draw live resources that refer to earlier ones, and old instances that refer to anything."""
    names = "abcdef"[: draw(st.integers(1, 6))]
    live = [resource(name, *draw(st.sets(st.sampled_from(names[:number] or "-")))) for number, name in enumerate(names)]
    old = draw(
        st.lists(
            st.builds(
                lambda name, needs: resource(name, *needs),
                st.sampled_from(names),
                st.sets(st.sampled_from(names), max_size=3),
            ),
            max_size=4,
        )
    )
    return {resource.urn: resource for resource in live} | dict(enumerate(old))


def claimed(doomed: dict[int | str, ResourceState]) -> list[int | str]:
    """Return the order in which all go, one at a time."""
    order = order_of(doomed)
    found: list[int | str] = []
    while ready := order.get_ready():
        found += ready
        order.done(*ready)
    return found


@given(graphs())
def test_old_instances_are_deleted_before_what_they_refer_to(doomed: dict[int | str, ResourceState]) -> None:
    """Each once, and each live resource after everything that refers to it."""
    order = claimed(doomed)
    assert sorted(order, key=str) == sorted(doomed, key=str)
    place = {key: number for number, key in enumerate(order)}
    for key, user in doomed.items():
        for used in user.references & doomed.keys() - {user.urn}:
            assert place[key] < place[used]


def test_an_old_instance_goes_after_those_that_may_use_it_where_that_is_possible() -> None:
    """A user whose update failed refers to the predecessor still."""
    assert claimed({URN + "a": resource("a"), 1: resource("a"), URN + "b": resource("b", "a")})[0] == URN + "b"


def test_a_circle_is_an_error() -> None:
    """Which names it."""
    with pytest.raises(CycleError) as caught:
        order_of({URN + "a": resource("a", "b"), URN + "b": resource("b", "a"), URN + "c": resource("c")})
    assert set(caught.value.args[1]) == {URN + "a", URN + "b"}


def test_resources_in_a_circle_are_reported_and_nothing_is_deleted(bench: Bench) -> None:
    """Not even what could go: a state like that isn't one to work on."""
    engine = bench.engine()
    stated: list[str] = []

    class Refusing(Deleter):
        def _keep_what_others_use(self, doomed: dict[int | str, ResourceState]) -> None:
            doomed |= {URN + "a": resource("a", "b"), URN + "b": resource("b", "a")}
            stated.append("asked")

    engine.up(lambda: Thing("Reachable", "c", {"address": "x"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("locallb.engine.deploy.run.Deleter", Refusing)
        result = engine.up(lambda: None)
    assert stated
    assert not result.ok
    assert "refers to" in messages(result)[0]
    assert messages(result)[0].count(URN) == 3
    assert bench.world.called("delete") == []


def test_a_state_whose_order_cannot_be_found_is_refused() -> None:
    """Instead of looked for without end."""
    snapshot = Snapshot([resource("a"), resource("b", "a")])
    snapshot.apply(Put(resource("a", "b")))
    with pytest.raises(StateBroken, match="in a circle"):
        snapshot.in_order()


def test_a_state_with_a_circle_is_refused_by_name(bench: Bench) -> None:
    """Before anything is called."""

    def program() -> None:
        a = Thing("Reachable", "a", {"address": "x"})
        Thing("Reachable", "b", {"address": "x"}, pulumi.ResourceOptions(depends_on=[a]))

    bench.engine().up(program)
    whole = json.loads(bench.state_path.read_text())
    first = next(resource for resource in whole["checkpoint"]["latest"]["resources"] if resource["urn"] == URN + "a")
    first["dependencies"] = [URN + "b"]
    bench.state_path.write_text(json.dumps(whole))
    with pytest.raises(StateBroken, match=f"{URN}b comes later"):
        bench.engine().destroy()


@pytest.mark.parametrize("through", [0, 1])
def test_a_scoped_update_does_not_turn_a_reference_round(bench: Bench, through: int) -> None:
    """What is outside the scope may have turned too: an update of everything is asked for, and does it."""
    names = ["a", "m", "b"] if through else ["a", "b"]

    def program(names: list[str]) -> None:
        made: list[Thing] = []
        for name in names:
            made.append(Thing("Reachable", name, {"address": "x"}, pulumi.ResourceOptions(depends_on=made[-1:])))

    engine = bench.engine()
    assert engine.up(lambda: program(names)).ok
    before = bench.state_path.read_bytes()
    scope = only([root_urn("local-lb", "dev", "locallb:index:Reachable", "a")])
    with pytest.raises(FullScopeNeeded, match="update everything"):
        engine.up(lambda: program(names[::-1]), scope=scope)
    assert bench.state_path.read_bytes() == before
    assert engine.up(lambda: program(names[::-1])).ok
    order = [short(resource.urn)[-1] for resource in engine.resources() if resource.urn.startswith(URN)]
    assert order == names[::-1]
    assert engine.destroy().ok
