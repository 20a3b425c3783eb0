"""What clients see of real Nodes, pods and kube-proxies, and of the loop's own end, while `locallb watch` runs.

    python -m benchmarks.cluster [--runs 20]

Only root can: it makes a machine with three Nodes in network namespaces (see tests/traffic). Clients ask at a constant
rate, each request over a new connection, and every one that fails is counted. A table goes to standard error, one JSON
object to standard output.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.figures import report_to, result, spreads, table
from benchmarks.requests import RATE, Load, ask, until
from tests.support.network_spaces import inside
from tests.support.real_nodes import World
from tests.support.stages import Stage, stage
from tests.support.traffic import LOCAL, addresses, make, sees_endpoints, served
from tests.support.watching import Watch
from tests.traffic.conftest import configured, make_machine

IDLE = 0.3
"""Seconds for which something must be so to count."""
MANY, ROOM = 40, ["172.18.254.0/26"]
PORT = 80


@dataclass
class Figures:
    """Milliseconds by what was measured, and sums of requests."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.milliseconds.setdefault(name, []).append(seconds * 1000)

    def count(self, name: str, load: Load) -> None:
        """Note how many requests there were, and how many failed."""
        for what, number in (("requests", len(load.requests)), ("failed", len(load.failed))):
            self.counts[f"{name}: {what}"] = self.counts.get(f"{name}: {what}", 0) + number


def answered(load: Load, since: float) -> set[str]:
    """Return which pods answered requests that began since then."""
    return {
        request.answer.partition(":")[0] for request in tuple(load.requests) if request.began > since and request.answer
    }


def last(load: Load, name: str, since: float) -> float:
    """Return when the last request began that this pod answered; `since` if there was none after that."""
    return max(
        (request.began for request in tuple(load.requests) if request.answer.startswith(f"{name}:")), default=since
    )


@contextmanager
def serving(world: World, *nodes: str, **spec: str) -> Iterator[str]:
    """Have a Service with a pod on each of `nodes`, called a, b and so on; give its address once it serves."""
    make(world, **spec)
    for name, node in zip("abc", nodes, strict=False):
        world.pod(name, world.nodes[node])
    sees_endpoints(world, "web", len(nodes))
    until(lambda: addresses(world) and ask(addresses(world)[0], PORT), "the Service serves")
    try:
        yield addresses(world)[0]
    finally:
        removed(world, "web")
        for pod in list(world.pods.values()):
            world.remove(pod)


def removed(world: World, *names: str) -> None:
    """Delete Services and wait until they are gone."""
    for name in names:
        world.delete(name)
    until(lambda: all(world.read(name) is None for name in names), "the Services are gone")


def pod_moves(world: World, figures: Figures) -> None:
    """Policy Local: another pod comes on another Node, the first one ends gracefully."""
    with serving(world, "kind-worker", **LOCAL) as at, Load(at, PORT) as load:
        old = world.pods["a"]
        world.pod("b", world.nodes["kind-worker2"])
        sees_endpoints(world, "web", 2)
        began = time.perf_counter()
        world.terminate(old)
        until(lambda: answered(load, time.perf_counter() - IDLE) == {"b"}, "all reaches b")
        figures.add("pod moves (Local): last request to the old one", max(0.0, last(load, "a", began) - began))
        world.remove(old)
        time.sleep(IDLE)
    figures.count("pod moves (Local)", load)


def kube_proxy_hangs(world: World, figures: Figures) -> None:
    """Policy Local: kube-proxy of one of two Nodes answers no more; its rules still work."""
    proxy = world.nodes["kind-worker"].proxy
    assert proxy is not None
    with serving(world, "kind-worker", "kind-worker2", **LOCAL) as at, Load(at, PORT) as load:
        until(lambda: answered(load, 0) == {"a", "b"}, "both serve")
        began = time.perf_counter()
        os.kill(proxy.pid, signal.SIGSTOP)
        try:
            until(lambda: answered(load, time.perf_counter() - IDLE) == {"b"}, "b alone serves")
        finally:
            os.kill(proxy.pid, signal.SIGCONT)
        figures.add("kube-proxy hangs (Local): last request to it", max(0.0, last(load, "a", began) - began))
    figures.count("kube-proxy hangs (Local)", load)


def loop_killed(world: World, play: Stage, watch: Watch, figures: Figures) -> Watch:
    """SIGKILL of the loop under load, then another one; gives that."""
    with serving(world, "kind-worker") as at, Load(at, PORT) as load:
        watch.process.kill()
        watch.process.wait()
        began = time.perf_counter()
        retry = Watch(play, "--plain")
        until(lambda: "converged" in retry.reported(), "it has converged")
        figures.add("loop killed: the next one has converged", time.perf_counter() - began)
        time.sleep(IDLE)
        if addresses(world) != [at]:
            raise SystemExit(f"the address {at} became {addresses(world)}")
    figures.count("loop killed and started again", load)
    return retry


def many_at_once(world: World, figures: Figures) -> None:
    """Create many Services at once, until all serve."""
    world.pod("a", world.nodes["kind-worker"])
    names = [f"many-{number}" for number in range(MANY)]
    began = time.perf_counter()
    for name in names:
        make(world, name, served(PORT))
    until(lambda: all(addresses(world, name) for name in names), "all have an address", 120)
    figures.add(f"{MANY} Services at once: all have an address", time.perf_counter() - began)
    places = {addresses(world, name)[0] for name in names}
    until(lambda: all(ask(at, PORT) for at in places), "all serve", 120)
    figures.add(f"{MANY} Services at once: all serve", time.perf_counter() - began)
    if len(places) != MANY:
        raise SystemExit(f"{MANY} Services have {len(places)} addresses")
    removed(world, *names)
    world.remove(world.pods["a"])


def measure(world: World, runs: int) -> Figures:
    """Run everything in turn; the first run of each isn't counted."""
    figures = Figures()
    scenarios: tuple[Callable[[World, Figures], None], ...] = (pod_moves, kube_proxy_hangs, many_at_once)
    with stage() as play:
        play.configure(**configured(world) | {"pools": [{"name": "lab", "addresses": ROOM}], "proxies": "shared"})
        watch = Watch(play, "--plain")
        try:
            for number in range(-1, runs):
                retained = figures if number >= 0 else Figures()
                for scenario in scenarios:
                    scenario(world, retained)
                watch = loop_killed(world, play, watch, retained)
        finally:
            watch.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each (default: %(default)s)")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("only root can make Nodes")
    with ExitStack() as stack:
        world = stack.enter_context(make_machine())
        stack.enter_context(inside(world.host.space))
        world.host.space.shell("; ".join(f"ip route replace local {network} dev lo" for network in ROOM))
        figures = measure(world, args.runs)
    spread = {"shared": spreads(figures.milliseconds)}
    report_to(table(spread), *(f"{what:<60}{number:>8}" for what, number in figures.counts.items()))
    notes = [f"{RATE} requests a second, each a new connection; real kube-proxy (iptables), three Nodes"]
    result("cluster", notes, runs=args.runs, milliseconds=spread, counts={"shared": figures.counts})


if __name__ == "__main__":
    main()
