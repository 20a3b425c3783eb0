"""The form of a record (a Struct) as properties: their names and types, and how it is made of them.

Not here: reading and writing values (`codec`, and `exact` for those that are as they shall be).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any, TypeGuard, get_args, get_origin, get_type_hints

from msgspec import Struct

ABSENT = object()
"""In place of a property that isn't there."""


@cache
def shape(hint: Any) -> tuple[object, object]:  # noqa: ANN401 - any annotation
    """Return what an annotation is of, and of what it holds."""
    arguments = get_args(hint)
    return get_origin(hint) or hint, arguments[0 if get_origin(hint) is tuple else -1] if arguments else None


def is_record(hint: object) -> TypeGuard[type[Struct]]:
    """Return whether an annotation is a Struct, so that its fields are properties."""
    return isinstance(hint, type) and issubclass(hint, Struct)


class Form(Struct, frozen=True):
    """What a record is as properties."""

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


def _form_of(kind: Any) -> Form:  # noqa: ANN401 - any record
    own = _hints(kind, kind.__struct_fields__)
    flat: dict[str, Any] = {field: hint for field, hint in own.items() if hasattr(hint, "_fields")}
    hints: dict[str, object] = {}
    for field, hint in own.items():
        hints |= _hints(hint, flat[field]._fields) if field in flat else {field: hint}
    by_name = (
        parameter for parameter in signature(kind).parameters.values() if parameter.kind is Parameter.KEYWORD_ONLY
    )
    defaults = {each.name: each.default for each in by_name if each.default is not Parameter.empty}
    defaults |= {name: default for inner in flat.values() for name, default in inner._field_defaults.items()}
    return Form(kind, kind.__struct_fields__, flat, hints, tuple(sorted(hints)), defaults)


def _hints(kind: Any, names: Sequence[str]) -> Mapping[str, object]:  # noqa: ANN401 - any class with fields
    hints = get_type_hints(kind)
    return {name: getattr(hints[name], "__supertype__", hints[name]) for name in names}


form_of: Callable[[Any], Form] = cache(_form_of)
"""Returns what a record is as properties."""
