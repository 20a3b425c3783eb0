"""How values from elsewhere appear in sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.model.texts import clipped, counted, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-70000, "-70000"),
        (1.5, "1.5"),
        ("web", '"web"'),
        ("", '""'),
        ("a\nb\x1b[31m\x00", r'"a\nb\x1b[31m\x00"'),
        ("\u202eevil\ud800", r'"\u202eevil\ud800"'),
        ("ä€😀", '"ä€😀"'),
        ([], "a list of 0 items"),
        (["x"], "a list of 1 item"),
        ({"a": 1, "b": 2}, "an object of 2 fields"),
        ({1}, "a set"),
        (b"x", "a list of 1 item"),
    ],
)
def test_a_value_is_shown_as_json_would_and_containers_by_their_size(value: object, text: str) -> None:
    """Every kind of value has its form, on one line."""
    assert shown(value) == text


def test_a_long_text_is_shown_by_its_beginning_and_length() -> None:
    """64 KiB of a value don't flood a sentence."""
    assert shown("x" * 65536) == '"' + "x" * 60 + '… (65536 characters)"'


def test_a_number_beyond_any_address_is_described() -> None:
    """Python refuses to write integers of more than 4,300 digits."""
    assert shown(1 << 20000) == "a number of 20001 bits"


@pytest.mark.parametrize(("number", "text"), [(0, "0 Nodes"), (1, "1 Node"), (2, "2 Nodes")])
def test_a_noun_follows_its_number(number: int, text: str) -> None:
    """One is singular."""
    assert counted(number, "Node") == text


@given(st.text())
def test_every_text_becomes_one_short_printable_line(text: str) -> None:
    """Whatever is in it."""
    assert clipped(text).isprintable()
    assert len(clipped(text)) <= 10 * 60 + 40
