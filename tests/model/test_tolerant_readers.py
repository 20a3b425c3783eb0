"""Readers that pass over what is of another kind: laws over every document that anybody may write."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from locallb.model.fields import at, object_of, objects_of, text_of, texts_of

NAMES = st.text(max_size=2)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(ANYTHING)
def test_each_gives_what_is_of_its_kind_and_nothing_of_another(value: object) -> None:
    """Never an exception, whatever stands there."""
    assert text_of(value) == (value if isinstance(value, str) else "")
    assert object_of(value) == (value if isinstance(value, dict) else {})
    listed = value if isinstance(value, list) else []
    assert texts_of(value) == [item for item in listed if isinstance(item, str)]
    assert objects_of(value) == [item for item in listed if isinstance(item, dict)]


@given(st.lists(NAMES, max_size=4), ANYTHING)
def test_a_field_is_found_where_its_names_lead(names: list[str], value: object) -> None:
    """Within as many objects as there are names; without any it is the value itself."""
    document = value
    for name in reversed(names):
        document = {name: document, "beside": None} if name != "beside" else {name: document}
    assert at(document, *names) == value


@given(ANYTHING, st.lists(NAMES, min_size=1, max_size=4))
def test_names_that_lead_nowhere_lead_to_nothing(value: object, names: list[str]) -> None:
    """What isn't an object on the way has no fields."""
    inner = at(value, *names[:-1])
    assert at(value, *names) == (inner.get(names[-1]) if isinstance(inner, dict) else None)
