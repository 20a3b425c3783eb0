"""Generates from schema.json: typed properties, and the documentation.

`python -m locallb.provider.generate` writes them; `--check` only tells whether they are up to date (exit code 1).
Strings in, strings out but for `main`.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA = Path(__file__).with_name("schema.json")
ROOT = Path(__file__).resolve().parents[2]
_WARNING = "Made from locallb/provider/schema.json by `python -m locallb.provider.generate`: change that file."
_WIDTH = 120
_QUOTES = '"' * 3
_OURS = {
    "Owner": "locallb.model.identities",
    "Access": "locallb.model.snapshot",
    **dict.fromkeys(("Ingress", "IngressPort", "Condition", "Event"), "locallb.model.reasons"),
}
"""Types of the schema that the model has, by their module: the codec goes by their own fields."""
_FIELDS = {
    "ContainerId": "PodmanContainerState.container",
    "Digest": "bootstrap digest",
    "Fingerprint": "authority",
    "ImageName": "image",
    "OwnerId": "label mark marked takes",
    "PartId": "part",
    "ProxyId": "proxy",
    "ProxyName": "ProxyConfigInputs.name ServedCertificateInputs.name LocalCertificateInputs.name",
    "SharingKey": "sharing",
    "ZoneName": "zone",
}
_NAMES = {field: name for name, fields in _FIELDS.items() for field in fields.split()}
"""Texts that are identities."""
Schema = Mapping[str, Any]


class _Terms(NamedTuple):
    """How one side writes types."""

    array: str
    scalar: Mapping[str, str]


_PROGRAMS = """\
Programs declare them as a whole, by `serve()` or
[`LoadBalancers`](pulumi-cli.md#load-balancers-in-a-program), which return addresses and Services to depend on."""
_SCALARS = {"string": "str", "integer": "int", "boolean": "bool"}
_TYPED = _Terms("tuple[{}, ...]", _SCALARS)
_PLAIN = _Terms("list of {}", {"string": "string", "integer": "integer", "boolean": "boolean"})


def properties_module(schema: Schema) -> str:
    """Make locallb/resources/properties.py: a frozen Struct for each type, each resource's inputs and its state."""
    return "\n".join([*_properties_head(schema), *_type_classes(schema), *_resource_classes(schema)])


def documentation(schema: Schema) -> str:
    lines = [f"<!-- {_WARNING} -->", "# Resources of the provider `locallb`", "", schema["description"], _PROGRAMS, ""]
    for token, resource in schema["resources"].items():
        lines += [f"## {_short(token)}", f"`{token}`. {resource['description']}", ""]
        lines += ["| property | type | meaning |", "|---|---|---|"]
        lines += [_row(name, value, "") for name, value in resource["inputProperties"].items()]
        lines += [_row(name, value, " (output)") for name, value in _outputs(resource).items()]
        lines.append("")
    for token, record in schema["types"].items():
        lines += [f"## Type {_short(token)}", record["description"], "", "| field | type | meaning |", "|---|---|---|"]
        lines += [*(_row(name, value, "") for name, value in record["properties"].items()), ""]
    return "\n".join(lines)


def targets() -> Mapping[Path, str]:
    """Make every file, by its place."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return {
        ROOT / "locallb" / "resources" / "properties.py": properties_module(schema),
        ROOT / "docs" / "resources.md": documentation(schema),
    }


def stale() -> Mapping[Path, str]:
    """Return which files aren't what the schema says, and what they should be."""
    made = targets()
    return {path: made[path] for path in made if not path.exists() or path.read_text(encoding="utf-8") != made[path]}


def main(arguments: list[str]) -> int:
    """Write the files, or only look."""
    parser = argparse.ArgumentParser(prog="python -m locallb.provider.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file isn't up to date")
    check = parser.parse_args(arguments).check
    different = stale()
    for path, text in different.items():
        sys.stdout.write(f"{path.relative_to(ROOT)} {'is not up to date' if check else 'written'}\n")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and different else 0


def _properties_head(schema: Schema) -> Iterator[str]:
    yield from _docstring(f"Typed properties of our resources, for the provider. {_WARNING}", "")
    yield ""
    yield from ("from __future__ import annotations", "")
    yield from ("from collections.abc import Mapping", "", "from msgspec import Struct", "")
    names: dict[str, list[str]] = {}
    resources = json.dumps(schema["resources"])
    for name, module in (_OURS | dict.fromkeys(_NAMES.values(), _OURS["Owner"])).items():
        if name not in _OURS or f':{name}"' in resources:
            names.setdefault(module, []).append(name)
    for module in sorted(names):
        line = f"from {module} import {', '.join(sorted(names[module]))}"
        listed = ("(", *(f"    {name}," for name in sorted(names[module])), ")")
        yield line if len(line) <= _WIDTH else f"from {module} import {chr(10).join(listed)}"


def _type_classes(schema: Schema) -> Iterator[str]:
    for token, record in schema["types"].items():
        if _short(token) not in _OURS:
            yield from _struct(_short(token), record["description"], record["properties"], "Struct")


def _resource_classes(schema: Schema) -> Iterator[str]:
    for token, resource in schema["resources"].items():
        name = _short(token)
        inputs = resource["inputProperties"]
        optional = inputs.keys() - set(resource["requiredInputs"])
        yield from _struct(f"{name}Inputs", "", inputs, "Struct", optional)
        yield from _struct(f"{name}State", "", _outputs(resource), f"{name}Inputs", optional)
    yield ""


def _struct(name: str, about: str, fields: Schema, base: str, optional: Collection[str] = ()) -> Iterator[str]:
    """Write a class; where a property may be missing, all fields are given by name."""
    yield from ("", "", f"class {name}({base}, frozen=True{', kw_only=True' if optional else ''}):")
    yield from ((f'    """{about}"""', "") if about else ())
    if not fields:
        yield "    pass"
    for field, value in fields.items():
        identity = _NAMES.get(field) or _NAMES.get(f"{name}.{field}")
        blank = (" = ()" if "items" in value else ' = ""') if field in optional else ""
        yield f"    {field}: {identity or _written(value, _TYPED)}{blank}"
        yield from _docstring(value["description"], "    ")


def _written(value: Schema, terms: _Terms) -> str:
    if "$ref" in value:
        return _short(value["$ref"])
    if "items" in value:
        return terms.array.format(_written(value["items"], terms))
    if "additionalProperties" in value:
        inner = _written(value["additionalProperties"], terms)
        return f"map of {inner}" if terms is _PLAIN else f"Mapping[str, {inner}]"
    return terms.scalar[value["type"]]


def _docstring(text: str, indent: str) -> Iterator[str]:
    """Write a docstring: the first sentence, then the rest, wrapped."""
    if len(indent) + len(text) + len(_QUOTES) * 2 <= _WIDTH:
        yield f"{indent}{_QUOTES}{text}{_QUOTES}"
        return
    summary, _, rest = text.partition(". ")
    yield f"{indent}{_QUOTES}{summary.removesuffix('.')}."
    if rest:
        yield ""
        yield from textwrap.wrap(rest, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    yield f"{indent}{_QUOTES}"


def _row(name: str, value: Schema, note: str) -> str:
    return f"| `{name}`{note} | {_written(value, _PLAIN)} | {value['description']} |"


def _outputs(resource: Schema) -> Mapping[str, Schema]:
    inputs = resource["inputProperties"]
    return {name: value for name, value in resource["properties"].items() if name not in inputs}


def _short(token: str) -> str:
    return token.rpartition(":")[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
