"""Rolling updates, and Nodes that are drained or die, under a constant load, on a cluster with real kubelets.

    python -m benchmarks.rolling [--runs 3] [--mode process]

Twenty pods behind one Service are replaced, once by pods that end at once on SIGTERM and once by such that go on for a
moment, as most servers do; a Node is emptied and removed; a Node falls silent with half of the pods. Straight to pods,
by routes that local-lb makes. A table goes to standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lightkube import Client, KubeConfig
from lightkube.types import PatchType

from benchmarks.figures import report_to, result, spreads, table
from benchmarks.lost import FindProxy, requested
from benchmarks.real import ROUTES, WAYS
from benchmarks.requests import RATE, ask, until
from benchmarks.services import Services
from benchmarks.targets import OurLoop, target
from benchmarks.watch import IDLE, Figures
from tests.kubelets.deployments import CONTAINER, SERVED, Deployments
from tests.support.client_kinds import NODE, POD
from tests.support.kubelet_cluster import Cluster, KubeletNode, kubelet_cluster
from tests.support.kubelet_images import AGNHOST
from tests.support.kubelets_ready import make_ready

APP, PORT = "rolling", (8080, 0)
PODS, ON_NODES = 20, 4
"""Replaced by a rolling update; on the two Nodes of which one goes."""
LINGER = 3
"""Seconds for which a graceful pod goes on serving once it is told to end."""
SILENCE = 6.0
"""Seconds for which a Node that died is watched."""
NAMESPACE = "n"


def at_once() -> Mapping[str, object]:
    """Return what pods are that end at once."""
    return {"containers": [{**CONTAINER, "image": AGNHOST}], "terminationGracePeriodSeconds": 5}


def graceful() -> Mapping[str, object]:
    """Return what pods are that go on for a moment."""
    lifecycle = {"preStop": {"sleep": {"seconds": LINGER}}}
    return {
        "containers": [{**CONTAINER, "image": AGNHOST, "lifecycle": lifecycle}],
        "terminationGracePeriodSeconds": 3 * LINGER,
    }


class Stand:
    """A Service whose pods are replaced, and who asks it."""

    def __init__(self, cluster: Cluster, client: Client, services: Services, find: FindProxy) -> None:
        self.cluster, self.client, self.services, self.find = cluster, client, services, find
        self.figures = Figures()
        self.deployments = Deployments(client, NAMESPACE, AGNHOST)

    @contextmanager
    def requested(self, what: str, pods: int, spec: Mapping[str, object]) -> Iterator[None]:
        """Ask a Service of so many pods while something happens to them, and count what failed."""
        with self.figures.part(what):
            self.deployments.deploy(APP, pods, **spec)
            self.services.create(APP, PORT)
            address = self.services.address(APP)
            until(lambda: ask(address, PORT[0]), "the first byte")
            time.sleep(IDLE)
            with requested(self.figures, what, (address, PORT[0]), RATE, self.find):
                yield
        self.services.delete(APP)
        self.services.removed(APP)
        self.deployments.delete_deployments()


def rolls(stand: Stand, what: str, spec: Callable[[], Mapping[str, object]]) -> None:
    """Replace twenty pods, some at a time."""
    with stand.requested(what, PODS, spec()):
        stand.deployments.roll(APP)


def drained(stand: Stand) -> None:
    """Empty a Node, take it away, and put it back afterwards."""
    node = stand.cluster.node("worker")
    document = stand.client.get(NODE, node.name)
    with stand.requested("Node drained and removed", ON_NODES, graceful()):
        cordon(stand.client, node, cordoned=True)
        for pod, place in stand.deployments.pods(APP).items():
            if place == node.name:
                stand.client.delete(POD, pod, namespace=NAMESPACE)
        stand.deployments.wait(APP)
        stand.client.delete(NODE, node.name)
        time.sleep(IDLE)
    metadata = {key: document["metadata"][key] for key in ("name", "labels")}
    spec = {key: value for key, value in document["spec"].items() if key != "unschedulable"}
    stand.client.create(NODE.from_dict({"metadata": metadata, "spec": spec}))
    stand.cluster.wait()


def dies(stand: Stand) -> None:
    """Have a Node answer nothing, and nobody is told."""
    with stand.requested("Node falls silent", ON_NODES, at_once()), stand.cluster.node("worker").silent():
        time.sleep(SILENCE)


def cordon(client: Client, node: KubeletNode, *, cordoned: bool) -> None:
    """Have no more pods come to a Node."""
    client.patch(NODE, node.name, {"spec": {"unschedulable": cordoned}}, patch_type=PatchType.MERGE)


def measure(cluster: Cluster, runs: int, find: FindProxy) -> Figures:
    """Do it all, again and again."""
    kubeconfig: Path = cluster.plane.root / "owner.kubeconfig"
    services = Services(kubeconfig, NAMESPACE, {**WAYS["pods"], "selector": {"app": APP}}, SERVED)
    with Client(KubeConfig.from_file(kubeconfig), trust_env=False) as client:
        stand = Stand(cluster, client, services, find)
        for _ in range(runs):
            rolls(stand, f"{PODS} pods replaced, graceful", graceful)
            rolls(stand, f"{PODS} pods replaced that end at once", at_once)
            drained(stand)
            dies(stand)
    return stand.figures


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="how often (default: %(default)s)")
    parser.add_argument("--mode", default="process", help="of local-lb (default: %(default)s)")
    args = parser.parse_args()
    make_ready()
    with kubelet_cluster() as cluster, target(args.mode, cluster.plane, **ROUTES["pods"]) as measured:
        assert isinstance(measured, OurLoop)
        figures = measure(cluster, args.runs, measured.directory)
    milliseconds = {args.mode: spreads(figures.milliseconds)}
    report_to(table(milliseconds), *(f"{what:<60}{number:>8}" for what, number in figures.counts.items()))
    notes = [f"{RATE} requests a second, each a new connection; policy Cluster"]
    result("rolling", notes, runs=args.runs, milliseconds=milliseconds, counts=figures.counts, never=figures.never)


if __name__ == "__main__":
    main()
