"""A world of things, a provider that makes them, and small programs: what the engine's tests have in common."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import pulumi
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import (
    CheckFailure,
    CheckRequest,
    CheckResponse,
    ConfigureRequest,
    ConfigureResponse,
    CreateRequest,
    CreateResponse,
    DeleteRequest,
    DiffRequest,
    DiffResponse,
    Provider,
    ReadRequest,
    ReadResponse,
    UpdateRequest,
    UpdateResponse,
)

from locallb.engine.core.events import Event, Result
from locallb.engine.engine import Engine
from locallb.engine.sdk_wire import to_property_values
from locallb.engine.state.checkpoint import Checkpoint, parse_checkpoint
from locallb.engine.state.files import Files
from locallb.engine.state.project import Project, load_project
from locallb.engine.state.values import UNKNOWN
from locallb.engine.store import Store

REPLACES = {"LoopbackAddress": ["address"], "EnvoyProcess": ["binary"], "Reachable": ["address"]}
COMPUTED = {"LoopbackAddress": "claim", "ProxyConfig": "version", "EnvoyProcess": "pid"}
Inputs = dict[str, Any]


@dataclass
class World:
    """What providers made, and what was asked of them: `control` steers failures, as in the recordings."""

    things: dict[str, Inputs] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    control: dict[str, dict[str, Any]] = field(default_factory=dict)
    frozen: Callable[[], bool] = lambda: False
    preview_support: bool = True
    lock: Lock = field(default_factory=Lock)

    def called(self, *methods: str) -> list[tuple[str, str]]:
        """Return the calls of some methods, as (method, `Type::name`)."""
        return [call for call in self.calls if call[0] in methods]

    def steer(self, part: str, party: str) -> Any:  # noqa: ANN401 whatever the test put there
        """Return what the test wants to happen to a resource."""
        return self.control.get(part, {}).get(party)


def _sources(request: Any) -> str:  # noqa: ANN401 any request of the provider SDK
    return f"{request.type.split(':')[-1]}::{request.name}"


def computed(kind: str, inputs: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    """Return the output that the inputs decide, exactly as the recorded provider does."""
    name = COMPUTED.get(kind)
    if not name:
        return {}
    if any(value.value == UNKNOWN for value in inputs.values()):
        return {name: PropertyValue(UNKNOWN)}
    text = ",".join(f"{key}={PropertyValue.marshal(value)}".strip() for key, value in sorted(inputs.items()))
    return {name: PropertyValue(f"{name}-{sum(text.encode()) % 10007}")}


def instance(party: str, properties: Mapping[str, PropertyValue]) -> str:
    """Tell apart the instances of one resource: by the inputs whose change replaces it."""
    return "|".join([party, *(str(properties[key].value) for key in REPLACES.get(party.partition("::")[0], []))])


def wrapped(properties: Mapping[str, Any]) -> dict[str, PropertyValue]:
    """Wrap plain properties as a provider gets them."""
    return to_property_values(properties)


class WorldProvider(Provider):
    """The provider of the recordings, making things in a World."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _call(self, method: str, request: Any) -> str:  # noqa: ANN401 any request
        party = _sources(request)
        with self.world.lock:
            if self.world.frozen():
                raise RuntimeError("the world stands still")
            self.world.calls.append((method, party))
        return party

    def planned(self, method: str, request: Any) -> None:  # noqa: ANN401 any request
        """Hear of a call in a preview, which makes nothing."""

    async def configure(self, request: ConfigureRequest) -> ConfigureResponse:
        del request
        return ConfigureResponse(supports_preview=self.world.preview_support)

    async def check(self, request: CheckRequest) -> CheckResponse:
        failures = [
            CheckFailure(**failure) for failure in self.world.steer("check", self._call("check", request)) or []
        ]
        return CheckResponse(inputs=request.new_inputs, failures=failures)

    async def diff(self, request: DiffRequest) -> DiffResponse:
        self._call("diff", request)
        old, new, kind = request.old_state, request.new_inputs, request.type.split(":")[-1]
        keys = sorted(key for key in {*old, *new} - {COMPUTED.get(kind)} if old.get(key) != new.get(key))
        replaces = [key for key in keys if key in REPLACES.get(kind, [])]
        return DiffResponse(
            changes=bool(keys),
            replaces=replaces,
            delete_before_replace=bool(replaces) and kind == "EnvoyProcess",
            diffs=keys,
        )

    async def create(self, request: CreateRequest) -> CreateResponse:
        """Make a thing, or take over the one of this owner."""
        kind = request.type.split(":")[-1]
        properties = dict(request.properties)
        if request.preview:
            self.planned("create", request)
            unknown = {key: PropertyValue(UNKNOWN) for key in computed(kind, properties)}
            return CreateResponse(resource_id="", properties={**properties, **unknown})
        party = self._call("create", request)
        await self._take_time(party)
        if message := self.world.steer("fail", party):
            raise RuntimeError(message)
        self._make(party, properties)
        return CreateResponse(
            resource_id=f"{kind}/{request.name}", properties={**properties, **computed(kind, properties)}
        )

    async def _take_time(self, party: str) -> None:
        """Take the time, and do meanwhile, what the test wants."""
        await asyncio.sleep(self.world.steer("sleep", party) or 0)
        if act := self.world.steer("meanwhile", party):
            act()

    def _make(self, party: str, properties: Mapping[str, PropertyValue]) -> None:
        with self.world.lock:
            if self.world.frozen():
                raise RuntimeError("the world stands still")
            self.world.things[instance(party, properties)] = {key: value.value for key, value in properties.items()}

    async def update(self, request: UpdateRequest) -> UpdateResponse:
        kind = request.type.split(":")[-1]
        if request.preview:
            self.planned("update", request)
        else:
            party = self._call("update", request)
            await self._take_time(party)
            if message := self.world.steer("fail_update", party):
                raise RuntimeError(message)
            self._make(party, request.news)
        return UpdateResponse(properties={**request.news, **computed(kind, request.news)})

    async def read(self, request: ReadRequest) -> ReadResponse:
        """Return what the test wants to be seen; a thing that isn't there is gone."""
        party = self._call("read", request)
        if message := self.world.steer("fail_read", party):
            raise RuntimeError(message)
        observed = self.world.steer("read", party)
        if observed == "gone" or instance(party, request.properties) not in self.world.things:
            return ReadResponse(resource_id="", properties={}, inputs={})
        extra = observed or {}

        def merged(part: str, values: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
            return {**values, **{key: PropertyValue(value) for key, value in extra.get(part, {}).items()}}

        return ReadResponse(
            request.resource_id, merged("outputs", request.properties), merged("inputs", request.inputs)
        )

    async def delete(self, request: DeleteRequest) -> None:
        party = self._call("delete", request)
        await asyncio.sleep(self.world.steer("sleep_delete", party) or 0)
        if message := self.world.steer("fail_delete", party):
            raise RuntimeError(message)
        with self.world.lock:
            if self.world.frozen():
                raise RuntimeError("the world stands still")
            self.world.things.pop(instance(party, request.properties), None)


class Thing(pulumi.CustomResource):
    """A custom resource of the provider, with the output that it computes."""

    def __init__(self, kind: str, name: str, inputs: Inputs, options: pulumi.ResourceOptions | None = None) -> None:
        existing = {COMPUTED[kind]: None, **inputs} if kind in COMPUTED else inputs
        super().__init__(f"locallb:index:{kind}", name, existing, options)


def output(thing: pulumi.Resource, name: str) -> Any:  # noqa: ANN401 an output of any type
    return thing.__dict__[name]


def make_project(folder: Path, *, refresh: bool = False) -> Project:
    """Make a project with the stack `dev`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".state").mkdir(exist_ok=True)
    options = "options: {refresh: always}\n" if refresh else ""
    (folder / "Pulumi.yaml").write_text(
        f"name: local-lb\nruntime: python\nbackend: {{url: 'file://./.state'}}\nstackConfigDir: stacks\n{options}"
    )
    (folder / "stacks").mkdir(exist_ok=True)
    (folder / "stacks" / "Pulumi.dev.yaml").write_text("config: {}\n")
    return load_project(folder, {})


@dataclass
class Bench:
    """A project, a world and an engine, with the events that it told."""

    project: Project
    world: World
    events: list[Event] = field(default_factory=list)
    files: Files = field(default_factory=Files)

    def engine(self, **more: Any) -> Engine:  # noqa: ANN401 options of the engine
        """Make an engine on this project's state."""
        store = Store(self.project.backend, self.project.name, "dev", self.files)
        sources = {"locallb": lambda: WorldProvider(self.world)}
        return Engine(self.project, "dev", sources, on_event=self.events.append, store=store, **more)

    @property
    def state_path(self) -> Path:
        return self.project.backend / ".pulumi" / "stacks" / "local-lb" / "dev.json"

    def checkpoint(self) -> Checkpoint:
        """Read the state file, checking its rules."""
        return parse_checkpoint(self.state_path.read_text(), "organization/local-lb/dev", self.state_path)

    def raw(self) -> dict[str, Any]:
        """Return the state file's `latest`."""
        latest: dict[str, Any] = json.loads(self.state_path.read_text())["checkpoint"]["latest"]
        return latest


def short(urn: str) -> str:
    """Shorten a URN to `Type::name`."""
    types, _, name = urn.split("::", 2)[2].partition("::")
    return f"{types.split('$')[-1].split(':')[-1]}::{name}"


def messages(result: Result) -> list[str]:
    return [diagnostic.message for diagnostic in result.diagnostics]
