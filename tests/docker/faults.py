"""Faults of containers and their engine under `locallb watch`, and the requests that fail meanwhile.

`python -m tests.docker.faults` prints what docs/docker.md and docs/podman.md say of them. Everything runs in namespaces
with an engine of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locallb.host.capabilities import PODMAN
from locallb.model.identities import KEY_PREFIX
from locallb.runtimes.docker.runtime import make_image
from locallb.runtimes.podman import PodmanContainers
from tests.docker.daemon import Daemon, hosted, served
from tests.support.environment import lent
from tests.support.host import LOCALLB, PYTHON, Namespace, Project, project
from tests.support.manifests import node, port, service
from tests.support.podman import Podman, podman

SECONDS = 120.0
HUNG = 8.0
"""Seconds for which a daemon hangs: longer than any answer takes."""
NETWORK = "lan"
GATEWAY = "10.231.7.1"
_BACKEND = 30080
_CLIENT = """
import socket, sys, time
address, log = sys.argv[1], open(sys.argv[2], "a", buffering=1)
while True:
    began = time.monotonic()
    try:
        with socket.create_connection((address, 80), timeout=1) as s:
            s.settimeout(1)
            ok = bool(s.recv(99))
    except OSError:
        ok = False
    log.write(f"{began} {time.monotonic()} {int(ok)}\\n")
    time.sleep(max(0.0, began + 0.02 - time.monotonic()))
"""


@dataclass(frozen=True)
class Outage:
    """What a client that asks fifty times a second saw."""

    failed: int
    seconds: float
    """From the begin of the first failed request to the end of the last one."""


@dataclass(frozen=True)
class Scene:
    """Services that one engine's containers serve, and a watch."""

    engine: str
    published: bool
    project: Project
    docker: Daemon | None
    podman: Podman | None
    watch: subprocess.Popen[bytes]
    reported: Path

    def run(self, *terms: str) -> str:
        if self.podman:
            return self.podman.run(*terms)
        assert self.docker
        done = self.docker.docker(*terms)
        assert done.code == 0, done.err
        return done.out.strip()

    def container(self, name: str = "web") -> dict[str, Any]:
        (identity,) = self.run("ps", "-aq", "--filter", f"label={KEY_PREFIX}name={name}").split()
        (observed,) = json.loads(self.run("inspect", identity))
        found: dict[str, Any] = observed
        return found

    def addresses(self) -> dict[str, str]:
        """Return the addresses by the Services' names."""
        return {name: str(row["addresses"][0]) for name, row in self.project.status().items()}

    def serves(self, address: str) -> bool:
        terms = (PYTHON, "-c", _ONCE, address)
        return self.project.space.run(*terms).code == 0

    def checks(self) -> int:
        """Count how often the watch was done: with a repair, or as the engine had started the container itself."""
        reported = self.reported.read_text()
        return reported.count("converged") + reported.count("as planned")

    def awaits(self, fact: Callable[[], object]) -> None:
        deadline = time.monotonic() + SECONDS
        while not fact():
            assert self.watch.poll() is None, self.reported.read_text()
            assert time.monotonic() < deadline, self.reported.read_text()[-5_000:]
            time.sleep(0.05)

    def outage(self, harm: Callable[[Scene], object], name: str = "web") -> Outage:
        """Do harm, wait until everything is repaired, and return what a client of the Service saw meanwhile."""
        address, log = self.addresses()[name], self.project.root / f"client-{time.monotonic_ns()}"
        client = subprocess.Popen(self.project.space.enter(PYTHON, "-c", _CLIENT, address, str(log)))
        try:
            self.awaits(lambda: log.exists() and len(log.read_text()) > 0)
            harm(self)
            time.sleep(1.0)  # harm may need a moment until it shows
            self.awaits(lambda: _is_calm(_requests(log)) and self.serves(address))
        finally:
            client.kill()
            client.wait()
        failed = [(began, ended) for began, ended, ok in _requests(log) if not ok]
        return Outage(len(failed), failed[-1][1] - failed[0][0] if failed else 0.0)


_ONCE = """
import socket, sys
with socket.create_connection((sys.argv[1], 80), timeout=2) as s:
    s.settimeout(2)
    sys.exit(not s.recv(99))
"""
_CALM = 8.0
"""Seconds without a failed request after which nothing more is to come: a second outage would come sooner."""


def _requests(log: Path) -> list[tuple[float, float, bool]]:
    lines = [line.split() for line in log.read_text().splitlines()]
    return [(float(line[0]), float(line[1]), line[2] == "1") for line in lines if len(line) == 3]


def _is_calm(requests: list[tuple[float, float, bool]]) -> bool:
    """Return whether none of the last seconds' requests failed, and there were some."""
    now = requests[-1][1]
    return requests[0][0] < now - _CALM and all(ok for _, ended, ok in requests if ended > now - _CALM)


@contextmanager
def scene(engine: str, *, published: bool, services: int = 2) -> Iterator[Scene]:
    """Serve some Services, `web` first, from containers of an engine of its own, under a watch."""
    with _engine(engine) as (made, docker, own_podman, image, environment):
        create = ("network", "create", "--subnet", "10.231.7.0/24", "--gateway", GATEWAY, NETWORK)
        if docker and published:
            done = docker.docker(*create)
            assert done.code == 0, done.err
        if own_podman and published:
            own_podman.run(*create)
        network = {"network": {"publish": NETWORK}} if published else {}
        made.configure(runtime=engine, image=image, **network)
        made.write("node.yaml", node(address=GATEWAY if published else "127.0.0.1"))
        names = ("web", *(f"other-{number}" for number in range(1, services)))
        for name in names:
            made.write(f"{name}.yaml", service(name, port(80, _BACKEND)))
        home = {"XDG_STATE_HOME": str(made.root / "s"), "HOME": str(made.root)}
        reported = made.root / "told"
        with served(made.space, f"TCP@0.0.0.0@{_BACKEND}"), reported.open("wb") as log:
            command = made.space.enter(*LOCALLB, "-C", str(made.root), "watch", "--plain")
            watch = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment, **home})
            playing = Scene(engine, published, made, docker, own_podman, watch, reported)
            try:
                playing.awaits(lambda: f"converged: {services} Service" in reported.read_text())
                yield playing
            finally:
                watch.terminate()
                watch.wait(SECONDS)


@contextmanager
def _engine(engine: str) -> Iterator[tuple[Project, Daemon | None, Podman | None, str, dict[str, str]]]:
    if engine == "docker":
        with hosted() as host:
            yield host.project, host.daemon, None, host.image, {"DOCKER_HOST": host.daemon.host}
        return
    with project() as made, podman(space=made.space) as own, lent({PODMAN: own.host}):
        yield made, None, own, make_image(PodmanContainers()), {PODMAN: own.host}
        made.locallb("destroy", "--yes")


def _kill_envoy(scene: Scene) -> None:
    os.kill(int(scene.container()["State"]["Pid"]), signal.SIGKILL)


def _kill_docker_proxies(scene: Scene) -> None:
    """End the processes that hold the published ports of `web`."""
    address = scene.addresses()["web"]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                terms = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if terms[0].endswith("docker-proxy") and address in terms and _is_in(entry, scene.project.space):
                os.kill(int(entry.name), signal.SIGKILL)


def _is_in(process: Path, space: Namespace) -> bool:
    return (process / "ns/net").readlink() == Path(f"/proc/{space.pid}/ns/net").readlink()


def _remove_directory(scene: Scene) -> None:
    (mount,) = scene.container()["Mounts"]
    shutil.rmtree(mount["Source"])


def _restart_daemon(how: signal.Signals) -> Callable[[Scene], None]:
    def harm(scene: Scene) -> None:
        assert scene.docker
        scene.docker.end(how)
        scene.docker.start()

    return harm


def _hang_daemon(scene: Scene) -> None:
    assert scene.docker
    assert scene.docker.process
    scene.docker.process.send_signal(signal.SIGSTOP)
    time.sleep(HUNG)
    scene.docker.process.send_signal(signal.SIGCONT)


def _command(*terms: str) -> Callable[[Scene], None]:
    def harm(scene: Scene) -> None:
        try:
            scene.run(*terms, scene.container()["Id"])
        except subprocess.CalledProcessError:  # Podman's own, where the container runs again before it looks
            assert scene.podman

    return harm


def _disconnect(scene: Scene) -> None:
    scene.run("network", "disconnect", NETWORK, scene.container()["Id"])


@dataclass(frozen=True)
class Fault:
    """One thing that happens, and where it can."""

    name: str
    harm: Callable[[Scene], None]
    engines: tuple[str, ...] = ("docker", "podman")
    networks: tuple[bool, ...] = (False, True)
    same_container: bool = True
    """Whether the same container goes on."""
    ends_something: bool = True
    """Whether there is something to repair."""

    def is_possible(self, engine: str, *, published: bool) -> bool:
        return engine in self.engines and published in self.networks


FAULTS = (
    Fault("Envoy is killed", _kill_envoy),
    Fault("kill", _command("kill")),
    Fault("stop", _command("stop", "-t", "1")),
    Fault("restart", _command("restart", "-t", "1")),
    Fault("pause", _command("pause")),
    Fault("rm -f", _command("rm", "-f"), same_container=False),
    Fault("network disconnect", _disconnect, networks=(True,), same_container=False),
    Fault("docker-proxy is killed", _kill_docker_proxies, engines=("docker",), networks=(True,)),
    Fault("the proxy's directory is removed", _remove_directory),
    Fault("the daemon is stopped and started", _restart_daemon(signal.SIGTERM), engines=("docker",)),
    Fault("the daemon is killed and started", _restart_daemon(signal.SIGKILL), engines=("docker",)),
    Fault("the daemon hangs", _hang_daemon, engines=("docker",), ends_something=False),
)


def main(terms: list[str]) -> None:
    """Print what a client sees at each fault, by engine and network; `terms` choose some of either."""
    for engine in ("docker", "podman"):
        for published in (False, True):
            where = f"{engine}, {'publish' if published else 'host'}"
            chosen = [fault for fault in FAULTS if fault.is_possible(engine, published=published)]
            named = [fault for fault in chosen if fault.name in terms]
            if terms and not named and engine not in terms:
                continue
            with scene(engine, published=published) as playing:
                for fault in named or chosen:
                    outage = playing.outage(fault.harm)
                    sys.stdout.write(f"{where}: {fault.name}: {outage.failed} failed in {outage.seconds:.1f} s\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
