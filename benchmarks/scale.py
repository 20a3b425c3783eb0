"""What a watch loop costs as the number of Services grows: events, starts, memory, descriptors, planning.

Manifests are the source and shared proxies serve, one for each hundred Services, so that 5,000 fit without any right.
Each size has a process of its own, in which the loop is asked to look, again and again, without its threads: what is
measured is from the mark to the end of what it leads to. A table goes to standard error, one JSON object to standard
output.

    python -m benchmarks.scale [--sizes 1,100,1000,5000] [--runs 20] [--profile]

`--profile` tells instead where the time goes, by cProfile.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import multiprocessing
import os
import pstats
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from benchmarks.contestants import private_memory
from benchmarks.figures import Spread, report_to, result, spreads, table
from locallb.cli.session import Session
from locallb.engine.state.project import load_config
from locallb.model.snapshot import Snapshot
from locallb.observe import observe
from locallb.planning.plan import make_plan
from locallb.sources.configuration import stack_settings
from locallb.watch.events import Cause, Converged, Failed, LoopEvent, Mark, Planned, Updated
from locallb.watch.loop import Loop
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage

SIZES = "1,100,1000,5000"
PAUSE = 0.05
"""Seconds between two looks at what was left under way."""
SOURCE = Mark(Cause.SOURCE, "c")
ADDED = 8081
NEW = 1_000_000
"""The number of a Service that comes and goes."""
STARTS = 1
"""Starts with existing state that are measured: each looks at every Service once, which takes long at 1,000."""


class Clock:
    """Milliseconds of something: those that passed, and those for which this process had a processor."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()
        self.passed = self.cpu = 0.0

    def stop(self) -> Clock:
        self.passed = (time.perf_counter() - self._began[0]) * 1000
        self.cpu = (time.process_time() - self._began[1]) * 1000
        return self


@dataclass
class Figures:
    """What was found at one size; milliseconds, MiB and numbers by name."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, clock: Clock) -> None:
        """Note one time. That of the processor hardly depends on what else runs on the machine."""
        self.milliseconds.setdefault(name, []).append(clock.passed)
        self.milliseconds.setdefault(f"{name}, CPU", []).append(clock.cpu)


class Driven:
    """A loop that looks when it is told to."""

    def __init__(self, play: Stage) -> None:
        session = Session.open(play.root, "dev")
        self.settings = session.settings
        self.observed: list[tuple[float, LoopEvent]] = []
        configuration = session.project.stack_file("dev")
        engine = session.engine(lambda _event: None)
        self.loop = Loop(
            session.home,
            engine,
            lambda: stack_settings(load_config(session.project, "dev")),
            configuration,
            lambda event: self.observed.append((time.perf_counter(), event)),
            observe=observe,
        )
        self.loop._planner.triggers._watched = self.settings  # noqa: SLF001 - nothing but us says when to look

    def inspect(self, mark: Mark) -> Clock:
        """Have it look until all is converged."""
        self.observed.clear()
        loop = self.loop
        loop._schedule = replace(loop._schedule, recent={})  # noqa: SLF001 - one that changes all the time would wait
        clock = Clock()
        loop._take(mark)  # noqa: SLF001 - as above
        loop._inspect()  # noqa: SLF001 - as above
        while loop._converger.going_on:  # noqa: SLF001 - as above; what takes longer is left under way
            loop._take(*loop._inbox.take(PAUSE))  # noqa: SLF001 - as above
            loop._go_on()  # noqa: SLF001 - as above
            if not loop._converger.going_on:  # noqa: SLF001 - as above
                loop._inspect()  # noqa: SLF001 - as above
        clock.stop()
        reported = [event for _, event in self.observed]
        for event in reported:
            if isinstance(event, Failed) or (isinstance(event, Updated) and event.failed):
                raise SystemExit(f"the loop failed: {event}")
        if not isinstance(reported[-1], Converged):
            raise SystemExit(f"the loop didn't converge: {reported[-1]}")
        return clock

    def planned(self) -> tuple[float, Planned]:
        """Return the last plan, and when it was there."""
        return next((at, planned) for at, planned in self.observed if isinstance(planned, Planned))

    def updates(self) -> int:
        """Return how many updates the last look led to."""
        return sum(isinstance(event, Updated) for _, event in self.observed)

    def close(self) -> None:
        """Let go of what it holds, the stack first."""
        self.loop._converger.stop()  # noqa: SLF001 - as above
        self.loop._planner.stop()  # noqa: SLF001 - as above


@contextmanager
def backend() -> Iterator[int]:
    """Accept connections on a port of 127.0.0.1 that all Services have as their NodePort; the proxies check it.

    In a process of its own: a thousand proxies' checks would be counted as the loop's work.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        process = multiprocessing.get_context("fork").Process(target=_accept, args=(server,))
        process.start()
        try:
            yield server.getsockname()[1]
        finally:
            process.terminate()
            process.join()


def _accept(server: socket.socket) -> None:
    try:
        while True:
            stream, _ = server.accept()
            with closing(stream):
                pass
    except OSError:
        return


def write(play: Stage, number: int, node_port: int, *, more: bool = False) -> None:
    """Write the file of one Service, with a port more or without."""
    ports = [port(8080, node_port), *([port(ADDED, node_port)] if more else [])]
    play.write(f"s{number}.yaml", service(f"s{number}", *ports))


def events(driven: Driven, play: Stage, node_port: int, figures: Figures, runs: int) -> None:
    """Measure events: the first of each kind isn't counted."""
    for run in range(runs + 1):
        write(play, 0, node_port, more=run % 2 == 0)
        changed = driven.inspect(SOURCE)
        if driven.updates() != 1:
            raise SystemExit("a change of one Service didn't lead to one update")
        write(play, 0, node_port, more=run % 2 == 0)
        same = driven.inspect(SOURCE)
        if driven.updates():
            raise SystemExit("a file that is written as it was led to an update")
        if run:
            figures.add("event that changes one Service", changed)
            figures.add("event that changes nothing", same)


def arrivals(driven: Driven, play: Stage, node_port: int, figures: Figures, runs: int) -> None:
    """Measure Services that come and go: each look also takes over what the update before it wrote.

    The first of each kind isn't counted.
    """
    for run in range(runs + 1):
        write(play, NEW, node_port)
        added = driven.inspect(SOURCE)
        alone = driven.updates() == 1
        (play.manifests / f"s{NEW}.yaml").unlink()
        removed = driven.inspect(SOURCE)
        if not alone or driven.updates() != 1:
            raise SystemExit("a Service that came or went didn't lead to one update")
        if run:
            figures.add("event that adds one Service", added)
            figures.add("event that removes one Service", removed)


def planning(snapshot: Snapshot, driven: Driven, figures: Figures, runs: int) -> None:
    """Measure planning alone: with what the stack holds, and from nothing."""
    empty = replace(snapshot, claims=(), remembered=(), proxies=(), stack_proxies=(), assignments=())
    for name, planned_from in (("planning alone", snapshot), ("planning alone, from nothing", empty)):
        for _ in range(runs):
            clock = Clock()
            make_plan(planned_from, driven.settings)
            figures.add(name, clock.stop())


def sizes(play: Stage, figures: Figures) -> None:
    """Tell memory and descriptors of the loop, which is this process, and of the proxy."""
    gc.collect()
    record = next((play.state_home / "proxies").glob("*/process.json"))
    pids = {"loop": os.getpid(), "proxy": int(json.loads(record.read_text())["pid"])}
    for name, pid in pids.items():
        figures.sizes[f"{name}: private memory, MiB"] = round(private_memory(pid), 2)
        figures.sizes[f"{name}: open descriptors"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))


def measure(size: int, runs: int, *, profile: bool) -> Figures:
    """Measure one size, in this process."""
    figures = Figures()
    with stage() as play, backend() as node_port:
        second, third = 100 + secrets.randbelow(150), 32 * secrets.randbelow(8)
        pools = [{"name": "own", "addresses": [f"127.{second}.{third}.0/19"]}]
        play.configure(proxies="shared", pools=pools)
        play.write("nodes.yaml", node())
        for number in range(size):
            write(play, number, node_port)
        driven = Driven(play)
        figures.add("everything from nothing", driven.inspect(Mark(Cause.START)))
        snapshot = driven.planned()[1].snapshot
        if snapshot is None:
            raise SystemExit("the loop planned without a snapshot")
        if profile:
            profiled(lambda: events(driven, play, node_port, Figures(), runs), f"{runs + 1} events of each kind")
            profiled(lambda: arrivals(driven, play, node_port, Figures(), runs), f"{runs + 1} that come, and go")
        else:
            events(driven, play, node_port, figures, runs)
            sizes(play, figures)
            arrivals(driven, play, node_port, figures, runs)
            gc.collect()
            figures.sizes["loop: private memory after arrivals, MiB"] = round(private_memory(os.getpid()), 2)
        driven.inspect(SOURCE)
        snapshot = driven.planned()[1].snapshot or snapshot
        planning(snapshot, driven, figures, runs)
        driven.close()
        retry = starts(play, figures, profile=profile)
        retry.close()
    return figures


def starts(play: Stage, figures: Figures, *, profile: bool) -> Driven:
    """Measure starts with existing state: until it is planned, and until every Service was looked at."""
    planned = figures.milliseconds.setdefault("start: until planned", [])
    driven = Driven(play)
    if profile:
        profiled(lambda: driven.inspect(Mark(Cause.START)), "a start")
        return driven
    while True:
        began = time.perf_counter()
        figures.add("start: until all are checked", driven.inspect(Mark(Cause.START)))
        planned.append((driven.planned()[0] - began) * 1000)
        if len(planned) == STARTS:
            return driven
        driven.close()
        driven = Driven(play)


def profiled(work: Callable[[], object], what: str) -> None:
    """Tell where the time of something goes."""
    profile = cProfile.Profile()
    profile.runcall(work)
    report_to(f"== {what}")
    pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(70)


def child(size: int, runs: int, profile: bool, answer: multiprocessing.SimpleQueue[Figures]) -> None:  # noqa: FBT001
    """Measure one size in a process of its own, so that memory is that size's."""
    answer.put(measure(size, runs, profile=profile))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=SIZES, help="numbers of Services (default: %(default)s; at most 8,000)")
    parser.add_argument("--runs", type=int, default=20, help="of each event (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="tell where the time goes instead")
    args = parser.parse_args()
    milliseconds: dict[str, dict[str, Spread]] = {}
    counted: dict[str, dict[str, float]] = {}
    context = multiprocessing.get_context("spawn")
    for size in [min(8000, int(size)) for size in args.sizes.split(",")]:
        answer: multiprocessing.SimpleQueue[Figures] = context.SimpleQueue()
        process = context.Process(target=child, args=(size, args.runs, args.profile, answer))
        process.start()
        while answer.empty():
            if not process.is_alive() and answer.empty():
                raise SystemExit(f"size {size} failed (exit code {process.exitcode})")
            time.sleep(0.05)
        figures = answer.get()
        process.join()
        name = f"{size} Services"
        milliseconds[name], counted[name] = spreads(figures.milliseconds), figures.sizes
        report_to(table({name: milliseconds[name]}))
        report_to(*(f"{'':<22}{what:<34}{value:>10}" for what, value in figures.sizes.items()))
    result("scale", milliseconds=milliseconds, sizes=counted)


if __name__ == "__main__":
    main()
