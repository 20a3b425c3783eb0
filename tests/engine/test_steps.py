"""What a single operation may never do, whichever run it is part of."""

import json
from collections.abc import Callable

import pytest
from pulumi.provider.experimental.provider import CreateRequest, UpdateRequest

from locallb.engine.core.events import Op
from locallb.engine.state.values import UNKNOWN
from tests.support.engine import Bench, Thing, WorldProvider, messages


def config(version: str) -> Callable[[], object]:
    """Return a program with a resource that is updated in place."""
    return lambda: Thing("ProxyConfig", "a", {"listeners": version})


def address(version: str) -> Callable[[], object]:
    """Return a program with a resource that is replaced."""
    return lambda: Thing("LoopbackAddress", "a", {"address": version})


def process(version: str) -> Callable[[], object]:
    """Return a program with a resource that is deleted before it is replaced."""
    return lambda: Thing("EnvoyProcess", "a", {"binary": version})


@pytest.mark.parametrize("program", [config, address])
@pytest.mark.parametrize("before", [None, "1"])
def test_a_value_that_is_not_known_reaches_no_provider_and_no_state(
    program: Callable[[str], Callable[[], object]], before: str | None, bench: Bench
) -> None:
    """Neither a creation nor an update nor a replacement is begun with it; the state stays as it was."""
    engine = bench.engine()
    if before:
        assert engine.up(program(before)).ok
    calls, things = bench.world.called("create", "update", "delete"), dict(bench.world.things)
    result = engine.up(program(UNKNOWN))
    assert not result.ok
    assert any("has an input whose value isn't known" in message for message in messages(result))
    assert (bench.world.called("create", "update", "delete"), bench.world.things) == (calls, things)
    assert UNKNOWN not in bench.state_path.read_text()
    assert not bench.checkpoint().pending


@pytest.mark.parametrize("plans", [True, False])
def test_a_preview_asks_providers_for_plans_and_makes_nothing(
    plans: bool,  # noqa: FBT001 - a case
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Creations and updates alike."""
    planned: list[str] = []

    def note(_provider: WorldProvider, method: str, _request: CreateRequest | UpdateRequest) -> None:
        planned.append(method)

    monkeypatch.setattr(WorldProvider, "planned", note)
    engine = bench.engine()
    bench.world.preview_support = plans
    assert engine.preview(config("1")).changes[Op.CREATE] == 2
    assert bench.world.called("create") == []
    assert planned == (["create"] if plans else [])
    assert engine.up(config("1")).ok
    assert engine.preview(config("2")).changes[Op.UPDATE] == 1
    assert bench.world.called("update") == []
    assert planned == (["create", "update"] if plans else [])
    assert engine.preview(lambda: None).changes[Op.DELETE] == 1
    assert engine.destroy(preview=True).changes[Op.DELETE] == 2
    assert bench.world.called("delete") == []


@pytest.mark.parametrize(
    ("program", "steered", "before", "after"),
    [
        (config, "fail", None, "1"),
        (config, "fail_update", "1", "2"),
        (config, "fail_delete", "1", None),
        (address, "fail", "1", "2"),
        (address, "fail_delete", "1", "2"),
        (process, "fail", "1", "2"),
        (process, "fail_delete", "1", "2"),
    ],
)
def test_failed_operation_is_not_recorded_as_pending(
    program: Callable[[str], Callable[[], object]], steered: str, before: str | None, after: str | None, bench: Bench
) -> None:
    """The provider said how it ended: nothing is left for the next run to find out, which does it again."""
    wanted = program(after) if after else lambda: None
    engine = bench.engine()
    if before:
        assert engine.up(program(before)).ok
    names = ("ProxyConfig::a", "LoopbackAddress::a", "EnvoyProcess::a")
    bench.world.control = {steered: dict.fromkeys(names, "not now")}
    assert not engine.up(wanted).ok
    assert not bench.checkpoint().pending
    bench.world.control = {}
    assert engine.up(wanted).ok
    assert [value for thing in bench.world.things.values() for value in thing.values()] == ([after] if after else [])


@pytest.mark.parametrize("plans", [True, False])
def test_resources_created_in_a_preview_have_an_unknown_id(
    plans: bool,  # noqa: FBT001 - a case
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever uses the id is planned with an unknown value, whether the provider says no id or isn't asked."""
    inputs: list[object] = []

    def program() -> None:
        made = Thing("ProxyConfig", "a", {"listeners": "1"})
        made.id.apply(inputs.append)
        Thing("ProxyConfig", "b", {"listeners": made.id})

    def note(_provider: WorldProvider, _method: str, request: CreateRequest | UpdateRequest) -> None:
        planned[request.urn.rpartition("::")[2]] = request

    planned: dict[str, CreateRequest | UpdateRequest] = {}
    monkeypatch.setattr(WorldProvider, "planned", note)
    bench.world.preview_support = plans
    assert bench.engine().preview(program).ok
    assert inputs == []  # what waits for the id isn't run
    if plans:
        listeners = planned["b"].properties["listeners"] if isinstance(planned["b"], CreateRequest) else None
        assert listeners is not None
        assert listeners.value != ""


def test_an_old_instance_whose_deletion_is_done_only_leaves_the_state(bench: Bench) -> None:
    """The CLI keeps such an entry when it was stopped between the deletion and the creation of the successor."""
    engine = bench.engine()
    assert engine.up(config("1")).ok
    state = json.loads(bench.state_path.read_text())
    resources = state["checkpoint"]["latest"]["resources"]
    (entry,) = (resource for resource in resources if resource["urn"].endswith("ProxyConfig::a"))
    resources.insert(resources.index(entry) + 1, {**entry, "delete": True, "pendingReplacement": True})
    bench.state_path.write_text(json.dumps(state))
    assert bench.engine().up(config("1")).ok
    assert bench.world.called("delete") == []
    after = json.loads(bench.state_path.read_text())["checkpoint"]["latest"]["resources"]
    assert [resource for resource in after if resource.get("delete")] == []
