"""What the live page costs: the browser's frames with many Services, and the loop's time for a change.

    python -m benchmarks.page [--services 1000] [--many 10000] [--runs 20] [--seconds 10]

A directory of manifests, shared proxies, one for each hundred Services, `locallb watch` and a real Chromium without a
graphics card. Of a change of one Service is measured the processor time of the whole watch, without a page, with one at
which nobody looks, and with one that is looked at. Of the page: how long until all is drawn, and its frames while it is
scrolled, while one Service after another changes, and while nothing does; `work` is the processor time of the page's
main thread for each.

Then the page alone, of ten thousand Services that nothing serves, of which 200 change in a second: the same figures,
the share of a core that its server takes, and how long until what is typed has its effect. A table goes to
standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import report_to, result, spreads, table
from tests.support.browser import Browser, Tab, running
from tests.support.manifests import node, port, service
from tests.support.page_scenes import large
from tests.support.stages import Stage, stage
from tests.support.watching import Watch, page_of, watching

WIDTH, HEIGHT = 1440, 900
WAIT = 600.0
EACH = 100
"""Services of a proxy."""
DRAWN = "document.querySelectorAll('#lanes > .lane').length"
FRAMES = """new Promise((done) => {
  const frames = [], end = performance.now() + MILLISECONDS;
  let last = performance.now();
  const step = (now) => {
    frames.push(now - last);
    last = now;
    MOVE;
    if (now < end) requestAnimationFrame(step); else done(frames.slice(1));
  };
  requestAnimationFrame(step);
})"""
Milliseconds = dict[str, list[float]]


def until(fact: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not fact():
        if time.monotonic() > deadline:
            raise SystemExit("it never became true")
        time.sleep(0.005)


def prepare(play: Stage, count: int) -> None:
    pools = [{"name": "default", "addresses": [f"{play.prefix.rpartition('.')[0]}.0.0/16"]}]
    play.configure(proxies={"mode": "shared", "count": -(-count // EACH)}, pools=pools)
    play.write("base.yaml", node())
    for number in range(count):
        write(play, number, 8080)


def write(play: Stage, number: int, *ports: int) -> None:
    name = f"web-{number:04d}"
    play.write(f"{name}.yaml", service(name, *(port(each, 30_000) for each in ports)))


def updates(watch: Watch) -> int:
    """Return how many updates the watch has told."""
    return len(re.findall(r" updated ", watch.reported()))


def change(play: Stage, watch: Watch, number: int) -> None:
    """Change a Service and wait until that is told."""
    before = updates(watch)
    write(play, number // 2, *((8080, 8443) if number % 2 == 0 else (8080,)))
    until(lambda: updates(watch) > before)


def used(watch: Watch) -> float:
    """Return the milliseconds of processor time that the watch had."""
    terms = Path(f"/proc/{watch.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(terms[11]) + int(terms[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def cost(play: Stage, watch: Watch, runs: int) -> float:
    """Return what a change costs, of so many."""
    before = used(watch)
    for number in range(2 * (runs // 2)):
        change(play, watch, number)
    time.sleep(2.0)  # what it leads to beside the loop
    return (used(watch) - before) / runs


@contextmanager
def changing(play: Stage) -> Iterator[None]:
    """Change one Service after another meanwhile."""
    over = threading.Event()

    def go_on() -> None:
        number = 0
        while not over.wait(0.2):
            write(play, number // 2, *((8080, 8443) if number % 2 == 0 else (8080,)))
            number += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def work(tab: Tab) -> float:
    """Return the milliseconds of processor time that the page's main thread had."""
    metrics: list[dict[str, Any]] = tab.call("Performance.getMetrics")["metrics"]
    return 1000 * float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def frames(tab: Tab, name: str, move: str, seconds: float, figures: dict[str, Milliseconds]) -> None:
    before = work(tab)
    times = tab.evaluate(FRAMES.replace("MILLISECONDS", str(1000 * seconds)).replace("MOVE", move))
    figures[name] = {"frame": times, "work for a frame": [(work(tab) - before) / len(times)]}


def drawn(browser: Browser, url: str, count: int) -> tuple[Tab, float]:
    """Open the page; return it, and how long it took until all was drawn."""
    began = time.monotonic()
    tab = browser.visit(url, WIDTH, HEIGHT)
    until(lambda: tab.evaluate(DRAWN) == count)
    took = (time.monotonic() - began) * 1000
    tab.call("Performance.enable", timeDomain="threadTicks")
    return tab, took


def many(browser: Browser, count: int, seconds: float, figures: dict[str, Milliseconds]) -> dict[str, float]:
    """Measure the page of so many Services that change all the time; return shares and times."""
    with large(count) as (page, change):
        tab, took = drawn(browser, page.url, count)
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(0.2):
                change(40)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            before, began = time.process_time(), time.monotonic()
            frames(tab, f"{count} changing", "", seconds, figures)
            share = (time.process_time() - before) / (time.monotonic() - began)
            key = [tab.evaluate(KEY) for _ in range(10)]
            figures[f"{count}, a key"] = {"effect": key}
        finally:
            over.set()
            thread.join()
        memory = tab.evaluate("performance.memory.usedJSHeapSize") / 2**20
    return {
        f"{count} drawn after, ms": took,
        "share of the server, %": 100 * share,
        "memory of the script, MiB": memory,
    }


KEY = """new Promise((done) => {
  const began = performance.now(), search = document.getElementById("search");
  search.value = `shop-${Math.floor(Math.random() * 10000)}`;
  search.dispatchEvent(new Event("input"));
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--many", type=int, default=10_000, help="Services that are made up; 0 for no such measurement")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    figures: dict[str, Milliseconds] = {}
    changes: dict[str, float] = {}
    with stage() as play, running("--enable-precise-memory-info") as browser:
        prepare(play, args.services)
        with watching(play, "--plain") as watch:
            until(lambda: "converged" in watch.reported())
            changes["without a page"] = cost(play, watch, args.runs)
        with watching(play, "--plain", "--page", "127.0.0.1:0") as watch:
            until(lambda: "converged" in watch.reported())
            changes["nobody looks"] = cost(play, watch, args.runs)
            tab, took = drawn(browser, page_of(watch), args.services)
            changes["one looks"] = cost(play, watch, args.runs)
            frames(tab, "still", "", args.seconds, figures)
            frames(tab, "scrolled", "scrollBy(0, 60)", args.seconds, figures)
            with changing(play):
                frames(tab, "changing", "", args.seconds, figures)
            complaints = tab.complaints
        sums = many(browser, args.many, args.seconds, figures) if args.many else {}
    milliseconds = {name: spreads(each) for name, each in figures.items()}
    report_to(table(milliseconds), f"{'all drawn after':<40}{took:>10.0f}")
    report_to(*(f"{f'a change, {name}':<40}{value:>10.1f}" for name, value in changes.items()))
    report_to(*(f"{name:<40}{value:>10.1f}" for name, value in sums.items()))
    result(
        "page",
        [str(complaints)] if complaints else [],
        milliseconds=milliseconds,
        drawn=took,
        changes=changes,
        many=sums,
    )


if __name__ == "__main__":
    main()
