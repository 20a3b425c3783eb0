"""The live page in a real Chromium, of stacks that are made up: links, copies, groups, keys, and names that do harm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.cli.watching.board import Board, View
from locallb.cli.watching.log import LogLevel, LogRecord
from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.objects import ServicePort
from locallb.planning.service_rows import PortRow, Row, State
from tests.page.pictures import PICTURES, take
from tests.support.browser import Browser, Tab, running
from tests.support.page_scenes import calm, large, shown, trouble
from tests.support.waiting import becomes
from tests.support.watch_story import EVIL

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SHOWN = "[...document.querySelectorAll('#lanes > li')].filter((line) => !line.hidden)"
LANES = f"{SHOWN}.map((line) => line.innerText)"
MARKUP = "<img src=x onerror='window.harmed=1'><script>window.harmed=1</script>"
GRANTED = ["clipboardReadWrite", "clipboardSanitizedWrite"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as one:
        yield one


def visited(browser: Browser, url: str, lines: int, width: int = 1280, height: int = 800) -> Tab:
    tab = browser.visit(url, width, height)
    becomes(lambda: len(tab.evaluate(LANES)) == lines, lambda: str(tab.evaluate(LANES)))
    return tab


def copied(browser: Browser, tab: Tab) -> str:
    browser.call("Browser.grantPermissions", permissions=GRANTED)
    text: str = tab.evaluate("navigator.clipboard.readText()")
    return text


def test_addresses_names_ports_and_routes_are_links(browser: Browser) -> None:
    """By http or https as the port is; what isn't known to speak HTTP is text."""
    with calm() as page:
        tab = visited(browser, page.url, 6)
        of_lane = (
            """(name) => [...document.querySelectorAll("#lanes > .lane")].find((lane) => lane.lane.name === name)"""
        )
        links = f"""(({of_lane})(NAME), [...({of_lane})(NAME).querySelectorAll("a.pill")].map((link) => link.href))"""
        web = tab.evaluate(links.replace("NAME", "'demo/shop/web'"))
        (address,) = {url.split("/")[2].partition(":")[0] for url in web}
        assert web == [f"http://{address}:8080/", f"http://{address}:8080/", f"https://{address}:8443/"]
        assert tab.evaluate(links.replace("NAME", "'demo/shop/postgres'")) == []
        tab.press("/", *"front", "Enter", "Enter")
        front = set(tab.evaluate("[...document.querySelectorAll('.all a')].map((link) => link.href)"))
        assert {"http://www.shop.test:8080/cart/", "http://www.shop.test:8080/"} <= front
        assert tab.evaluate(
            "[...document.querySelectorAll('.all a')].every((link) => link.rel === 'noopener noreferrer')"
        )


def test_keys_copy_a_url_and_a_curl_command(browser: Browser) -> None:
    """The same keys as in the terminal view; a sentence says what was copied."""
    browser.call("Browser.grantPermissions", permissions=GRANTED)
    with calm() as page:
        tab = visited(browser, page.url, 6)
        tab.press("/", *"front", "Enter", "y")
        said = "document.getElementById('toast').textContent"
        becomes(lambda: tab.evaluate(said).startswith("Copied http://"))
        assert re.fullmatch(r"http://127\.77\.0\.\d+:8080/", copied(browser, tab))
        tab.press("c")
        becomes(lambda: tab.evaluate(said) == "Copied a curl command")
        assert copied(browser, tab).endswith("http://www.shop.test:8080/")


def test_what_changed_is_told_before_and_after(browser: Browser) -> None:
    """Although it happened before the page was opened."""
    with calm() as page:
        tab = visited(browser, page.url, 6)
        tab.press("/", *"shop/web", "Enter", "Enter")
        assert "Ports: 8080/TCP → 8080/TCP, 8443/TCP" in tab.evaluate("document.querySelector('.all').innerText")


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_one_cause_is_one_line_with_its_remedy_and_those_that_serve_are_in_sight(
    browser: Browser, size: tuple[int, int]
) -> None:
    """Also on a phone; the section about the reason is a link away, on this host."""
    with trouble() as page:
        tab = visited(browser, page.url, 13, *size)
        becomes(lambda: "40 Services" in tab.evaluate(LANES)[0])
        group, *rest = tab.evaluate(LANES)
        assert "add addresses to local-lb:pools" in group
        assert len(rest) == 12
        assert tab.evaluate("document.documentElement.scrollWidth") <= size[0]
        tab.press("/", "Enter", "End", "Home", "Enter")
        assert len(tab.evaluate(LANES)) == 53
        tab.press("Enter")
        assert len(tab.evaluate(LANES)) == 13
        place = tab.evaluate("document.querySelector('.group a.help').href")
        assert place.endswith("/docs/reasons.md#poolexhausted")
        about = browser.visit(place, 800)
        assert about.evaluate("document.querySelector(':target').textContent") == "PoolExhausted"
        assert about.complaints == tab.complaints == []


def test_groups_orders_and_filters_are_kept_in_the_address(browser: Browser) -> None:
    with trouble() as page:
        tab = visited(browser, page.url, 13)
        tab.press("g", "g", "s")
        assert tab.evaluate(LANES)[0].startswith("demo/shop")
        tab.press("/", *"shop-0")
        address = tab.evaluate("location.href")
        again = browser.visit(address, 1280)
        becomes(lambda: len(again.evaluate(LANES)) == 11)
        names = again.evaluate(f"{SHOWN}.map((line) => line.lane?.name).filter(Boolean)")
        assert names == sorted(names)


def test_the_stack_is_described(browser: Browser) -> None:
    """Pools, sources, loop and version; the time of the last check with 24 hours."""
    with trouble() as page:
        tab = visited(browser, page.url, 13)
        facts = tab.evaluate("document.getElementById('facts').innerText")
        assert "small IPv4: 12 of 12 used, 0 free" in facts
        assert re.search(r"checked \d\d:\d\d:\d\d", facts)
        assert "local-lb " in facts
        becomes(
            lambda: re.search(r"checked\s*\d\d:\d\d:\d\d", tab.evaluate("document.getElementById('totals').innerText"))
        )


def test_names_that_a_cluster_chose_to_do_harm_are_text(browser: Browser) -> None:
    """In every field, with markup and with schemes of scripts: nothing runs, and no link leads to one."""
    key = ObjectKey(ClusterName(MARKUP), f"{MARKUP}{EVIL}", "javascript:alert(1)")
    port = PortRow(ServicePort(80, name=MARKUP), State.REJECTED, MARKUP, MARKUP)
    rows = [
        Row(
            key,
            State.REJECTED,
            ports=(port,),
            reason=MARKUP,
            message=f"{MARKUP}; {MARKUP}",
            names=(MARKUP, "javascript:alert(1)"),
        ),
        Row(key._replace(name="../../docs"), State.DEGRADED, reason="../x", message=EVIL, refused=(MARKUP,)),
    ]
    record = LogRecord(1.0, LogLevel.ERROR, "service", MARKUP, {"service": MARKUP, "reason": MARKUP})
    with shown(observed={}) as page:
        page._page.show([record], Board(), [View(row) for row in rows])
        tab = visited(browser, page.url, 2)
        tab.press("/", "Enter", "Enter", "ArrowDown", "Enter")
        assert tab.evaluate("document.querySelectorAll('.all').length") == 2
        assert not tab.evaluate("window.harmed")
        assert tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
        hrefs = tab.evaluate("[...document.querySelectorAll('a[href]')].map((link) => link.getAttribute('href'))")
        assert hrefs == ["#lanes"]
        assert tab.complaints == []


def test_thousands_of_lanes_stay_usable_while_hundreds_change(browser: Browser) -> None:
    """Those out of sight are one line of text each, which a search finds; what is typed has its effect."""
    with large(3000) as (page, change):
        tab = browser.visit(page.url, 1280)
        becomes(lambda: tab.evaluate("document.querySelectorAll('#lanes > .lane').length") == 3000)
        change(200)
        becomes(lambda: tab.evaluate("document.getElementById('chip-degraded').lastChild.textContent") == "200")
        assert tab.evaluate("document.querySelectorAll('#lanes *').length") < 15_000
        tab.press("/", *"shop-2999", "Enter")
        becomes(lambda: len(tab.evaluate(LANES)) == 1)
        assert tab.evaluate("document.activeElement.innerText").startswith("shop-2999")
        assert tab.complaints == []


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_documentation_can_be_taken(browser: Browser, name: str, tmp_path: Path) -> None:
    """Each shows a page without complaints, as large as it is to be."""
    del tmp_path
    scene, (width, height), light, keys, _ = PICTURES[name]
    with scene() as page:
        tab = browser.visit(page.url, width, height, {"prefers-color-scheme": light})
        assert take(tab, keys, 0)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.complaints == []
