"""From a change of a Gateway, its routes, certificates and pods to its effect for clients: in an API, and in manifests.

    python -m benchmarks.gateways_live [--runs 20] [--sources API,manifests] [--mode process]

One `locallb watch` follows a test cluster (see tests/cluster) and a directory of manifests. Each Gateway has a proxy
of its own, in the mode `spares` one that waited. Pods have addresses of a network that is made for the run, which
only root can. local-lb may watch the Secrets of the cluster (deploy/rbac-certificates.yaml). A table goes to standard
error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Spread, report_to, result, spreads, table
from benchmarks.gateway_world import (
    HTTP,
    PODS,
    Api,
    Held,
    HttpLoad,
    Manifests,
    Source,
    gateway,
    get,
    pods_network,
    route,
    secret,
    service,
    shown,
    slice_of,
)
from benchmarks.nodes import served
from benchmarks.requests import RATE, connects, until
from benchmarks.targets import OurLoop, target
from benchmarks.watch import IDLE, SPARED, Figures, note
from tests.support.certificates import Authority, Pair
from tests.support.control_plane import control_plane
from tests.support.stages import free_prefix

FIRST_POD, OTHER_POD = PODS
SOURCES: Mapping[str, int] = {"API": 10, "manifests": 20}
"""The last byte of the Gateway's address in each; the one that is there all the time has the next."""
RARE = 2
"""First Gateways of a source."""
AIMS = "aims: route 50 ms, Gateway 60 ms, certificate 100 ms, pod 30 ms; none failed, none cut"


@dataclass
class Stand:
    """Where it is measured: a source, the address that its Gateway asks for, certificates that take turns."""

    source: Source
    prefix: str
    number: int
    pairs: tuple[Pair, Pair]
    trusted: ssl.SSLContext

    @property
    def address(self) -> str:
        """Of the Gateway that is made again and again."""
        return f"{self.prefix}.{self.number}"

    def prepare(self) -> None:
        """Write what stays through all runs."""
        self.source.put(secret(self.pairs[0]))
        for name, pod in (("one", FIRST_POD), ("two", OTHER_POD), ("pods", FIRST_POD)):
            self.source.put(service(name))
            self.source.put(slice_of(name, pod))
        self.source.put(route("one"))


def first_gateway(stand: Stand, figures: Figures) -> None:
    """Create the only Gateway, several times: its kinds aren't followed before. The last one stays."""
    address = f"{stand.prefix}.{stand.number + 1}"
    present = gateway(address, "there")
    for number in range(RARE):
        if number:
            stand.source.remove(present)
            until(lambda: not connects(address, HTTP), "the refusal")
            time.sleep(SPARED)
        began = time.perf_counter()
        stand.source.put(present)
        at = until(lambda: get(address) == FIRST_POD, "the first byte")
        figures.add("first Gateway of a source: first byte", at - began)


def run_once(stand: Stand, figures: Figures) -> None:
    """Create a Gateway beside the one that is there, change all that it leads to, delete it."""
    with figures.part("Gateway created"):
        began = time.perf_counter()
        stand.source.put(gateway(stand.address))
        at = until(lambda: get(stand.address) == FIRST_POD, "the first byte")
        figures.add("Gateway created: first byte", at - began)
        route_changed(stand, figures)
        pod_comes_and_goes(stand, figures)
        rotated(stand, figures)
    with figures.part("Gateway deleted"):
        began = time.perf_counter()
        stand.source.remove(gateway(stand.address))
        at = until(lambda: not connects(stand.address, HTTP), "the refusal")
        figures.add("Gateway deleted: refused", at - began)
    time.sleep(SPARED)


def route_changed(stand: Stand, figures: Figures) -> None:
    """Have the route lead to the other Service and back, under load."""
    with figures.part("HTTPRoute changed"), HttpLoad(stand.address, "/", RATE) as load:
        for to, answer in (("two", OTHER_POD), ("one", FIRST_POD)):
            began = time.perf_counter()
            stand.source.put(route(to))
            at = until(lambda answer=answer: get(stand.address) == answer, "the change")  # type: ignore[misc]
            figures.add("HTTPRoute changed: in effect", at - began)
            time.sleep(IDLE)
    note(figures, "HTTPRoute changed", load)


def pod_comes_and_goes(stand: Stand, figures: Figures) -> None:
    """Give a Service a second pod, and take it away: when its first and its last request began."""
    with figures.part("pod added or removed"), HttpLoad(stand.address, "/pods", RATE) as load:

        def of_other(since: float) -> list[float]:
            every = tuple(load.requests)
            return [request.began for request in every if request.began > since and request.answer == OTHER_POD]

        began = time.perf_counter()
        stand.source.put(slice_of("pods", *PODS))
        until(lambda: of_other(began), "traffic to the added pod")
        figures.add("pod added: first request to it", min(of_other(began)) - began)
        time.sleep(IDLE)
        began = time.perf_counter()
        stand.source.put(slice_of("pods", FIRST_POD))
        until(lambda: not of_other(max(began, time.perf_counter() - IDLE)) and _idle(began), "its last request")
        figures.add("pod removed: last request to it", max(of_other(began), default=began) - began)
    note(figures, "pod added, removed", load)


def _idle(since: float) -> bool:
    return time.perf_counter() > since + IDLE


def rotated(stand: Stand, figures: Figures) -> None:
    """Put another certificate into the Secret, while a connection is kept."""
    with figures.part("certificate rotated"), closing(Held(stand.address, stand.trusted)) as held:
        before = shown(stand.address, stand.trusted)
        if not held.goes_on() or not before:
            raise TimeoutError("HTTPS isn't served")
        stand.pairs = stand.pairs[1], stand.pairs[0]
        began = time.perf_counter()
        stand.source.put(secret(stand.pairs[0]))
        at = until(lambda: shown(stand.address, stand.trusted) not in {before, b""}, "the certificate")
        figures.add("certificate rotated: new connections have it", at - began)
        time.sleep(IDLE)
        figures.count("certificate rotated: connections cut", not held.goes_on())


def measure(stand: Stand, runs: int) -> Figures:
    """Measure one source; its first run isn't counted."""
    stand.prepare()
    figures = Figures()
    first_gateway(stand, figures)
    for number in range(-1, runs):
        run_once(stand, figures if number >= 0 else Figures())
    return figures


def every(sources: Sequence[str], runs: int, mode: str, stack: ExitStack) -> Mapping[str, Figures]:
    """Start a cluster and the loop, and measure each source."""
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    stack.callback(shutil.rmtree, root)
    stack.enter_context(pods_network())
    for pod in PODS:
        stack.enter_context(served(pod, http=True))
    plane = stack.enter_context(control_plane("bench", root / "c"))
    api, prefix = Api(stack.enter_context(plane.client())), free_prefix()
    settings = {
        "sources": [plane.source, {"manifests": "manifests", "name": "files"}],
        "pools": [{"name": "own", "addresses": [f"{prefix}.0/26"]}],
        "backends": "pods",
    }
    loop = stack.enter_context(target(mode, plane, **settings))
    assert isinstance(loop, OurLoop)
    authority = Authority(root / "authority")
    trusted = ssl.create_default_context(cafile=str(authority.own.chain))
    pairs = authority.sign("DNS:a.test"), authority.sign("DNS:a.test")
    places: Mapping[str, Source] = {"API": api, "manifests": Manifests(loop.play)}
    return {name: measure(Stand(places[name], prefix, SOURCES[name], pairs, trusted), runs) for name in sources}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each source (default: %(default)s)")
    parser.add_argument("--sources", default=",".join(SOURCES), help="(default: %(default)s)")
    parser.add_argument("--mode", choices=("process", "spares"), default="process", help="(default: %(default)s)")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("only root can make the network of the pods")
    with ExitStack() as stack:
        measured = every(args.sources.split(","), args.runs, args.mode, stack)
    milliseconds: dict[str, dict[str, Spread]] = {name: spreads(each.milliseconds) for name, each in measured.items()}
    counts = {name: each.counts for name, each in measured.items()}
    never = {name: each.never for name, each in measured.items()}
    notes = [f"{RATE} requests a second while a route or pod changes, each a new connection", AIMS]
    notes += ["proxies wait for the next Gateway"] if args.mode == "spares" else []
    report_to(table(milliseconds), *(f"{name:<22}{counted}" for name, counted in counts.items()), *notes)
    result("gateways_live", notes, runs=args.runs, milliseconds=milliseconds, counts=counts, never=never)


if __name__ == "__main__":
    main()
