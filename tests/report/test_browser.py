"""The HTML page in a real browser: what is in it, light and dark, with five hundred Services, and after a search."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path

import pytest

from locallb.cli.report.html import page
from locallb.planning.report.changes import Report
from tests.planning.objects import node, service
from tests.report.browser import Browser, chromium
from tests.report.support import compared, settings
from tests.report.test_hostile import hostile_report

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LIGHT, DARK = (0xF5, 0xF6, 0xF8), (0x0D, 0x11, 0x17)
EXTRA = [{"port": 8080, "nodePort": 30080}, {"name": "b", "port": 9000, "nodePort": 30090}]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Give a browser."""
    return Browser(chromium(), tmp_path_factory.mktemp("b"))


def many(count: int) -> Report:
    """Compare two moments of many Services: every tenth is new, every seventh gets a port, every fiftieth goes."""
    config = settings(pools=[{"name": "wide", "addresses": ["127.77.0.0/21"]}])
    nodes = [node("a", "127.0.0.1"), node("b", "127.0.0.2")]
    old = [service(f"web-{n}") for n in range(count) if n % 10]
    new = [service(f"web-{n}", ports=EXTRA) if n % 7 == 0 else service(f"web-{n}") for n in range(count) if n % 50 != 1]
    return compared([*nodes, *old], [*nodes, *new], config)


@pytest.fixture(scope="module")
def large(browser: Browser) -> Path:
    """Write the page of five hundred Services."""
    path = browser.home / "large.html"
    path.write_text(page(many(500)), encoding="utf-8")
    return path


class Rows(html.parser.HTMLParser):
    """Counts rows and lanes of a document, hidden and shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows = {True: 0, False: 0}
        self.lanes = {True: 0, False: 0}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count one."""
        names = dict(attrs)
        if tag == "tr" and "data-change" in names:
            self.rows["hidden" in names] += 1
        if tag == "g" and (names.get("class") or "").startswith("lane "):
            self.lanes["hidden" in names] += 1


def test_every_service_has_its_row_and_its_lane(browser: Browser, large: Path) -> None:
    """The script ran, as the page's own policy lets it: it counted."""
    dom = browser.dom(large)
    assert '<span class="hits" id="hits" aria-live="polite">500 of 500</span>' in dom
    seen = Rows(dom)
    assert seen.rows == seen.lanes == {True: 0, False: 500}
    assert dom.count('class="tag added"') == 50
    assert "pool" in dom


def test_a_search_shows_only_what_it_finds_in_table_and_diagram(browser: Browser, large: Path) -> None:
    """By every word; the diagram shrinks to its lanes."""
    dom = browser.dom(large, "web-49%20removed")
    assert "0 of 500" in dom
    dom = browser.dom(large, "web-49%20tcp")
    seen = Rows(dom)
    assert seen.rows[False] == seen.lanes[False] == 11
    assert "11 of 500" in dom
    height = re.search(r'<svg viewBox="0 0 1240 (\d+)"', dom)
    assert height
    assert int(height[1]) < 11 * 100 + 60


def test_it_looks_right_in_light_and_in_dark(browser: Browser, large: Path) -> None:
    """The backgrounds are those of the scheme; there are cards, text and the colours of changes on them."""
    for dark, ground in ((False, LIGHT), (True, DARK)):
        seen = browser.picture(large, 900, 500, dark=dark)
        assert (seen.width, seen.height) == (900, 500)
        assert {seen.at(2, 2), seen.at(897, 2), seen.at(2, 497), seen.at(897, 497)} == {ground}
        assert len(seen.colours()) > 60


def test_it_fits_a_telephone(browser: Browser, large: Path) -> None:
    """Wide tables scroll within their card: the page itself keeps its margins."""
    seen = browser.picture(large, 500, 500)
    margins = [seen.at(x, y) for x in (2, 497) for y in range(0, 500, 9)]
    # A card's shadow may reach a little into the margin.
    assert all(abs(a - b) <= 3 for pixel in margins for a, b in zip(pixel, LIGHT, strict=True))


def test_hostile_names_run_nothing(browser: Browser) -> None:
    """The browser finds one script, no element of theirs, and shows every row."""
    path = browser.home / "hostile.html"
    report = hostile_report()
    path.write_text(page(report), encoding="utf-8")
    dom = browser.dom(path)
    assert dom.count("<script>") == 1
    assert not re.search(r"<(img|a|iframe|h1>x)", dom)
    assert f"{len(report.services)} of {len(report.services)}" in dom


def test_a_report_of_nothing_says_so(browser: Browser) -> None:
    """No table without rows."""
    path = browser.home / "nothing.html"
    path.write_text(page(compared([], [])), encoding="utf-8")
    dom = browser.dom(path)
    assert '<p class="none" id="none">No Service to show.</p>' in dom
