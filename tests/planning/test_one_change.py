"""A plan made with what is known of earlier ones is the plan made without, to the byte, whatever one thing changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.memory import AnyMemo
from locallb.model.snapshot import Snapshot
from locallb.planning.plan import make_plan
from tests.planning.one_change import fields_of, histories, is_sound, parts, with_field
from tests.planning.spelled import spelled
from tests.support import strategies
from tests.support.worlds import FULL, PLAIN, SETTINGS, WORLDS


def check(*history: tuple[Snapshot, Settings]) -> None:
    """Plan one after the other with one memory."""
    memory = AnyMemo()
    for snapshot, settings in history:
        assert spelled(make_plan(snapshot, settings, memory)) == spelled(make_plan(snapshot, settings))


def others_of(name: str) -> Mapping[type, list[Any]]:
    """Return other values for the parts of a world."""
    others: dict[type, list[Any]] = {}
    for kind, part in parts((FULL, PLAIN, WORLDS[name])):
        if part not in others.setdefault(kind, []):
            others[kind].append(part)
    return others


def changes(value: Any, others: Mapping[type, list[Any]]) -> list[Any]:  # noqa: ANN401 - of any type
    """Return every value that differs in one field of one part from `value`."""
    made = []
    for name in fields_of(value):
        inside = getattr(value, name)
        made += [with_field(value, name, each) for each in changes(inside, others)]
        different = [other for each in others[type(value)] if (other := getattr(each, name)) != inside]
        made += [with_field(value, name, each) for each in different[:2]]
    if not fields_of(value) and isinstance(value, tuple):
        for place, each in enumerate(value):
            before, after = value[:place], value[place + 1 :]
            made += [(*before, *after), *((*before, other, *after) for other in changes(each, others))]
    return made


@pytest.mark.parametrize(
    ("world", "configured"),
    [*(("plain", name) for name in SETTINGS), ("Gateways", "own"), ("held", "names"), ("held", "spares")],
)
def test_each_field_of_each_object_changes_and_changes_back(world: str, configured: str) -> None:
    """And so do the objects: each goes and comes again."""
    before, settings = WORLDS[world], SETTINGS[configured]
    memory = AnyMemo()
    expected = spelled(make_plan(before, settings))
    narrow = replace(before, gateway_api=())
    others = others_of(world)
    for changed in changes(narrow, others):
        snapshot = replace(changed, gateway_api=changed.gateway_api or before.gateway_api)
        if is_sound(snapshot):
            assert spelled(make_plan(before, settings, memory)) == expected
            assert spelled(make_plan(snapshot, settings, memory)) == spelled(make_plan(snapshot, settings))


@pytest.mark.parametrize("world", WORLDS)
def test_each_field_of_the_configuration_changes(world: str) -> None:
    """By itself, and back."""
    for before in (SETTINGS["own"], SETTINGS["names"]):
        for name in Settings.__struct_fields__:
            for other in SETTINGS.values():
                if getattr(other, name) != getattr(before, name):
                    after = replace(before, **{name: getattr(other, name)})
                    check((WORLDS[world], before), (WORLDS[world], after), (WORLDS[world], before))


@given(
    strategies.snapshots().flatmap(strategies.with_pods) | st.sampled_from(list(WORLDS.values())),
    st.sampled_from([FULL, PLAIN]) | strategies.snapshots(),
    st.sampled_from(list(SETTINGS.values())) | strategies.settings,
    st.sampled_from(list(SETTINGS.values())),
    st.data(),
)
def test_whatever_changes_one_at_a_time_the_plan_is_the_one_from_nothing(
    first: Snapshot, second: Snapshot, settings: Settings, others: Settings, data: st.DataObject
) -> None:
    """One thing after the other, of any object, of the configuration, or all as it was before."""
    check(*data.draw(histories(first, second, settings, others)))
