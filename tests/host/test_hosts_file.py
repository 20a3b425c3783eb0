"""A block of names in a file of others: whatever the file says, all around it stays, and taken out it is as before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.dns.stubs import block_in, with_block
from locallb.host.resolvers import applies_to, read_names, wanted_block

NAMES = read_names(["web.test 127.77.0.1 ::1", "x.lab.example 127.77.0.2"])
BLOCK, LAB = wanted_block("test", NAMES), wanted_block("lab.example", NAMES)
OTHER = wanted_block("test", read_names(["api.test 127.77.0.3"]))

lines = st.sampled_from(
    [
        "127.0.0.1 localhost\n",
        "\n",
        "# local-lb: names of test\n",
        "# local-lb: end of test\n",
        "x",
        LAB,
        "a\r\n",
        "\x85",
    ]
)
texts = st.lists(lines, max_size=6).map("".join).filter(lambda text: not block_in(text, "test"))


@given(texts)
def test_a_block_comes_changes_and_goes_and_the_rest_stays(text: str) -> None:
    """Byte for byte, also where the last line has no end; a second time nothing changes."""
    put = with_block(text, "test", BLOCK)
    assert block_in(put, "test") == BLOCK
    assert with_block(put, "test", BLOCK) == put
    changed = with_block(put, "test", OTHER)
    assert block_in(changed, "test") == OTHER
    assert with_block(changed, "test", "") == with_block(put, "test", "") == text
    assert block_in(put, "lab.example") == block_in(text, "lab.example")
    assert with_block(text, "test", "") == text


@given(texts, st.sampled_from(["", "10.0.0.1 mine\n"]))
def test_lines_below_our_block_are_kept(text: str, more: str) -> None:
    """A line after the block is not the block's."""
    put = with_block(text, "test", BLOCK) + more
    assert with_block(put, "test", "").endswith(more)


@pytest.mark.parametrize(
    "shown",
    ["", "*.apps.test 127.77.0.1", "a_b.test 127.77.0.1", "a.test", "a.test b.test", "a;b.test ::1", "# 1.2.3.4"],
)
def test_wildcards_and_invalid_names_are_left_out_of_hosts_file(shown: str) -> None:
    """Wildcards, aliases, whatever isn't a name or an address."""
    assert read_names([shown]) == {}


def test_hosts_file_text_answers_whole_names_only() -> None:
    """Names in a block, in the zone where they lie."""
    assert applies_to(BLOCK, "web.test")
    assert not applies_to(BLOCK, "eb.test")
    assert not applies_to("127.77.0.1 web.test\n", "web.test")
