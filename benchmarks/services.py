"""A cluster's owner at work for a benchmark: makes, changes and deletes Services, and hears at once what they got.

Works with any cluster and whatever implements LoadBalancer there. One watch tells addresses, so that waiting for one
costs no request. Not here: what is measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightkube import ApiError, Client, KubeConfig
from lightkube.types import PatchType

from benchmarks.requests import LONGEST
from locallb.kubernetes.api.feed import ExpiredError, Feed
from locallb.kubernetes.api.servers import KubeError
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from tests.support.client_kinds import NODE, SERVICE

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
PREFIX = "bench-"
"""How the names of all Services begin that a benchmark makes."""
Port = tuple[int, int]
"""A Service's port and its NodePort; 0 lets the cluster choose."""


class Services:
    """Services of one namespace, and the Nodes of the cluster."""

    def __init__(self, kubeconfig: Path, namespace: str, spec: Mapping[str, object], served: int = 0) -> None:
        self._namespace = namespace
        self._served = served
        """The port of pods, where it isn't the Service's."""
        self._spec = spec
        config = KubeConfig.from_file(kubeconfig)
        self._client = Client(config, trust_env=False)
        self._feed = Feed(Access(str(kubeconfig.absolute()), ContextName(config.current_context or "")), "Service")
        self._addresses: dict[str, str] = {}
        self._node_ports: dict[tuple[str, int], int] = {}
        self._news = threading.Condition()
        self.clear()
        threading.Thread(target=self._follow, daemon=True).start()

    def create(self, name: str, *ports: Port) -> None:
        metadata = {"name": PREFIX + name, "namespace": self._namespace}
        spec = {"type": "LoadBalancer", **self._spec, "ports": [self._port(port) for port in ports]}
        self._client.create(SERVICE.from_dict({"metadata": metadata, "spec": spec}), namespace=self._namespace)

    def create_all(self, wanted: Mapping[str, Port]) -> None:
        with ThreadPoolExecutor(len(wanted)) as pool:
            list(pool.map(lambda item: self.create(item[0], item[1]), wanted.items()))

    def change_ports(self, name: str, *ports: Port) -> None:
        patch = {"spec": {"ports": [self._port(port) for port in ports]}}
        self._client.patch(SERVICE, PREFIX + name, patch, namespace=self._namespace, patch_type=PatchType.MERGE)

    def delete(self, *names: str) -> None:
        """Delete some; whoever has a finalizer on them may take time."""
        for name in names:
            with suppress(ApiError):
                self._client.delete(SERVICE, PREFIX + name, namespace=self._namespace)

    def address(self, name: str) -> str:
        """Wait for the first address in a Service's status. Raises TimeoutError."""
        self._wait(lambda: self._addresses.get(PREFIX + name, ""), f"an address of {name}")
        return self._addresses[PREFIX + name]

    def node_port(self, name: str, port: int) -> int:
        """Wait for the NodePort of a Service's port; 0 where it gets none. Raises TimeoutError."""
        self._wait(lambda: (PREFIX + name, port) in self._node_ports, f"the NodePort of {name}")
        return self._node_ports[PREFIX + name, port]

    def removed(self, *names: str) -> None:
        """Wait until deleted Services are gone. Raises TimeoutError."""
        self._wait(lambda: not any(PREFIX + name in self._addresses for name in names), "the deletion")

    def clear(self) -> None:
        """Remove what an earlier run left, which may still have a finalizer of somebody who is gone."""
        for item in self._client.list(SERVICE, namespace=self._namespace):
            name = str(item["metadata"]["name"])
            if name.startswith(PREFIX):
                self.delete(name.removeprefix(PREFIX))

    def nodes(self) -> Mapping[str, str]:
        """Return the Nodes' names by InternalIP."""
        return {
            str(entry["address"]): str(item["metadata"]["name"])
            for item in self._client.list(NODE)
            for entry in item["status"].get("addresses", ())
            if entry["type"] == "InternalIP"
        }

    def exclude(self, node: str, *, excluded: bool) -> None:
        """Take a Node out of all load balancers, or back."""
        labels = {EXCLUDE: "" if excluded else None}
        self._client.patch(NODE, node, {"metadata": {"labels": labels}}, patch_type=PatchType.MERGE)

    def add_node(self, name: str, address: str) -> None:
        """Create a Node with one InternalIP."""
        self._client.create(NODE.from_dict({"metadata": {"name": name}}))
        status = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
        self._client.patch(NODE.Status, name, status, patch_type=PatchType.MERGE)

    def _port(self, port: Port) -> dict[str, Any]:
        number, node_port = port
        return {"name": f"p{number}", "port": number, "nodePort": node_port, "targetPort": self._served or number}

    def _wait(self, fact: Any, what: str) -> None:  # noqa: ANN401 - a question
        deadline = time.monotonic() + LONGEST
        with self._news:
            while not fact():
                if not self._news.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{what} didn't come within {LONGEST:g} s")

    def _follow(self) -> None:
        """Hear of every Service until the cluster ends."""
        while True:
            try:
                version = self._catch_up()
                for event in self._feed.watch(version):
                    if event.type in {"ADDED", "MODIFIED", "DELETED"}:
                        self._take(event.type, event.object)
            except (KubeError, ExpiredError):
                time.sleep(0.2)

    def _catch_up(self) -> str:
        """Take what there is now: the server ends every watch in time, and what happens meanwhile counts as well."""
        listed, version = self._feed.list()
        with self._news:
            self._addresses.clear()
            self._node_ports.clear()
            for item in listed:
                self._take("ADDED", item)
            self._news.notify_all()  # also where nothing is left
        return version

    def _take(self, kind: str, item: Mapping[str, Any]) -> None:
        if item["metadata"]["namespace"] != self._namespace:
            return
        entries: Sequence[Mapping[str, str]] = item["status"].get("loadBalancer", {}).get("ingress") or [{}]
        name = item["metadata"]["name"]
        ports = {(name, port["port"]): int(port.get("nodePort", 0)) for port in item["spec"].get("ports", ())}
        with self._news:
            for remaining in [key for key in self._node_ports if key[0] == name]:
                del self._node_ports[remaining]
            if kind == "DELETED":
                self._addresses.pop(name, None)
            else:
                self._node_ports |= ports
                self._addresses[name] = entries[0].get("ip", entries[0].get("hostname", ""))
            self._news.notify_all()
