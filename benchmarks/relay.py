"""Pods through the API server: local-lb beside `kubectl port-forward` in one run, on a cluster with real kubelets.

    python -m benchmarks.relay [--runs 5]
    python -m benchmarks.relay --deletions [--rate 1000] [--seconds 60]

Three pods behind one Service serve a large file and a short one. Both take turns: bytes a second of one download,
requests a second over connections that stay and with a new one for each, and what becomes of a constant load when the
pod is deleted that answers. The second measures local-lb alone, while a pod is deleted every five seconds, once the one
before is replaced: pods that end at once on SIGTERM, and such that go on for a moment, as most servers do. A table goes
to standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.pool import Pool
from pathlib import Path

from lightkube import Client, KubeConfig

from benchmarks.figures import report_to, result, spreads, table
from benchmarks.requests import TIMEOUT, Load, connects, until
from benchmarks.services import Services
from benchmarks.targets import target
from benchmarks.throughput import CLIENTS, CONNECTIONS, client
from tests.kubelets.deployments import SERVED, Deployments
from tests.support.client_kinds import POD
from tests.support.cluster_build import kubernetes
from tests.support.kubelet_cluster import Cluster, kubelet_cluster
from tests.support.kubelet_images import AGNHOST
from tests.support.kubelets_ready import make_ready

APP, NAMESPACE, PODS, PORT = "forwarded", "n", 3, 8080
OURS, THEIRS = "local-lb", "kubectl port-forward"
LARGE, SHORT = "/agnhost", "/etc/hostname"
"""Files of the image: its program, and the pod's name."""
LOAD, LOADED, DELETED = 20, 12.0, 2.0
"""Requests a second while the pod that answers is deleted, for how many seconds, and when."""
EVERY, LINGER = 5.0, 3
"""Seconds between deletions, at least; for which a graceful pod goes on serving."""
Place = tuple[str, int]
Figures = dict[str, list[float]]


def get(path: str, *, stays: bool = False) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: bench", *([] if stays else ["Connection: close"]), "", ""]
    return "\r\n".join(lines).encode()


class Names(Load):
    """Requests of which the answer is the name of a pod."""

    async def exchange(self, reader: object, writer: object) -> str:
        """Ask, and read a whole answer; nothing if there is none."""
        writer.write(get(SHORT))  # type: ignore[attr-defined]
        answer = b""
        while not named(answer) and (data := await reader.read(4096)):  # type: ignore[attr-defined]
            answer += data
        return named(answer)


def named(answer: bytes) -> str:
    """Return the name of the pod in an answer; empty if there is none."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return body.decode().strip() if b" 200 " in head[:20] and body.endswith(b"\n") else ""


def ask(place: Place) -> str:
    try:
        with socket.create_connection(place, timeout=TIMEOUT) as connection:
            connection.sendall(get(SHORT))
            answer = b""
            while not named(answer) and (data := connection.recv(4096)):
                answer += data
            return named(answer)
    except OSError:
        return ""


def download(place: Place) -> float:
    """Return the MiB a second of one download."""
    began, size, room = time.perf_counter(), 0, bytearray(1 << 20)
    with socket.create_connection(place, timeout=60) as connection:
        connection.sendall(get(LARGE))
        while count := connection.recv_into(room):
            size += count
    return size / (1 << 20) / (time.perf_counter() - began)


def asked_anew(place: Place, seconds: float) -> tuple[int, int]:
    """Ask with one connection after another; return how many were answered, and how many not."""
    until_then, answered, failed = time.perf_counter() + seconds, 0, 0
    while time.perf_counter() < until_then:
        if ask(place):
            answered += 1
        else:
            failed += 1
    return answered, failed


def run_once(clients: Pool, place: Place, figures: Figures, seconds: float) -> None:
    """Download, and ask as fast as answers come."""
    figures["download, MiB/s"].append(download(place))
    terms = [(place, CONNECTIONS // CLIENTS, seconds, get(SHORT, stays=True), APP)] * CLIENTS
    kept = clients.starmap(client, terms, chunksize=1)
    figures["requests/s, connections that stay"].append(sum(len(took) for took, _ in kept) / seconds)
    anew = clients.starmap(asked_anew, [(place, seconds)] * CLIENTS, chunksize=1)
    figures["requests/s, a connection each"].append(sum(answered for answered, _ in anew) / seconds)
    figures["failed"].append(sum(broken for _, broken in kept) + sum(failed for _, failed in anew))


def pod_dies(place: Place, figures: Figures, kill: Callable[[Place], object]) -> None:
    """Delete the pod that answers, under a constant load."""
    with Names(*place, LOAD) as load:
        time.sleep(DELETED)
        kill(place)
        time.sleep(LOADED - DELETED)
    figures["pod deleted: requests"].append(len(load.requests))
    figures["pod deleted: failed"].append(len(load.failed))
    figures["pod deleted: still answered"].append(float(bool(ask(place))))


@contextmanager
def kubectl(kubeconfig: Path) -> Iterator[Place]:
    """Forward a port of the Service as a user does, until the pod ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    terms = [f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}", "port-forward", f"service/bench-{APP}"]
    command = [str(kubernetes("kubectl")), *terms, f"{port}:{PORT}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as forward:
        try:
            until(lambda: connects("127.0.0.1", port), THEIRS)
            yield "127.0.0.1", port
        finally:
            forward.terminate()


class Stand:
    """A Service of three pods, and local-lb, which serves it through the API server."""

    def __init__(self, cluster: Cluster, owner: Client) -> None:
        self.kubeconfig: Path = cluster.plane.root / "owner.kubeconfig"
        self.owner, self.deployments = owner, Deployments(owner, NAMESPACE, AGNHOST)
        self.services = Services(self.kubeconfig, NAMESPACE, {"selector": {"app": APP}}, SERVED)

    def deploy(self, **container: object) -> None:
        probe = {"httpGet": {"path": SHORT, "port": SERVED}, "periodSeconds": 1}
        arguments = ["test-webserver", f"--port={SERVED}"]
        server = {"name": "server", "image": AGNHOST, "args": arguments, "readinessProbe": probe, **container}
        self.deployments.deploy(APP, PODS, containers=[server], terminationGracePeriodSeconds=3 * LINGER)

    def kill(self, place: Place) -> None:
        """Delete the pod that answers, or any if none does."""
        self.owner.delete(POD, ask(place) or next(iter(self.deployments.pods(APP))), namespace=NAMESPACE)

    def place(self) -> Place:
        """Wait until the Service answers."""
        place = self.services.address(APP), PORT
        until(lambda: ask(place), "the first byte")
        return place


def beside_each_other(stand: Stand, runs: int, seconds: float) -> Mapping[str, Figures]:
    """Let both take turns."""
    what = ("download, MiB/s", "requests/s, connections that stay", "requests/s, a connection each", "failed")
    died = ("pod deleted: requests", "pod deleted: failed", "pod deleted: still answered")
    figures: dict[str, Figures] = {party: {name: [] for name in (*what, *died)} for party in (OURS, THEIRS)}
    stand.deploy()
    place = stand.place()
    with multiprocessing.Pool(CLIENTS) as clients:
        for _ in range(runs):
            run_once(clients, place, figures[OURS], seconds)
            with kubectl(stand.kubeconfig) as theirs:
                run_once(clients, theirs, figures[THEIRS], seconds)
    for _ in range(runs):
        pod_dies(place, figures[OURS], stand.kill)
        stand.deployments.wait(APP)
        with kubectl(stand.kubeconfig) as theirs:
            pod_dies(theirs, figures[THEIRS], stand.kill)
        stand.deployments.wait(APP)
    return figures


def deletions(stand: Stand, rate: int, seconds: float) -> Mapping[str, Figures]:
    """Ask at a constant rate while one pod after another is deleted."""
    kinds = {"graceful pods": {"lifecycle": {"preStop": {"sleep": {"seconds": LINGER}}}}}
    figures: dict[str, Figures] = {}
    for kind, container in {**kinds, "pods that end at once": {}}.items():
        stand.deploy(**container)
        place = stand.place()
        ended, deleted = time.perf_counter() + seconds, 0
        with Names(*place, rate) as load:
            while time.perf_counter() < ended:
                stand.kill(place)
                deleted += 1
                time.sleep(EVERY)
                stand.deployments.wait(APP)  # a busy machine may need longer for a new pod
        took = [1000 * (each.ended - each.began) for each in load.requests]
        whole = load.requests[-1].began - load.requests[0].began
        figures[kind] = {
            "pods deleted": [deleted],
            "requests": [len(load.requests)],
            "requests/s": [len(load.requests) / whole],
            "failed": [len(load.failed)],
            "ms": took,
        }
        stand.deployments.delete_deployments()
    return figures


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each of the two (default: %(default)s)")
    parser.add_argument("--deletions", action="store_true", help="measure local-lb while pods are deleted")
    parser.add_argument("--rate", type=int, default=1000, help="requests a second then (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which they are made (default: %(default)s)")
    given = parser.parse_args()
    make_ready()
    with kubelet_cluster() as cluster, Client(KubeConfig.from_file(cluster.plane.root / "owner.kubeconfig")) as owner:
        stand = Stand(cluster, owner)
        stand.services.create(APP, (PORT, 0))
        source = {**cluster.plane.source["kubernetes"], "kubeconfig": str(stand.kubeconfig)}
        with target("process", cluster.plane, sources=[{"kubernetes": source}], podRoutes="api"):
            if given.deletions:
                figures = deletions(stand, given.rate, given.seconds)
            else:
                figures = beside_each_other(stand, given.runs, seconds=3)
            stand.services.delete(APP)
            stand.services.removed(APP)
    found = {party: spreads(values) for party, values in figures.items()}
    report_to(table(found, ""))
    notes = [f"{PODS} pods; {CONNECTIONS} connections that stay, {CLIENTS} clients with one after another"]
    result("relay", notes, rate=given.rate if given.deletions else LOAD, figures=found)


if __name__ == "__main__":
    main()
