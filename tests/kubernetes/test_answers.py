"""What an API server may say in a list and in a watch: everything else is odd, and never taken for less than it is."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.kubernetes.answers import AnswerError, WatchLine, lines, list_page, watch_line
from tests.support.odd_api import ENDLESS, NAMED, ODD_LISTS, ODD_WATCHES, line, listing


@pytest.mark.parametrize("name", sorted(ODD_LISTS.keys() - {ENDLESS}))
def test_an_odd_list_is_no_list(name: str) -> None:
    """Least of all an empty one."""
    with pytest.raises(AnswerError):
        list_page(ODD_LISTS[name], "v1", "Node")


@pytest.mark.parametrize("name", [name for name in ODD_WATCHES if name not in {"cut", "an error"}])
def test_an_odd_line_says_nothing(name: str) -> None:
    """One that is cut is found where lines are made."""
    with pytest.raises(AnswerError):
        watch_line(ODD_WATCHES[name], "v1", "Node")


@pytest.mark.parametrize("items", [None, [], [NAMED], [{**NAMED, "kind": "Node", "apiVersion": "v1"}]])
def test_a_list_has_its_objects_with_what_they_are(items: list[Any] | None) -> None:
    """Go writes an empty list as null where nobody made one."""
    page = list_page(listing(items=items), "v1", "Node")
    assert page.objects == [{**NAMED, "kind": "Node", "apiVersion": "v1"} for _ in items or ()]
    assert (page.version, page.more) == ("1", "")


def test_a_line_says_what_happened() -> None:
    """A bookmark has a version and nothing else."""
    whole = {**NAMED, "kind": "Node", "apiVersion": "v1"}
    assert watch_line(line("DELETED", NAMED), "v1", "Node") == WatchLine("DELETED", whole, "2")
    mark = {"metadata": {"resourceVersion": "7"}}
    assert watch_line(line("BOOKMARK", mark), "v1", "Node") == WatchLine("BOOKMARK", mark, "7")
    assert watch_line(line("ERROR", {"code": 410}), "v1", "Node") == WatchLine("ERROR", {"code": 410})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["kind", "metadata", "items", "name", "resourceVersion", "continue", "type", "object", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(values | st.binary(max_size=40))
def test_any_response_is_parsed_or_raises_answer_error(value: object) -> None:
    """Nothing else escapes."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    for read in (list_page, watch_line):
        with suppress(AnswerError):
            read(text, "v1", "Node")


@given(st.lists(st.text("ab", max_size=5), max_size=8), st.lists(st.integers(0, 12), max_size=20))
def test_lines_are_the_same_however_they_arrive(texts: list[str], sizes: list[int]) -> None:
    """Cut anywhere, also into nothing."""
    written = [text.encode() for text in texts]
    remaining, chunks = b"".join(text + b"\n" for text in written), []
    for size in sizes:
        chunks.append(remaining[:size])
        remaining = remaining[size:]
    chunks.append(remaining)
    assert [line for line in lines(chunks) if line is not None] == written


def test_a_line_has_a_largest_length_and_an_end() -> None:
    """Whoever sends more, or stops within one, isn't an API server."""
    with pytest.raises(AnswerError, match="longer than 1 MiB"):
        list(lines([b"x" * (1 << 19)] * 3, longest=1 << 20))
    with pytest.raises(AnswerError, match="ended within a line"):
        list(lines([b"x\nrest"]))
