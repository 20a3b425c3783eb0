"""A recorded home put back where it was: its files, and the processes, containers, routes and objects that they name.

Not here: where that is, and what else has to be kept away from it (`place`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from locallb.envoy.admin import EnvoyAdmin
from locallb.runtimes.docker.engine_api import Containers
from tests.support.control_plane import ControlPlane
from tests.support.etcd_objects import put_objects
from tests.support.stages import CHECKOUT, Stage, envoys
from tests.support.takeover_place import (
    BESIDE,
    CLUSTER,
    CONTAINERS,
    HOMES,
    KUBECONFIG,
    MODES,
    PROCESSES,
    ROUTES,
    STACK,
    claimed,
    envoy_binary,
)

Name = tuple[str, str]
"""A process: its pid and its start."""
_PROCESS = re.compile(r"""("pid":\s?|")(\d+)(,[^{}]{0,80}"started":\s?"|@)([0-9a-f-]{36}\.\d+)""")
"""How files name one: as two fields, or as `<pid>@<start>`."""


@contextmanager
def restored(home: str, plane: ControlPlane | None = None) -> Iterator[Stage]:
    """Put a home back where it was recorded, all of it running; at the end the present version destroys it."""
    recorded = HOMES / home
    with claimed(home) as root, ExitStack() as stack:
        _copy(recorded, root)
        if plane:
            shutil.copy(plane.kubeconfig, root / KUBECONFIG)
            _allow_loopback(root / STACK)
            put_objects(plane, _sibling(recorded, CLUSTER))
        processes = stack.enter_context(_processes(recorded, root))
        containers = stack.enter_context(_containers(recorded))
        _route(recorded)
        _rename(root, processes, containers)
        _await_ready(root)
        stage = Stage(root)
        yield stage
        assert stage.run("destroy", "--yes").code == 0


def _allow_loopback(stack: Path) -> None:
    """Allow what recorded clusters have and real ones never: Nodes on this host's loopback."""
    document = yaml.safe_load(stack.read_text(encoding="utf-8"))
    for source in document["config"]["local-lb:sources"]:
        source.get("kubernetes", {})["loopbackBackends"] = True
    stack.write_text(yaml.safe_dump(document), encoding="utf-8")


def _sibling(home: Path, name: str) -> Any:  # noqa: ANN401 - whatever was recorded
    """Return what a file beside the home tells; nothing where there is none."""
    return json.loads((home / name).read_text(encoding="utf-8")) if (home / name).exists() else ()


def _copy(home: Path, root: Path) -> None:
    """Copy the files with the modes that they had; the program is the present one."""
    old_mask = os.umask(0o077)
    try:
        for path in home.rglob("*"):
            if path.is_file() and path.name not in BESIDE:
                target = root / path.relative_to(home)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(path.read_text(encoding="utf-8").replace("@ENVOY@", envoy_binary()), encoding="utf-8")
    finally:
        os.umask(old_mask)
    for name, mode in dict(_sibling(home, MODES)).items():
        (root / name).chmod(int(mode, 8))
    shutil.copy(CHECKOUT / "__main__.py", root / "__main__.py")


@contextmanager
def _processes(home: Path, root: Path) -> Iterator[Mapping[Name, Name]]:
    """Run the Envoys as they were started; give the recorded name of each with that of now."""
    running: list[subprocess.Popen[bytes]] = []
    names = {}
    try:
        for process in _sibling(home, PROCESSES):
            directory = Path(process["environment"]["LOCALLB_PROXY"])
            running.append(_start(process, directory))
            names[_recorded_name(directory)] = _name(running[-1].pid)
        yield names
    finally:
        for pid in envoys(root):
            os.kill(pid, signal.SIGKILL)
        for started in running:
            started.wait()


def _start(process: Mapping[str, Any], directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [envoy_binary(), *process["arguments"]],
        cwd=directory,
        env=process["environment"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _await_ready(root: Path) -> None:
    """Wait until every Envoy has its listeners, as it had when it was recorded."""
    deadline = time.monotonic() + 120
    for directory in (root / "s/locallb/proxies").iterdir():
        while not EnvoyAdmin(directory).ready():
            assert time.monotonic() < deadline, f"the recorded Envoy in {directory} doesn't start"
            time.sleep(0.01)


def _recorded_name(directory: Path) -> Name:
    record = json.loads((directory / "process.json").read_text(encoding="utf-8"))
    return str(record["pid"]), record["started"]


def _name(pid: int) -> Name:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    ticks = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    return str(pid), f"{boot}.{ticks}"


@contextmanager
def _containers(home: Path) -> Iterator[Mapping[str, str]]:
    """Run the containers as they were made; give the recorded id of each with that of now."""
    daemon, ids = Containers(), {}
    try:
        for container in _sibling(home, CONTAINERS):
            daemon.remove(container["name"], volumes=True)  # of a test that was killed
            ids[container["id"]] = daemon.create(container["name"], container["config"])
            daemon.connect(ids[container["id"]], container.get("networks", {}))
            daemon.start(ids[container["id"]])
        yield ids
    finally:
        for identity in ids.values():
            daemon.remove(identity, volumes=True)
        daemon.close()


def _route(home: Path) -> None:
    """Make the routes that there were, in the network that the home has."""
    routes = (home / ROUTES).read_text(encoding="utf-8").splitlines() if (home / ROUTES).exists() else ()
    for route in routes:
        subprocess.run(["ip", "route", "add", *route.split()], check=True)


def _rename(root: Path, processes: Mapping[Name, Name], containers: Mapping[str, str]) -> None:
    """Have the files name what runs now instead of what was recorded, all at once."""

    def process_of_now(observed: re.Match[str]) -> str:
        pid, started = processes[observed[2], observed[4]]
        return f"{observed[1]}{pid}{observed[3]}{started}"

    existing = root / ".state/locallb/dev/state-home"
    if existing.exists():  # whoever restores it is the user that it belongs to
        existing.write_text(
            json.dumps({**json.loads(existing.read_text(encoding="utf-8")), "uid": os.getuid()}), encoding="utf-8"
        )
    state = root / ".state/.pulumi/stacks/local-lb/dev.json"
    for path in (*root.glob("s/locallb/proxies/*/process.json"), state):
        text = _PROCESS.sub(process_of_now, path.read_text(encoding="utf-8"))
        for before, now in containers.items():
            text = text.replace(before, now)
        path.write_text(text, encoding="utf-8")
