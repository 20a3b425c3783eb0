"""Property values as Pulumi's SDK has them, protobuf structs and PropertyValue, and the private names that this needs.

There is no public way to any of these names. `RELEASE` is the one that they were read in; the tests hold it against
requirements.txt, and no other module may use private names. Secrets, assets and resource references are refused here,
because the engine would have to keep them out of, or alive in, the state. Not here: plain values (`state.values`).
"""

from collections.abc import Mapping

from google.protobuf import struct_pb2
from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.runtime import rpc

from locallb.engine.state.errors import Unsupported
from locallb.engine.state.values import SIGNATURE, UNKNOWN, Properties, Value, number

RELEASE = "3.272.0"
SECRET = rpc._special_secret_sig
OUTPUT = rpc._special_output_value_sig
RESOURCE = rpc._special_resource_sig
ASSET = rpc._special_asset_sig
ARCHIVE = rpc._special_archive_sig
"""Signatures of the wire format."""


_NAMES = {
    SECRET: "a secret",
    RESOURCE: "a reference to a resource",
    ASSET: "an asset",
    ARCHIVE: "an archive",
}


def from_struct(struct: struct_pb2.Struct, what: str) -> dict[str, Value]:
    """Read a protobuf struct; `what` names its owner in refusals."""
    return {key: _from_pb(value, f"{what}, property {key}") for key, value in sorted(struct.fields.items())}


def _from_pb(value: struct_pb2.Value, what: str) -> Value:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "number_value":
        return number(value.number_value)
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_from_pb(item, what) for item in value.list_value.values]
    if kind == "struct_value":
        return _from_pb_struct(value.struct_value, what)
    return None


def _from_pb_struct(struct: struct_pb2.Struct, what: str) -> Value:
    fields = struct.fields
    if SIGNATURE not in fields:
        return {key: _from_pb(item, what) for key, item in sorted(fields.items())}
    signature = fields[SIGNATURE].string_value
    if signature == OUTPUT and not fields["secret"].bool_value:
        return _from_pb(fields["value"], what) if "value" in fields else UNKNOWN
    raise Unsupported(f"{what}: {_NAMES.get(signature, _NAMES[SECRET])}")


def to_struct(properties: Properties) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(properties)
    return struct


def to_property_values(properties: Properties) -> dict[str, PropertyValue]:
    return {key: _to_property_value(value) for key, value in properties.items()}


def _to_property_value(value: Value) -> PropertyValue:
    if isinstance(value, (bool, str)) or value is None:
        return PropertyValue(value)
    if isinstance(value, (int, float)):
        return PropertyValue(float(value))
    if isinstance(value, list):
        return PropertyValue([_to_property_value(item) for item in value])
    return PropertyValue({key: _to_property_value(item) for key, item in value.items()})


def from_property_values(properties: Mapping[str, PropertyValue] | None, what: str) -> dict[str, Value]:
    """Unwrap what a provider returned, with sorted keys as the state file has them."""
    given = properties or {}
    return {key: _from_property_value(given[key], f"{what}, property {key}") for key in sorted(given)}


def _from_property_value(wrapped: PropertyValue, what: str) -> Value:
    if wrapped.is_secret:
        raise Unsupported(f"{what}: {_NAMES[SECRET]}")
    value = wrapped.value
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Computed):
        return UNKNOWN
    if isinstance(value, Mapping):
        return {key: _from_property_value(value[key], what) for key in sorted(value)}
    if isinstance(value, tuple):  # what PropertyValue makes of every sequence
        return [_from_property_value(item, what) for item in value]
    raise Unsupported(f"{what}: a value of type {type(value).__name__}")
