"""One proxy, measured against Envoy alone: from start to first byte, from a change to its effect, failures meanwhile.

`Envoy by hand` is the least that serves the same listener: no checks, no retries, endpoints from a file. `Envoy, our
files` is the same Envoy with the files that we render. `up, kept` is local-lb as a whole, from renamed manifests to
traffic, in a process that stays; `spare, kept` and `shared, kept` are the same where a proxy waits or is shared;
`up, command` is `locallb up --yes` typed each time. All take turns within one run on
one machine, so that ratios mean something where absolute figures depend on the machine. A table goes to standard error,
one JSON object to standard output.

    python -m benchmarks.proxy [--runs 20]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.contestants import Contestant, EnvoyWithFiles, Locallb, by_hand, ours
from benchmarks.figures import Spread, report_to, result, spreads, table
from benchmarks.traffic import ADDED, NEW, OLD, PORT, RATE, Load, backend, until

FIRST_BYTE, CHANGED, PORT_ADDED = "first byte", "backend changed", "port added"


@dataclass
class Figures:
    """What one contestant did: milliseconds, one entry a run."""

    times: dict[str, list[float]] = field(
        default_factory=lambda: {"first byte": [], "backend changed": [], "port added": []}
    )
    memory_mib: list[float] = field(default_factory=list)
    requests: int = 0
    failed: int = 0


def run_once(contestant: Contestant, figures: Figures) -> None:
    """Start, change the backend, add a port, stop."""
    contestant.prepare()
    began = time.perf_counter()
    contestant.start([PORT], OLD)
    try:
        figures.times[FIRST_BYTE].append((until(OLD[0], PORT) - began) * 1000)
        with Load() as load:
            time.sleep(0.1)
            for ports, port, times in (
                ([PORT], PORT, figures.times[CHANGED]),
                ([PORT, ADDED], ADDED, figures.times[PORT_ADDED]),
            ):
                began = time.perf_counter()
                contestant.change(ports, NEW)
                times.append((until(NEW[0], port) - began) * 1000)
                time.sleep(0.2)
        figures.memory_mib.append(contestant.memory())
    finally:
        contestant.stop()
    figures.requests += load.requests
    figures.failed += load.failed


def measure(contestants: list[Contestant], runs: int) -> Mapping[str, Figures]:
    """Let the contestants take turns, after one run each that isn't counted."""
    figures = {contestant.name: Figures() for contestant in contestants}
    for number in range(-1, runs):
        for contestant in contestants:
            run_once(contestant, figures[contestant.name] if number >= 0 else Figures())
    return figures


def tables(figures: Mapping[str, Figures]) -> dict[str, dict[str, dict[str, Spread]] | dict[str, dict[str, float]]]:
    """Return the distributions, what isn't a time, and the medians of times as multiples of the limit's."""
    medians = {
        name: {what: statistics.median(times) for what, times in measured.times.items()}
        for name, measured in figures.items()
    }
    limit = next(iter(medians.values()))
    return {
        "milliseconds": {name: spreads(measured.times) for name, measured in figures.items()},
        "counts": {
            name: {
                "private memory, MiB": round(statistics.median(measured.memory_mib), 1),
                "requests meanwhile": measured.requests,
                "failed": measured.failed,
            }
            for name, measured in figures.items()
        },
        "ratios": {
            name: {f"{what}, of Envoy by hand": round(figure / limit[what], 2) for what, figure in figures.items()}
            for name, figures in medians.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each contestant (at least 2)")
    runs: int = parser.parse_args().runs
    backends = [multiprocessing.Process(target=backend, args=(place,), daemon=True) for place in (OLD, NEW)]
    for process in backends:
        process.start()
    contestants: list[Contestant] = [
        EnvoyWithFiles("Envoy by hand", by_hand),
        EnvoyWithFiles("Envoy, our files", ours),
        Locallb("up, kept", retained=True),
        Locallb("spare, kept", retained=True, settings={"proxies": {"mode": "per-service", "spares": 1}}),
        Locallb("shared, kept", retained=True, settings={"proxies": "shared"}),
        Locallb("up, command", retained=False),
    ]
    try:
        figures = measure(contestants, runs)
    finally:
        for contestant in contestants:
            contestant.close()
    for process in backends:
        process.terminate()
    tabled = tables(figures)
    report_to(table(tabled["milliseconds"]), *(f"{name:<22}{count}" for name, count in tabled["counts"].items()))  # type: ignore[arg-type]
    result("proxy", [f"{RATE} requests a second meanwhile"], runs=runs, **tabled)


if __name__ == "__main__":
    main()
