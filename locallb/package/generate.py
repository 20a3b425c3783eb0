"""Generates the schemas of the package and of a stack's file: `python -m locallb.package.generate`, or `--check`.

Resources are those of the provider's own schema. The component's inputs are the typed arguments of programs in Python,
described by the table of keys in docs/configuration.md; its outputs are described by their docstrings. The same types
and descriptions are the JSON Schema by which editors complete and check a stack's file.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Required, get_args, get_origin, is_typeddict

from locallb.components.arguments import Arguments, alternatives, fields, key_of
from locallb.model.desired import COMPONENT
from locallb.package import construct
from locallb.package.construct import OUTPUTS
from locallb.patterns import pattern
from locallb.program import LoadBalancers
from locallb.provider.generate import SCHEMA as RESOURCES
from locallb.storage import files

_KEYS = Path(__file__).resolve().parents[2] / "docs/configuration.md"
_SCALARS = {str: "string", bool: "boolean", int: "integer", float: "number"}
_ROW = pattern(r"^\| `(\w+)` \| (.*) \|(.*)\|$", re.MULTILINE)
_LINK = pattern(r"\[([^]]+)\]\([^)]+\)")
_RESULT = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}
Schema = dict[str, Any]
SCHEMA = construct.SCHEMA
STACK_SCHEMA = _KEYS.with_name("stack.schema.json")
_NAMES = {"nodejs": {"packageName": "@pulumi/locallb"}, "python": {"packageName": "pulumi_locallb"}}
"""Of the generated packages: else the CLI names that of a Git repository by the repository's owner."""


def package_schema(resources: Mapping[str, Any], keys: str) -> Schema:
    """Add the component to the provider's own schema; `keys` is the page with the table of keys."""
    types: Schema = {}
    described = {key: _described(meaning, default) for key, meaning, default in _ROW.findall(keys)}
    inputs, required = _properties(Arguments, types)
    for key, value in inputs.items():
        value["description"] = described[key]
    outputs = {name: {**_RESULT, "description": text} for name, text in _docstrings(LoadBalancers) if name in OUTPUTS}
    component = {
        "isComponent": True,
        "description": inspect.cleandoc(LoadBalancers.__doc__ or ""),
        "inputProperties": inputs,
        "requiredInputs": required,
        "properties": outputs,
        "required": list(outputs),
    }
    return {
        **resources,
        "language": _NAMES,
        "types": {**resources["types"], **dict(sorted(types.items()))},
        "resources": {COMPONENT: component, **resources["resources"]},
    }


def texts() -> Mapping[Path, str]:
    """Make the files."""
    resources, keys = json.loads(RESOURCES.read_text(encoding="utf-8")), _KEYS.read_text(encoding="utf-8")
    made = {SCHEMA: package_schema(resources, keys), STACK_SCHEMA: stack_schema(keys)}
    return {path: json.dumps(schema, indent=1, ensure_ascii=path == SCHEMA) + "\n" for path, schema in made.items()}


def main(arguments: Sequence[str]) -> int:
    """Write it, or only look."""
    parser = argparse.ArgumentParser(prog="python -m locallb.package.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it isn't up to date")
    check = parser.parse_args(arguments).check
    different = {path: text for path, text in texts().items() if files.read(path) != text}
    for path, text in different.items() if not check else ():
        path.write_text(text, encoding="utf-8")
    return int(check and bool(different))


def stack_schema(keys: str) -> Schema:
    """Return the JSON Schema of a stack's file; keys of other namespaces are those of the project's program."""
    types: Schema = {}
    described = {key: _described(meaning, default) for key, meaning, default in _ROW.findall(keys)}
    properties = _fields(Arguments, types)["properties"]
    config = {f"local-lb:{key}": {"description": described[key], **value} for key, value in properties.items()}
    section = {"type": ["object", "null"], "properties": config, "additionalProperties": False}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A stack of local-lb",
        "type": "object",
        "properties": {"config": {**section, "patternProperties": {"^(?!local-lb:)": {}}}},
        "$defs": dict(sorted(types.items())),
    }


def _fields(record: Any, types: Schema) -> Schema:  # noqa: ANN401 - a TypedDict
    """Return the schema of a record's fields; records in it are added to `types`."""
    hints = fields(record)
    required = [key_of(name) for name, hint in hints.items() if get_origin(hint) is Required or record.__total__]
    properties = {key_of(name): _values(hint, types) for name, hint in hints.items()}
    return {"properties": properties, **({"required": required} if required else {})}


def _values(hint: Any, types: Schema) -> Schema:  # noqa: ANN401 - a type
    """Return the schema of a value in a stack's file."""
    made = [_value(each, types) for each in alternatives(hint)]
    return made[0] if len(made) == 1 else {"anyOf": made}


def _value(hint: Any, types: Schema) -> Schema:  # noqa: ANN401 - a type
    if hint is Any:
        return {}
    if is_typeddict(hint):
        if hint.__name__ not in types:
            types[hint.__name__] = {"type": "object", "description": hint.__doc__, "additionalProperties": False}
            types[hint.__name__] |= _fields(hint, types)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if get_origin(hint) is Literal:
        return {"enum": [*get_args(hint)]}
    if inner := get_args(hint):
        key = "additionalProperties" if len(inner) > 1 else "items"
        return {"type": "object" if len(inner) > 1 else "array", key: _values(inner[-1], types)}
    return {"type": _SCALARS[hint]}


def _described(meaning: str, default: str) -> str:
    """Return a row of the table without its links."""
    sentence = f"{meaning}." if default.strip() in {"", "required"} else f"{meaning}. Default: {default.strip()}."
    plain = _LINK.sub(r"\1", sentence)
    return plain[0].upper() + plain[1:]


def _properties(record: Any, types: Schema) -> tuple[Schema, list[str]]:  # noqa: ANN401 - a TypedDict
    """Return the properties of a record, and which are required; add the records in it to `types`."""
    hints = fields(record)
    required = [key_of(name) for name, hint in hints.items() if get_origin(hint) is Required or record.__total__]
    return {key_of(name): _property(hint, types) for name, hint in hints.items()}, required


def _property(hint: Any, types: Schema) -> Schema:  # noqa: ANN401 - a type
    """Return the schema of whatever a value may be."""
    made: list[Schema] = []
    for each in alternatives(hint):
        one = _one(each, types)
        if one not in made:
            made.append(one)
    if {"type": "number"} in made:
        made = [one for one in made if one != {"type": "integer"}]
    return made[0] if len(made) == 1 else {"oneOf": made}


def _one(hint: Any, types: Schema) -> Schema:  # noqa: ANN401 - a type
    if hint is Any:
        return {"$ref": "pulumi.json#/Any"}
    if is_typeddict(hint):
        token = f"locallb:index:{hint.__name__}Settings"
        if token not in types:
            properties, required = _properties(hint, types)
            types[token] = {"type": "object", "description": hint.__doc__, "properties": properties}
            types[token] |= {"required": required} if required else {}
        return {"$ref": f"#/types/{token}"}
    if get_origin(hint) is Literal:
        return {"type": _SCALARS[type(get_args(hint)[0])]}
    if inner := get_args(hint):
        key = "additionalProperties" if len(inner) > 1 else "items"
        return {"type": "object" if len(inner) > 1 else "array", key: _property(inner[-1], types)}
    return {"type": _SCALARS[hint]}


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    """Return the attributes of a class that have a docstring, with it."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for one, following in pairwise(statements):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(following, ast.Expr):
            yield one.target.id, str(ast.literal_eval(following.value))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
