"""References that go in a circle: never begun, never silent, and an order wherever there is one."""

import json

import pulumi
import pytest

from locallb.engine.core.declared import only
from locallb.engine.state.errors import FullScopeNeeded, StateBroken
from locallb.engine.state.stack_state import Put, StackState
from locallb.engine.state.urns import root_urn
from tests.engine.references import URN, resource
from tests.support.engine import Bench, Thing, short


def test_a_state_whose_order_cannot_be_found_is_refused() -> None:
    """Instead of looked for without end."""
    snapshot = StackState([resource("a"), resource("b", "a")])
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
