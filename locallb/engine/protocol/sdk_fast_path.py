"""The short way from the SDK's resources to this engine: plain ones are registered without Pulumi's wire between.

On the wire every resource is turned into protobuf, back, and back again, in dozens of tasks: several times what the
engine itself needs for it. Here a resource whose inputs are plain data, outputs of other resources among them, becomes
a Goal at once, and its outputs are what the engine answers. Whatever else there is (previews, typed inputs, providers,
resource options but `parent` and `depends_on`, secrets, assets) goes the SDK's own way; a law says that both ways end
in the same state. Concerns programs that this engine runs: the official CLI never meets it.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pulumi
from msgspec.structs import replace
from pulumi.runtime import rpc
from pulumi.runtime.settings import SETTINGS, get_root_resource

from locallb.engine.deploy.goal import Goal, Outcome, Reply
from locallb.engine.protocol.monitor import FEATURES, Monitor
from locallb.engine.protocol.plain import (
    NotPlain,
    has_plain_outputs,
    projected,
    read,
    urn_of,
    urns_of,
    written,
)
from locallb.engine.providers import sdk_internals as sdk
from locallb.engine.providers.wire import from_struct
from locallb.engine.state.urns import is_provider
from locallb.engine.state.values import Value

_OPTIONS = frozenset(("parent", "depends_on"))
_GOOD = frozenset((Outcome.DONE, Outcome.OUTSIDE))


def install() -> None:
    """Replace the SDK's functions that register resources, in this process and for this engine only."""
    sdk.replace(_register_resource, _register_resource_outputs, _learn_features, _end)


async def _learn_features() -> None:
    if isinstance(SETTINGS.monitor, Monitor):
        SETTINGS.monitor_features = set(FEATURES)
    else:
        await sdk.ask_features()


async def _end() -> None:
    if not isinstance(SETTINGS.monitor, Monitor):
        await sdk.wait_to_end()


def _register_resource(  # noqa: PLR0913, PLR0917 - the SDK's signature
    res: pulumi.Resource,
    ty: str,
    name: str,
    custom: bool,  # noqa: FBT001
    remote: bool,  # noqa: FBT001
    new_dependency: object,
    props: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
    typ: type | None = None,
    package_ref: object = None,
) -> None:
    monitor = SETTINGS.monitor
    others = (remote, typ, package_ref, is_provider(ty), SETTINGS.dry_run)
    if isinstance(monitor, Monitor) and not any(others) and _is_simple(res, opts):
        try:
            registration = _Registration(monitor, res, Goal(ty, name, custom, {}), written(props), opts)
        except NotPlain:
            pass
        else:
            registration.begin()
            return
    sdk.register_by_wire(res, ty, name, custom, remote, new_dependency, props, opts, typ, package_ref)


def _is_simple(res: pulumi.Resource, opts: pulumi.ResourceOptions) -> bool:
    """Return whether nothing is asked for but a place in the graph, and names are what they seem."""
    kind: Any = type(res)
    return (
        kind.translate_input_property is pulumi.Resource.translate_input_property
        and kind.translate_output_property is pulumi.Resource.translate_output_property
        and not any(value for option, value in vars(opts).items() if option not in _OPTIONS)
        and opts.delete_before_replace is None
        and has_plain_outputs(kind)
        and all(isinstance(dependency, pulumi.CustomResource) for dependency in _listed(opts.depends_on))
    )


def _listed(depends_on: object) -> Sequence[object]:
    if depends_on is None:
        return ()
    return depends_on if isinstance(depends_on, list | tuple) else (depends_on,)


class _Registration:
    """One resource on its way."""

    def __init__(
        self,
        monitor: Monitor,
        res: pulumi.Resource,
        goal: Goal,
        props: Mapping[str, Any],
        opts: pulumi.ResourceOptions,
    ) -> None:
        self._monitor = monitor
        self._res = res
        self._goal = goal
        self._props = props
        self._opts = opts
        self._outputs: dict[str, asyncio.Future[sdk.OutputData]] = {}

    def begin(self) -> None:
        """Set the resource's outputs, and register it once they can be known."""
        self._promise("urn")
        for name in self._props:
            self._promise(name)
        if self._goal.custom:
            self._promise("id")
        SETTINGS.rpc_manager.rpcs.append(asyncio.ensure_future(self._register()))

    def _promise(self, name: str) -> None:
        """Make an output that waits. The SDK needn't keep an eye on it: the registration is waited for."""
        self._res.__dict__[name], self._outputs[name] = sdk.promise()

    async def _register(self) -> None:
        try:
            goal = await self._whole()
            reply = await _answered(self._monitor, goal)
            self._resolve(goal, reply)
        except Exception as error:
            for output in self._outputs.values():
                if not output.done():
                    output.set_exception(error)
            raise

    async def _whole(self) -> Goal:
        """Wait for everything that the goal needs."""
        goal, needed = self._goal, [await urn_of(dependency) for dependency in _listed(self._opts.depends_on)]
        inputs, references = await self._read()
        properties = {key: await urns_of(references[key], self._res) for key in sorted(inputs)}
        for urns in properties.values():
            needed += urns
        parent = None if goal.is_stack else self._opts.parent or get_root_resource()
        return replace(
            goal,
            inputs=inputs,
            parent=await urn_of(parent) if parent else "",
            dependencies=tuple(sorted({urn for urn in needed if urn})),
            property_dependencies=properties,
        )

    async def _read(self) -> tuple[dict[str, Value], Mapping[str, Iterable[pulumi.Resource]]]:
        """Wait for the inputs. What turns out not to be plain the SDK writes; most of that is refused by name."""
        try:
            return await read(self._props)
        except NotPlain:
            pass
        references: dict[str, list[pulumi.Resource]] = {}
        struct = await rpc.serialize_properties(self._props, references, self._res)
        who = f"{self._goal.type} resource '{self._goal.name}'"
        return self._monitor.noted(lambda: from_struct(struct, who)), references

    def _resolve(self, goal: Goal, reply: Reply) -> None:
        """Wake all waiting callers; of what failed nothing is known."""
        good = reply.outcome in _GOOD
        values = {**goal.inputs, **reply.outputs} if good else {}
        for name, output in self._outputs.items():
            if name == "urn":
                value, known = reply.urn, True
            elif name == "id" and goal.custom:
                value, known = reply.id, bool(reply.id)
            else:
                value, known = projected(type(self._res), name, values.get(name)), good
            output.set_result(sdk.known(self._res, value, is_known=known))


async def _answered(monitor: Monitor, goal: Goal) -> Reply:
    """Register. What is but an entry in the state needs no thread to wait in."""
    if not goal.custom or monitor.is_outside(goal):
        return monitor.register(goal)
    return await asyncio.get_running_loop().run_in_executor(None, monitor.register, goal)


def _register_resource_outputs(res: pulumi.Resource, outputs: Any) -> None:  # noqa: ANN401 - the SDK's signature
    monitor = SETTINGS.monitor
    if isinstance(monitor, Monitor) and isinstance(outputs, Mapping) and not SETTINGS.dry_run:
        try:
            plain = written(outputs)
        except NotPlain:
            pass
        else:
            SETTINGS.rpc_manager.rpcs.append(asyncio.ensure_future(_tell_outputs(monitor, res, plain)))
            return
    sdk.register_outputs_by_wire(res, outputs)


async def _tell_outputs(monitor: Monitor, res: pulumi.Resource, outputs: Mapping[str, Any]) -> None:
    urn = await urn_of(res)
    try:
        values, _ = await read(outputs)
    except NotPlain:
        values = from_struct(await rpc.serialize_properties(outputs, {}), f"the outputs of {urn}")
    monitor.register_outputs(urn, values)
