"""The choice of Services by namespace, labels and state, and their documents in kubectl's forms.

Of JSONPath kubectl's usual part: fields, indexes, `*`, `range` to `end`, and quoted text. Not here: names (`targets`),
and the table (`service_output`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import yaml

from locallb.cli.arguments import Arguments
from locallb.cli.failures import Refused
from locallb.cli.grammar import JSONPATH
from locallb.model.identities import ObjectKey
from locallb.patterns import pattern
from locallb.planning.service_rows import Row

_REQUIREMENT = pattern(
    r"(?P<absent>!)?(?P<key>[\w./-]+)(?:\s*(?P<op>==|=|!=)\s*(?P<value>[\w.-]*)"
    r"|\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?",
    re.ASCII,
)
_SEPARATOR = pattern(r"\s*,\s*(?![^(]*\))")


def chosen_rows(rows: Iterable[Row], labels: Mapping[ObjectKey, Mapping[str, str]], args: Arguments) -> tuple[Row, ...]:
    """Return the rows of one namespace, with these labels, in these states. Raises Refused."""
    fits = _selector(args.selector) if args.selector else lambda _: True
    return tuple(
        row
        for row in rows
        if args.namespace in {"", row.key.namespace}
        and (not args.states or row.state in args.states)
        and fits(labels.get(row.key, {}))
    )


def _selector(text: str) -> Callable[[Mapping[str, str]], bool]:
    """Read a selector of labels as kubectl writes it. Raises Refused."""
    requirements = [_REQUIREMENT.fullmatch(part) for part in _SEPARATOR.split(text.strip())]
    found = [match for match in requirements if match and not (match["absent"] and (match["op"] or match["set"]))]
    if len(found) < len(requirements):
        raise Refused(
            f"-l {text!r} isn't a selector of labels; write such as app=web,tier!=cache,env in (dev, test),!beta"
        )
    return lambda labels: all(_meets(labels, match) for match in found)


def _meets(labels: Mapping[str, str], match: re.Match[str]) -> bool:
    value = labels.get(match["key"])
    if match["set"]:
        return (value in {part.strip() for part in match["values"].split(",")}) == (match["set"] == "in")
    if match["op"]:
        return (value == match["value"]) == (match["op"] != "!=")
    return (value is None) == bool(match["absent"])


def in_form(documents: Sequence[Mapping[str, object]], form: str, *, alone: bool = False) -> str:
    """Write the documents of Services as YAML, or what a JSONPath finds in them. Raises Refused.

    One that was asked for `alone`, by its name, is no list: so `kubectl get` has it.
    """
    if form.startswith(JSONPATH):
        return "".join(_written(form.removeprefix(JSONPATH), documents[0] if alone else {"items": documents}))
    shown = json.loads(json.dumps(documents[0] if alone else documents))
    return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)


_PART = pattern(r"\{\s*(?P<inner>\"(?:[^\"\\]|\\.)*\"|[^{}\"]*?)\s*\}|(?P<text>[^{}]+)")
_STEP = pattern(r"\.?(?P<name>[\w-]+)|\.?(?P<all>\*)|\[(?:(?P<index>-?\d+)|(?P<every>\*)|'(?P<quoted>[^']*)')\]|\.")


def _written(template: str, root: object) -> Iterator[str]:
    parts = list(_PART.finditer(template))
    if "".join(part[0] for part in parts) != template:
        raise Refused(f"{JSONPATH}{template} isn't a template; write such as {{.items[*].name}}")
    yield from _run([part["text"] or f"\0{part['inner']}" for part in parts], root)


def _run(parts: Sequence[str], here: object) -> Iterator[str]:
    number = 0
    while number < len(parts):
        part, number = parts[number], number + 1
        inner = part.removeprefix("\0")
        if part == inner:
            yield part
        elif inner.startswith('"'):
            yield json.loads(inner)
        elif inner.startswith("range "):
            end = _end(parts, number)
            for item in _found(inner.removeprefix("range "), here):
                yield from _run(parts[number:end], item)
            number = end + 1
        else:
            yield " ".join(text if isinstance(text, str) else json.dumps(text) for text in _found(inner, here))


def _end(parts: Sequence[str], number: int) -> int:
    """Return where the `end` of a `range` is."""
    depth = 1
    for index in range(number, len(parts)):
        depth += parts[index].startswith("\0range ") - (parts[index] == "\0end")
        if not depth:
            return index
    raise Refused(f"{JSONPATH}: a {{range …}} has no {{end}}; add it behind what it repeats")


def _found(path: str, here: object) -> list[object]:
    """Return what a path leads to; what isn't there is nothing, as for kubectl."""
    path = path.strip().removeprefix("$").removeprefix("@")
    steps = list(_STEP.finditer(path))
    if "".join(step[0] for step in steps) != path:
        raise Refused(f"{JSONPATH}{{{path}}} isn't a path; write names, [N], [*] such as .items[0].addresses[*]")
    found = [here]
    for step in steps:
        if step["all"] or step["every"]:
            found = [item for value in found for item in _items(value)]
        elif step["index"]:
            index = int(step["index"])
            found = [value[index] for value in found if isinstance(value, list) and -len(value) <= index < len(value)]
        elif name := step["name"] or step["quoted"]:
            found = [value[name] for value in found if isinstance(value, dict) and name in value]
    return found


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
