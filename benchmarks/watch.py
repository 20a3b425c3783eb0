"""From a change in a cluster to its effect in traffic, for any implementation of LoadBalancer.

    python -m benchmarks.watch [--runs 20] [--modes process,spares,shared,docker]
    python -m benchmarks.watch --kubeconfig FILE --node-port-host ADDR[,ADDR] [--name NAME]

The first starts a test cluster (etcd and kube-apiserver, see tests/cluster), and in turn `locallb watch` in each of its
modes. The second measures whatever runs for the cluster of that kubeconfig: either this benchmark itself answers on the
NodePorts at ADDR, addresses of this host that Nodes have as InternalIP (with two, Nodes are excluded, too), or pods do
that --selector names and that answer anything to an HTTP request. Envoy started by hand is in the table as the limit.
A table goes to standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from benchmarks import traffic
from benchmarks.contestants import EnvoyWithFiles, by_hand
from benchmarks.figures import Spread, report_to, result, spreads, table
from benchmarks.nodes import FIRST, FarNode, can_be_far, far_node, served
from benchmarks.requests import RATE, Load, ask, connects, until
from benchmarks.services import Services
from benchmarks.targets import MODES, OurLoop, PulumiCommand, Target, absent, target
from tests.support.control_plane import control_plane

NEAR, SECOND = "127.0.0.21", "127.0.0.22"
"""Where the test cluster's Nodes are; the second one is far away where this user may make it so."""
PORT, ADDED = (8080, FIRST), (8081, FIRST + 1)
MANY, IDLE = 10, 30
REST = 0.3
"""Seconds without anything after which an effect is complete."""
SPARED = 0.8
"""Seconds in which spares are started again."""
SILENT_CALM = 1.5
"""Seconds without a failed request after which a dead Node's share counts as over."""
RARE = 5
"""Runs of what takes seconds: a Node that dies without a word, `pulumi up`."""
IDLE_SECONDS = 20.0
IDLE_MODES = ("process", "shared")


@dataclass
class Figures:
    """What one target did: values by name, one entry a run; and sums by name."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    never: dict[str, int] = field(default_factory=dict)
    """What didn't come true within the patience, and how often."""

    def add(self, name: str, seconds: float) -> None:
        self.milliseconds.setdefault(name, []).append(seconds * 1000)

    def count(self, name: str, number: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Do one part of a run: what takes too long is noted, and the run goes on."""
        try:
            yield
        except TimeoutError as error:
            self.never[name] = self.never.get(name, 0) + 1
            report_to(f"  {name}: {error}")


@dataclass
class Stand:
    """Where targets are measured: a cluster and what answers on its NodePorts."""

    services: Services
    second: str = ""
    """The address of the Node that may be excluded; empty if there is but one."""
    second_name: str = ""
    far: FarNode | None = None


def run_once(stand: Stand, target: Target, figures: Figures) -> None:
    """Create a Service, change it, delete it; then ten at once."""
    with figures.part("Service created"):
        began = time.perf_counter()
        stand.services.create("web", PORT)
        target.act()
        address = stand.services.address("web")
        figures.add("Service created: address told", time.perf_counter() - began)
        figures.add("Service created: first byte", until(lambda: ask(address, PORT[0]), "the first byte") - began)
        target.acted()
        port_added(stand, target, figures, address)
        if stand.second and not isinstance(target, PulumiCommand):
            node_excluded(stand, figures, address)
        if isinstance(target, OurLoop):
            proxy_killed(target, figures, address)
        service_deleted(stand, target, figures, address)
    clear(stand, target, "web")
    if not isinstance(target, PulumiCommand):
        many(stand, figures)
        clear(stand, target, *(f"many-{number}" for number in range(MANY)))


def port_added(stand: Stand, target: Target, figures: Figures, address: str) -> None:
    """Add a port under load on the other one."""
    with figures.part("port added"), Load(address, PORT[0]) as load:
        began = time.perf_counter()
        stand.services.change_ports("web", PORT, ADDED)
        target.act()
        figures.add("port added: serves", until(lambda: ask(address, ADDED[0]), "the added port") - began)
        target.acted()
        time.sleep(REST)
    note(figures, "port added", load)


def node_excluded(stand: Stand, figures: Figures, address: str) -> None:
    """Exclude a Node under load, and include it again."""
    with figures.part("Node excluded or included"), Load(address, PORT[0]) as load:

        def used_after(moment: float) -> bool:
            return any(request.began > moment and request.answer == stand.second for request in tuple(load.requests))

        until(lambda: used_after(0), "traffic to the Node")
        began = time.perf_counter()
        stand.services.exclude(stand.second_name, excluded=True)
        try:
            until(
                lambda: not used_after(max(began, time.perf_counter() - REST - 0.05)) and rested(began), "the exclusion"
            )
            last = max(
                (request.began for request in tuple(load.requests) if request.answer == stand.second), default=began
            )
            figures.add("Node excluded: last request to it", max(0.0, last - began))
        finally:
            began = time.perf_counter()
            stand.services.exclude(stand.second_name, excluded=False)
        until(lambda: used_after(began), "the inclusion")
        first = min(
            request.began
            for request in tuple(load.requests)
            if request.began > began and request.answer == stand.second
        )
        figures.add("Node included: first request to it", first - began)
    note(figures, "Node excluded, included", load)


def rested(since: float) -> bool:
    return time.perf_counter() > since + REST


def proxy_killed(loop: OurLoop, figures: Figures, address: str) -> None:
    """Kill the proxy that serves the Service."""
    with figures.part("proxy killed"):
        began = time.perf_counter()
        loop.kill(address, PORT[0])
        with suppress(TimeoutError):  # repaired before anybody noticed
            until(lambda: not connects(address, PORT[0]), "the end of the proxy", 2.0)
        figures.add("proxy killed: serves again", until(lambda: ask(address, PORT[0]), "the repair") - began)


def service_deleted(stand: Stand, target: Target, figures: Figures, address: str) -> None:
    """Delete the Service, until clients are refused."""
    with figures.part("Service deleted"):
        began = time.perf_counter()
        stand.services.delete("web")
        target.act()
        figures.add("Service deleted: refused", until(lambda: not connects(address, PORT[0]), "the refusal") - began)
        target.acted()


def many(stand: Stand, figures: Figures) -> None:
    """Create ten Services at once, until all serve."""
    names = {f"many-{number}": (PORT[0], FIRST + 10 + number) for number in range(MANY)}
    with figures.part(f"{MANY} Services at once"):
        began = time.perf_counter()
        stand.services.create_all(names)
        addresses = [stand.services.address(name) for name in names]
        at = max(until(lambda at=at: ask(at, PORT[0]), "all serve") for at in addresses)  # type: ignore[misc]
        figures.add(f"{MANY} Services at once: all serve", at - began)


def node_dies(stand: Stand, far: FarNode, figures: Figures) -> None:
    """Let a Node fall silent under load: which requests fail, and for how long."""
    with figures.part("Node dies"):
        stand.services.create("dying", PORT)
        address = stand.services.address("dying")
        until(lambda: ask(address, PORT[0]) == stand.second, "traffic to the Node")
        with Load(address, PORT[0]) as load:
            began = time.perf_counter()
            far.silence()
            try:
                until(lambda: quiet(load, began), "the end of failures")
            finally:
                far.revive()
        failed = [request.began for request in load.failed]
        figures.add("Node dies: last failed request", max((at - began for at in failed), default=0.0))
        figures.add("Node dies: slowest request", max(request.ended - request.began for request in load.requests))
        note(figures, "Node dies", load)


def quiet(load: Load, since: float) -> bool:
    """Return whether no request has failed for some time; one that hangs isn't known to fail yet."""
    last = max((request.ended for request in load.failed), default=since)
    return time.perf_counter() > max(last, since + 2) + SILENT_CALM


def note(figures: Figures, name: str, load: Load) -> None:
    figures.count(f"{name}: requests", len(load.requests))
    figures.count(f"{name}: failed", len(load.failed))


def clear(stand: Stand, target: Target, *names: str) -> None:
    """Delete Services and wait until all is calm."""
    stand.services.delete(*names)
    target.act()
    target.acted()
    with suppress(TimeoutError):
        stand.services.removed(*names)
    time.sleep(SPARED)


def idle(stand: Stand, loop: OurLoop, figures: Figures) -> None:
    """Tell what the loop uses while nothing happens to many Services, in percent of a core."""
    names = {f"idle-{number}": (PORT[0], FIRST + 30 + number) for number in range(IDLE)}
    with figures.part("idle"):
        stand.services.create_all(names)
        for name in names:
            stand.services.address(name)
        time.sleep(3)
        before, began = processor(loop.pid), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        share = (processor(loop.pid) - before) / (time.perf_counter() - began)
        figures.counts[f"idle with {IDLE} Services: thousandths of a core"] = round(1000 * share)
    clear(stand, loop, *names)


def processor(pid: int) -> float:
    """Return for how many seconds a process had a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = 100  # USER_HZ, the same on every Linux
    return (int(fields[11]) + int(fields[12])) / ticks


def measure(stand: Stand, target: Target, runs: int) -> Figures:
    """Measure one target; its first run isn't counted."""
    figures = Figures()
    for number in range(-1, min(runs, RARE) if isinstance(target, PulumiCommand) else runs):
        run_once(stand, target, figures if number >= 0 else Figures())
    if stand.far and not isinstance(target, PulumiCommand):
        for _ in range(min(runs, RARE)):
            node_dies(stand, stand.far, figures)
            clear(stand, target, "dying")
    if isinstance(target, OurLoop) and target.name in IDLE_MODES:
        idle(stand, target, figures)
    return figures


def envoy_by_hand(runs: int) -> Figures:
    """Measure the limit: the same Envoy, started and changed by who knows beforehand what is wanted."""
    figures, hand = Figures(), EnvoyWithFiles("Envoy by hand", by_hand)
    backend = multiprocessing.Process(target=traffic.backend, args=(traffic.OLD,), daemon=True)
    backend.start()
    for number in range(-1, runs):
        retained = figures if number >= 0 else Figures()
        began = time.perf_counter()
        hand.start([traffic.PORT], traffic.OLD)
        try:
            retained.add("Service created: first byte", traffic.until(traffic.OLD[0], traffic.PORT) - began)
            began = time.perf_counter()
            hand.change([traffic.PORT, traffic.ADDED], traffic.OLD)
            retained.add("port added: serves", traffic.until(traffic.OLD[0], traffic.ADDED) - began)
        finally:
            hand.stop()
        many_by_hand(retained)
    backend.terminate()
    return figures


def many_by_hand(figures: Figures) -> None:
    """Start ten Envoys at once, each with a port of its own, until all serve."""
    ports = [traffic.ADDED + 1 + number for number in range(MANY)]
    with ExitStack() as stack:
        began = time.perf_counter()
        for port in ports:
            hand = EnvoyWithFiles("Envoy by hand", by_hand)
            hand.start([port], traffic.OLD)
            stack.callback(hand.stop)
        at = max(traffic.until(traffic.OLD[0], port) for port in ports)
        figures.add(f"{MANY} Services at once: all serve", at - began)


def theirs(args: argparse.Namespace, stack: ExitStack) -> Iterator[tuple[str, Figures]]:
    """Measure whatever runs for the cluster of a kubeconfig."""
    addresses = [host for host in args.node_port_host.split(",") if host]
    for address in addresses:
        stack.enter_context(served(address))
    spec: dict[str, object] = {}
    if args.selector:
        spec["selector"] = dict(pair.split("=", 1) for pair in args.selector.split(","))
    services = Services(Path(args.kubeconfig), args.namespace, spec)
    second = addresses[1] if len(addresses) > 1 else ""
    stand = Stand(services, second, services.nodes().get(second, ""))
    if second and not stand.second_name:
        raise SystemExit(f"no Node of the cluster has the InternalIP {second}")
    stack.callback(services.clear)
    yield args.name, measure(stand, Target(args.name), args.runs)


def ours(args: argparse.Namespace, stack: ExitStack, notes: list[str]) -> Iterator[tuple[str, Figures]]:
    """Start a cluster, and measure `locallb watch` in every mode."""
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    stack.callback(shutil.rmtree, root)
    stack.enter_context(served(NEAR))
    far = stack.enter_context(far_node()) if can_be_far() else None
    if far is None:
        notes.append("no Node that dies: only root can make a network namespace for it")
        stack.enter_context(served(SECOND))
    plane = stack.enter_context(control_plane("bench", root / "c"))
    second = far.address if far else SECOND
    services = Services(plane.root / "owner.kubeconfig", "n", {})
    for name, address in (("near", NEAR), ("second", second)):
        services.add_node(name, address)
    stand = Stand(services, second, "second", far)
    for mode in args.modes.split(","):
        if why := absent(mode):
            notes.append(f"{mode} isn't measured: {why}")
            continue
        with target(mode, plane) as measured:
            yield mode, measure(stand, measured, args.runs)


def arguments(terms: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each target (default: %(default)s)")
    parser.add_argument("--modes", default=",".join(MODES), help="of local-lb (default: %(default)s)")
    parser.add_argument("--kubeconfig", default="", help="measure what runs for this cluster instead")
    parser.add_argument("--node-port-host", default="", help="addresses of Nodes where this benchmark shall answer")
    parser.add_argument("--selector", default="", help="key=value of pods that answer instead")
    parser.add_argument("--namespace", default="default", help="where Services are made (default: %(default)s)")
    parser.add_argument("--name", default="as found", help="what to call it in the table")
    args = parser.parse_args(terms)
    if args.kubeconfig and not (args.node_port_host or args.selector):
        parser.error("say by --node-port-host or --selector who answers on NodePorts")
    return args


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    args, notes = arguments(), [f"{RATE} requests a second while something changes, each a new connection"]
    milliseconds: dict[str, dict[str, Spread]] = {}
    counts: dict[str, dict[str, int]] = {}
    never: dict[str, dict[str, int]] = {}
    with ExitStack() as stack:
        limit = [("Envoy by hand", envoy_by_hand(args.runs))]
        party = theirs(args, stack) if args.kubeconfig else ours(args, stack, notes)
        for name, figures in chain(limit, party):
            milliseconds[name] = spreads(figures.milliseconds)
            counts[name], never[name] = figures.counts, figures.never
            report_to(table({name: milliseconds[name]}))
            report_to(*(f"{name:<22}{what:<52}{number:>6}" for what, number in figures.counts.items()))
    report_to(*notes)
    result("watch", notes, runs=args.runs, milliseconds=milliseconds, counts=counts, never=never)


if __name__ == "__main__":
    main()
