"""What readers of the live page are told: differences that add up to what there is, whenever they come and read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli.watching import page as module
from locallb.cli.watching.page import PageFeed, PageReader

NAMES = st.sampled_from(["a", "b", "c", 'd"', "é\u2028"])
TEXTS = st.dictionaries(NAMES, st.sampled_from(["1", "2", "[3]"]), max_size=5)


def made() -> PageFeed:
    """Make a feed of a loop that is well."""
    return PageFeed(lambda: '{"at": 1, "stuck": ""}')


@dataclass
class Page:
    """Draws what it is told, as the script does."""

    reader: PageReader
    head: object = None
    lanes: dict[str, object] = field(default_factory=dict)
    rates: dict[str, object] = field(default_factory=dict)
    log: list[object] = field(default_factory=list)

    def read(self) -> Mapping[str, Any] | None:
        """Take what is new, if anything is."""
        reported = self.reader.read()
        if not reported:
            return None
        assert reported.startswith(b"data: ")
        assert reported.endswith(b"\n\n")
        assert reported.count(b"\n") == 2
        message: dict[str, Any] = json.loads(reported[6:])
        if message.get("whole"):
            self.lanes, self.rates, self.log = {}, {}, []
        self.head = message.get("head") or self.head
        for name in message.get("gone", ()):
            self.lanes.pop(name, None)
        self.lanes |= message.get("lanes", {})
        self.rates |= message.get("rates", {})
        self.log += message.get("log", ())
        return message


@given(st.lists(st.tuples(TEXTS, TEXTS, st.booleans(), st.booleans()), max_size=12), st.integers(0, 3))
def test_every_reader_of_the_page_ends_with_the_same_content(
    steps: list[tuple[dict[str, str], dict[str, str], bool, bool]], remembered: int
) -> None:
    """One that reads at once, one that reads now and then, and one that comes last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "REMOVED", remembered)
        feed = made()
        eager, lazy = Page(feed.open()), Page(feed.open())
        lanes: dict[str, str] = {}
        for number, (now, flowing, is_read, is_logged) in enumerate(steps):
            lanes = now
            feed.draw(f'{{"n": {number // 2}}}', lanes)
            feed.flow(flowing)
            if is_logged:
                feed.log([str(number)])
            eager.read()
            if is_read:
                lazy.read()
        last = Page(feed.open())
        for page in (eager, lazy, last):
            page.read()
            assert page.lanes == {name: json.loads(text) for name, text in lanes.items()}
            assert not steps or page.head == {"n": (len(steps) - 1) // 2}
            flowing = steps[-1][1] if steps else {}
            observed = {name: rates for name, rates in page.rates.items() if rates != [] and name in lanes}
            assert observed == {name: json.loads(text) for name, text in flowing.items() if name in lanes}
        assert eager.log == lazy.log == last.log == [n for n, step in enumerate(steps) if step[3]]


def test_feed_sends_only_changed_lanes() -> None:
    """Of a thousand lanes one; nothing where nothing does."""
    feed = made()
    page = Page(feed.open())
    lanes = {str(number): '"as it was"' for number in range(1000)}
    feed.draw("{}", lanes)
    page.read()
    feed.draw("{}", lanes)
    message = page.read()
    assert message is None or (message["lanes"], message["head"]) == ({}, None)
    feed.draw("{}", {**lanes, "7": '"another"'})
    message = page.read()
    assert message
    assert message["lanes"] == {"7": "another"}
    assert (message["whole"], message["gone"]) == (False, [])


def test_slow_reader_gets_a_full_snapshot() -> None:
    """What is remembered of what went is bounded."""
    feed = made()
    page = Page(feed.open())
    feed.draw("{}", {"first": "1"})
    page.read()
    for number in range(module.REMOVED + 10):
        feed.draw("{}", {str(number): "1"})
    assert len(feed._removed) <= module.REMOVED
    message = page.read()
    assert message
    assert message["whole"]
    assert page.lanes == {str(module.REMOVED + 9): 1}


def test_idle_reader_gets_keep_alive_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although nothing is new, now and then."""
    feed = made()
    page = Page(feed.open())
    feed.draw("{}", {})
    assert page.read()
    assert page.read() is None
    monkeypatch.setattr(module, "SILENCE", 0.0)
    message = page.read()
    assert message == {"pulse": {"at": 1, "stuck": ""}}


def test_feed_counts_its_readers() -> None:
    """Nobody looks before one comes and after the last one went."""
    feed = made()
    readers, read = [], [feed.is_read]
    for _ in range(2):
        readers.append(feed.open())
        read.append(feed.is_read)
    for reader in readers:
        reader.close()
        read.append(feed.is_read)
    assert read == [False, True, True, True, False]


def test_page_log_keeps_only_the_latest_lines() -> None:
    """Older ones are dropped."""
    feed = made()
    feed.log(str(number) for number in range(3 * module.LOG))
    feed.draw("{}", {})
    page = Page(feed.open())
    page.read()
    assert page.log == list(range(2 * module.LOG, 3 * module.LOG))
