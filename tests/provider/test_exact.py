"""Reading properties in few steps: what it reads is what one by one gives, and it reads all that is usual."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi.runtime.rpc import UNKNOWN

from locallb.provider import KINDS as TYPES
from locallb.resources import codec
from locallb.resources.codec import Odd, exactly, form_of, shape

KINDS = sorted({kind for each in TYPES for kind in (each.inputs, each.state)}, key=lambda kind: kind.__qualname__)
texts = st.text(max_size=3)
ODD: tuple[object, ...] = (None, UNKNOWN, "", "x", 0, 1, 1.0, 1.5, True, (), [], ["x"], [UNKNOWN], {}, {"x": UNKNOWN})
odd = st.sampled_from(ODD).map(deepcopy)
"""Copies: what is damaged at a depth may be one of them, and the next case would begin with it."""


def values(hint: object) -> st.SearchStrategy[Any]:
    """Make values of a type as a state has them."""
    simple: Mapping[object, st.SearchStrategy[Any]] = {str: texts, bool: st.booleans(), int: st.integers(-9, 9)}
    if hint in simple:
        return simple[hint]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from([str(member) for member in hint])
    origin, inner = shape(hint)
    if origin is tuple:
        return st.lists(values(inner), max_size=2)
    if origin is Mapping:
        made = st.dictionaries(texts, values(inner), max_size=2)
        return made | made.map(MappingProxyType)
    return properties(hint)


def properties(kind: object) -> st.SearchStrategy[dict[str, Any]]:
    """Make properties of a dataclass; those that may be missing sometimes are."""
    form = form_of(kind)
    made = {name: values(hint) for name, hint in form.hints.items()}
    optional = {name: made.pop(name) for name in form.defaults}
    return st.fixed_dictionaries(made, optional=optional)


@st.composite
def damaged(draw: st.DrawFn, kind: type) -> dict[str, Any]:
    """Make properties of which some are missing, superfluous or of another type, at any depth."""
    made: dict[str, Any] = draw(properties(kind))
    for _ in range(draw(st.integers(0, 2))):
        place, deeper = made, draw(st.integers(0, 2))
        while deeper and (inner := [item for item in place.values() if type(item) is dict]):
            place, deeper = draw(st.sampled_from(inner)), deeper - 1
        name = draw(st.sampled_from([*place, "superfluous", "__defaults"]))
        if draw(st.booleans()):
            place[name] = draw(odd)
        else:
            place.pop(name, None)
    return made


@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_exact_reader_equals_the_general_reader(data: st.DataObject, kind: type) -> None:
    """With no failure and the same value; where it can't be, both ways of reading say what they always said."""
    given_properties = data.draw(damaged(kind))
    failures: list[tuple[str, str]] = []
    slow: object = codec._record(kind, given_properties, "", failures)
    try:
        assert repr(exactly(kind, given_properties)) == repr(slow)
        assert not failures
    except Odd:
        pass
    assert codec.recall(kind, given_properties) == codec._record(kind, given_properties, "", None)
    if failures:
        with pytest.raises(codec.CodecError) as caught:
            codec.decode(kind, given_properties)
        assert list(caught.value.failures) == failures
    else:
        assert codec.decode(kind, given_properties) == slow


@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_written_properties_are_read_by_the_exact_reader(data: st.DataObject, kind: type) -> None:
    """Otherwise nothing would be gained, and nobody would notice."""
    record: object = exactly(kind, data.draw(properties(kind)))
    assert exactly(kind, codec.encode(record)) == record
