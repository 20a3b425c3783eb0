"""Where a recorded home belongs: the path that its files name, the variables and the network of its recording.

A home is what a version left on a host: project, state, ledger, directories of proxies, and beside them what ran then:
`processes.json`, `containers.json`, `cluster.json` (objects as etcd had them), `network.sh` and `routes.txt`. Not here:
how one is made (`record`), how it is put back (`restoring`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import envoy

from tests.support.containers import docker
from tests.support.environment import lent
from tests.support.host import Namespace
from tests.support.network_spaces import inside

HOMES = Path(__file__).parents[1] / "takeover/homes"
PROCESSES, CONTAINERS, CLUSTER = "processes.json", "containers.json", "cluster.json"
MODES = "modes.json"
"""Modes of files and directories that weren't for their user alone."""
NETWORK, ROUTES, OBJECTS = "network.sh", "routes.txt", "objects.yaml"
DOCKER_NETWORK = "docker-network.txt"
"""What `docker network create` is told, the name last."""
BESIDE = frozenset({PROCESSES, CONTAINERS, CLUSTER, MODES, NETWORK, ROUTES, OBJECTS, DOCKER_NETWORK})
"""Files of a home that aren't files of the host."""
OWN_NETWORK = "ip link set lo up\n"
STACK = "stacks/Pulumi.dev.yaml"
KUBECONFIG = "kubeconfig"
"""A file of the project that is made again for each cluster."""


def envoy_binary() -> str:
    """Return where Envoy is; recorded files say `@ENVOY@`."""
    return str(Path(envoy.__file__).parent / "_bin" / "envoy")


@contextmanager
def claimed(home: str) -> Iterator[Path]:
    """Lend the place of a home, empty, to one test of this host at a time; nothing stays there."""
    root = Path(f"/tmp/local-lb-recorded-{home.rpartition('/')[2]}")  # noqa: S108 - names of proxies depend on the path
    with _alone(), _network(HOMES / home), _docker_network(HOMES / home), lent(_variables(root)):
        shutil.rmtree(root, ignore_errors=True)
        try:
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)


def _variables(root: Path) -> Mapping[str, str]:
    return {"XDG_STATE_HOME": str(root / "s"), "LOCALLB_LEDGER": str(root / "s/locallb/ledger")}


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other test of any user has a recorded home: they lie at one path. The lock leaves no file."""
    deadline = time.monotonic() + 300
    descriptor = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)  # noqa: S108 - what every user may open
    try:
        while not _locked(descriptor):
            assert time.monotonic() < deadline, "another test keeps the recorded homes"
            time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _network(home: Path) -> Iterator[None]:
    """Be where nobody else serves, as the default pool's addresses are recorded. Who isn't root takes the host's.

    So do homes with containers and clusters, which have pools of their own: Docker doesn't follow into a namespace.
    """
    if (
        os.geteuid() != 0
        or (home / OBJECTS).exists()
        or "runtime: docker" in (home / STACK).read_text(encoding="utf-8")
    ):
        yield
        return
    script = home / NETWORK
    with tempfile.TemporaryDirectory() as nowhere:
        prepare = script.read_text(encoding="utf-8") if script.exists() else OWN_NETWORK
        space = Namespace(Path(nowhere), prepare, flags=("-n",))
        try:
            with inside(space):
                yield
        finally:
            space.close()


@contextmanager
def _docker_network(home: Path) -> Iterator[None]:
    """Have the Docker network that the home's containers are on, if it has one."""
    if not (home / DOCKER_NETWORK).exists():
        yield
        return
    terms = (home / DOCKER_NETWORK).read_text(encoding="utf-8").split()
    killed = ["docker", "network", "rm", terms[-1]]  # of a test that was
    subprocess.run(killed, check=False, capture_output=True)
    docker("network", "create", *terms)
    try:
        yield
    finally:
        docker("network", "rm", terms[-1])


def _has_own_pool(home: Path) -> bool:
    """Return whether it has containers or a cluster, which don't follow into a namespace."""
    return (home / OBJECTS).exists() or "runtime: docker" in (home / STACK).read_text(encoding="utf-8")
