"""The live page of `locallb watch` in a real Chromium: beside a churn, through kills, and shut to everybody else."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.backends import Backend, ask
from tests.support.browser import Browser, Tab, running
from tests.support.log_reading import is_free
from tests.support.manifests import node, port, service
from tests.support.schemas import mistakes
from tests.support.servers import QuietHandler, in_thread
from tests.support.stages import CHECKOUT, Stage, stage
from tests.support.waiting import TIMEOUT
from tests.support.watching import Watch, eventually, page_of, watching

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.browser]
Backends = Callable[..., Backend]
PAGE_SCHEMA = json.loads((CHECKOUT / "docs/schemas/page.schema.json").read_text())
LANES = """Object.fromEntries([...document.querySelectorAll("#lanes > .lane:not(.gone)")].map((lane) => [
  lane.querySelector(".name").textContent,
  [lane.className.match(/serving|degraded|pending|rejected/)[0],
   [...lane.querySelectorAll(".ports > li > .pill:first-child")].map((port) => port.lastChild.textContent).sort(),
   [...lane.querySelectorAll(".addresses .pill")].map((pill) => pill.lastChild.textContent)]]))"""
COUNT_CHANGES = """window.marked = {}; new MutationObserver((all) => all.forEach(({ target }) => {
  if (target.classList.contains("changed"))
    (marked[target.querySelector(".name").textContent] ??= []).push(target.innerText); }))
  .observe(document.getElementById("lanes"), { attributes: true, attributeFilter: ["class"], subtree: true })"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser to which two names of elsewhere lead here."""
    with running("--host-resolver-rules=MAP rebound.test 127.0.0.1, MAP evil.test 127.0.0.1") as one:
        yield one


def shared(play: Stage) -> None:
    """Serve all from two proxies, with room for 250."""
    pools = [{"name": "default", "addresses": [f"{play.at(0)}/24"]}]
    play.configure(proxies={"mode": "shared", "count": 2}, pools=pools)


def lanes(tab: Tab) -> dict[str, Any]:
    drawn: dict[str, Any] = tab.evaluate(LANES)
    return drawn


def as_drawn(play: Stage) -> dict[str, Any]:
    """Return what `status` says, in the same form."""
    return {
        row["name"]: [
            row["state"],
            sorted(f"{each['port']}/{each['protocol']}" for each in row["ports"]),
            row["addresses"],
        ]
        for row in play.status().values()
    }


def is_served_by_itself(tab: Tab, url: str) -> None:
    """Check that a tab has no complaint, and asked nobody but the page."""
    assert tab.complaints == []
    assert {request[: len(url)] for request in tab.requests} == {url}


def test_beside_a_churn_of_a_hundred(play: Stage, backend: Backends, browser: Browser) -> None:
    """What comes, changes and goes is seen to do so, and in the end the page says what `status` says."""
    web = backend("web")
    shared(play)
    play.write("base.yaml", node())

    def write(number: int, *ports: int) -> None:
        name = f"web-{number:03d}"
        play.write(f"{name}.yaml", service(name, *(port(each, web.port) for each in ports)))

    for number in range(100):
        write(number, 8080)
    with watching(play, "--page", "127.0.0.1:0") as watch:
        eventually(lambda: "converged: 100 Services" in watch.reported(), watch)
        url = page_of(watch)
        tab = browser.visit(url, 1280)
        eventually(lambda: [state for state, _, _ in lanes(tab).values()] == ["serving"] * 100, watch)
        eventually(lambda: tab.evaluate("!document.querySelector('#lanes > .changed')"), watch)
        tab.evaluate(COUNT_CHANGES)
        for number in range(0, 100, 2):
            write(number, 8080, 8443)
        for number in range(1, 100, 10):
            (play.manifests / f"web-{number:03d}.yaml").unlink()
        for number in range(100, 110):
            write(number, 9090)
        eventually(lambda: "8443/TCP" in str(lanes(tab)["web-098"]) and "web-091" not in lanes(tab), watch)
        eventually(lambda: lanes(tab) == as_drawn(play), watch)
        assert {state for state, _, _ in lanes(tab).values()} == {"serving"}
        marked: dict[str, list[str]] = tab.evaluate("marked")
        assert {f"web-{number:03d}" for number in (*range(0, 100, 2), *range(100, 110))} <= marked.keys()
        assert marked.get("web-003") is None
        is_served_by_itself(tab, url)
        flows(play, tab, watch)


def flows(play: Stage, tab: Tab, watch: Watch) -> None:
    """Check that connections are seen where they are made, and nowhere else."""
    address, ends = play.addresses()["n/web-003"], threading.Event()

    def knock() -> None:
        while not ends.wait(0.02):
            with suppress(OSError):
                ask(address, 8080)

    client = threading.Thread(target=knock)
    client.start()
    observed = "[...document.querySelectorAll('#lanes > .flows')].map((lane) => lane.innerText)"
    try:
        eventually(
            lambda: tab.evaluate(f"{observed}.join()").count("conn/s") == 1 and "web-003" in tab.evaluate(observed)[0],
            watch,
        )
    finally:
        ends.set()
        client.join()
    eventually(lambda: tab.evaluate(observed) == [], watch)


def test_page_reconnects_when_the_loop_is_started_again(play: Stage, backend: Backends, browser: Browser) -> None:
    """Stopped, killed and started again, at the same place: without a reload."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
    link = "document.getElementById('link').textContent"
    banner = "document.getElementById('banner').innerText"
    with watching(play, "--page", place) as watch:
        eventually(partial(page_of, watch), watch)
        tab = browser.visit(f"http://{place}/", 1280)
        eventually(lambda: lanes(tab)["web"][0] == "serving", watch)
        assert watch.stop() == 0
        eventually(lambda: tab.evaluate(link) == "ended")
        assert "was stopped" in tab.evaluate(banner)
    with watching(play, "--page", place) as watch:
        eventually(lambda: tab.evaluate(link) == "live" and not tab.evaluate(banner), watch)
        watch.process.send_signal(signal.SIGKILL)
        watch.process.wait(TIMEOUT)
        eventually(lambda: tab.evaluate(link) == "not live")
        assert "What serves goes on serving" in tab.evaluate(banner)
    play.write("base.yaml", node(), service("web", port(8080, web.port)), service("api", port(8080, web.port)))
    with watching(play, "--page", place) as watch:
        eventually(lambda: tab.evaluate(link) == "live" and lanes(tab)["api"][0] == "serving", watch)
        (play.manifests / "base.yaml").write_text("{ broken")
        eventually(lambda: "can't be read and counts as last read" in tab.evaluate(banner), watch)


def test_page_is_usable_by_keyboard_and_screen_reader(play: Stage, backend: Backends, browser: Browser) -> None:
    """One stop of Tab, arrows from one Service to the next, Enter tells all, `/` filters; all have names."""
    web = backend("web")
    good = [service(name, port(8080, web.port)) for name in ("api", "db", "web")]
    play.write("base.yaml", node(), *good, service("odd", port(7, 31001, "SCTP")))
    with watching(play, "--page", "127.0.0.1:0") as watch:
        eventually(partial(page_of, watch), watch)
        tab = browser.visit(page_of(watch), 1280, media={"prefers-reduced-motion": "reduce"})
        eventually(lambda: [each[0] for each in lanes(tab).values()].count("serving") == 3, watch)
        tab.press("/", *"web", "Enter")
        assert tab.evaluate("document.activeElement.innerText").startswith("web")
        tab.press("Enter")
        assert "Proxy\nc/n/web" in tab.evaluate("document.querySelector('.all').innerText")
        assert tab.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
        tab.press("Escape", "s", "Home", "ArrowDown", "ArrowDown")
        assert tab.evaluate("document.activeElement.innerText").startswith("odd")
        assert tab.evaluate("document.querySelectorAll('#lanes button[tabindex=\"0\"]').length") == 1
        tab.call("Accessibility.enable")
        tree = tab.call("Accessibility.getFullAXTree")["nodes"]
        names = [entry["name"]["value"] for entry in tree if entry.get("role", {}).get("value") == "button"]
        assert any("web" in name and "serving" in name for name in names)
        assert any("odd" in name and "rejected" in name for name in names)
        assert all(names)
        tab.press("Home")
        wider = service("api", port(8080, web.port), port(8081, web.port))
        play.write("base.yaml", node(), wider, *good[1:], service("odd", port(7, 31001, "SCTP")))
        eventually(lambda: lanes(tab)["api"][1] == ["8080/TCP", "8081/TCP"], watch)
        assert tab.evaluate("document.activeElement.innerText").startswith("api")
        play.write("more.yaml", service("more", port(8080, web.port)))
        reported = "document.getElementById('news').textContent"
        eventually(lambda: "c/n/more: serving" in tab.evaluate(reported), watch)
        moving = "document.getAnimations().filter((each) => each.playState === 'running').length"
        assert tab.evaluate(moving) == 0
        assert tab.complaints == []


@pytest.mark.parametrize("media", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 900, 1440])
def test_at_any_width_and_in_the_dark(play: Stage, backend: Backends, browser: Browser, width: int, media: str) -> None:
    """Nothing is wider than the window; where there is nothing it says so."""
    web = backend("web")
    with watching(play, "--page", "127.0.0.1:0") as watch:
        eventually(partial(page_of, watch), watch)
        tab = browser.visit(page_of(watch), width, media={"prefers-color-scheme": media})
        eventually(lambda: "no Service of type LoadBalancer yet" in tab.evaluate("document.body.innerText"), watch)
        play.write("base.yaml", node(), service("x" * 63, *(port(8000 + each, web.port) for each in range(9))))
        eventually(lambda: lanes(tab)["x" * 63][0] == "serving", watch)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(245, 246, 248)", "dark": "rgb(13, 17, 23)"}[media]
        assert tab.complaints == []


class _Evil(QuietHandler):
    """A page of another origin."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>evil</title>")


READ = """(async () => {
  const found = {};
  const attempt = async (name, work) => {
    try { found[name] = await work(); } catch (error) { found[name] = "refused"; }
  };
  const loaded = (kind, more) => new Promise((good, bad) => {
    const element = document.createElement(kind);
    document.body.append(Object.assign(element, { src: URL + more, onload: () => good(element), onerror: bad }));
  });
  await attempt("fetch", async () => (await fetch(URL)).text());
  await attempt("no-cors", async () => (await fetch(URL, { mode: "no-cors" })).type);
  await attempt("post", async () => (await fetch(URL, { method: "POST", body: "x" })).text());
  await attempt("stream", () => new Promise((good, bad) => {
    const stream = new EventSource(URL + "events");
    stream.onopen = () => good("open");
    stream.onerror = () => { stream.close(); bad(); };
  }));
  await attempt("log", () => new Promise((good, bad) => {
    const stream = new EventSource(URL + "logs?service=c/n/web");
    stream.onopen = () => good("open");
    stream.onerror = () => { stream.close(); bad(); };
  }));
  await attempt("documentation", async () => (await fetch(URL + "docs/reasons.md")).text());
  await attempt("script", () => loaded("script", "page.js"));
  await attempt("image", () => loaded("img", "icon.svg"));
  await attempt("frame", async () => (await loaded("iframe", "")).contentWindow.document.body.innerText);
  return found;
})()"""


@pytest.mark.parametrize("host", ["evil.test", "localhost", "127.0.0.1"])
def test_page_data_is_refused_to_other_origins(play: Stage, browser: Browser, host: str) -> None:
    """Of another site, and of another port of this host."""
    evil = ThreadingHTTPServer(("127.0.0.1", 0), _Evil)
    with in_thread(evil) as other, watching(play, "--page", "127.0.0.1:0") as watch:
        eventually(partial(page_of, watch), watch)
        tab = browser.visit(f"http://{host}:{other.server_address[1]}/", 800)
        tried = tab.evaluate(READ.replace("URL", json.dumps(page_of(watch))))
    ways = ("fetch", "no-cors", "post", "stream", "log", "documentation", "script", "image", "frame")
    assert tried == dict.fromkeys(ways, "refused")


def test_a_name_that_leads_here_gets_nothing(play: Stage, browser: Browser) -> None:
    """DNS rebinding: for the browser it would be one origin."""
    play.write("base.yaml", node(), service("secret-name", port(8080, 31000)))
    with watching(play, "--page", "127.0.0.1:0") as watch:
        eventually(partial(page_of, watch), watch)
        tab = browser.visit(page_of(watch).replace("127.0.0.1", "rebound.test"), 800)
        assert "not under another name" in tab.evaluate("document.body.innerText")
        assert tab.evaluate("fetch('/events').then((answer) => answer.status)") == 403


def test_a_flood_and_dead_readers_delay_no_others(play: Stage, backend: Backends, browser: Browser) -> None:
    """Neither the page nor the loop; descriptors stay bounded."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    with watching(play, "--page", "127.0.0.1:0") as watch, ExitStack() as stack:
        eventually(partial(page_of, watch), watch)
        tab = browser.visit(page_of(watch), 1280)
        eventually(lambda: lanes(tab)["web"][0] == "serving", watch)
        host, _, number = page_of(watch)[7:-1].rpartition(":")
        terms = (b"", b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HT", b"\0\r\n\r\n")
        for count in range(300):
            client = stack.enter_context(socket.create_connection((host, int(number)), timeout=TIMEOUT))
            with suppress(OSError):
                client.sendall(terms[count % 4])
        play.write("more.yaml", service("more", port(8080, web.port)))
        eventually(lambda: lanes(tab)["more"][0] == "serving", watch)
        assert len(list((play.root / f"/proc/{watch.process.pid}/fd").iterdir())) < 200
        assert tab.complaints == []


@pytest.mark.parametrize("place", ["0.0.0.0:9478", "192.0.2.1:9478", "localhost:9478"])
def test_page_listens_on_loopback_only(play: Stage, place: str) -> None:
    """Refused before anything begins, by the option as by the key."""
    done = play.spawn("watch", "--page", place)
    assert (done.code, "127.0.0.1:9478" in done.err) == (2, True)
    play.configure(page=place)
    done = play.spawn("watch")
    assert (done.code, "local-lb:page" in done.err, "Traceback" in done.err) == (1, True, False)
    assert "127.0.0.1:9478" in done.err
    assert not (play.root / ".state/.pulumi").exists()


def test_a_port_that_others_have_is_reported(play: Stage) -> None:
    """In one sentence; nothing begins."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        play.configure(page=f"127.0.0.1:{other.getsockname()[1]}")
        done = play.spawn("watch")
    assert done.code == 1
    assert "can't be listened on (Address already in use): choose another port" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_the_command_prints_where_the_page_is(play: Stage) -> None:
    """Of the watch that runs, at a port that is free: a second one gets another. Without one it says what to do."""
    done = play.spawn("page", "--print")
    assert (done.code, "no `watch`" in done.err) == (1, True)
    with stage() as other, watching(play, "--page") as watch, watching(other, "--page") as second:
        eventually(partial(page_of, watch), watch)
        eventually(partial(page_of, second), second)
        assert page_of(watch) != page_of(second)
        eventually(lambda: play.spawn("page", "--print").out == f"{page_of(watch)}\n", watch)
        found = play.run("page", "--json")
        assert found.json["url"] == page_of(watch)
        assert list(mistakes(found.json, PAGE_SCHEMA, PAGE_SCHEMA)) == []
        assert watch.stop() == 0
        assert play.spawn("page", "--print").code == 1
    with watching(play) as without:
        eventually(lambda: "converged" in without.reported(), without)
        done = play.spawn("page")
        assert (done.code, f"pid {without.process.pid}) has no page" in done.err) == (1, True)


def test_a_log_is_shown_as_it_comes(play: Stage, backend: Backends, browser: Browser) -> None:
    """By one key; once it is closed, or its reader has gone, the proxy is free for `locallb logs` again."""
    web = backend("web")
    play.configure(accessLogs=True)
    play.write("base.yaml", node(), service("web", port(8080, web.port)), service("api", port(8080, web.port)))
    with watching(play, "--page", "127.0.0.1:0") as watch:
        eventually(partial(page_of, watch), watch)
        tab = browser.visit(page_of(watch), 1280)
        eventually(lambda: [each[0] for each in lanes(tab).values()] == ["serving"] * 2, watch)
        tab.press("/", *"n/web", "Enter", "l")
        text = "document.querySelector('.lines').innerText"

        def is_logged() -> bool:
            ask(play.addresses()["n/web"], 8080)
            ask(play.addresses()["n/api"], 8080)
            return f"127.0.0.1:{web.port}" in tab.evaluate(text)

        eventually(is_logged, watch)
        assert set(re.findall(r"  :(\d+)  ", tab.evaluate(text))) == {"8080"}
        (directory,) = (path.parent for path in play.root.rglob("logs.lock"))
        assert not is_free(directory)
        tab.press("l")
        eventually(lambda: is_free(directory), watch)
        tab.press("l")
        eventually(lambda: not is_free(directory), watch)
        browser.call("Target.closeTarget", targetId=tab.target)
        eventually(lambda: is_free(directory), watch)
