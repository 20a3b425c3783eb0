"""The form of a dataclass as properties: their names and types, and how the dataclass is made of them.

Not here: reading and writing values (`codec`, and `exact` for those that are as they shall be).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

ABSENT = object()
"""In place of a property that isn't there."""


@cache
def shape(hint: Any) -> tuple[object, object]:  # noqa: ANN401 - any annotation
    """Return what an annotation is of, and of what it holds."""
    arguments = get_args(hint)
    return get_origin(hint) or hint, arguments[0 if get_origin(hint) is tuple else -1] if arguments else None


@dataclass(frozen=True, slots=True)
class Form:
    """What a dataclass is as properties."""

    kind: Any
    fields: tuple[str, ...]
    flat: Mapping[str, Any]
    """NamedTuples by field: their fields are properties themselves."""
    hints: Mapping[str, object]
    """By property."""
    names: tuple[str, ...]
    """Properties, sorted as the state has them."""
    defaults: Mapping[str, object]

    def make(self, given: dict[str, object]) -> Any:  # noqa: ANN401 - of `kind`
        """Make it of its properties, which are used up."""
        for field, kind in self.flat.items():
            given[field] = kind._make([given.pop(name) for name in kind._fields])
        return self.kind(**given)

    def properties(self, record: Any) -> Mapping[str, object]:  # noqa: ANN401 - of `kind`
        """Return its properties."""
        given = {field: getattr(record, field) for field in self.fields}
        for field, kind in self.flat.items():
            given |= zip(kind._fields, given.pop(field), strict=True)
        return given


def _form_of(kind: Any) -> Form:  # noqa: ANN401 - any dataclass
    fields = tuple(field.name for field in dataclasses.fields(kind))
    own = _hints(kind, fields)
    flat: dict[str, Any] = {field: hint for field, hint in own.items() if hasattr(hint, "_fields")}
    hints: dict[str, object] = {}
    for field, hint in own.items():
        hints |= _hints(hint, flat[field]._fields) if field in flat else {field: hint}
    defaults = {field.name: field.default for field in dataclasses.fields(kind) if field.kw_only}
    defaults |= {name: default for inner in flat.values() for name, default in inner._field_defaults.items()}
    return Form(kind, fields, flat, hints, tuple(sorted(hints)), defaults)


def _hints(kind: Any, names: Sequence[str]) -> Mapping[str, object]:  # noqa: ANN401 - any dataclass or NamedTuple
    hints = get_type_hints(kind)
    return {name: getattr(hints[name], "__supertype__", hints[name]) for name in names}


form_of: Callable[[Any], Form] = cache(_form_of)
"""Returns what a dataclass is as properties."""
