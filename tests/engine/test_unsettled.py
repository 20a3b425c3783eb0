"""Creations that broke off and can't be finished just now: nothing that may exist is forgotten."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pulumi.provider.experimental.provider import CreateRequest, CreateResponse

from locallb.engine.engine import Engine
from locallb.engine.state.checkpoint import check_state, parse_checkpoint
from locallb.engine.state.errors import StateUnwritable
from locallb.engine.state.files import Files
from locallb.engine.state.resource import Pending
from tests.engine.graphs import CrashError
from tests.support.engine import Bench, Thing, WorldProvider, messages, short

ADDRESS = {"address": "127.77.0.1"}


@dataclass
class Killer:
    """Ends the process after each creation, before anybody knows of it, until it is called off."""

    bench: Bench
    patch: pytest.MonkeyPatch
    dead: bool = False

    def arm(self) -> None:
        """Let nothing be written once something was created."""
        create = WorldProvider.create

        async def die(provider: WorldProvider, request: CreateRequest) -> CreateResponse:
            made = await create(provider, request)
            self.dead = True
            return made

        def before_write(_what: str) -> None:
            if self.dead:
                raise CrashError

        self.patch.setattr(WorldProvider, "create", die)
        self.bench.files = Files(before_write)

    def run(self, program: Callable[[], object]) -> None:
        self.dead = False
        with pytest.raises((CrashError, StateUnwritable)):
            self.bench.engine().up(program)
        assert self.dead

    def call_off(self) -> None:
        self.patch.undo()
        self.bench.files = Files()


@pytest.fixture
def killer(bench: Bench) -> Iterator[Killer]:
    with pytest.MonkeyPatch.context() as patch:
        killer = Killer(bench, patch)
        killer.arm()
        yield killer


def nothing() -> None:
    """Declare nothing."""


def declare() -> None:
    """Declare one address and what needs it."""
    address = Thing("LoopbackAddress", "a", ADDRESS)
    Thing("ProxyConfig", "b", {"uses": address.__dict__["claim"]})


def killed(bench: Bench, killer: Killer) -> Engine:
    """Leave a made address of which the state knows nothing; give an engine for the next runs."""
    killer.run(declare)
    killer.call_off()
    assert len(bench.world.things) == 1
    return bench.engine()


def pending(bench: Bench) -> list[Pending]:
    """Read what is under way according to the state; it must be one that the official command line reads too."""
    assert check_state(bench.state_path) == ()
    checkpoint = parse_checkpoint(bench.state_path.read_text(), "", bench.state_path)
    return list(checkpoint.pending)


@pytest.mark.parametrize("times", [1, 3])
def test_a_creation_that_cannot_be_finished_now_is_tried_again_by_every_run(
    bench: Bench, killer: Killer, times: int
) -> None:
    """Each says so and isn't ok; the first that can finishes it, and what nobody wants any more is then deleted."""
    engine = killed(bench, killer)
    bench.world.control = {"fail": {"LoopbackAddress::a": "the API doesn't answer"}}
    for _ in range(times):
        result = engine.up(nothing)
        assert not result.ok
        assert "can't be finished (the API doesn't answer); the next run tries again" in messages(result)[-1]
        assert [(operation.kind, short(operation.resource.urn)) for operation in pending(bench)] == [
            ("creating", "LoopbackAddress::a")
        ]
    bench.world.control = {}
    assert engine.up(nothing).ok
    assert (bench.world.things, pending(bench)) == ({}, [])


def test_unsettled_creation_is_not_repeated(bench: Bench, killer: Killer) -> None:
    """A resource whose creation isn't finished counts as failed, what needs it as skipped, the rest goes on."""
    engine = killed(bench, killer)
    bench.world.control = {"fail": {"LoopbackAddress::a": "no"}}
    before = len(bench.world.called("create"))

    def more() -> None:
        declare()
        Thing("Reachable", "apart", {"address": "x"})

    result = engine.up(more)
    assert [party for _, party in bench.world.called("create")[before:]] == ["LoopbackAddress::a", "Reachable::apart"]
    assert len([text for text in messages(result) if "::a " in text]) == 1
    assert {short(urn) for urn in result.broken} == {"LoopbackAddress::a", "ProxyConfig::b"}
    bench.world.control = {}
    assert engine.up(more).ok
    assert engine.up(more).unchanged


def test_destroy_keeps_what_an_unfinished_creation_refers_to(bench: Bench, killer: Killer) -> None:
    """So that the state stays whole; the next destroy removes all of it."""
    engine = killed(bench, killer)
    bench.world.control = {"fail": {"LoopbackAddress::a": "no"}}
    assert not engine.destroy().ok
    assert {short(resource.urn).split("::")[0] for resource in engine.resources()} == {"Stack", "locallb"}
    assert len(pending(bench)) == 1
    bench.world.control = {}
    assert engine.destroy().ok
    assert (bench.world.things, pending(bench), engine.resources()) == ({}, [], ())


def test_a_creation_of_which_nothing_is_left_is_forgotten(
    bench: Bench, killer: Killer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that can tell says so; the run is ok and says it."""
    engine = killed(bench, killer)
    bench.world.things.clear()
    bench.world.control = {"fail": {"LoopbackAddress::a": "taken by another"}}
    observed: list[tuple[str, str]] = []

    def leaves_nothing(_self: WorldProvider, kind: str, inputs: Mapping[str, object]) -> bool:
        observed.append((kind, str(inputs["address"])))
        return True

    monkeypatch.setattr(WorldProvider, "leaves_nothing", leaves_nothing, raising=False)
    result = engine.up(nothing)
    assert result.ok
    assert "nothing is left of the interrupted creation" in messages(result)[-1]
    assert observed == [("locallb:index:LoopbackAddress", "127.77.0.1")]
    assert pending(bench) == []


def test_a_provider_that_cannot_tell_either_keeps_the_creation(
    bench: Bench, killer: Killer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to know isn't to know that there is nothing."""
    engine = killed(bench, killer)
    bench.world.control = {"fail": {"LoopbackAddress::a": "no"}}

    def leaves_nothing(_self: WorldProvider, _kind: str, _inputs: object) -> bool:
        raise RuntimeError("the API doesn't answer either")

    monkeypatch.setattr(WorldProvider, "leaves_nothing", leaves_nothing, raising=False)
    assert not engine.up(nothing).ok
    assert len(pending(bench)) == 1


def test_resource_created_by_another_engine_is_not_created_again(bench: Bench, killer: Killer) -> None:
    """Its entry is the very resource: to supersede it would delete what serves."""
    killed(bench, killer)
    bench.engine().refresh()  # keeps the creation, as the official command line does
    operation = f',"pending_operations":[{{"resource":{pending(bench)[0].resource.text},"type":"creating"}}]'
    bench.engine().up(declare)
    text = bench.state_path.read_text()
    bench.state_path.write_text(text.replace(',"metadata"', f'{operation},"metadata"'))
    calls = len(bench.world.called("create", "delete"))
    result = bench.engine().up(declare)
    assert result.ok
    assert result.unchanged
    assert len(bench.world.called("create", "delete")) == calls
    assert pending(bench) == []


@pytest.mark.parametrize("what", ["parent", "dependency", "provider"])
def test_a_creation_whose_surroundings_another_engine_removed_is_finished_all_the_same(bench: Bench, what: str) -> None:
    """And with a whole state: a default provider comes back, other references are left out."""
    engine = bench.engine()
    assert engine.up(declare).ok
    address = next(resource for resource in engine.resources() if short(resource.urn) == "LoopbackAddress::a")
    stack = next(resource for resource in engine.resources() if resource.type.endswith(":Stack"))
    lost = "urn:pulumi:dev::local-lb::a:b:C::lost"
    raw: dict[str, Any] = address.as_json()
    for name in ("id", "outputs", "created", "modified"):
        raw.pop(name)
    changed: dict[str, dict[str, Any]] = {"parent": {"parent": lost}, "dependency": {"dependencies": [lost]}}
    raw |= changed.get(what, {})
    latest = {
        "resources": [stack.as_json()]
        if what == "provider"
        else [
            resource.as_json()
            for resource in engine.resources()
            if "ProxyConfig" not in resource.urn and resource != address
        ]
    }
    whole = json.loads(bench.state_path.read_text())
    whole["checkpoint"]["latest"] |= latest | {"pending_operations": [{"resource": raw, "type": "creating"}]}
    bench.state_path.write_text(json.dumps(whole))
    assert bench.engine().up(declare).ok
    assert bench.engine().up(declare).unchanged
    assert (pending(bench), len(bench.world.things)) == ([], 2)


@pytest.mark.parametrize("kind", ["updating", "deleting"])
def test_an_interrupted_change_of_what_cannot_be_read_now_stays_under_way(bench: Bench, kind: str) -> None:
    """The next run looks at it again; one that deletes the resource has settled it."""
    engine = bench.engine()
    assert engine.up(declare).ok
    found = next(resource for resource in engine.resources() if short(resource.urn) == "ProxyConfig::b")
    operation = f',"pending_operations":[{{"resource":{found.text},"type":"{kind}"}}],"metadata"'
    bench.state_path.write_text(bench.state_path.read_text().replace(',"metadata"', operation))
    bench.world.control = {"fail_read": {"ProxyConfig::b": "no"}}
    for _ in range(2):
        assert not bench.engine().up(declare).ok
        assert len(pending(bench)) == 1
    assert not bench.engine().destroy().ok
    assert (bench.world.things, pending(bench)) == ({}, [])


def test_a_run_killed_while_it_settles_leaves_one_creation(bench: Bench, killer: Killer) -> None:
    """However often that happens."""
    for _ in range(4):
        killer.run(declare)
    killer.call_off()
    assert bench.engine().up(declare).ok
    assert (pending(bench), len(bench.world.things)) == ([], 2)
    assert bench.engine().up(declare).unchanged
    assert bench.world.called("delete") == []


@pytest.mark.parametrize(("kind", "key"), [("LoopbackAddress", "address"), ("EnvoyProcess", "binary")])
def test_a_replacement_that_broke_off_ends_with_the_new_instance_alone(
    bench: Bench, killer: Killer, kind: str, key: str
) -> None:
    """Made before the old one is deleted, or after: the old one is deleted, and once."""
    killer.call_off()
    assert bench.engine().up(lambda: Thing(kind, "a", {key: "1"})).ok
    killer.arm()
    killer.run(lambda: Thing(kind, "a", {key: "2"}))
    killer.call_off()
    assert bench.engine().up(lambda: Thing(kind, "a", {key: "2"})).ok
    assert [thing[key] for thing in bench.world.things.values()] == ["2"]
    assert bench.world.called("delete") == [("delete", f"{kind}::a")]
    assert pending(bench) == []
