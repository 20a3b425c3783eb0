"""Nodes of a test cluster: network namespaces on a bridge, laid out as kind lays them out, each with a real kube-proxy.

There is no kubelet: Node and Pod objects are made by hand, and what a pod would serve is served by this process from
an address inside of the Node. Everything is dual-stack. The bridge, the Nodes and the addresses of the pools live in a
namespace of their own, so that the machine's own network isn't touched and nothing remains.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import yaml
from lightkube import ApiError
from lightkube.types import PatchType

from locallb.kubernetes.api.health_ports import answering
from tests.support.backends import Backend, ask
from tests.support.client_kinds import NODE, POD, SLICE
from tests.support.cluster_build import kubernetes
from tests.support.control_plane import ControlPlane, Document, Objects
from tests.support.host import Namespace
from tests.support.network_spaces import inside
from tests.support.waiting import becomes

GATEWAY = "172.18.0.1"
POOLS = ("172.18.255.224/27", "fd00:ff::e0/123")
"""As Gardener's local setup has them; the host answers for every address in them."""
NEIGHBOURS = {4: ("198.51.100.7", "198.51.100.8"), 6: ("2001:db8::7", "2001:db8::8")}
"""Further addresses of the host, by which its clients can be told apart."""
SERVED = 8080
"""The port that every pod serves on, TCP and UDP."""
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
PODS = ("10.244.0.0/16", "fd00:10:244::/48")
_NET4, _NET6 = "172.18.0", "fc00:f853:ccd:e793:"
_PREPARE = "mount -t tmpfs none /run\nip link set lo up\n"
_BRIDGE = f"""
ip link add br0 type bridge
ip addr add {GATEWAY}/16 dev br0
ip addr add {_NET6}:1/64 dev br0 nodad
ip link set br0 up
ip route add local {POOLS[0]} dev lo
ip route add local {POOLS[1]} dev lo
""" + "".join(f"ip addr add {address} dev lo nodad\n" for several in NEIGHBOURS.values() for address in several)


class Host:
    """The machine on which the Nodes are: a bridge with this machine as its gateway."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        self.space = Namespace(root, _PREPARE)
        self.space.shell(_BRIDGE)
        self._last = 1

    def number(self) -> int:
        """Return the last byte of an address on the bridge that nobody has."""
        self._last += 1
        return self._last

    def close(self) -> None:
        self.space.close()


@dataclass
class Node:
    """One Node: a namespace with its addresses, and its kube-proxy."""

    name: str
    number: int
    host: Host
    plane: ControlPlane
    space: Namespace
    mode: str
    """How kube-proxy does its work: `iptables` or `nftables`."""
    proxy: subprocess.Popen[bytes] | None = None
    host_number: int = 0
    """The last byte of its addresses, where it isn't `number` any more."""

    @property
    def addresses(self) -> tuple[str, str]:
        number = self.host_number or self.number
        return f"{_NET4}.{number}", f"{_NET6}:{number:x}"

    @property
    def pod_cidrs(self) -> tuple[str, str]:
        return f"10.244.{self.number}.0/24", f"fd00:10:244:{self.number:x}::/64"

    def connect(self) -> None:
        four, six = self.addresses
        self.host.space.shell(
            f"ip link add ve{self.number} type veth peer name eth0 netns {self.space.pid}\n"
            f"ip link set ve{self.number} master br0 up"
        )
        self.space.shell(
            f"echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding\n"
            f"ip addr add {four}/16 dev eth0; ip addr add {six}/64 dev eth0 nodad; ip link set eth0 up\n"
            f"ip route add default via {GATEWAY}; ip -6 route add default via {_NET6}:1\n"
            # As kind's network does it: the world outside sees the Node, because it has no way back to pods.
            + "".join(
                f"{tables} -t nat -A POSTROUTING -s {pods} ! -d {pods} -o eth0 -j MASQUERADE\n"
                for tables, pods in zip(("iptables", "ip6tables"), PODS, strict=True)
            )
        )

    def route_to(self, other: Node) -> None:
        """Let it reach the pods of another Node."""
        for cidr, via in zip(other.pod_cidrs, other.addresses, strict=True):
            self.space.shell(f"ip route replace {cidr} via {via}")

    def readdress(self, number: int) -> None:
        """Give it other addresses on the bridge, as Docker may do after a restart; its pods keep theirs."""
        old, self.host_number = self.addresses, number
        for address, fresh, length in zip(old, self.addresses, (16, 64), strict=True):
            self.space.shell(f"ip addr del {address}/{length} dev eth0; ip addr add {fresh}/{length} dev eth0 nodad")
        self.space.shell(f"ip route replace default via {GATEWAY}; ip -6 route replace default via {_NET6}:1")

    def start_proxy(self) -> None:
        """Start kube-proxy, configured as kind does it."""
        config = self.plane.root / f"{self.name}.kube-proxy.yaml"
        config.write_text(yaml.safe_dump(self._proxy_config()))
        terms = self.space.enter(str(kubernetes("kube-proxy")), f"--config={config}", "-v=1")
        with (self.plane.root / f"{self.name}.kube-proxy.log").open("ab") as log:
            environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
            self.proxy = subprocess.Popen(
                terms, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )

    def _proxy_config(self) -> Document:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self.plane.root / "system:kube-proxy.kubeconfig")},
            "hostnameOverride": self.name,
            "mode": self.mode,
            "clusterCIDR": ",".join(PODS),
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            self.mode: {"minSyncPeriod": "0s"},
            "oomScoreAdj": 0,
        }

    def stop_proxy(self) -> None:
        """Kill kube-proxy; the rules that it made stay."""
        if self.proxy:
            self.proxy.kill()
            self.proxy.wait()
        self.proxy = None

    def answers(self) -> bool:
        """Return whether kube-proxy says that it works."""
        return answering([ip_address(address) for address in self.addresses], 10256) != frozenset()

    def close(self) -> None:
        self.stop_proxy()
        self.space.close()


@dataclass
class Pod:
    """A pod that serves: its object, and what answers with its name on its addresses."""

    name: str
    node: Node
    addresses: tuple[str, ...]
    backends: list[Backend] = field(default_factory=list)

    @property
    def connections(self) -> int:
        return sum(backend.connections for backend in self.backends)

    @property
    def peers(self) -> set[str]:
        """Whom those were from, as the pod sees it."""
        return {peer for backend in self.backends for peer in backend.peers}


class World(Objects):
    """The cluster's owner, who also has Nodes and pods at hand."""

    host: Host
    mode: str
    """That of its kube-proxies."""
    nodes: dict[str, Node]
    pods: dict[str, Pod]

    def __init__(self, plane: ControlPlane, host: Host, mode: str = "iptables") -> None:
        super().__init__(plane, plane.client())
        self.host, self.mode, self.nodes, self.pods = host, mode, {}, {}
        self._pod_numbers = iter(range(2, 1 << 16))

    def join(self, role: str) -> Node:
        """Make a Node named as kind names it: `<cluster>-<role>`."""
        number = self.host.number()
        root = self.plane.root / f"node-{number}"
        root.mkdir()
        node = Node(f"{self.plane.name}-{role}", number, self.host, self.plane, Namespace(root, _PREPARE), self.mode)
        self.nodes[node.name] = node
        node.connect()
        self.routes()
        self.register(node)
        node.start_proxy()
        return node

    def register(self, node: Node) -> None:
        """Make the Node's object, as kubeadm and kubelet do it in kind."""
        labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux"}
        spec: Document = {"podCIDR": node.pod_cidrs[0], "podCIDRs": list(node.pod_cidrs)}
        if node.name.endswith("control-plane"):
            labels |= {"node-role.kubernetes.io/control-plane": "", EXCLUDED: ""}
            spec["taints"] = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
        self.client.create(NODE.from_dict({"metadata": {"name": node.name, "labels": labels}, "spec": spec}))
        self.tell_addresses(node)

    def tell_addresses(self, node: Node) -> None:
        """Write the Node's addresses into its status."""
        internal: list[Document] = [{"type": "InternalIP", "address": address} for address in node.addresses]
        status = {
            "addresses": [*internal, {"type": "Hostname", "address": node.name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        }
        self.client.patch(NODE.Status, node.name, {"status": status}, patch_type=PatchType.MERGE)

    def label(self, node: Node, **labels: str | None) -> None:
        """Set labels of a Node, or remove them (None); `exclude` stands for the exclusion label."""
        named = {EXCLUDED if key == "exclude" else key: value for key, value in labels.items()}
        self.client.patch(NODE, node.name, {"metadata": {"labels": named}}, patch_type=PatchType.MERGE)

    def taint(self, node: Node, *keys: str) -> None:
        taints = [{"key": key, "effect": "NoSchedule"} for key in keys] or None
        self.client.patch(NODE, node.name, {"spec": {"taints": taints}}, patch_type=PatchType.MERGE)

    def on_every_node_port(self, service: str) -> bool:
        """Return whether the first port of a Service answers on every Node that shall serve it, in each family."""
        document = self.read(service)
        assert document is not None
        number = self.ports(service)[0]["nodePort"]
        local = document["spec"].get("externalTrafficPolicy") == "Local"
        nodes = [pod.node for pod in self.pods.values()] if local else list(self.nodes.values())
        places = [node.addresses[family == "IPv6"] for node in nodes for family in document["spec"]["ipFamilies"]]
        with contextlib.suppress(OSError):
            return all(ask(place, number, seconds=0.5) for place in places)
        return False

    def pod(self, name: str, node: Node, app: str = "web") -> Pod:
        """Run a pod of `app` on a Node: it serves, and then its object says so."""
        number = next(self._pod_numbers)
        pod = Pod(name, node, (f"10.244.{node.number}.{number}", f"fd00:10:244:{node.number:x}::{number:x}"))
        for address, length in zip(pod.addresses, (32, 128), strict=True):
            node.space.shell(f"ip addr add {address}/{length} dev lo nodad")
        with inside(node.space):
            pod.backends = [Backend(name, address, SERVED) for address in pod.addresses]
        self.pods[name] = pod
        container = {"name": "server", "image": "server"}
        meta = {"name": name, "namespace": "n", "labels": {"app": app}}
        spec = {"nodeName": node.name, "containers": [container], "terminationGracePeriodSeconds": 30}
        self.client.create(POD.from_dict({"metadata": meta, "spec": spec}))
        self.ready(pod)
        return pod

    def ready(self, pod: Pod, *, is_ready: bool = True) -> None:
        """Say of a pod whether it is ready."""
        word = "True" if is_ready else "False"
        status = {
            "phase": "Running",
            "podIP": pod.addresses[0],
            "podIPs": [{"ip": address} for address in pod.addresses],
            "conditions": [{"type": "Ready", "status": word}],
        }
        self.client.patch(POD.Status, pod.name, {"status": status}, namespace="n", patch_type=PatchType.MERGE)

    def terminate(self, pod: Pod) -> None:
        """Ask a pod to end: it is terminating and still serves."""
        self.client.delete(POD, pod.name, namespace="n")

    def count_endpoints(self, service: str, condition: str = "ready") -> set[int]:
        """Count the endpoints of that condition that a Service's EndpointSlices have, in each of its families."""
        document = self.read(service)
        assert document is not None
        slices = list(self.client.list(SLICE, namespace="n", labels={"kubernetes.io/service-name": service}))
        return {
            sum(
                bool(endpoint["conditions"].get(condition))
                for item in slices
                if item["addressType"] == family
                for endpoint in item.get("endpoints") or ()
            )
            for family in document["spec"]["ipFamilies"]
        }

    def wait_for_nodes(self) -> None:
        """Wait until kube-proxy says on every Node that it works."""
        for node in self.nodes.values():
            becomes(node.answers, f"{node.name} answers on 10256")

    def routes(self) -> None:
        """Tell every Node again where the others are."""
        for node in self.nodes.values():
            for other in self.nodes.values():
                if other is not node:
                    node.route_to(other)

    def remove(self, pod: Pod) -> None:
        for backend in pod.backends:
            backend.close()
        for address, length in zip(pod.addresses, (32, 128), strict=True):
            pod.node.space.shell(f"ip addr del {address}/{length} dev lo")
        del self.pods[pod.name]
        with contextlib.suppress(ApiError):
            self.client.delete(POD, pod.name, namespace="n", grace_period=0)

    def reset(self) -> None:
        """Remove what a test made; the Nodes stay, and are as they were."""
        for pod in list(self.pods.values()):
            self.remove(pod)
        self.clear_services()
        for node in self.nodes.values():
            self.label(node, exclude="" if node.name.endswith("control-plane") else None)

    def close(self) -> None:
        for pod in list(self.pods.values()):
            for backend in pod.backends:
                backend.close()
        for node in self.nodes.values():
            node.close()
        self.client.__exit__(None, None, None)
