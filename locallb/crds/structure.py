"""Validates objects of Gateway API against the structure that their definitions demand, as an API server does.

For objects that never passed a server. The definitions' rules in CEL aren't run: the ones that affect served traffic
are checked where the fields are parsed. Not here: the effect of a refused object on its clients (`gateway.kinds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from locallb.crds.bundle import BundleError, carried
from locallb.model.fields import JsonObject, StructuralFault
from locallb.model.formatting import clipped

if TYPE_CHECKING:
    import jsonschema_rs

_CHANNEL = "experimental"
"""The channel with every kind and every field of the other one."""
_MAX_FAULTS = 16
"""Faults of one object that are reported."""
_NAMES = frozenset({"properties", "patternProperties"})
"""Keywords with keys that are names of fields."""
_TEXTS = frozenset({"description", "default", "x-kubernetes-validations"})
"""Keywords that say nothing about the structure."""
_KEYS = "x-kubernetes-list-map-keys"


def structural_faults(document: Mapping[Any, Any]) -> tuple[StructuralFault, ...]:
    """Return what a server would refuse of an object; nothing of kinds and versions without a carried definition."""
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return ()
    validator = _validator(kind, version.rpartition("/")[2])
    if validator is None:
        return ()
    try:
        errors = list(islice(validator.iter_errors(document.get("spec")), _MAX_FAULTS))
    except ValueError as error:  # no JSON: keys that are no text, or nested too deep
        return (_fault((), kind, str(error)),)
    return tuple(_fault(tuple(error.instance_path), kind, error.message) for error in errors)


def _fault(path: tuple[str | int, ...], kind: str, why: str) -> StructuralFault:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return StructuralFault(
        path, f"spec{clipped(place)}: the definition of {kind} refuses it: {clipped(why)}; correct it"
    )


@cache
def _validator(kind: str, version: str) -> jsonschema_rs.Draft7Validator | None:
    schema = _schemas().get((kind, version))
    if schema is None:
        return None
    try:
        import jsonschema_rs  # noqa: PLC0415 - few stacks have manifests of Gateway API
    except ImportError:  # where it can't be had; what decides about clients is checked while parsing, too
        return None
    return jsonschema_rs.Draft7Validator(dict(schema), keywords={_KEYS: _DistinctKeys})


@cache
def _schemas() -> Mapping[tuple[str, str], JsonObject]:
    """Return the schema of each kind's spec, by kind and version; none where the definitions can't be read."""
    try:
        documents = carried().channels[_CHANNEL]
    except BundleError:  # as of a Python without lzma; what decides about clients is checked while parsing, too
        return {}
    definitions = [document["spec"] for document in documents if document["kind"] == "CustomResourceDefinition"]
    return {
        (definition["names"]["kind"], version["name"]): _adapted(
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        )
        for definition in definitions
        for version in definition["versions"]
    }


def _adapted(schema: JsonObject) -> JsonObject:
    """Return a structural schema as JSON Schema: a server leaves out fields that are null, and adds defaults first."""
    made = {key: _of_keyword(key, value) for key, value in schema.items() if key not in _TEXTS}
    fields = schema.get("properties", {})
    if "required" in schema:
        made["required"] = [name for name in schema["required"] if "default" not in fields.get(name, {})]
    if schema.get("x-kubernetes-list-type") == "set":
        made["uniqueItems"] = True
    return made


def _of_keyword(key: str, value: Any) -> Any:  # noqa: ANN401 - a schema's keyword has any JSON
    if key in _NAMES:
        return {name: _nullable(_adapted(of_field)) for name, of_field in value.items()}
    if isinstance(value, dict):
        return _adapted(value)
    if isinstance(value, list) and key in {"allOf", "anyOf", "oneOf"}:
        return [_adapted(each) for each in value]
    return value


def _nullable(schema: JsonObject) -> JsonObject:
    allowed = {**schema, "type": [schema["type"], "null"]} if isinstance(schema.get("type"), str) else schema
    return {**allowed, "enum": [*schema["enum"], None]} if "enum" in schema else allowed


class _DistinctKeys:
    """The keyword by which a server demands that entries of a list differ in some fields."""

    def __init__(self, _schema: JsonObject, keys: Iterable[str], _path: object) -> None:
        self._keys = tuple(keys)

    def validate(self, entries: object) -> None:
        """Raise ValueError for two entries with equal keys."""
        observed = set[str]()
        for named in self._of(entries):
            if named in observed:
                raise ValueError(f"two entries have {named}")
            observed.add(named)

    def _of(self, entries: object) -> Iterator[str]:
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                yield ", ".join(f"{key} {entry.get(key)!r}" for key in self._keys)
