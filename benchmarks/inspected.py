"""What it costs to look and to order faults: requests through an HTTPRoute with all of that off, on, and in use.

As `throughput`, all in turns, and the processor time that Envoy needs for a request, which says more where the machine
has other work. Ratios are to the one with everything off. `asked each second` is what `top` and the live page do while
somebody looks. Who reads a log shares the cores with all others, and gets at most 5,000 lines a second.

python -m benchmarks.inspected [--runs 20] [--seconds 1]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from pathlib import Path

from benchmarks.contestants import EnvoyWithFiles, Files
from benchmarks.figures import report_to, result, spreads, table
from benchmarks.http import routed
from benchmarks.requests import connects, until
from benchmarks.throughput import CLIENTS, CONNECTIONS, TOLD, WARM, Figures, backend, ratios, run_once
from benchmarks.traffic import ADDRESS, OLD, PORT
from locallb.cli.traffic import line_json
from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.listeners import CLOSED, GATE, gate
from locallb.model.faults import Fault, RequestDelay
from locallb.model.identities import ClusterName, ObjectKey
from locallb.traffic.figures import STATISTICS, by_upstream, lines
from locallb.traffic.reading import PACE, TrafficReading

OFF, CPU = "all off", "Envoy's us a request"
_KEY = ObjectKey(ClusterName("bench"), "default", "web")


@dataclass
class Watched(EnvoyWithFiles):
    """An Envoy at which somebody looks, in a process of its own."""

    inspect: Callable[[Path], None]
    reading: multiprocessing.Process = field(init=False)

    def start(self, ports: list[int], backend: tuple[str, int]) -> None:
        """Begin to look as soon as it is started."""
        super().start(ports, backend)
        self.reading = multiprocessing.Process(target=self.inspect, args=(self.directory,))
        self.reading.start()

    def stop(self) -> None:
        self.reading.kill()
        self.reading.join()
        super().stop()


def ask(directory: Path) -> None:
    admin = EnvoyAdmin(directory)
    while not admin.ready():
        time.sleep(0.01)
    while True:
        by_upstream(admin.clusters(), admin.statistics(STATISTICS))
        time.sleep(1)


def read(directory: Path) -> None:
    """Read the log as `locallb logs --json` does, into nothing."""
    reading = TrafficReading()
    if failures := list(reading.follow([directory])):
        raise SystemExit(failures[0])
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        while True:
            for tap, message in reading.messages(PACE):
                ended = list(lines(message))
                tap.came += len(ended)
                nowhere.writelines(json.dumps(line_json(_KEY, line)) + "\n" for line in ended)
            for tap in reading.taps.values():
                tap.renew()


def measured(ports: list[int], place: tuple[str, int]) -> Files:
    return routed(ports, place, measured=True)


def logged(ports: list[int], place: tuple[str, int]) -> Files:
    """Have a log that can be asked for."""
    return {GATE: gate(CLOSED), **routed(ports, place, log="access-log")}


def failing(ports: list[int], place: tuple[str, int]) -> Files:
    """Have a listener that takes faults, of which none is ordered: as every one of a new Gateway."""
    return routed(ports, place, may_fail=True)


def ordered(ports: list[int], place: tuple[str, int]) -> Files:
    """Have a fault ordered that befalls one request in 10,000, so that all others pay for the question."""
    return routed(ports, place, may_fail=True, fault=Fault("2099-01-01T00:00:00Z", delay=RequestDelay(1, 1)))


def used(process: int) -> float:
    """Return the microseconds of processor time that a process has used."""
    times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK") * 1e6


def measure(clients: Pool, contestants: list[EnvoyWithFiles], runs: int, seconds: float) -> dict[str, Figures]:
    """Let all take turns, after one run each that isn't counted."""
    figures = {each.name: Figures({name: [] for name in (*TOLD, CPU)}) for each in contestants}
    for number in range(-1, runs):
        for each in contestants:
            each.start([PORT], OLD)
            try:
                until(lambda: connects(ADDRESS, PORT), each.name)
                before, once = used(each.process.pid), Figures()
                run_once(clients, (ADDRESS, PORT), once, seconds)
                requested = once.values[TOLD[0]][0] * (seconds + WARM)
                once.values[CPU] = [(used(each.process.pid) - before) / requested]
            finally:
                each.stop()
            if number >= 0:
                figures[each.name].failed += once.failed
                for name, values in once.values.items():
                    figures[each.name].values[name] += values
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each contestant (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run (default: %(default)s)")
    args = parser.parse_args()
    contestants = [
        EnvoyWithFiles(OFF, routed),
        EnvoyWithFiles("trafficDetails", measured),
        Watched("asked each second", measured, ask),
        EnvoyWithFiles("accessLogs", logged),
        Watched("a log is read", logged, read),
        EnvoyWithFiles("faults possible", failing),
        EnvoyWithFiles("a fault is ordered", ordered),
    ]
    with multiprocessing.Pool(CLIENTS) as clients, backend():
        figures = measure(clients, contestants, args.runs, args.seconds)
    distributions = {name: spreads(each.values) for name, each in figures.items()}
    compared, failed = ratios(figures, OFF), {name: each.failed for name, each in figures.items()}
    report_to(table(distributions, ""), f"ratios to {OFF}: {compared}", f"connections that broke: {failed}")
    notes = [f"{CONNECTIONS} connections in {CLIENTS} client processes, on the same cores as proxy, backend and reader"]
    result("looked-at", notes, runs=args.runs, figures=distributions, ratios=compared, failed=failed)


if __name__ == "__main__":
    main()
