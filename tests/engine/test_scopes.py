"""Updates of some root resources: what they touch, what they leave, what they refuse."""

import asyncio
import threading

import pulumi
import pytest

from locallb.engine.core import decisions
from locallb.engine.core.declared import only
from locallb.engine.core.events import Op
from locallb.engine.state.errors import FullScopeNeeded
from locallb.engine.state.urns import root_urn
from tests.engine.interrupting import SECONDS
from tests.support.balancers import ALPHA, BOTH, declare, roots
from tests.support.engine import Bench, Thing, messages, output, short


def test_a_scoped_update_may_register_only_what_it_is_about(bench: Bench) -> None:
    """What the program leaves out elsewhere stays; inside, what is absent goes."""
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    changed = {"balancers": {"alpha": ALPHA | {"port": 81}}}
    assert engine.up(lambda: declare(changed), scope=only(roots("alpha"))).changes == {Op.UPDATE: 5, Op.SAME: 3}
    result = engine.up(lambda: declare({"balancers": {}}), scope=only(roots("alpha")))
    assert result.changes == {Op.DELETE: 7, Op.SAME: 1}
    assert {short(r.urn).split("::")[1] for r in bench.checkpoint().resources} == {"beta", "default", "local-lb-dev"}


def test_new_resources_outside_the_scope_are_left_out(bench: Bench) -> None:
    """It is neither made nor does its unknown value get into the stack's outputs; the former value stays."""
    engine = bench.engine()
    engine.up(lambda: declare({"balancers": {"alpha": ALPHA}}))
    result = engine.up(lambda: declare(BOTH), scope=only(roots("alpha")))
    assert result.ok
    assert result.changes == {Op.SAME: 8}
    assert result.outputs == {"addresses": {"alpha": "claim-8887"}}


def test_outputs_that_a_scoped_update_does_not_export_stay(bench: Bench) -> None:
    """And go with the next update of everything."""
    engine = bench.engine()
    engine.up(lambda: pulumi.export("old", {"a": 1}))

    def other() -> None:
        pulumi.export("new", 2)

    assert engine.up(other, scope=only(roots("alpha"))).outputs == {"old": {"a": 1}, "new": 2}
    assert engine.up(other).outputs == {"new": 2}


def test_a_resource_that_needs_something_missing_outside_the_scope_is_skipped(bench: Bench) -> None:
    """The proxy's root alone: its address isn't there yet."""
    result = bench.engine().up(lambda: declare({"balancers": {"alpha": ALPHA}}), scope=only(roots("alpha")[1:]))
    assert bench.world.called("create") == []
    assert {short(r.urn) for r in bench.checkpoint().resources} == {"Stack::local-lb-dev", "Proxy::alpha"}
    assert result.changes == {Op.CREATE: 2}


def test_a_deletion_that_something_outside_the_scope_forbids_is_reported(bench: Bench) -> None:
    """The address stays as long as the proxy uses it."""
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    result = engine.up(lambda: declare({"balancers": {}}), scope=only(roots("alpha")[:1]))
    assert not result.ok
    assert "which stays, refers to it" in messages(result)[0]
    assert any(short(r.urn) == "LoopbackAddress::alpha" for r in bench.checkpoint().resources)


def test_a_replacement_that_would_delete_outside_the_scope_first_is_refused(bench: Bench) -> None:
    """The address can't be deleted first while what must go with it is outside."""

    def program(address: str) -> None:
        held = Thing(
            "LoopbackAddress", "alpha", {"address": address}, pulumi.ResourceOptions(delete_before_replace=True)
        )
        Thing("Reachable", "alpha", {"address": output(held, "claim"), "port": 1})

    engine = bench.engine()
    engine.up(lambda: program("127.77.0.1"))
    scope = only([root_urn("local-lb", "dev", "locallb:index:LoopbackAddress", "alpha")])
    result = engine.up(lambda: program("127.77.0.9"), scope=scope)
    assert "must be deleted before it is created again" in messages(result)[0]
    assert bench.world.called("delete") == []


def test_what_is_made_as_a_scoped_update_is_refused_is_in_the_state(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left under way for the next run to find out."""
    begun, refused = threading.Event(), threading.Event()

    class Noted(FullScopeNeeded):
        def __init__(self, text: str) -> None:
            super().__init__(text)
            refused.set()

    def last() -> None:
        begun.set()
        assert refused.wait(SECONDS)

    async def known() -> str:
        await asyncio.to_thread(begun.wait, SECONDS)
        return "x"

    def program(*names: str) -> None:
        made: list[Thing] = []
        for name in names:
            options = pulumi.ResourceOptions(depends_on=made[-1:])
            made.append(Thing("Reachable", name, {"address": pulumi.Output.from_input(known())}, options))

    def turned() -> None:
        Thing("LoopbackAddress", "slow", {"address": "127.77.0.1"})
        program("b", "a")

    begun.set()
    engine = bench.engine()
    assert engine.up(lambda: program("a", "b")).ok
    begun.clear()
    monkeypatch.setattr(decisions, "FullScopeNeeded", Noted)
    bench.world.control = {"meanwhile": {"LoopbackAddress::slow": last}}
    kinds = {"a": "Reachable", "slow": "LoopbackAddress"}
    scope = only(root_urn("local-lb", "dev", f"locallb:index:{kind}", name) for name, kind in kinds.items())
    with pytest.raises(FullScopeNeeded, match="update everything"):
        engine.up(turned, scope=scope)
    assert bench.checkpoint().pending == ()
    assert {short(item.urn) for item in bench.checkpoint().resources} >= {"LoopbackAddress::slow"}
    assert engine.up(turned).ok
    assert bench.world.called("create").count(("create", "LoopbackAddress::slow")) == 1


def test_a_changed_provider_needs_the_full_scope(bench: Bench) -> None:
    """Providers concern everything."""
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    bench.project.stack_file("dev").write_text("config: {locallb:region: there}\n")
    with pytest.raises(FullScopeNeeded, match="update everything"):
        engine.up(lambda: declare(BOTH), scope=only(roots("alpha")))
    result = engine.up(lambda: declare(BOTH))
    assert result.ok
    assert result.changes == {Op.SAME: 15}
    assert engine.up(lambda: declare(BOTH), scope=only(roots("alpha"))).ok
