"""An update brings the world and the state to what the program declares, and tells what it did."""

from pathlib import Path

from locallb.engine.core.events import Op, StepPlanned
from locallb.engine.state.values import Value
from tests.support.balancers import ALPHA, declare, spec
from tests.support.engine import Bench, Thing, World, make_project, short


def test_a_first_update_creates_everything_in_order(bench: Bench) -> None:
    """Each resource is created after what it needs, and the outputs are the program's."""
    result = bench.engine().up(lambda: declare(spec()))
    assert result.ok
    assert result.changes == {Op.CREATE: 15}
    assert result.outputs["addresses"] == {"alpha": "claim-8887", "beta": "claim-8888"}
    made = [party for method, party in bench.world.called("create")]
    for name in ("alpha", "beta"):
        kinds = [party.split("::")[0] for party in made if party.endswith(name)]
        assert kinds == ["LoopbackAddress", "ProxyConfig", "EnvoyProcess", "Reachable", "ServiceStatus"]
    assert len(bench.checkpoint().resources) == 16


def test_a_second_update_changes_and_writes_nothing(bench: Bench) -> None:
    """Everything is checked and compared, nothing is done, the state file stays as it is."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    before = bench.state_path.stat()
    result = engine.up(lambda: declare(spec()))
    assert result.ok
    assert result.unchanged
    assert result.changes == {Op.SAME: 15}
    assert bench.state_path.stat() == before
    assert len(bench.world.called("create", "update", "delete")) == 10


def test_an_update_touches_only_what_changed(bench: Bench) -> None:
    """A new port updates what uses it and nothing else."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    result = engine.up(lambda: declare(spec(alpha={"port": 8080, "digest": "d2"})))
    assert result.changes == {Op.UPDATE: 6, Op.SAME: 9}
    updated = [party for _method, party in bench.world.called("update")]
    assert updated == [f"{kind}::alpha" for kind in ("ProxyConfig", "EnvoyProcess", "Reachable", "ServiceStatus")]


def test_a_preview_tells_the_properties_that_change_and_does_nothing(bench: Bench) -> None:
    """The plan names each property with its old and new value; neither world nor disk is touched."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    before = sorted((path, path.stat().st_mtime_ns) for path in bench.project.backend.rglob("*"))
    things = dict(bench.world.things)
    bench.events.clear()
    result = engine.preview(lambda: declare(spec(alpha={"port": 8080, "digest": "d2"})))
    assert result.changes == {Op.UPDATE: 6, Op.SAME: 9}
    planned = {short(event.subject.urn): event for event in bench.events if isinstance(event, StepPlanned)}
    changes = {(change.path, change.old, change.new) for change in planned["ProxyConfig::alpha"].changes}
    assert changes == {("listeners[0].port", 80, 8080)}
    assert bench.world.things == things
    assert sorted((path, path.stat().st_mtime_ns) for path in bench.project.backend.rglob("*")) == before


def test_a_removed_balancer_is_deleted_in_reverse_order(bench: Bench) -> None:
    """What is no longer declared goes, users first."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    result = engine.up(lambda: declare({"balancers": {"alpha": ALPHA}}))
    assert result.changes == {Op.DELETE: 7, Op.SAME: 8}
    deleted = [party for _method, party in bench.world.called("delete")]
    order = ("ServiceStatus", "Reachable", "EnvoyProcess", "ProxyConfig", "LoopbackAddress")
    assert deleted == [f"{kind}::beta" for kind in order]


def test_destroy_needs_no_program_and_leaves_nothing(bench: Bench) -> None:
    """Everything is deleted; the state is kept, empty."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    result = engine.destroy()
    assert result.ok
    assert result.changes == {Op.DELETE: 15}
    assert bench.world.things == {}
    assert engine.resources() == ()
    assert "resources" not in bench.raw()


def test_many_runs_in_one_process_do_not_see_each_other(tmp_path: Path) -> None:
    """Two projects' engines take turns."""
    one = Bench(make_project(tmp_path / "one"), World())
    two = Bench(make_project(tmp_path / "two"), World())
    engines = one.engine(), two.engine()
    for number in range(3):
        value: Value = f"127.77.0.{number + 1}"
        for engine in engines:
            result = engine.up(lambda value=value: Thing("LoopbackAddress", "a", {"address": value}))  # type: ignore[misc]  # the default is the loop's value
            assert result.ok
    assert len(one.world.things) == len(two.world.things) == 1


def test_an_update_is_planned_without_a_provider_that_can_plan(bench: Bench) -> None:
    """Its computed outputs are unknown then, and what uses them counts as updated too."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    bench.world.preview_support = False
    result = engine.preview(lambda: declare(spec(alpha={"port": 81})))
    assert result.ok
    assert result.changes[Op.UPDATE] == 5
