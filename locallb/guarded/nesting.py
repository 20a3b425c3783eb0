"""YAML that is read by a parser which nesting without end would end, with its process, and aliases fill with texts.

So both are counted first, by the parser's events, which need no stack and no memory. Not here: manifests and
kubeconfigs, which are built from those events (`kubernetes.parsing.documents`).
"""

from __future__ import annotations

from collections.abc import Iterable

import yaml
from msgspec import Struct, field

from locallb.model.texts import DEEPEST, MAX_ALIASED


def load_yaml(text: str | bytes, loader: type[yaml.CSafeLoader]) -> object:
    """Read one document.

    Raises:
        ValueError: if it is nested too deeply, its aliases stand for too much, or it has an odd value.
        yaml.YAMLError: if it is no YAML.

    """
    _require_bounded(yaml.parse(text, Loader=yaml.CSafeLoader), len(text))
    return yaml.load(text, loader)  # noqa: S506 - safe loaders only


class _Open(Struct):
    """An object or a list of which the end hasn't come."""

    anchor: str | None
    before: int
    """Characters that came before it."""


class _Measure(Struct):
    """What was read so far of a text, in characters, with what its aliases stand for."""

    whole: int
    """What an alias stands for at most that is inside of what it names, as the end of that hasn't come."""
    size: int = 0
    aliased: int = 0
    opened: list[_Open] = field(default_factory=list)
    anchors: dict[str | None, int] = field(default_factory=dict)


def _require_bounded(events: Iterable[yaml.Event], whole: int) -> None:
    measure = _Measure(whole)
    for event in events:
        if fault := _fault(event, measure):
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise ValueError(f"line {line}: {fault}")


def _fault(event: yaml.Event, measure: _Measure) -> str:
    """Take the next event, and return why the text isn't read; empty where it may be."""
    match event:
        case yaml.CollectionStartEvent():
            measure.opened.append(_Open(event.anchor, measure.size))
            measure.anchors[event.anchor] = measure.whole
            measure.size += 1
        case yaml.CollectionEndEvent():
            ended = measure.opened.pop()
            measure.anchors[ended.anchor] = measure.size - ended.before
        case yaml.ScalarEvent():
            measure.anchors[event.anchor] = 1 + len(event.value)
            measure.size += 1 + len(event.value)
        case yaml.AliasEvent():
            stands_for = measure.anchors.get(event.anchor, 0)
            measure.size += stands_for
            measure.aliased += stands_for
    if len(measure.opened) > DEEPEST:
        return f"it is nested deeper than {DEEPEST}"
    return f"its aliases stand for more than {MAX_ALIASED} characters" if measure.aliased > MAX_ALIASED else ""
