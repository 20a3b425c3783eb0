"""Record a home, as root: `python -m tests.takeover.record CHECKOUT HOME`, with a checkout of the version in question.

`homes/HOME` has at first what a user would write: `stacks/`, `manifests/`, for a live cluster `objects.yaml`, for a
network of its own `network.sh`. That version's own `up` runs on it; all that it left goes beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.containers import containers
from tests.support.control_plane import ControlPlane, Objects, control_plane
from tests.support.etcd_objects import read_objects
from tests.support.stages import Stage, envoys
from tests.support.takeover_place import (
    BESIDE,
    CLUSTER,
    CONTAINERS,
    HOMES,
    KUBECONFIG,
    MODES,
    OBJECTS,
    PROCESSES,
    ROUTES,
    claimed,
    envoy_binary,
)

PROGRAM = "import sys; from locallb.cli import main; sys.exit(main(sys.argv[1:]))"
_PASSING = frozenset({".sock", ".log", ".lock", ".py"})
_BY_ITS_MAKER = ("Cmd", "ExposedPorts", "Image", "Labels", "User", "Volumes", "WorkingDir")
_HOST_BY_ITS_MAKER = (
    "Binds",
    "CapAdd",
    "CapDrop",
    "LogConfig",
    "Memory",
    "MemorySwap",
    "NanoCpus",
    "NetworkMode",
    "PortBindings",
    "ReadonlyRootfs",
    "RestartPolicy",
    "SecurityOpt",
)
"""What of a container's configuration is neither the image's nor Docker's own."""


def record(checkout: Path, home: str) -> None:
    """Have the version in `checkout` serve the home's project, and keep what it wrote and started."""
    retained = HOMES / home
    with claimed(home) as root, _cluster(retained) as plane:
        shutil.copytree(retained, root, ignore=shutil.ignore_patterns(*BESIDE))
        for name in ("Pulumi.yaml", "__main__.py"):
            shutil.copy(checkout / name, root / name)
        (root / ".state").mkdir()
        if plane:
            shutil.copy(plane.kubeconfig, root / KUBECONFIG)
        try:
            _run(checkout, root, "up", "--yes")
            _keep_files(root, retained)
            _keep_modes(root, retained)
            _keep_running(root, retained)
            if plane:
                _write(retained / CLUSTER, read_objects(plane))
        finally:
            _run(checkout, root, "destroy", "--yes")


@contextmanager
def _cluster(retained: Path) -> Iterator[ControlPlane | None]:
    """Run a cluster with the home's objects, if it has any."""
    if not (retained / OBJECTS).exists():
        yield None
        return
    place = Path("/tmp/local-lb-recording")  # noqa: S108 - sockets need short paths
    with control_plane("real", place) as plane, plane.client() as client:
        objects = Objects(plane, client)
        objects.node("node-a")
        for document in yaml.safe_load_all((retained / OBJECTS).read_text(encoding="utf-8")):
            objects.service(document)
        yield plane
    shutil.rmtree(place)


def _run(checkout: Path, root: Path, *terms: str) -> None:
    """Run a command of the version in `checkout`."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PROGRAM, "-C", str(root), *terms]
    subprocess.run(command, check=True, cwd=checkout, env=environment)


def _keep_files(root: Path, retained: Path) -> None:
    """Copy what lies in the home now, but sockets, logs, locks and what gives access to a cluster."""
    for path in root.rglob("*"):
        if path.is_file() and path.suffix not in _PASSING and path.name != KUBECONFIG:
            target = retained / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(path.read_text(encoding="utf-8").replace(envoy_binary(), "@ENVOY@"), encoding="utf-8")


def _keep_modes(root: Path, retained: Path) -> None:
    """Write down which files and directories others may use."""
    modes = {str(path.relative_to(root)): path.stat().st_mode & 0o777 for path in (root / "s").rglob("*")}
    _write(
        retained / MODES,
        {path: oct(mode) for path, mode in modes.items() if mode & 0o077 and (retained / path).exists()},
    )


def _keep_running(root: Path, retained: Path) -> None:
    """Write down the processes, containers and routes that there are."""
    _write(retained / PROCESSES, [_process(pid) for pid in envoys(root)])
    if found := containers(Stage(root)):
        _write(retained / CONTAINERS, [_container(each) for _, each in sorted(found.items())])
    if routes := _routes():
        (retained / ROUTES).write_text("".join(f"{route}\n" for route in routes), encoding="utf-8")


def _process(pid: int) -> Mapping[str, Any]:
    arguments, environment = (_strings(Path(f"/proc/{pid}/{name}")) for name in ("cmdline", "environ"))
    return {
        "arguments": arguments[1:],
        "environment": dict(each.split("=", 1) for each in environment),
        "pid": pid,
    }


def _strings(path: Path) -> Sequence[str]:
    return path.read_text(encoding="utf-8").rstrip("\0").split("\0")


def _container(inspected: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what makes a container like this one, and the id that files know it by."""
    config, host = inspected["Config"], inspected["HostConfig"]
    made = {name: config[name] for name in _BY_ITS_MAKER if config.get(name)}
    made["HostConfig"] = {name: host[name] for name in _HOST_BY_ITS_MAKER if host.get(name)}
    networks = {name: each["IPAMConfig"] for name, each in inspected["NetworkSettings"]["Networks"].items()}
    own = {name: {"IPAMConfig": addresses} for name, addresses in networks.items() if addresses}
    return {"config": made, "id": inspected["Id"], "name": inspected["Name"].removeprefix("/"), "networks": own}


def _routes() -> Sequence[str]:
    """Return the routes of our protocol, as `ip route add` takes them."""
    families = (("ip", f"-{version}", "route", "show", "proto", "78") for version in (4, 6))
    shown = [subprocess.run(terms, check=True, capture_output=True, text=True).stdout for terms in families]
    return [f"{line.strip()} proto 78" for text in shown for line in text.splitlines()]


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(Path(sys.argv[1]).resolve(), sys.argv[2])
