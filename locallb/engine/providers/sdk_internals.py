"""The private names of the Pulumi SDK that this engine needs, in one place: there is no public way to any of them.

`RELEASE` is the one that they were read in; the tests hold it against requirements.txt, and no other module may use
private names. Not here: what is done with them (`protocol.sdk_fast_path`, `protocol.plain`, `wire`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any

import pulumi
import pulumi.resource
import pulumi.runtime.resource
import pulumi.runtime.stack
from pulumi import _types
from pulumi.output import _OutputData
from pulumi.runtime import rpc
from pulumi.runtime.proto.source_pb2 import StackTrace

RELEASE = "3.272.0"
OutputData = _OutputData[Any]
SECRET = rpc._special_secret_sig
OUTPUT = rpc._special_output_value_sig
RESOURCE = rpc._special_resource_sig
ASSET = rpc._special_asset_sig
ARCHIVE = rpc._special_archive_sig
"""Signatures of the wire format."""
is_output_type: Callable[[type], bool] = _types.is_output_type
unwrap_optional_type: Callable[[Any], Any] = _types.unwrap_optional_type
_look_at = _types.resource_types

# What is replaced, by the names under which the SDK uses it, and what was there before.
_resource: Any = pulumi.resource
_registration: Any = pulumi.runtime.resource
_stack: Any = pulumi.runtime.stack
register_by_wire = _resource.register_resource
register_outputs_by_wire = _resource.register_resource_outputs
ask_features = _stack._load_monitor_feature_support
wait_to_end = _stack._wait_for_shutdown


def replace(
    register: Callable[..., None],
    register_outputs: Callable[..., None],
    learn_features: Callable[[], Any],
    end: Callable[[], Any],
) -> None:
    """Replace functions of the SDK by these.

    It then neither finds out where in the program each resource is made, which is a third of what a registration costs,
    nor looks at each class of them again every time.
    """
    _resource.register_resource = register
    _resource.register_resource_outputs = register_outputs
    _stack._load_monitor_feature_support = learn_features
    _stack._wait_for_shutdown = end
    _registration._get_stack_trace = StackTrace
    _types.resource_types = resource_types


@cache
def _types_of(kind: type) -> Mapping[str, type]:
    return _look_at(kind)


def resource_types(resource_cls: type) -> dict[str, type]:
    """Return what a resource's class says of its outputs."""
    return dict(_types_of(resource_cls))


def data_of(output: pulumi.Output[Any]) -> asyncio.Future[OutputData]:
    """Return all that an output knows, at once."""
    data: asyncio.Future[OutputData] = output._data
    return data


def promise() -> tuple[pulumi.Output[Any], asyncio.Future[OutputData]]:
    """Make an output that waits; the SDK keeps no eye on it."""
    output: pulumi.Output[Any] = object.__new__(pulumi.Output)
    data: asyncio.Future[OutputData] = asyncio.Future()
    output._data = data
    return output, data


def known(resource: pulumi.Resource, value: object, *, is_known: bool) -> OutputData:
    """Make what an output of a resource knows."""
    return _OutputData({resource}, value, is_known, False)


async def expanded(resources: Iterable[pulumi.Resource], of: pulumi.Resource) -> Collection[str]:
    """Name resources as `depends_on` means them: a component stands for what is in it."""
    return await rpc._expand_dependencies(resources, of)


def translated(value: object, name: str, wanted: type | None) -> Any:  # noqa: ANN401 - any output
    """Return an output as the SDK hands it to programs."""
    return rpc.translate_output_properties(value, str, wanted, False, path=rpc._Path(name))
