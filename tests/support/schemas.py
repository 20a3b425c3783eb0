"""As much of JSON Schema as our schemas in docs/ use; a keyword that isn't known is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SUPPORTED = {
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
}
SUPPORTED |= {"items", "enum", "const"}
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
TYPES |= {"number": (int, float)}


def mistakes(value: object, schema: dict[str, Any], root: dict[str, Any], path: str = "$") -> Iterator[str]:
    """Return every way in which `value` isn't as `schema` says."""
    assert set(schema) <= SUPPORTED, set(schema) - SUPPORTED
    if "$ref" in schema:
        yield from mistakes(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
        return
    if "const" in schema and value != schema["const"]:
        yield f"{path} is {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path} is {value!r}"
    names = schema.get("type", [])
    wanted = [names] if isinstance(names, str) else names
    if wanted and not any(_is(value, name) for name in wanted):
        yield f"{path} is no {wanted}"
    elif isinstance(value, dict):
        yield from _object(value, schema, root, path)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from mistakes(item, schema["items"], root, f"{path}[{number}]")


def _is(value: object, name: str) -> bool:
    return isinstance(value, TYPES[name]) and not (name in {"integer", "number"} and isinstance(value, bool))


def _object(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], path: str) -> Iterator[str]:
    properties = schema["properties"]
    yield from (f"{path}.{name} is missing" for name in schema["required"] if name not in value)
    for name, item in value.items():
        if name in properties:
            yield from mistakes(item, properties[name], root, f"{path}.{name}")
        elif not schema["additionalProperties"]:
            yield f"{path}.{name} is unknown"
