"""Names from anybody, in every format: nothing in them runs, calls, links, colours or breaks out of its place."""

from __future__ import annotations

import html
import html.parser
import io
import json
import re
from typing import Any

import pytest

from locallb.cli.commands.preview import print_report
from locallb.cli.console import Out
from locallb.planning.plan import make_plan
from locallb.report.document import document
from locallb.report.html import page
from locallb.report.markdown import markdown
from locallb.report.policies import assembled
from locallb.report.sides import planned_side
from locallb.report.wording import LONGEST_SENTENCE, markdown_code, markdown_text, visible
from tests.support.objects import node, service
from tests.support.reports import HOSTILE, SCHEMA, hostile_report, settings, snapshot
from tests.support.schemas import mistakes


class Page(html.parser.HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes |= {name for name, _ in attrs}


def test_the_html_page_has_only_our_own_elements_and_one_script() -> None:
    """No event handler, no link, no image, nothing loaded; the policy names the script by its digest."""
    text = page(hostile_report())
    observed = Page()
    observed.feed(text)
    assert observed.tags["script"] == 1
    assert not {"img", "a", "iframe", "link", "object", "base", "form"} & set(observed.tags)
    assert not [name for name in observed.attributes if name.startswith("on") or name in {"src", "href", "style"}]
    assert "default-src 'none'" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)
    assert text.count('<tr role="row" data-change=') == len(hostile_report().services)


def test_markdown_keeps_its_shape() -> None:
    """Every row has its cells; no tag but ours; nobody is mentioned, nothing is linked."""
    text = markdown(hostile_report(), limit=10**9)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.count("|") for line in rows} <= {4, 6, 7}
    assert set(re.findall(r"<(/?\w+)", text)) <= {"code", "/code", "details", "/details", "summary", "/summary", "br"}
    assert text.count("<details>") == text.count("</details>")
    for what in ("](", "![", "://", "www.", "@e", "**bold**", "`", "\x1b", "${{", "\u202e"):
        assert what not in text, what
    prose = html.unescape(re.sub("<code>.*?</code>", "", text))
    assert not re.search(r"@\w|#\d", prose)


def test_the_terminal_gets_no_control_character() -> None:
    """Only lines."""
    stream = io.StringIO()
    print_report(Out(stream, stream), hostile_report())
    assert not [c for c in stream.getvalue() if c != "\n" and not c.isprintable()]


def test_json_is_plain_ascii_as_the_schema_says() -> None:
    """Whatever the names are; the data is whole."""
    text = document(hostile_report())
    assert all(c == "\n" or " " <= c <= "~" for c in text)
    found = json.loads(text)
    assert list(mistakes(found, SCHEMA, SCHEMA)) == []
    assert {service["name"] for service in found["services"]} >= set(HOSTILE)


def test_every_field_of_the_schema_is_described_by_what_is_written() -> None:
    """A required field is never left out, so required and known are the same."""

    def check(schema: dict[str, Any]) -> None:
        for inner in (schema, schema.get("items", {})):
            if "properties" in inner:
                assert set(inner["required"]) == set(inner["properties"])
                for field in inner["properties"].values():
                    check(field)

    check(SCHEMA)
    for schema in SCHEMA["$defs"].values():
        check(schema)


@pytest.mark.parametrize("limit", [60_000, 20_000, 5_000])
def test_markdown_stays_below_its_limit_and_says_what_it_left_out(limit: int) -> None:
    """Details go first, then unchanged Services, then rows; never the middle of one."""
    old = [node("worker", "127.0.0.1"), *(service(f"s{n:03}", nodePort=1) for n in range(250))]
    good = snapshot(*old, *(service(f"t{n:03}") for n in range(250)))
    config = settings(pools=[{"name": "p", "addresses": ["127.77.0.0/21"]}])
    first = snapshot(*old)
    sides = (
        planned_side("old", first, make_plan(first, config)),
        planned_side("new", good, make_plan(good, config)),
    )
    report = assembled(sides, good, config)
    text = markdown(report, limit)
    assert len(text.encode()) <= limit
    assert "500 Services: 250 added, 250 unchanged." in text
    assert "left out here for size" in text
    assert text.count("<details>") == text.count("</details>")
    assert all(line.count("|") in {6, 7} for line in text.splitlines() if line.startswith("| "))
    assert markdown(report, 10**9).count("<code>demo/shop/") == 750


def test_even_a_hostile_report_stays_below_the_limit() -> None:
    """Every character may become eight bytes; the summary is what is left at last."""
    report = hostile_report()
    for limit in (60_000, 10_000, 4_000):
        text = markdown(report, limit)
        assert len(text.encode()) <= limit
        assert "Services: " in text
        assert limit > 10_000 or "left out here for size" in text


def test_long_and_invisible_texts_are_cut_and_written_out() -> None:
    """What a reader can't see is shown as an escape."""
    assert visible("a\u202eb\x1b") == "a\\u202eb\\x1b"
    assert len(visible("x" * 10**6)) == LONGEST_SENTENCE
    assert visible("a" + "\u0301" * 50).count("\u0301") == 4
    assert markdown_code("web-1.x/y") == "<code>web-1.x/y</code>"
    assert markdown_text("ask @team #4") == "ask &#64;&#8203;team &#35;&#8203;4"
