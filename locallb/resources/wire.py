"""Conversion between JSON-like values and the provider protocol's own."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pulumi.provider.experimental import provider as protocol
from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.provider.experimental.provider import PropertyDiff, PropertyDiffKind

from locallb.resources.codec import UNKNOWN, Values


def plain(properties: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """Unwrap what the engine sends; what isn't known is the string UNKNOWN."""
    return {key: _plain(value) for key, value in properties.items()}


def wrapped(values: Values) -> dict[str, PropertyValue]:
    """Wrap what the engine gets."""
    return {key: _wrapped(value) for key, value in values.items()}


def parts(value: PropertyValue) -> Iterator[PropertyValue]:
    """Return a value and all that is in it."""
    yield value
    inner = value.value
    if isinstance(inner, Mapping):
        inner = tuple(inner.values())
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        for item in inner:
            yield from parts(item)


def reported_difference(  # noqa: PLR0913 - what a difference has
    request: protocol.DiffRequest,
    changed: Collection[str],
    replacing: Collection[str],
    *,
    delete_first: bool,
    by_inputs: bool = False,
    hidden: Collection[str] = (),
) -> protocol.DiffResponse:
    """Tell which properties change, but for those that the program ignores, and which of them need another resource.

    Nothing shows of the `hidden` ones, unless another resource is needed for them.
    """
    names = sorted({*changed} - {*request.ignore_changes})
    replaces = [name for name in names if name in replacing]
    shown = [name for name in names if name not in hidden or name in replaces]
    details = {path: kind for name in shown for path, kind in _paths(request, name, replaces=name in replaces)}
    if names and not details:
        details = {_NOTHING: PropertyDiffKind.UPDATE}
    return protocol.DiffResponse(
        changes=bool(names),
        replaces=replaces,
        delete_before_replace=bool(replaces) and delete_first,
        diffs=names,
        detailed_diff={path: PropertyDiff(kind, input_diff=by_inputs) for path, kind in details.items()},
    )


_NOTHING = "__shownElsewhere"
"""A path with nothing, of which nothing shows; without any path the CLI shows all that differs."""


def _paths(request: protocol.DiffRequest, name: str, *, replaces: bool) -> Iterator[tuple[str, PropertyDiffKind]]:
    """Return the paths of what differs in a property: of a map its entries, so that only they are shown."""
    kinds = _REPLACING if replaces else _UPDATING
    before, after = (side.get(name) for side in (request.old_state, request.new_inputs))
    old, new = (side.value if side else None for side in (before, after))
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or old == new:
        yield name, kinds[2]
        return
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield f"{name}[{json.dumps(key)}]", kinds[0 if key not in old else 1 if key not in new else 2]


_UPDATING = (PropertyDiffKind.ADD, PropertyDiffKind.DELETE, PropertyDiffKind.UPDATE)
_REPLACING = (PropertyDiffKind.ADD_REPLACE, PropertyDiffKind.DELETE_REPLACE, PropertyDiffKind.UPDATE_REPLACE)


def _plain(given: PropertyValue) -> Any:  # noqa: ANN401 - any JSON-like value
    inner = given.value
    if isinstance(inner, Computed):
        return UNKNOWN
    if isinstance(inner, Mapping):
        return {key: _plain(item) for key, item in inner.items()}
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        return [_plain(item) for item in inner]
    return int(inner) if isinstance(inner, float) and inner.is_integer() else inner


def _wrapped(value: Any) -> PropertyValue:  # noqa: ANN401 - any JSON-like value
    if isinstance(value, Mapping):
        return PropertyValue(wrapped(value))
    if isinstance(value, list | tuple):
        return PropertyValue([_wrapped(item) for item in value])
    return PropertyValue(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)
