"""The program's values and the state's, without Pulumi's wire between: plain data, and outputs to wait for.

Gives what the SDK would give, both ways; what it alone knows to write (secrets, assets, resources, awaitables) is
NotPlain. Not here: when something is registered.
"""

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, get_args

import pulumi

from locallb.engine.providers import sdk_internals as sdk
from locallb.engine.state.values import UNKNOWN, Value, number


class NotPlain(Exception):  # noqa: N818 - nothing is wrong
    """A value that only the SDK knows to write."""


def written(props: Mapping[str, Any]) -> Mapping[str, Any]:
    """Copy inputs as data of the state's kind, outputs left as they are. Raises NotPlain."""
    return {name: _copied(value) for name, value in props.items()}


def _copied(value: Any) -> Any:  # noqa: ANN401 - any input
    if value is None or isinstance(value, bool | pulumi.Output):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return number(float(value))
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise NotPlain
        return {_text(key): _copied(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    raise NotPlain


def _text(value: str) -> str:
    """Return a text as such, where it is a member of an enumeration, say; half of a surrogate pair is none."""
    plain = value if type(value) is str else str.__str__(value)
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError:
            raise NotPlain from None
    return plain


async def read(props: Mapping[str, Any]) -> tuple[dict[str, Value], Mapping[str, set[pulumi.Resource]]]:
    """Wait for the outputs among the inputs; gives the values that there are, and whose outputs they came from."""
    inputs: dict[str, Value] = {}
    resources: dict[str, set[pulumi.Resource]] = {}
    for name in sorted(props):
        of: set[pulumi.Resource] = set()
        value = await _awaited(props[name], of)
        if value is not None:
            inputs[name], resources[name] = value, of
    return inputs, resources


async def _awaited(value: Any, resources: set[pulumi.Resource]) -> Value:  # noqa: ANN401 - any input
    if isinstance(value, pulumi.Output):
        data = await sdk.data_of(value)
        resources |= data.resources
        if data.is_secret:
            raise NotPlain
        return await _awaited(_copied(data.value), resources) if data.is_known else UNKNOWN
    if isinstance(value, dict) and _holds_output(value):
        return {key: await _awaited(item, resources) for key, item in value.items()}
    if isinstance(value, list) and _holds_output(value):
        return [await _awaited(item, resources) for item in value]
    plain: Value = value
    return plain


def _holds_output(value: Any) -> bool:  # noqa: ANN401 - any input
    if isinstance(value, dict):
        return any(_holds_output(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_output(item) for item in value)
    return isinstance(value, pulumi.Output)


async def urn_of(res: Any) -> str:  # noqa: ANN401 - a resource
    """Wait for a resource's URN: for its registration."""
    urn: str = (await sdk.data_of(res.urn)).value
    return urn


async def urns_of(resources: Iterable[pulumi.Resource], of: pulumi.Resource) -> tuple[str, ...]:
    """Name resources; a component stands for what is in it."""
    if all(isinstance(resource, pulumi.CustomResource) for resource in resources):
        return tuple(sorted({await urn_of(resource) for resource in resources}))
    return tuple(sorted(await sdk.expanded(resources, of)))


def projected(kind: type, name: str, value: Value) -> Any:  # noqa: ANN401 - any output
    """Return a value as the SDK hands it to programs: floats unless the class says int, no null in dicts."""
    if value is None or isinstance(value, str | bool) or not _differs(value):
        return value
    return sdk.translated(_received(value), name, sdk.resource_types(kind).get(name))


@cache
def has_plain_outputs(kind: type) -> bool:
    """Return whether a resource's class promises no output types and enumerations, which only the SDK makes."""
    return not any(_is_made(hint) for hint in sdk.resource_types(kind).values())


def _is_made(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    inner: Any = sdk.unwrap_optional_type(hint)
    if isinstance(inner, type) and (sdk.is_output_type(inner) or issubclass(inner, Enum)):
        return True
    return any(_is_made(argument) for argument in get_args(inner))


def _differs(value: Value) -> bool:
    """Return whether the SDK gives something else than the state has."""
    if isinstance(value, dict):
        return any(item is None or _differs(item) for item in value.values())
    if isinstance(value, list):
        return any(_differs(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _received(value: Value) -> Value:
    if isinstance(value, dict):
        return {key: _received(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_received(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
