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
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.contestants import Contestant, EnvoyWithFiles, Locallb, by_hand, ours
from benchmarks.traffic import ADDED, NEW, OLD, PORT, RATE, Load, backend, until


@dataclass
class Figures:
    """What one contestant did: milliseconds, one entry a run."""

    start_to_first_byte: list[float] = field(default_factory=list)
    backend_change: list[float] = field(default_factory=list)
    port_added: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    requests: int = 0
    failed: int = 0


def run_once(contestant: Contestant, figures: Figures) -> None:
    """Start, change the backend, add a port, stop."""
    contestant.prepare()
    began = time.perf_counter()
    contestant.start([PORT], OLD)
    try:
        figures.start_to_first_byte.append((until(OLD[0], PORT) - began) * 1000)
        with Load() as load:
            time.sleep(0.1)
            for ports, port, times in (
                ([PORT], PORT, figures.backend_change),
                ([PORT, ADDED], ADDED, figures.port_added),
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


def summary(figures: Figures) -> dict[str, object]:
    """Tell the distribution of each figure."""

    def spread(values: list[float]) -> dict[str, float]:
        low, middle, high = statistics.quantiles(values, n=4)
        named = {"min": min(values), "p25": low, "p50": middle, "p75": high, "max": max(values)}
        return {name: round(value, 2) for name, value in named.items()}

    times = {name: spread(values) for name, values in vars(figures).items() if isinstance(values, list)}
    return {**times, "requests": figures.requests, "failed": figures.failed}


def measure(contestants: list[Contestant], runs: int) -> dict[str, object]:
    """Let the contestants take turns, after one run each that isn't counted."""
    figures = {each.name: Figures() for each in contestants}
    for number in range(-1, runs):
        for each in contestants:
            run_once(each, figures[each.name] if number >= 0 else Figures())
    limit, medians = contestants[0].name, ("start_to_first_byte", "backend_change", "port_added", "memory_mib")
    ratios = {
        each.name: {
            what: round(
                statistics.median(getattr(figures[each.name], what)) / statistics.median(getattr(figures[limit], what)),
                2,
            )
            for what in medians
        }
        for each in contestants[1:]
    }
    return {
        "runs": runs,
        "cores": os.cpu_count(),
        "rate": RATE,
        "milliseconds": {name: summary(each) for name, each in figures.items()},
        f"ratios to {limit}": ratios,
    }


def table(figures: Mapping[str, Mapping[str, object]]) -> str:
    """Lay the distributions out for reading."""
    lines = [f"{'':<18}{'what':<22}{'min':>8}{'p25':>8}{'p50':>8}{'p75':>8}{'max':>8}"]
    for name, each in figures.items():
        for what, spread in each.items():
            if isinstance(spread, dict):
                lines.append(f"{name:<18}{what:<22}" + "".join(f"{value:>8.1f}" for value in spread.values()))
        lines.append(f"{name:<18}{'failed requests':<22}{each['failed']:>8} of {each['requests']}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each contestant (at least 2)")
    runs: int = parser.parse_args().runs
    backends = [multiprocessing.Process(target=backend, args=(each,), daemon=True) for each in (OLD, NEW)]
    for process in backends:
        process.start()
    contestants: list[Contestant] = [
        EnvoyWithFiles("Envoy by hand", by_hand),
        EnvoyWithFiles("Envoy, our files", ours),
        Locallb("up, kept", kept=True),
        Locallb("spare, kept", kept=True, settings={"proxies": {"mode": "per-service", "spares": 1}}),
        Locallb("shared, kept", kept=True, settings={"proxies": "shared"}),
        Locallb("up, command", kept=False),
    ]
    try:
        result = measure(contestants, runs)
    finally:
        for each in contestants:
            each.close()
    for process in backends:
        process.terminate()
    sys.stderr.write(table(result["milliseconds"]) + "\n")  # type: ignore[arg-type]  # the one mapping of mappings
    print(json.dumps(result))


if __name__ == "__main__":
    main()
