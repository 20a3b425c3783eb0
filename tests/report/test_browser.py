"""The HTML page in a real browser: on a phone, a tablet and a desk, light and dark, by keyboard, with 500 Services."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locallb.report.changes import Report
from locallb.report.html import ALERTS_SHOWN, page
from tests.support.browser import Browser, Tab, running
from tests.support.objects import node, service
from tests.support.reports import compared, hostile_report, settings

pytestmark = [pytest.mark.browser, pytest.mark.slow]
WIDTHS = (400, 800, 1400)
LIGHT, DARK = (0xF5, 0xF6, 0xF8), (0x0D, 0x11, 0x17)
EXTRA = [{"port": 8080, "nodePort": 30080}, {"name": "b", "port": 9000, "nodePort": 30090}]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as made:
        yield made


def many(count: int) -> Report:
    """Compare two moments of many Services: every tenth is new, every seventh gets a port, every fiftieth goes."""
    config = settings(pools=[{"name": "wide", "addresses": ["127.77.0.0/21"]}])
    nodes = [node("a", "127.0.0.1"), node("b", "127.0.0.2")]
    old = [service(f"web-{n}") for n in range(count) if n % 10]
    new = [service(f"web-{n}", ports=EXTRA) if n % 7 == 0 else service(f"web-{n}") for n in range(count) if n % 50 != 1]
    return compared([*nodes, *old], [*nodes, *new], config)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of five hundred Services."""
    return written(tmp_path_factory.mktemp("large"), many(500))


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of a few Services to which everything happens, with long names, many ports and many clients."""
    return written(tmp_path_factory.mktemp("varied"), everything())


def written(directory: Path, report: Report) -> Path:
    path = directory / "page.html"
    path.write_text(page(report), encoding="utf-8")
    return path


def opened(browser: Browser, path: Path, width: int, *, dark: bool = False) -> Tab:
    """Open a page, with `looks.js` to look at it."""
    tab = browser.open(path, width, dark=dark)
    tab.evaluate(Path(__file__).with_name("looks.js").read_text(encoding="utf-8"))
    return tab


def pressed(tab: Tab, key: str) -> dict[str, Any]:
    """Press a key, and tell what has the focus then."""
    tab.press(key)
    answer: dict[str, Any] = tab.evaluate("focused()")
    return answer


def everything() -> Report:
    """Compare two moments of Services of which each is treated otherwise."""
    pools = [{"name": "p", "addresses": ["127.77.0.0/28", "fd00:77::/64"]}]
    long, wide = "a-name-of-sixty-three-characters-which-is-as-long-as-they-get-0", ["10.0.0.0/8", "172.16.0.0/12"]
    dual: dict[str, Any] = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}
    ports = [{"name": f"p{n}", "port": 8000 + n, "nodePort": 30100 + n} for n in range(12)]
    nodes = [node(f"n{n}", f"127.0.0.{n}") for n in range(1, 9)]
    old = [service("gone", ports=EXTRA), service("moves", loadBalancerIP="127.77.0.7"), service("same", **dual)]
    new = [
        service("moves", loadBalancerIP="127.77.0.8"),
        service("same", **dual),
        service("rejected", loadBalancerIP="8.8.8.8"),
    ]
    new += [service("fresh", ports=ports, loadBalancerSourceRanges=[*wide, "fd00:1234:5678:9abc::/64"])]
    old += [service(long, loadBalancerSourceRanges=wide)]
    new += [service(long, loadBalancerSourceRanges=wide[:1], ports=EXTRA)]
    return compared([*nodes, *old], [*nodes, *new], settings(pools=pools, policies={"ports": [8080, "8000-8020"]}))


class Rows(html.parser.HTMLParser):
    """Counts rows and lanes of a document, hidden and shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows = {True: 0, False: 0}
        self.lanes = {True: 0, False: 0}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag == "tr" and "data-change" in names:
            self.rows["hidden" in names] += 1
        if tag == "g" and (names.get("class") or "").startswith("lane "):
            self.lanes["hidden" in names] += 1


def test_every_service_has_its_row_and_its_lane(browser: Browser, large: Path) -> None:
    """The script ran, as the page's own policy lets it: it counted."""
    dom = browser.open(large, 1400).dom()
    assert '<span class="hits" id="hits" aria-live="polite">500 of 500</span>' in dom
    observed = Rows(dom)
    assert observed.rows == observed.lanes == {True: 0, False: 500}
    assert dom.count('class="tag added"') == 50
    assert "pool" in dom


def test_a_search_shows_only_what_it_finds_in_table_and_diagram(browser: Browser, large: Path) -> None:
    """By every word; the diagram shrinks to its lanes."""
    dom = browser.open(large, 1400, search="web-49 removed").dom()
    assert "0 of 500" in dom
    dom = browser.open(large, 1400, search="web-49 tcp").dom()
    observed = Rows(dom)
    assert observed.rows[False] == observed.lanes[False] == 11
    assert "11 of 500" in dom
    height = re.search(r'<svg viewBox="0 0 1240 (\d+)"', dom)
    assert height
    assert int(height[1]) < 11 * 100 + 60


def test_report_page_follows_the_light_and_dark_scheme(browser: Browser, large: Path) -> None:
    """The backgrounds are those of the scheme, with cards, text and the colours of changes on them."""
    for dark, ground in ((False, LIGHT), (True, DARK)):
        observed = browser.open(large, 900, 500, dark=dark).picture()
        assert (observed.width, observed.height) == (900, 500)
        assert {observed.at(2, 2), observed.at(897, 2), observed.at(2, 497), observed.at(897, 497)} == {ground}
        assert len(observed.colours()) > 60


CHECKS = [
    pytest.param(width, dark, id=f"{width}-{'dark' if dark else 'light'}") for width in WIDTHS for dark in (False, True)
]


@pytest.mark.parametrize(("width", "dark"), CHECKS)
def test_report_page_cuts_no_text_and_never_scrolls_sideways(
    browser: Browser, varied: Path, width: int, *, dark: bool
) -> None:
    """Every alert and every cell is fully visible, with all details; on cards, cells have their names."""
    tab = opened(browser, varied, width, dark=dark)
    tab.evaluate("unfold()")
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    for what, least in (
        (".alerts li > span", 8),
        ("#services td:not(:empty)", 20),
        ("#services .paths li", 15),
        (".pools div", 2),
        ("h1, .sub, .chip, .tools input, .tag, .notes li", 12),
    ):
        assert tab.evaluate(f"document.querySelectorAll({what!r}).length") >= least
        assert tab.evaluate(f"cut({what!r})") == []
    label = "getComputedStyle(document.querySelector('#services td.why'), '::before').content"
    assert tab.evaluate(label) == ("none" if width == WIDTHS[-1] else '"Why"')


@pytest.mark.parametrize("width", WIDTHS)
def test_diagram_content_is_reachable_at_every_width(browser: Browser, varied: Path, width: int) -> None:
    """It scrolls by itself where it is wider than the page; on a phone the cards' details replace it."""
    tab = browser.open(varied, width)
    shown = tab.evaluate("getComputedStyle(document.querySelector('#diagram')).display !== 'none'")
    assert shown == (width != WIDTHS[0])
    backends = "127.0.0.1:30100, 127.0.0.2:30100"
    details = tab.evaluate("[...document.querySelectorAll('#services .paths li')].map((each) => each.textContent)")
    assert any(f"8000/TCP → {backends}" in text for text in details)
    if shown:
        frame = "document.querySelector('#diagram .scroll')"
        tab.evaluate(f"{frame}.scrollTo(9999, 0)")
        assert tab.evaluate(f"{frame}.scrollLeft + {frame}.clientWidth === {frame}.scrollWidth")
        assert tab.evaluate(f"{frame}.scrollHeight === {frame}.clientHeight")


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_is_easy_to_read(browser: Browser, varied: Path, *, dark: bool) -> None:
    """At least 4.5 to 1, which WCAG asks of text of this size."""
    answer: dict[str, float] = opened(browser, varied, 1400, dark=dark).evaluate("contrasts()")
    assert {"DIV.name", "B.tag policy", "SPAN.everybody", "DEL.", "BUTTON.chip added"} <= answer.keys()
    assert {name: ratio for name, ratio in answer.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_the_keyboard_reaches_everything_in_the_order_of_the_page(browser: Browser, varied: Path, width: int) -> None:
    """The search, the changes, each Service's details, the diagram; and what has the focus is seen."""
    tab = opened(browser, varied, width)
    steps: list[dict[str, Any]] = []
    while (step := pressed(tab, "Tab"))["what"] != "body":
        steps.append(step)
        assert len(steps) < 50
    assert all(step["seen"] for step in steps), steps
    what = [step["what"] for step in steps]
    chips = [name for name in what if name.startswith("chip")]
    details = what.count("summary")
    diagram = ["scroll"] if width != WIDTHS[0] else []
    assert what == ["search", *chips, *["summary"] * details, *diagram]
    assert len(chips) == 6
    rows = tab.evaluate("[...document.querySelectorAll('#services .name')].map((each) => each.textContent)")
    assert [step["service"] for step in steps if step["service"]] == [name for name in rows if name != "rejected"]


def test_search_changes_and_details_work_by_keyboard(browser: Browser, varied: Path) -> None:
    """/ goes to the search, Escape ends it, the space bar presses, Enter opens."""
    tab = opened(browser, varied, 800)
    hits = "document.getElementById('hits').textContent"
    tab.press("/", *"fresh")
    assert tab.evaluate("document.getElementById('search').value") == "fresh"
    assert tab.evaluate(hits) == "1 of 6"
    tab.press("Escape")
    assert tab.evaluate(hits) == "6 of 6"
    tab.press("Tab", " ")
    assert tab.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert tab.evaluate(hits) == "1 of 6"
    tab.press(" ", *["Tab"] * 6, "Enter")
    assert tab.evaluate("focused()")["what"] == "summary"
    assert tab.evaluate("document.activeElement.parentElement.open")


def test_report_page_shows_the_first_alerts_and_unfolds_the_rest(browser: Browser, large: Path) -> None:
    """None is left out."""
    tab = opened(browser, large, 400)
    shown = "[...document.querySelectorAll('.alerts li')].filter((each) => each.checkVisibility()).length"
    total = int(tab.evaluate("document.querySelector('.alerts header span').textContent"))
    assert tab.evaluate(shown) == ALERTS_SHOWN < total
    tab.evaluate("document.querySelector('.alerts summary').click()")
    assert tab.evaluate(shown) == total
    assert tab.evaluate("cut('.alerts li > span')") == []


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_names_run_nothing_and_break_nothing(browser: Browser, tmp_path: Path, width: int) -> None:
    """The browser finds one script, no element of theirs, shows every row, and nothing is cut."""
    report = hostile_report()
    tab = opened(browser, written(tmp_path, report), width)
    dom = tab.dom()
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    tab.evaluate("unfold()")
    assert tab.evaluate("cut('.alerts li > span, #services td:not(:empty)')") == []
    assert dom.count("<script>") == 1
    assert not re.search(r"<(img|a|iframe|h1>x)", dom)
    assert f"{len(report.services)} of {len(report.services)}" in dom


def test_a_report_of_nothing_says_so(browser: Browser, tmp_path: Path) -> None:
    """No table without rows."""
    dom = browser.open(written(tmp_path, compared([], [])), 400).dom()
    assert '<p class="none" id="none">No Service to show.</p>' in dom
