"""The short way of a registration and the SDK's own over Pulumi's wire: both end in the same state and say the same."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pulumi
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locallb.engine.deploy.events import Op, Result
from locallb.engine.protocol.monitor import Monitor
from locallb.engine.providers import sdk_internals
from tests.engine.graphs import Graph, Site, changed, declare, fresh, graphs
from tests.engine.support import Bench, Thing, World, make_project, messages, output

MODEST = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
Program = Callable[[], object]
CHECKOUT = Path(__file__).resolve().parents[2]


@contextmanager
def by_wire() -> Iterator[None]:
    """Leave the SDK as it is meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("locallb.engine.protocol.program.install", lambda: None)
        patch.setattr("pulumi.resource.register_resource", sdk_internals.register_by_wire)
        patch.setattr("pulumi.resource.register_resource_outputs", sdk_internals.register_outputs_by_wire)
        patch.setattr("pulumi.runtime.stack._load_monitor_feature_support", sdk_internals.ask_features)
        patch.setattr("pulumi.runtime.stack._wait_for_shutdown", sdk_internals.wait_to_end)
        yield


@contextmanager
def without_wire() -> Iterator[None]:
    """Let nothing pass over the wire."""

    def refuse(_self: Monitor, request: Any) -> None:  # noqa: ANN401 - any request
        raise AssertionError(f"came over the wire: {request}")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("RegisterResource", "RegisterResourceOutputs", "GetDeploymentInfo", "SignalAndWaitForShutdown"):
            patch.setattr(Monitor, name, refuse)
        yield


@MODEST
@given(st.data())
def test_both_ways_end_in_the_same_state(place: Path, data: st.DataObject) -> None:
    """Through two updates of a random graph; nothing of it needs the wire."""
    before = data.draw(graphs())
    after = data.draw(changed(before))
    short, long = (Site(fresh(place)) for _ in range(2))

    def run(site: Site, graph: Graph) -> Mapping[Op, int]:
        result = site.engine().up(lambda: declare(graph))
        assert result.ok, messages(result)
        return dict(result.changes)

    for graph in (before, after):
        with without_wire():
            changes = run(short, graph)
        with by_wire():
            assert run(long, graph) == changes
        assert short.state() == long.state()


class Group(pulumi.ComponentResource):
    """A component with an input, and an output that it makes of a child."""

    def __init__(self, name: str, size: pulumi.Input[float]) -> None:
        super().__init__("local:index:Group", name, {"size": size, "nothing": None, "list": (1, 2.5, [None, True])})
        self.child = Thing("LoopbackAddress", name, {"address": "127.77.0.1"}, pulumi.ResourceOptions(parent=self))
        self.register_outputs({"claim": output(self.child, "claim"), "none": None, "size": size})


class Typed(pulumi.CustomResource):
    """A resource whose class says what its outputs are."""

    number: pulumi.Output[int]
    deep: pulumi.Output[Mapping[str, Any]]

    def __init__(self, name: str, number: float, deep: Mapping[str, object]) -> None:
        super().__init__("locallb:index:ProxyConfig", name, {"number": number, "deep": deep, "version": None})


class Colour(StrEnum):
    """Texts that are more."""

    RED = "red"


class Size(IntEnum):
    """Numbers that are more."""

    LARGE = 3


def _numbers_read_back() -> None:
    typed = Typed("typed", 7, {"a": [1, 2.5, {"b": 3}], "c": True, "d": None})
    Thing(
        "ServiceStatus",
        "told",
        {
            "as_int": typed.number.apply(str),
            "as_float": typed.deep.apply(lambda deep: f"{deep['a'][0]} {deep['a'][2]['b']} {deep['c']}"),
            "whole": typed.deep,
        },
    )


def _outputs_inside() -> None:
    one = Thing("LoopbackAddress", "one", {"address": "127.77.0.1"})
    two = Thing("LoopbackAddress", "two", {"address": "127.77.0.2"})
    joined = pulumi.Output.concat(output(one, "claim"), "+", two.id)
    inputs = {"list": [one.id, {"deep": output(two, "claim")}], "joined": joined, "urn": one.urn, "none": None}
    Thing("ServiceStatus", "told", inputs, pulumi.ResourceOptions(depends_on=one))
    pulumi.export("joined", joined)
    pulumi.export("all", pulumi.Output.all(one.id, two.id))


def _components() -> None:
    group = Group("group", 3)
    other = Group("other", group.__dict__["size"])
    Thing("ServiceStatus", "after", {"ip": "x"}, pulumi.ResourceOptions(depends_on=[group, other.child]))
    Thing("ServiceStatus", "of", {"ip": group.__dict__["size"].apply(str)})


def _failing() -> None:
    fails = Thing("LoopbackAddress", "fails", {"address": "127.77.0.1"})
    Thing("ServiceStatus", "needs", {"ip": output(fails, "claim")})
    Thing("ServiceStatus", "waits", {"ip": "x"}, pulumi.ResourceOptions(depends_on=[fails]))
    Thing("ServiceStatus", "alone", {"ip": "y"})
    pulumi.export("claim", output(fails, "claim"))


def _awaited() -> None:
    async def later() -> str:
        return "late"

    Thing("ServiceStatus", "late", {"ip": later()})
    Thing("ServiceStatus", "later", {"ip": pulumi.Output.from_input(later())})


def _options() -> None:
    first = pulumi.ResourceOptions(delete_before_replace=False)
    Thing("ServiceStatus", "kept", {"ip": "x"}, first)
    timeouts = pulumi.CustomTimeouts(create="10s")
    Thing("ServiceStatus", "slow", {"ip": "x"}, pulumi.ResourceOptions(custom_timeouts=timeouts, version="1.2.3"))


def _own_provider() -> None:
    own = pulumi.ProviderResource("locallb", "own", {})
    Thing("ServiceStatus", "told", {"ip": "x"}, pulumi.ResourceOptions(provider=own))


@pulumi.output_type
class Place:
    """What an output is an object of."""

    def __init__(self, port: int) -> None:
        pulumi.set(self, "port", port)

    @property
    @pulumi.getter
    def port(self) -> int:
        """Return it."""
        found: int = pulumi.get(self, "port")
        return found


class Placed(pulumi.CustomResource):
    """A resource whose class promises an object."""

    place: pulumi.Output[Place]

    def __init__(self, name: str) -> None:
        super().__init__("locallb:index:ServiceStatus", name, {"place": {"port": 80}})


def _output_types() -> None:
    Thing("ServiceStatus", "told", {"ip": Placed("placed").place.apply(lambda place: str(place.port))})


def _breaks() -> None:
    thing = Thing("LoopbackAddress", "one", {"address": "127.77.0.1"})

    def fail(_claim: str) -> str:
        raise ValueError("not like this")

    Thing("ServiceStatus", "told", {"ip": output(thing, "claim").apply(fail)})


def _twice() -> None:
    Thing("ServiceStatus", "told", {"ip": "x"})
    Thing("ServiceStatus", "told", {"ip": "y"})


def _thing() -> Thing:
    return Thing("LoopbackAddress", "one", {"address": "127.77.0.1"})


def _with(inputs: Callable[[], Mapping[str, Any]]) -> Program:
    return lambda: Thing("ServiceStatus", "told", dict(inputs()))


PROGRAMS: Mapping[str, Program] = {
    "numbers": _numbers_read_back,
    "outputs inside": _outputs_inside,
    "components": _components,
    "a failure": _failing,
    "awaited": _awaited,
    "options": _options,
    "a provider": _own_provider,
    "an output type": _output_types,
    "one name twice": _twice,
    "a secret": _with(lambda: {"ip": pulumi.Output.secret("x")}),
    "a secret inside": _with(lambda: {"ip": {"deep": [pulumi.Output.secret("x")]}}),
    "members of enumerations": _with(lambda: {"ip": Colour.RED, Colour.RED: {Colour.RED: [Colour.RED, Size.LARGE]}}),
    "texts of all kinds": _with(lambda: {"ip": "grün \U0001f600"}),
    "half a character": _with(lambda: {"ip": "\ud800"}),
    "an asset": _with(lambda: {"ip": pulumi.StringAsset("x")}),
    "a resource": _with(lambda: {"ip": _thing()}),
    "an output that gives a resource": _with(lambda: {"ip": pulumi.Output.from_input(_thing())}),
    "no number": _with(lambda: {"ip": float("inf")}),
    "a large number": _with(lambda: {"ip": 2**60 + 1, "deep": [2**53 + 1]}),
    "keys that aren't texts": _with(lambda: {"ip": {1: "x"}}),
    "an object": _with(lambda: {"ip": 1j}),
    "a protected one": lambda: Thing("ServiceStatus", "a", {"ip": "x"}, pulumi.ResourceOptions(protect=True)),
}


def _run(bench: Bench, program: Program) -> tuple[Result, object]:
    bench.world.control = {"fail": {"LoopbackAddress::fails": "no room"}}
    result = bench.engine().up(program)
    resources = bench.checkpoint().resources if bench.state_path.exists() else ()
    kept = {
        resource.urn: (
            resource.type,
            "" if resource.type.startswith("pulumi:providers:") else resource.id,
            dict(resource.inputs),
            dict(resource.outputs),
            resource.parent,
            sorted(resource.dependencies),
            {key: sorted(urns) for key, urns in (resource.property_dependencies or {}).items()},
            resource.provider.rpartition("::")[0],
        )
        for resource in resources
    }
    return result, kept


@pytest.mark.parametrize("name", PROGRAMS)
def test_fast_path_and_sdk_register_alike(name: str, tmp_path: Path) -> None:
    """In the state, in what is counted, in the outputs, and in every sentence; once more without a change."""
    short, long = (Bench(make_project(tmp_path / way), World()) for way in ("short", "long"))
    for _ in range(2):
        told, kept = _run(short, PROGRAMS[name])
        with by_wire():
            expected, before = _run(long, PROGRAMS[name])
        assert kept == before
        assert sorted(messages(told)) == sorted(messages(expected))
        assert (told.ok, told.changes, told.outputs, told.broken) == (
            expected.ok,
            expected.changes,
            expected.outputs,
            expected.broken,
        )


def test_a_program_that_breaks_is_reported_by_its_own_words(bench: Bench) -> None:
    """Where the SDK wraps them, on its way, in what it was about."""
    told, _ = _run(bench, _breaks)
    with by_wire():
        expected, _ = _run(bench, _breaks)
    assert messages(told) == ["the program failed: ValueError: not like this"]
    assert "While processing input: 'ip'" in messages(expected)[0]


MOCKED = """
import pulumi
from locallb.engine.protocol import sdk_fast_path
from tests.engine.support import Thing

class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args):
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args):
        return {}

@pulumi.runtime.test
def program():
    return Thing("ServiceStatus", "told", {"ip": "x"}).id.apply(print)

sdk_fast_path.install()
pulumi.runtime.set_mocks(Mocks(), preview=False)
program()
"""
"""A process of its own: the mocks take this thread's event loop, and leave others open."""


def test_programs_that_other_monitors_run_are_left_alone() -> None:
    """The SDK's mocks, for instance, in a process in which the engine has run."""
    done = subprocess.run([sys.executable, "-c", MOCKED], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("told-id\n", "")
