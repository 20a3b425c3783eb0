"""Runs that refresh, meet changed providers, odd answers and broken programs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulumi
import pytest

from locallb.engine.core import reads as core_reads
from locallb.engine.core.declared import only
from locallb.engine.core.events import DiagnosticEvent, Op, Result, StepDone
from locallb.engine.state.resource import Pending
from locallb.engine.state.stack_state import Begin
from tests.support.balancers import ALPHA, BOTH, declare
from tests.support.engine import Bench, Thing, World, WorldProvider, make_project, messages, short


def test_an_engine_runs_beside_a_loop_of_its_caller(bench: Bench) -> None:
    """The program gets a thread then."""
    import asyncio  # noqa: PLC0415 the test's own matter

    async def call() -> Result:
        return bench.engine().up(lambda: declare(BOTH))

    assert asyncio.run(call()).ok


def explicit(region: str, name: str = "mine") -> None:
    """Declare a provider and a resource of it."""
    given = pulumi.ProviderResource("locallb", name, {"region": region})
    Thing("LoopbackAddress", "explicit", {"address": "127.77.0.4"}, pulumi.ResourceOptions(provider=given))


def test_an_explicit_provider_is_a_resource_of_the_stack(bench: Bench) -> None:
    """Created, updated, and another one replaces what uses it."""
    engine = bench.engine()
    assert engine.preview(lambda: explicit("here")).changes == {Op.CREATE: 3}
    assert engine.up(lambda: explicit("here")).changes == {Op.CREATE: 3}
    assert engine.up(lambda: explicit("there")).changes == {Op.UPDATE: 1, Op.SAME: 2}
    result = engine.up(lambda: explicit("there", "other"))
    assert result.changes == {Op.CREATE: 1, Op.REPLACE: 1, Op.DELETE: 1, Op.SAME: 1}
    assert {short(r.urn) for r in bench.checkpoint().resources} == {
        "Stack::local-lb-dev",
        "locallb::other",
        "LoopbackAddress::explicit",
    }
    assert engine.destroy().ok


def test_a_version_of_a_provider_names_the_default_one(bench: Bench) -> None:
    """As generated SDKs ask for theirs; the provider isn't told what Pulumi notes for itself."""
    options = pulumi.ResourceOptions(version="5.2.0")
    assert bench.engine().up(lambda: Thing("Reachable", "a", {"address": "x"}, options)).ok
    provider = next(item for item in bench.raw()["resources"] if "providers" in item["type"])
    assert provider["urn"].endswith("::default_5_2_0")
    assert provider["inputs"] == {"__internal": {}, "version": "5.2.0"}
    assert provider["outputs"] == {"version": "5.2.0"}


def test_a_resource_that_is_gone_but_has_children_is_created_again(bench: Bench) -> None:
    """Its entry can't leave the state while children refer to it."""

    def program() -> None:
        above = Thing("LoopbackAddress", "above", {"address": "127.77.0.1"})
        Thing("Reachable", "below", {"address": "x"}, pulumi.ResourceOptions(parent=above))

    engine = bench.engine()
    engine.up(program)
    bench.world.control = {"read": {"LoopbackAddress::above": "gone"}}
    result = engine.refresh()
    assert result.changes == {Op.DELETE: 1, Op.SAME: 2}
    bench.world.control = {}
    assert engine.up(program).changes == {Op.REPLACE: 1, Op.SAME: 2}
    bench.world.control = {"read": {"LoopbackAddress::above": "gone"}}
    engine.refresh()
    deletions = len(bench.world.called("delete"))
    assert engine.destroy().ok
    assert len(bench.world.called("delete")) == deletions + 1


def test_a_project_that_always_refreshes_does_so(tmp_path: Path) -> None:
    """In previews, updates and destroys, unless told otherwise."""
    bench = Bench(make_project(tmp_path, refresh=True), World())
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    engine.preview(lambda: declare(BOTH))
    engine.up(lambda: declare(BOTH))
    assert len(bench.world.called("read")) == 20
    engine.up(lambda: declare(BOTH), refresh=False)
    assert len(bench.world.called("read")) == 20
    engine.destroy()
    assert len(bench.world.called("read")) == 30


def unreadable(_self: object, part: str, party: str) -> object:
    """Let one resource be out of reach for who reads it."""
    if part == "read" and party == "ProxyConfig::alpha":
        raise RuntimeError("can't be reached")
    return None


def test_a_resource_that_cannot_be_read_fails_the_refresh(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are refreshed."""
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    monkeypatch.setattr(World, "steer", unreadable)
    for result in (engine.refresh(), engine.up(lambda: declare(BOTH), refresh=True)):
        assert not result.ok
        assert messages(result) == ["can't be reached"]


FILES = ["locallb:index:LoopbackAddress", "locallb:index:ProxyConfig"]


@pytest.mark.parametrize(
    ("observed", "drifted"),
    [
        ({}, []),
        ({"LoopbackAddress::alpha": "gone"}, ["LoadBalancer::alpha"]),
        ({"ProxyConfig::beta": {"outputs": {"listeners": []}}}, ["Proxy::beta"]),
        ({"LoopbackAddress::alpha": "gone", "ProxyConfig::alpha": "gone"}, ["LoadBalancer::alpha", "Proxy::alpha"]),
        ({"EnvoyProcess::alpha": "gone"}, []),
    ],
)
@pytest.mark.parametrize("at_once", [1, 3, 16])
def test_drifted_names_changed_roots_and_leaves_the_state(
    bench: Bench, observed: dict[str, Any], drifted: list[str], at_once: int
) -> None:
    """Only resources of the types in question are read, each once, by few threads or many; the state stays."""
    engine = bench.engine(parallel=at_once)
    engine.up(lambda: declare(BOTH))
    before, events = bench.raw(), len(bench.events)
    bench.world.control = {"read": observed}
    assert sorted(map(short, engine.drifted(FILES))) == drifted
    assert sorted(bench.world.called("read")) == sorted(
        ("read", f"{kind}::{name}") for kind in ("LoopbackAddress", "ProxyConfig") for name in ("alpha", "beta")
    )
    assert (bench.raw(), len(bench.events)) == (before, events)


@pytest.mark.parametrize("many", [1, 1000])
def test_a_provider_knows_when_many_resources_are_only_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """From before the first is read until the last one was; the reads of an update belong to no such look."""

    @contextmanager
    def one_pass(provider: WorldProvider) -> Iterator[None]:
        provider.world.calls.append(("begin", ""))
        yield
        provider.world.calls.append(("end", ""))

    monkeypatch.setattr(WorldProvider, "one_pass", one_pass, raising=False)
    monkeypatch.setattr(core_reads, "_MANY", many)
    engine = bench.engine()
    engine.up(lambda: declare(BOTH), refresh=True)
    engine.refresh()
    assert not bench.world.called("begin")
    bench.world.calls.clear()
    assert not engine.drifted()
    methods = [method for method, _ in bench.world.calls if method in {"begin", "read", "end"}]
    reads = ["read"] * sum(resource.type.startswith("locallb:index:") for resource in engine.resources() if resource.id)
    assert methods == (["begin", *reads, "end"] if many == 1 else reads)


@pytest.mark.parametrize("observed", [{}, {"Reachable::alpha": "gone"}, {"EnvoyProcess::alpha": "gone"}])
def test_a_scope_is_looked_at_as_a_whole_and_nothing_else_is(bench: Bench, observed: dict[str, Any]) -> None:
    """Every resource below its roots is read, of whatever type; what engine and state know stays as it is.

    The root whose proof refers to a process that is gone counts as changed too: its reference would go with it.
    """
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    before, resources, stamp = bench.raw(), engine.resources(), engine.read_stamp()
    roots = {urn for item in resources if (urn := item.urn).endswith(("LoadBalancer::alpha", "Proxy::alpha"))}
    bench.world.control = {"read": observed}
    found = engine.drifted(scope=only(roots))
    changed = {
        "Reachable::alpha": {"LoadBalancer::alpha"},
        "EnvoyProcess::alpha": {"Proxy::alpha", "LoadBalancer::alpha"},
    }
    assert {short(urn) for urn in found} == set().union(*(changed[name] for name in observed))
    assert {name for _, name in bench.world.called("read")} == {
        short(item.urn) for item in resources if item.custom and item.id and item.name == "alpha"
    }
    assert (bench.raw(), engine.resources(), engine.read_stamp()) == (before, resources, stamp)


def test_interrupted_resources_in_a_scope_count_as_changed(bench: Bench) -> None:
    """Although all that the state has is as it says."""
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    state = {short(item.urn): item for item in engine.resources()}
    engine._store.peek().apply(Begin(99, Pending("updating", state["Reachable::beta"])))
    roots = {name: only([state[f"LoadBalancer::{name}"].urn]) for name in ("alpha", "beta")}
    assert {name: set(map(short, engine.drifted(scope=root))) for name, root in roots.items()} == {
        "alpha": set(),
        "beta": {"LoadBalancer::beta"},
    }


def test_unreadable_resources_count_as_changed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever updates it is told why."""
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    monkeypatch.setattr(World, "steer", unreadable)
    assert set(map(short, engine.drifted(FILES))) == {"Proxy::alpha"}


def test_parties_that_are_known_not_to_answer_are_not_asked(bench: Bench) -> None:
    """So that nothing waits for them; each resource is a party of its own here."""
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    state = {short(item.urn): item.urn for item in engine.resources()}
    bench.world.control = {"read": {"ProxyConfig::alpha": "gone", "ProxyConfig::beta": "gone"}}
    assert set(map(short, engine.drifted(FILES, without={state["ProxyConfig::alpha"]}))) == {"Proxy::beta"}
    assert "ProxyConfig::alpha" not in {name for _, name in bench.world.called("read")}


def test_events_come_as_they_happen_and_messages_too(bench: Bench) -> None:
    """A display can follow."""

    def program() -> None:
        pulumi.log.info("reading")
        pulumi.log.debug("not told")
        declare({"balancers": {"alpha": ALPHA}})

    bench.engine().up(program)
    stated = [event.diagnostic.message for event in bench.events if isinstance(event, DiagnosticEvent)]
    assert stated == ["reading"]
    done = [short(event.subject.urn) for event in bench.events if isinstance(event, StepDone)]
    assert done.index("LoopbackAddress::alpha") < done.index("ProxyConfig::alpha") < done.index("Reachable::alpha")


def test_a_provider_that_gives_no_id_or_does_not_know_changes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No id is the provider's mistake; not knowing means that the inputs decide."""
    from pulumi.provider.experimental.provider import CreateResponse, DiffResponse  # noqa: PLC0415 for this test only

    async def unsure(_self: object, _request: object) -> DiffResponse:
        return DiffResponse(changes=None)

    engine = bench.engine()
    engine.up(lambda: Thing("Reachable", "a", {"address": "x"}))
    monkeypatch.setattr(WorldProvider, "diff", unsure)
    assert engine.up(lambda: Thing("Reachable", "a", {"address": "x"})).unchanged
    assert engine.up(lambda: Thing("Reachable", "a", {"address": "y"})).changes == {Op.UPDATE: 1, Op.SAME: 1}

    async def nameless(_self: object, _request: object) -> CreateResponse:
        return CreateResponse("", {})

    monkeypatch.setattr(WorldProvider, "create", nameless)
    result = engine.up(lambda: Thing("Reachable", "b", {"address": "x"}))
    assert "the provider gave no id" in messages(result)[0]


def test_a_program_that_exits_or_breaks_in_its_own_files_is_reported_with_the_place(bench: Bench) -> None:
    """The line is the program's, not the library's."""
    path = bench.project.root / "broken.py"
    path.write_text("import json\ndef program():\n    json.loads('')\n")
    scope: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)  # noqa: S102 a program is code from a file
    result = bench.engine().up(scope["program"])
    assert messages(result)[0].endswith("(broken.py:3)")

    def leave() -> None:
        raise SystemExit(3)

    assert messages(bench.engine().up(leave)) == ["the program failed: SystemExit: 3"]


def test_timeouts_are_given_to_the_provider_and_kept_in_the_state(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In seconds, as the official command line does; a text that is no duration is refused."""
    observed: dict[str, float] = {}
    call = WorldProvider._call

    def note(self: WorldProvider, method: str, request: Any) -> str:  # noqa: ANN401 any request
        observed[method] = getattr(request, "timeout", -1.0)
        return call(self, method, request)

    monkeypatch.setattr(WorldProvider, "_call", note)

    def program(address: str, delete: str = "1h") -> None:
        timeouts = pulumi.CustomTimeouts(create="10s", update="1m30s", delete=delete)
        Thing("ServiceStatus", "a", {"ip": address}, pulumi.ResourceOptions(custom_timeouts=timeouts))

    engine = bench.engine()
    engine.up(lambda: program("x"))
    engine.up(lambda: program("y"))
    resource = next(item for item in bench.raw()["resources"] if item["type"].endswith("ServiceStatus"))
    assert resource["customTimeouts"] == {"create": 10, "update": 90, "delete": 3600}
    result = engine.up(lambda: program("y", "soon"))
    assert "the delete timeout is 'soon', which is no duration" in messages(result)[0]
    engine.destroy()
    assert (observed["create"], observed["update"], observed["delete"]) == (10.0, 90.0, 3600.0)


def test_a_display_that_breaks_does_not_stop_the_run(bench: Bench) -> None:
    """It is told no more; the result says so."""
    engine = bench.engine()

    def broken(_event: object) -> None:
        raise BrokenPipeError("closed")

    engine._listener = broken
    result = engine.up(lambda: declare(BOTH))
    assert result.ok
    assert messages(result) == ["the display broke and shows no more: BrokenPipeError: closed"]
    assert len(bench.world.things) == 10
