"""From a built wheel to the first Service that serves: installing, and the one command, on a machine that has neither.

    python -m benchmarks.first_minutes [--wheel dist/local_lb-….whl] [--runs 3]
    python -m benchmarks.first_minutes --kubelets [--command 'PROGRAM {kubeconfig}'] [--name NAME]

Each run has an environment, a home and a state of its own, and a test cluster (see tests/cluster, or with real kubelets
tests/kubelets) that has a Service of type LoadBalancer already, as a user's has. In turn with it another program is
started for the cluster with kubelets, until the same; what installs that is not measured. pip takes what the wheel
depends on from where it is configured to, cache included: the first run says what that costs here. Needs the default
pool's addresses: run it where nobody serves there. A table goes to standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.figures import report_to, result, spreads, table
from benchmarks.requests import ask, until
from tests.kubelets.workloads import Workloads
from tests.support.backends import backends
from tests.support.control_plane import Objects, control_plane
from tests.support.kubelet_cluster import kubelet_cluster
from tests.support.kubelets_ready import make_ready
from tests.support.manifests import port, service

PORT = 8080
MAX = 120.0
"""Seconds until a run has failed."""
INSTALLED, SERVED = "installation", "command to first byte"


@dataclass(frozen=True)
class Place:
    """A cluster of somebody who begins, and how its Service `web` is made."""

    cluster: Objects
    kubeconfig: Path
    expose: Callable[[], object]
    loopback: bool = False
    """Whether its Nodes are on this host's loopback, which its source must allow."""

    def first_byte(self) -> float:
        """Wait until the address in the Service's status answers; return when it did."""
        until(self._address, "an address", MAX)
        return until(lambda: ask(self._address(), PORT), "the first byte", MAX)

    def _address(self) -> str:
        status = (self.cluster.read("web") or {}).get("status", {})
        return str((status.get("loadBalancer", {}).get("ingress") or [{}])[0].get("ip", ""))

    def withdraw(self) -> None:
        """Delete the Service, and wait for whoever has a finalizer on it."""
        self.cluster.delete("web")
        until(lambda: self.cluster.read("web") is None, "the deletion", MAX)


@contextmanager
def hand_made() -> Iterator[Place]:
    """Have an API server, whose only Node answers on NodePorts by a process."""
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    try:
        with control_plane("first", root / "c") as plane, plane.client() as client, backends() as make:
            cluster = Objects(plane, client)
            cluster.node("node-a")
            made = cluster.service(service("web", port(PORT, 0)))
            number = made["spec"]["ports"][0]["nodePort"]
            make("web", port=number)
            cluster.delete("web")
            yield Place(
                cluster, plane.kubeconfig, lambda: cluster.service(service("web", port(PORT, number))), loopback=True
            )
    finally:
        shutil.rmtree(root)


@contextmanager
def with_kubelets() -> Iterator[Place]:
    """Have a cluster with real kubelets, and a pod."""
    make_ready()
    with kubelet_cluster() as cluster:
        owner = Workloads(cluster, straight=False)
        owner.deploy("web", 1)
        yield Place(owner, cluster.plane.root / "owner.kubeconfig", lambda: owner.expose("web", PORT))


def installed(wheel: Path, room: Path) -> Path:
    """Install as a user does; return the command."""
    subprocess.run([sys.executable, "-m", "venv", room], check=True)
    terms = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run([room / "bin/python", *terms], check=True)
    return room / "bin/locallb"


def _around(home: Path, kubeconfig: Path) -> Mapping[str, str]:
    retained: Mapping[str, str] = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    places = {"HOME": str(home), "LOCALLB_LEDGER": str(home / "ledger"), "KUBECONFIG": str(kubeconfig)}
    return {**retained, **places, "DOCKER_HOST": f"unix://{home}/nobody.sock"}


def _allow_loopback(command: Path, home: Path, kubeconfig: Path) -> None:
    """Have the stack that the command will find allow Nodes that no real cluster has."""
    subprocess.run([command, "preview"], cwd=home, env=_around(home, kubeconfig), check=True, capture_output=True)
    stack = home / ".local/share/local-lb/stacks/Pulumi.dev.yaml"
    document = yaml.safe_load(stack.read_text())
    for source in document["config"]["local-lb:sources"]:
        source["kubernetes"]["loopbackBackends"] = True
    stack.write_text(yaml.safe_dump(document))


@contextmanager
def watching(command: Path, home: Path, kubeconfig: Path) -> Iterator[None]:
    """Run the one command, and take back what it made."""
    around = _around(home, kubeconfig)
    watch = subprocess.Popen([command, "watch", "--plain"], cwd=home, env=around, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        watch.terminate()
        watch.wait(MAX)
        subprocess.run([command, "destroy", "--yes"], cwd=home, env=around, check=True, capture_output=True)


@contextmanager
def running(terms: str, kubeconfig: Path) -> Iterator[None]:
    """Run another program for the cluster."""
    command = [word.replace("{kubeconfig}", str(kubeconfig)) for word in shlex.split(terms)]
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        program.terminate()
        try:
            program.wait(MAX)
        finally:
            program.kill()


def served(place: Place, starting: Callable[[], AbstractContextManager[None]]) -> float:
    """Return the seconds from starting a program to the first byte of the Service that is there already."""
    place.expose()
    began = time.perf_counter()
    with starting():
        at = place.first_byte()
        place.withdraw()
    return at - began


def of_the_wheel(wheel: Path, place: Place) -> Mapping[str, float]:
    """Return the seconds of each step."""
    home = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    try:
        began = time.perf_counter()
        command = installed(wheel, home / "venv")
        present = time.perf_counter()
        if place.loopback:
            _allow_loopback(command, home, place.kubeconfig)
        return {
            INSTALLED: present - began,
            SERVED: served(place, lambda: watching(command, home, place.kubeconfig)),
        }
    finally:
        shutil.rmtree(home)


def measure(place: Place, given: argparse.Namespace) -> Iterator[tuple[str, Mapping[str, float]]]:
    for _ in range(given.runs):
        yield "the wheel", of_the_wheel(given.wheel, place)
        if given.command:
            yield given.name, {SERVED: served(place, lambda: running(given.command, place.kubeconfig))}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, default=next(iter(sorted(Path("dist").glob("*.whl"))), None))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kubelets", action="store_true", help="on a cluster with real kubelets")
    parser.add_argument("--command", default="", help="another program that is measured there, which ends on SIGTERM")
    parser.add_argument("--name", default="the other", help="what to call it in the table")
    given = parser.parse_args()
    if given.wheel is None:
        parser.error("there is no wheel in dist; run make wheel, or name one")
    if given.command and not given.kubelets:
        parser.error("--command needs --kubelets")
    seconds: dict[str, dict[str, list[float]]] = {}
    with with_kubelets() if given.kubelets else hand_made() as place:
        for party, figures in measure(place, given):
            for what, value in figures.items():
                seconds.setdefault(party, {}).setdefault(what, []).append(value)
    found = {party: spreads(values) for party, values in seconds.items()}
    report_to(table(found, "s"))
    result("first_minutes", seconds=found)


if __name__ == "__main__":
    main()
