"""Snapshots that differ in one field of one object, whichever it is: what a plan forgets to depend on shows there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.snapshot import Snapshot


def fields_of(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - of any type
    """Return the names of the fields of a Struct or a named tuple; none for anything else."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    return value._fields if isinstance(value, tuple) and hasattr(value, "_fields") else ()


def with_field(value: Any, name: str, other: object) -> Any:  # noqa: ANN401 - as above
    """Return the value with one field replaced."""
    return replace(value, **{name: other}) if isinstance(value, Struct) else value._replace(**{name: other})


def parts(value: object) -> Iterator[tuple[type, object]]:
    """Return the value and everything inside of it that has fields, each with its type."""
    if fields_of(value):
        yield type(value), value
    if isinstance(value, Mapping):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, tuple | frozenset):
        inside = [*value]
    else:
        inside = [getattr(value, name) for name in fields_of(value)]
    for each in inside:
        yield from parts(each)


@st.composite
def changed(draw: Any, value: Any, donors: Mapping[type, list[Any]]) -> Any:  # noqa: ANN401 - as above; mypy follows no recursion
    """Change one field of one part of `value`; `donors` have other values for it by type."""
    if names := fields_of(value):
        name = draw(st.sampled_from(names))
        inside = getattr(value, name)
        if (fields_of(inside) or (isinstance(inside, tuple) and inside)) and draw(st.booleans()):
            return with_field(value, name, draw(changed(inside, donors)))
        others = [getattr(donor, name) for donor in donors.get(type(value), ())]
        return with_field(value, name, draw(st.sampled_from(others))) if others else value
    if isinstance(value, tuple) and value:
        place = draw(st.integers(0, len(value) - 1))
        how = draw(st.sampled_from(["change", "change", "remove", "move"]))
        if how == "change" and fields_of(value[place]):
            return (*value[:place], draw(changed(value[place], donors)), *value[place + 1 :])
        rest = (*value[:place], *value[place + 1 :])
        return rest if how == "remove" else (*rest, value[place])
    return value


def is_sound(snapshot: Snapshot) -> bool:
    """Return whether sources could have read it: each Service has a key of its own, nothing required is empty."""
    keys = [each.key for each in snapshot.services] + [each.key for each in snapshot.malformed]
    endpoints = (endpoint for each in snapshot.slices for endpoint in each.endpoints)
    return (
        len(set(keys)) == len(keys)
        and all(each.ports and each.families for each in snapshot.services)
        and all(endpoint.addresses for endpoint in endpoints)
    )


@st.composite
def histories(
    draw: st.DrawFn, first: Snapshot, second: Snapshot, settings: Settings, others: Settings
) -> list[tuple[Snapshot, Settings]]:
    """Draw snapshots of which each differs from the one before in one thing, or is as an earlier one."""
    donors: dict[type, list[Any]] = {}
    for kind, part in parts((first, second, settings, others)):
        donors.setdefault(kind, []).append(part)
    history = [(first, settings)]
    for _ in range(4):
        observed, configured = history[-1]
        how = draw(st.sampled_from(["snapshot", "snapshot", "snapshot", "settings", "back"]))
        if how == "back":
            history.append(draw(st.sampled_from(history)))
        elif how == "settings":
            name = draw(st.sampled_from(Settings.__struct_fields__))
            other = getattr(draw(st.sampled_from((settings, others))), name)
            history.append((observed, replace(configured, **{name: other})))
        elif is_sound(now := draw(changed(observed, donors))):
            history.append((now, configured))
    return history
