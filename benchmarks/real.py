"""From a change in a cluster with real kubelets to its effect for clients, for any implementation of LoadBalancer.

    python -m benchmarks.real [--runs 20] [--modes process,shared] [--ways node-ports,pods]
    python -m benchmarks.real --kubeconfig FILE --image AGNHOST [--namespace NAME] [--name NAME]

The first starts a cluster whose Nodes are containers (see tests/kubelets), and in turn `locallb watch` in each mode: by
NodePorts, as kube-proxy opens them, and straight to pods, by routes that local-lb makes. The second measures whatever
runs for the cluster of that kubeconfig, with pods of an image that its Nodes have. Pods end at once on SIGTERM.
A table goes to standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from lightkube import Client, KubeConfig

from benchmarks.figures import Spread, report_to, result, spreads, table
from benchmarks.lost import FindProxy, requested
from benchmarks.requests import ask, connects, until
from benchmarks.services import Services
from benchmarks.targets import OurLoop, absent, target
from benchmarks.watch import IDLE, MANY, Figures
from tests.kubelets.deployments import SERVED, Deployments
from tests.support.kubelet_cluster import Cluster, kubelet_cluster
from tests.support.kubelet_images import AGNHOST
from tests.support.kubelets_ready import make_ready

RATE = 50
"""Requests a second while a pod moves."""
PORT, ADDED = (8080, 0), (8081, 0)
WAYS: Mapping[str, Mapping[str, object]] = {"node-ports": {}, "pods": {}}
"""Fields of Services by how they are served: those that go to pods have NodePorts as well, as by default."""
ROUTES: Mapping[str, Mapping[str, object]] = {
    "node-ports": {"accessLogs": True, "podRoutes": "off"},
    "pods": {"accessLogs": True, "podRoutes": "host"},
}
"""Settings of the stack, likewise; logs tell of failed requests whether a pod had accepted them."""
APP = "bench"
_ELSEWHERE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": APP}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
"""A new pod is on another Node than the old one."""


@dataclass
class Stand:
    """Where implementations are measured: Services, and a Deployment with one pod behind them."""

    services: Services
    deployments: Deployments
    nodes: tuple[str, ...]
    """Their addresses."""
    find: FindProxy | None


def run_once(stand: Stand, figures: Figures) -> None:
    """Create a Service, add a port, delete it; ten at once; then move the pod."""
    with figures.part("Service created"):
        began = time.perf_counter()
        stand.services.create("web", PORT)
        address = stand.services.address("web")
        figures.add("Service created: address told", time.perf_counter() - began)
        first_byte(stand, figures, "Service created: first byte", (address, PORT[0]), began)
        began = time.perf_counter()
        stand.services.change_ports("web", PORT, ADDED)
        first_byte(stand, figures, "port added: serves", (address, ADDED[0]), began)
        began = time.perf_counter()
        stand.services.delete("web")
        figures.add("Service deleted: refused", until(lambda: not connects(address, PORT[0]), "the refusal") - began)
    clear(stand, "web")
    many(stand, figures)


def first_byte(stand: Stand, figures: Figures, what: str, place: tuple[str, int], began: float) -> None:
    """Wait for the first byte at an address of `web`, and beside it for the first that kube-proxy gives at a NodePort.

    The second is asked for on every Node at once, and the first Node to answer counts.
    """
    address, port = place
    node_port, answered = stand.services.node_port("web", port), threading.Event()

    def requested(node: str) -> float:
        at = until(lambda: answered.is_set() or ask(node, node_port), "kube-proxy")
        answered.set()
        return at

    with ThreadPoolExecutor() as pool:
        nodes = [pool.submit(requested, node) for node in stand.nodes if node_port]
        at = until(lambda: ask(address, port), "the first byte")
        figures.add(what, at - began)
        if nodes:
            figures.add(f"{what}, after kube-proxy itself", at - min(node.result() for node in nodes))


def many(stand: Stand, figures: Figures) -> None:
    """Create ten Services at once, until all serve."""
    names = {f"many-{number}": PORT for number in range(MANY)}
    with figures.part(f"{MANY} Services at once"):
        began = time.perf_counter()
        stand.services.create_all(names)
        addresses = [stand.services.address(name) for name in names]
        at = max(until(lambda at=at: ask(at, PORT[0]), "all serve") for at in addresses)  # type: ignore[misc]
        figures.add(f"{MANY} Services at once: all serve", at - began)
    clear(stand, *names)


def pod_moves(stand: Stand, figures: Figures) -> None:
    """Replace the pod by one on another Node under load: what fails, and for how long."""
    stand.services.create("moved", PORT)
    with figures.part("pod moves"):
        address = stand.services.address("moved")
        until(lambda: ask(address, PORT[0]), "the first byte")
        with requested(figures, "pod moves", (address, PORT[0]), RATE, stand.find):
            stand.deployments.roll(APP)
            until(lambda: ask(address, PORT[0]), "the new pod")
    clear(stand, "moved")


def clear(stand: Stand, *names: str) -> None:
    """Delete Services and wait until they are gone."""
    stand.services.delete(*names)
    with suppress(TimeoutError):
        stand.services.removed(*names)
    time.sleep(IDLE)


def measure(  # noqa: PLR0913 - what is measured, and how its failures are told apart
    kubeconfig: Path,
    namespace: str,
    spec: Mapping[str, object],
    runs: int,
    *,
    image: str = AGNHOST,
    find: FindProxy | None = None,
) -> Figures:
    """Measure whatever serves Services with these fields; the first run isn't counted."""
    figures = Figures()
    with Client(KubeConfig.from_file(kubeconfig), trust_env=False) as client:
        deployments = Deployments(client, namespace, image)
        stands = {policy: _services(kubeconfig, namespace, spec, policy) for policy in ("Cluster", "Local")}
        nodes = tuple(stands["Cluster"].nodes())
        deployments.deploy(APP, 1, affinity=_ELSEWHERE)
        try:
            for number in range(-1, runs):
                retained = figures if number >= 0 else Figures()
                run_once(Stand(stands["Cluster"], deployments, nodes, find), retained)
                pod_moves(Stand(stands["Local"], deployments, nodes, find), retained)
        finally:
            stands["Local"].clear()
            deployments.delete_deployments()
    return figures


def _services(kubeconfig: Path, namespace: str, spec: Mapping[str, object], policy: str) -> Services:
    every = {**spec, "selector": {"app": APP}, "externalTrafficPolicy": policy}
    return Services(kubeconfig, namespace, every, SERVED)


def ours(args: argparse.Namespace, cluster: Cluster, notes: list[str]) -> Iterator[tuple[str, Figures]]:
    """Measure `locallb watch` in every mode, in every way."""
    for way in args.pod_paths.split(","):
        for mode in args.modes.split(","):
            if why := absent(mode):
                notes.append(f"{mode} isn't measured: {why}")
                continue
            with target(mode, cluster.plane, **ROUTES[way]) as measured:
                kubeconfig = cluster.plane.root / "owner.kubeconfig"
                find = measured.directory if isinstance(measured, OurLoop) else None
                yield f"{mode}, {way}", measure(kubeconfig, "n", WAYS[way], args.runs, find=find)


def arguments(terms: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each target (default: %(default)s)")
    parser.add_argument("--modes", default="process,shared", help="of local-lb (default: %(default)s)")
    parser.add_argument("--ways", dest="pod_paths", default=",".join(WAYS), help="to pods (default: %(default)s)")
    parser.add_argument("--kubeconfig", default="", help="measure what runs for this cluster instead")
    parser.add_argument("--image", default=AGNHOST, help="agnhost, as that cluster's Nodes have it")
    parser.add_argument("--namespace", default="default", help="where Services are made (default: %(default)s)")
    parser.add_argument("--name", default="as found", help="what to call it in the table")
    return parser.parse_args(terms)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    args = arguments()
    notes = [f"{RATE} requests a second while a pod moves (policy Local), each a new connection; pods end at once"]
    milliseconds: dict[str, dict[str, Spread]] = {}
    counts: dict[str, dict[str, int]] = {}
    never: dict[str, dict[str, int]] = {}
    with ExitStack() as stack:
        if args.kubeconfig:
            figures = measure(Path(args.kubeconfig), args.namespace, WAYS["node-ports"], args.runs, image=args.image)
            party = iter([(args.name, figures)])
        else:
            make_ready()
            party = ours(args, stack.enter_context(kubelet_cluster()), notes)
        for name, figures in party:
            milliseconds[name] = spreads(figures.milliseconds)
            counts[name], never[name] = figures.counts, figures.never
            report_to(table({name: milliseconds[name]}))
            report_to(*(f"{name:<22}{what:<52}{number:>6}" for what, number in figures.counts.items()))
    result("real", notes, runs=args.runs, milliseconds=milliseconds, counts=counts, never=never)


if __name__ == "__main__":
    main()
