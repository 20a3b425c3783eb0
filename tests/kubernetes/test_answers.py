"""What an API server may say in a list and in a watch: everything else is odd, and never taken for less than it is."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.kubernetes.answers import AnswerError, WatchLine, lines, list_page, watch_line

GOOD = b'{"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": []}'
ENDLESS = "no page after this one"
"""It is odd only when it comes again."""


def listing(**fields: object) -> bytes:
    """Write a list with other fields."""
    return json.dumps({**json.loads(GOOD), **fields}).encode()


ODD_LISTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"<html>log in first</html>",
    "a number": b"7",
    "null": b"null",
    "an object": b"{}",
    "a list": b"[]",
    "cut": b'{"kind": "NodeList", "ite',
    "no metadata": json.dumps({"items": []}).encode(),
    "null metadata": listing(metadata=None),
    "metadata as a text": listing(metadata="x"),
    "no version": listing(metadata={}),
    "a version that is none": listing(metadata={"resourceVersion": 1}),
    "no items": json.dumps({"metadata": {"resourceVersion": "1"}}).encode(),
    "items as a text": listing(items="x"),
    "an item as a text": listing(items=["x"]),
    "an item that is null": listing(items=[None]),
    "an item without metadata": listing(items=[{}]),
    "an item with null metadata": listing(items=[{"metadata": None}]),
    "an item without a name": listing(items=[{"metadata": {}}]),
    "an item with a list for a name": listing(items=[{"metadata": {"name": []}}]),
    "an item of another kind": listing(items=[{"kind": "Pod", "metadata": {"name": "x"}}]),
    "another list": listing(kind="PodList"),
    "a status": json.dumps({"kind": "Status", "metadata": {}, "status": "Success"}).encode(),
    ENDLESS: listing(metadata={"resourceVersion": "1", "continue": "x"}),
    "a page that is no text": listing(metadata={"resourceVersion": "1", "continue": 7}),
    "too deep": b"[" * 100_000,
    "a number that is too long": b'{"metadata": {"resourceVersion": ' + b"1" * 10_000 + b"}}",
    "no UTF-8": b"\xff\xfe\xfa",
}
NAMED = {"metadata": {"name": "x", "resourceVersion": "2"}}


def line(sort: object, about: object) -> bytes:
    """Write a line of a watch."""
    return json.dumps({"type": sort, "object": about}).encode() + b"\n"


ODD_WATCHES: dict[str, bytes] = {
    "no JSON": b"hello\n",
    "an empty line": b"\n",
    "an array": b"[]\n",
    "null": b"null\n",
    "cut": b'{"type": "ADD',
    "no type": json.dumps({"object": NAMED}).encode() + b"\n",
    "an unknown type": line("RENAMED", NAMED),
    "a type that is a list": line([], NAMED),
    "no object": json.dumps({"type": "ADDED"}).encode() + b"\n",
    "an object that is a text": line("ADDED", "x"),
    "an error without an object": b'{"type": "ERROR"}\n',
    "an error that is a text": line("ERROR", "x"),
    "an error": line("ERROR", {"code": 500, "message": "no"}),
    "no metadata": line("MODIFIED", {}),
    "null metadata": line("DELETED", {"metadata": None}),
    "no version": line("ADDED", {"metadata": {"name": "x"}}),
    "no name": line("ADDED", {"metadata": {"resourceVersion": "2"}}),
    "another kind": line("ADDED", {**NAMED, "kind": "Pod"}),
    "a bookmark without a version": line("BOOKMARK", {"metadata": {}}),
    "too deep": b"[" * 100_000 + b"\n",
    "no UTF-8": b"\xff\xfe\xfa\n",
}


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
