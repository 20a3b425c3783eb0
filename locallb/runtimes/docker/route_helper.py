"""Routes changed by a short-lived container: for users with access to an engine and no right to change routes.

The container may administer one network, this host's or a proxy's, and no other. Its `ip` is this host's own, made an
image on the spot, or that of a kind node, which has its image here if kind's pods are here. Not here: which routes are
wanted.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from locallb.host.capabilities import is_rootless, shortcoming_of
from locallb.model.errors import ClientError
from locallb.model.identities import KEY_PREFIX, ContainerId, ImageName, Owner
from locallb.model.routes import POD_PROTOCOL, PodRoute
from locallb.model.texts import metric_of, owner_fields
from locallb.runtimes.docker.daemon import ContainersError
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import load_program
from locallb.runtimes.planners import HELPER_LABEL

_KIND_LABEL = "io.x-k8s.kind.cluster"
_BUSYBOX = "busybox"
"""Its `ip` takes no batch."""
_REPOSITORY = "local-lb/ip"
_BATCH = "routes"
_TIMEOUT = 30
_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"


class RouteHelperError(ClientError):
    """Routes can't be changed through an engine: one sentence."""


class ContainerRoutes:
    """Changes routes by containers of this host's engine."""

    def __init__(self, engine: Callable[[], Containers]) -> None:
        self._engine = engine

    def may_route(self) -> bool:
        try:
            return not _shortcoming(self._engine())
        except ContainersError:
            return False

    def may_remove_later(self) -> bool:
        return _own_ip() is not None

    def pid(self, container: ContainerId) -> int:
        """Ask the engine. Raises ContainersError."""
        observed = self._engine().inspect(container)
        return int(observed["State"]["Pid"]) if observed else 0

    def change(
        self, network: str, put: Collection[PodRoute], remove: Collection[PodRoute], owner: Owner
    ) -> frozenset[PodRoute]:
        """Run the change in a container; return what is there then. Raises ContainersError, RouteHelperError."""
        engine = self._engine()
        if why := _shortcoming(engine):
            raise RouteHelperError(why)
        terms = [*(f"del {route}" for route in remove), *(f"replace {route}" for route in put), "show table all"]
        mark = f"proto {POD_PROTOCOL} metric {metric_of(owner.home)}"
        labels = {KEY_PREFIX + key: value for key, value in owner_fields(owner).items()}
        return _listed(_run(engine, network, "".join(f"route {word} {mark}\n" for word in terms), labels))


ROUTE_HELPER = ContainerRoutes(Containers)


def _shortcoming(engine: Containers) -> str:
    """Return why this engine can't change routes of this host; empty if it can. Raises ContainersError."""
    name, info = engine.engine.name, engine.info()
    if shortcoming_of("docker", info, engine.host):
        why = "is rootless" if is_rootless(info) else "isn't one of this host"
        return f"the {name} at {engine.host} {why}, so it can't make routes here; run as root"
    return ""


def _listed(text: str) -> frozenset[PodRoute]:
    """Read what `ip route show` lists; what has no gateway, or several, is none of ours."""
    lines = [line.split() for line in text.splitlines()]
    return frozenset(PodRoute.parse(" ".join(terms[:3])) for terms in lines if terms[1:2] == ["via"])


def _run(engine: Containers, network: str, batch: str, labels: Mapping[str, str]) -> str:
    """Run `ip` on a batch, and return what it says. Raises ContainersError, RouteHelperError."""
    config = {
        "Image": _image(engine),
        "Entrypoint": ["ip", "-force", "-batch", f"/{_BATCH}"],
        "Cmd": [],
        "Env": [_PATH],
        "User": "0:0",
        "Labels": {**labels, HELPER_LABEL: network.partition(":")[0]},
        "HostConfig": {
            "NetworkMode": network,
            "CapDrop": ["ALL"],
            "CapAdd": ["NET_ADMIN"],
            "SecurityOpt": ["no-new-privileges"],
            "Memory": 64 << 20,
            "LogConfig": {"Type": "json-file"},
        },
    }
    identity = engine.create("", config)
    try:
        engine.put(identity, _BATCH, batch)
        engine.start(identity)
        if engine.wait(identity, _TIMEOUT):
            raise RouteHelperError(f"routes can't be changed: {engine.logs(identity, 5)}")
        return engine.output(identity)
    finally:
        engine.remove(identity, volumes=True)


def _image(engine: Containers) -> ImageName:
    """Find an image that has `ip`, or make one."""
    if path := _own_ip():
        return _made(engine, path)
    if nodes := engine.labelled(_KIND_LABEL):
        return ImageName(str(nodes[0]["ImageID"]))
    raise RouteHelperError(
        "this host has no `ip` of iproute2, by which routes would be changed; install iproute2, or run as root"
    )


def _own_ip() -> Path | None:
    """Return this host's `ip` of iproute2."""
    program = shutil.which("ip", path=_PATH.partition("=")[2])
    path = Path(program).resolve() if program else None
    return path if path and path.name != _BUSYBOX else None


def _made(engine: Containers, path: Path) -> ImageName:
    """Make an image of this host's `ip` and the libraries that it needs, unless that was done before."""
    image = ImageName(f"{_REPOSITORY}:{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}")
    if not engine.has_image(image):
        load_program(engine, image, path, "usr/sbin/ip")
    return image
