"""From a built wheel to the first Service that serves: installing, and the one command, on a machine that has neither.

    python -m benchmarks.first_minutes [--wheel dist/local_lb-….whl] [--runs 3]

Each run has an environment, a home and a state of its own, and a test cluster (see tests/cluster) that has a Service of
type LoadBalancer already, as a user's has. pip takes what the wheel depends on from where it is configured to, cache
included: the first run says what that costs here. Needs the default pool's addresses: run it where nobody serves there.
A table goes to standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.figures import result, spreads, table, tell
from tests.cluster.controlplane import Objects, control_plane
from tests.e2e.support import ask, backends, port, service

PORT = 8080
MOST = 120.0
"""Seconds until a run has failed."""
STEPS = ("installation", "`locallb watch` to first byte")


def installed(wheel: Path, room: Path) -> Path:
    """Install as a user does; return the command."""
    subprocess.run([sys.executable, "-m", "venv", room], check=True)
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run([room / "bin/python", *words], check=True)
    return room / "bin/locallb"


@contextmanager
def watching(command: Path, home: Path, kubeconfig: Path) -> Iterator[None]:
    """Run the one command, and take back what it made."""
    kept: Mapping[str, str] = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    places = {"HOME": str(home), "LOCALLB_LEDGER": str(home / "ledger"), "KUBECONFIG": str(kubeconfig)}
    around = {**kept, **places, "DOCKER_HOST": f"unix://{home}/nobody.sock"}
    watch = subprocess.Popen([command, "watch", "--plain"], cwd=home, env=around, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        watch.terminate()
        watch.wait(MOST)
        subprocess.run([command, "destroy", "--yes"], cwd=home, env=around, check=True, capture_output=True)


def first_byte(cluster: Objects, name: str) -> None:
    """Wait until the address in the Service's status answers."""
    deadline = time.perf_counter() + MOST
    while time.perf_counter() < deadline:
        with suppress(IndexError, KeyError, OSError):
            address = (cluster.read(name) or {})["status"]["loadBalancer"]["ingress"][0]["ip"]
            if ask(str(address), PORT):
                return
        time.sleep(0.005)
    raise TimeoutError(name)


def run_once(wheel: Path, cluster: Objects, kubeconfig: Path) -> tuple[float, float]:
    """Return the seconds of each step."""
    home = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    try:
        began = time.perf_counter()
        command = installed(wheel, home / "venv")
        there = time.perf_counter()
        with watching(command, home, kubeconfig):
            first_byte(cluster, "web")
            return there - began, time.perf_counter() - there
    finally:
        shutil.rmtree(home)


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, default=next(iter(sorted(Path("dist").glob("*.whl"))), None))
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    if given.wheel is None:
        parser.error("there is no wheel in dist; run make wheel, or name one")
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    try:
        with control_plane("first", root / "c") as plane, plane.client() as client, backends() as make:
            cluster = Objects(plane, client)
            cluster.node("node-a")
            made = cluster.service(service("web", port(PORT, 0)))
            make("web", port=made["spec"]["ports"][0]["nodePort"])
            runs = [run_once(given.wheel, cluster, plane.kubeconfig) for _ in range(given.runs)]
    finally:
        shutil.rmtree(root)
    figures = {"the wheel": spreads(dict(zip(STEPS, zip(*runs, strict=True), strict=True)))}
    tell(table(figures, "s"))
    result("first_minutes", seconds=figures)


if __name__ == "__main__":
    main()
