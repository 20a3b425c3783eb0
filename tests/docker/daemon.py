"""A Docker daemon of the tests' own in namespaces of their own: it may be stopped and killed, and nobody notices."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import make_image
from tests.support.environment import lent
from tests.support.host import PYTHON, Done, Namespace, Project, background, project

SECONDS = 60.0
POOLS = [{"name": "gardener", "addresses": ["172.18.255.224/27", "fd00:ff::e0/123"]}]
ROUTES = """
sysctl -qw net.ipv6.conf.default.accept_dad=0
ip route add local 172.18.255.224/27 dev lo
ip -6 route add local fd00:ff::e0/123 dev lo
"""
NETWORK = ("--subnet", "172.18.0.0/24", "--gateway", "172.18.0.1")
NETWORK_6 = ("--ipv6", "--subnet", "fd00:10::/64", "--gateway", "fd00:10::1")
"""Gardener's layout."""
NODE_PORT = 30080
GATEWAYS = ("172.18.0.1", "fd00:10::1")


@dataclass
class Daemon:
    """A dockerd in a namespace, with data and sockets below the project's root."""

    space: Namespace
    root: Path
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def host(self) -> str:
        return f"unix://{self.root}/docker.sock"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        names = {"data-root": "docker", "exec-root": "run", "pidfile": "docker.pid"}
        places = [f"--{option}={self.root}/{name}" for option, name in names.items()]
        with (self.root / "dockerd.log").open("ab") as log:
            command = self.space.enter("dockerd", *places, "-H", self.host, *self.options)
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + SECONDS
        while self.docker("version").code:
            assert self.process.poll() is None, (self.root / "dockerd.log").read_text()[-2_000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait until it has."""
        if self.process:
            self.process.send_signal(how)
            self.process.wait(SECONDS)
        if how is signal.SIGKILL:
            self._forget_containerd()

    def _forget_containerd(self) -> None:
        """Wait for the containerd of a daemon that was killed: a successor would take its remains for a running one."""
        note = self.root / "run/containerd/containerd.pid"
        deadline = time.monotonic() + SECONDS
        with suppress(OSError, ValueError):
            status = Path(f"/proc/{int(note.read_text())}/stat")
            while status.read_text().rpartition(")")[2].split()[0] != "Z":
                assert time.monotonic() < deadline
                time.sleep(0.02)
        note.unlink(missing_ok=True)

    def close(self) -> None:
        self.end()
        with suppress(OSError, ValueError):
            os.kill(int((self.root / "run/containerd/containerd.pid").read_text()), signal.SIGKILL)

    def docker(self, *terms: str) -> Done:
        environment = {**os.environ, "DOCKER_HOST": self.host}
        done = subprocess.run(
            ["docker", *terms], check=False, capture_output=True, text=True, timeout=SECONDS, env=environment
        )
        return Done(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Hosted:
    """A project whose Docker is a daemon of its own."""

    project: Project
    daemon: Daemon
    image: str

    def configure(self, **settings: object) -> None:
        """Write the stack's configuration, with the runtime docker and the image."""
        self.project.configure(runtime="docker", image=self.image, **settings)

    def identities(self) -> dict[str, str]:
        """Return the containers' ids by their names, running or not."""
        listed = self.daemon.docker("ps", "-a", "--no-trunc", "--format", "{{.Names}} {{.ID}}").out
        return dict(line.split() for line in listed.splitlines())


@contextmanager
def hosted(*options: str, owner: int = 0) -> Iterator[Hosted]:
    """Make a project and a daemon for it, with an image of the installed Envoy; DOCKER_HOST names it meanwhile."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("only root can start a Docker daemon of its own, where dockerd is installed")
    with project(owner=owner) as made:
        made.root.chmod(0o755)
        daemon = Daemon(made.space, made.root, options)
        with lent({"DOCKER_HOST": daemon.host}):
            try:
                daemon.start()
                yield Hosted(made, daemon, make_image(Containers()))
                made.locallb("destroy", "--yes", user=owner)
            finally:
                daemon.close()


ECHO = """
import socket, sys, threading
def serve(kind, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM if kind == "TCP" else socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, int(port)))
    if kind == "TCP":
        s.listen(256)
    def loop():
        while True:
            if kind == "UDP":
                data, sender = s.recvfrom(2000)
                s.sendto(f"{kind} at {address}".encode(), sender)
            else:
                c, _ = s.accept()
                c.sendall(f"{kind} at {address}".encode())
                c.close()
    threading.Thread(target=loop, daemon=True).start()
for place in sys.argv[1:]:
    serve(*place.split("@"))
print("ready", flush=True)
threading.Event().wait()
"""
ASK = """
import socket, sys
for place in sys.argv[1:]:
    kind, address, port = place.split("@")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM if kind == "TCP" else socket.SOCK_DGRAM) as s:
            s.settimeout(10)
            s.connect((address, int(port)))
            if kind == "UDP":
                s.send(b"?")
            print(s.recv(99).decode() or "nothing")
    except OSError as error:
        print(error.__class__.__name__)
"""


def served(space: Namespace, *places: str) -> AbstractContextManager[None]:
    """Serve at each `<protocol>@<address>@<port>`; a client is told protocol and address."""
    return background(space, PYTHON, "-c", ECHO, *places)


def requested(space: Namespace, *places: str) -> list[str]:
    """Ask at each `<protocol>@<address>@<port>`, and give what was answered, or the error."""
    return space.shell(shlex.join([PYTHON, "-c", ASK, *places])).splitlines()


@contextmanager
def gardeners() -> Iterator[Hosted]:
    """Make a host in Gardener's layout: its addresses, its Docker network, and one node that serves at NODE_PORT."""
    with hosted() as made:
        made.project.space.shell(ROUTES)
        done = made.daemon.docker("network", "create", *NETWORK, *NETWORK_6, "kind")
        assert done.code == 0, done.err
        made.configure(network="publish", compat="gardener", pools=POOLS)
        addresses = [{"type": "InternalIP", "address": gateway} for gateway in GATEWAYS]
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"addresses": addresses}}
        made.project.write("node.yaml", node)
        places = [f"{protocol}@{address}@{NODE_PORT}" for protocol in ("TCP", "UDP") for address in GATEWAYS]
        with served(made.project.space, *places):
            yield made
