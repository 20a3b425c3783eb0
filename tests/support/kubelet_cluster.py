"""A cluster with real kubelets: Nodes are Docker containers as kind makes them, on a network of the cluster's own.

Everything is named after the cluster, lies beside whatever else runs on this host, and is gone at the end; what a
killed run left is removed by the next one. No container is privileged. Not here: what Nodes are made of (`images`),
what they read (`node_files`), what runs in the cluster (`workloads`).
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import node_files
from tests.support.client_kinds import NODE
from tests.support.cluster_build import kubernetes
from tests.support.cluster_ranges import Ranges, unused
from tests.support.control_plane import ControlPlane, running
from tests.support.docker_command import DockerError, docker
from tests.support.kubelet_images import NODE_IMAGE, pod_images
from tests.support.node_files import GRACE
from tests.support.real_nodes import EXCLUDED
from tests.support.waiting import TIMEOUT, becomes


@dataclass(kw_only=True)
class KubeletControlPlane(ControlPlane):
    """One cluster's processes on this host; its Nodes reach them at the gateway of their network."""

    ranges: Ranges
    nodes: tuple[str, ...]
    timeout: float = TIMEOUT
    """Nobody takes this API away, but kubelets that begin keep a busy machine from answering."""

    @property
    def users(self) -> Mapping[str, str]:
        """Who may talk to the API, with the group that each is in."""
        return {**super().users, **{f"system:node:{name}": "system:nodes" for name in self.nodes}}

    @property
    def flags(self) -> Sequence[str]:
        """Let kubelets be kubelets, and pods what upstream's tests make."""
        return (
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--service-node-port-range=30000-32767",
            f"--kubelet-client-certificate={self.root}/api-client.crt",
            f"--kubelet-client-key={self.root}/api-client.key",
            "--kubelet-preferred-address-types=InternalIP",
        )

    def start_api(self) -> None:
        """Start the API server, which shows kubelets a certificate that is its own authority."""
        if not (self.root / "api-client.crt").exists():
            names = ("-subj", "/O=system:masters/CN=api-server", "-days", "30")
            out = ("-keyout", f"{self.root}/api-client.key", "-out", f"{self.root}/api-client.crt")
            new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes")
            subprocess.run([*new, *names, *out], check=True, capture_output=True)
        super().start_api()

    def start_controllers(self) -> None:
        """Start every controller but for those of Nodes' networks, which are chosen; and the scheduler."""
        common = (f"--kubeconfig={self.root}/owner.kubeconfig", "--leader-elect=false")
        self.spawn(
            "kube-controller-manager",
            str(kubernetes("kube-controller-manager")),
            *common,
            "--secure-port=0",
            f"--service-account-private-key-file={self.root}/sa.key",
            f"--root-ca-file={self.root}/certs/apiserver.crt",
            f"--cluster-cidr={','.join(self.ranges.pods)}",
            f"--node-monitor-grace-period={GRACE}s",
            "--node-monitor-period=2s",
        )
        self.spawn("kube-scheduler", str(kubernetes("kube-scheduler")), *common, "--secure-port=0")


ROLES = ("control-plane", "worker", "worker2")
OWNER = "local-lb.dev/test-cluster"
"""The label of everything in Docker; its value is the cluster's directory, which holds a lock while it is in use."""
ENTRYPOINT = Path(__file__).parents[1] / "kubelets/entrypoint.sh"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_RIGHTS = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE"),  # some machines can't give the last one
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--security-opt", "systempaths=unconfined", "--device-cgroup-rule", "a *:* rwm", "--cgroupns", "private"),
    *("--sysctl", "net.ipv6.conf.all.disable_ipv6=0"),
)


@dataclass
class KubeletNode:
    """One Node: a container."""

    name: str
    number: int
    ranges: Ranges

    @property
    def addresses(self) -> tuple[str, str]:
        return self.ranges.node(self.number)

    @property
    def pod_cidrs(self) -> tuple[str, str]:
        return self.ranges.pods_of(self.number)

    def run(self, *terms: str) -> str:
        return docker("exec", self.name, *terms)

    def log(self, name: str, lines: int = 40) -> str:
        """Return the end of the log of one of its programs."""
        return self.run("tail", f"--lines={lines}", f"/var/log/{name}.log")

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Pull its cable: nobody gets an answer, and nobody is told."""
        number = self.run("cat", "/sys/class/net/eth0/iflink")
        on_host(f"ip link set $(ip -o link | sed -n 's/^{number}: \\([^@:]*\\).*/\\1/p') down")
        try:
            yield
        finally:
            on_host(f"ip link set $(ip -o link | sed -n 's/^{number}: \\([^@:]*\\).*/\\1/p') up")


def on_host(script: str) -> None:
    """Change the network of this host, by a container: also who isn't root can, if Docker lets him."""
    terms = ("--network", "host", "--cap-drop", "ALL", "--cap-add", "NET_ADMIN")
    docker("run", "--rm", *terms, NODE_IMAGE, "bash", "-ec", script)


@dataclass
class Cluster:
    """A running cluster."""

    plane: KubeletControlPlane
    network: str
    """The Docker network that its Nodes are on, which several clusters may share as those of kind do."""
    shared: tuple[Path, ...] = ()
    """What of this host its Nodes have at the same path, as kind's `extraMounts`."""
    external: bool = False
    """Its kubelets leave Nodes to a cloud provider, and make their objects themselves."""
    nodes: dict[str, KubeletNode] = field(default_factory=dict)

    def node(self, role: str) -> KubeletNode:
        return self.nodes[f"{self.plane.name}-{role}"]

    def add(self, number: int, images: Path, mode: str) -> None:
        """Make a Node's object, with what the owner says of it, and start its container."""
        node = KubeletNode(self.plane.nodes[number], number, self.plane.ranges)
        self.nodes[node.name] = node
        if not self.external:
            with self.plane.client() as client:
                client.create(NODE.from_dict(_node_object(self.plane.name, node)))
        directory = self.plane.root / node.name
        for name, text in node_files.files(self.plane.ranges, number, len(self.plane.nodes), mode).items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)
        for name, user in (("kubelet", f"system:node:{node.name}"), ("kube-proxy", "system:kube-proxy")):
            shutil.copy(self.plane.root / f"{user}.kubeconfig", directory / f"{name}.conf")
        shutil.copy(self.plane.root / "api-client.crt", directory)
        docker(*self._run_words(node, directory, images))

    def _run_words(self, node: KubeletNode, directory: Path, images: Path) -> list[str]:
        authority = self.plane.root / "certs" / "apiserver.crt"
        mounts = {
            ENTRYPOINT: "/opt/entrypoint.sh",
            directory: "/etc/kubernetes",
            authority: str(authority),  # where kubeconfigs expect it
            kubernetes("kubelet").resolve().parent: "/opt/kubernetes",
            images.resolve(): "/opt/images",
        }
        role = node.name.removeprefix(f"{self.plane.name}-").rstrip("0123456789")
        labels = {OWNER: self.plane.root.parent, "io.x-k8s.kind.cluster": self.plane.name, "io.x-k8s.kind.role": role}
        four, six = node.addresses
        return [
            *("run", "--detach", "--name", node.name, "--hostname", node.name, *_RIGHTS),
            *("--env", "KUBELET_FLAGS=--cloud-provider=external" if self.external else "KUBELET_FLAGS="),
            *("--network", self.network, "--ip", four, "--ip6", six, "--env", f"NODE_ADDRESSES={four},{six}"),
            *("--tmpfs", "/tmp", "--tmpfs", "/run", "--volume", "/var"),  # noqa: S108 - the container's own
            *(() if not Path("/dev/kmsg").exists() else ("--device", "/dev/kmsg")),
            *(word for label, value in labels.items() for word in ("--label", f"{label}={value}")),
            *(word for here, present in mounts.items() for word in ("--volume", f"{here}:{present}:ro")),
            *(word for path in self.shared for word in ("--volume", f"{path}:{path}")),
            *(NODE_IMAGE, "bash", "/opt/entrypoint.sh"),
        ]

    def wait(self) -> None:
        """Wait until every kubelet says that its Node is ready."""
        for name, node in self.nodes.items():
            try:
                becomes(lambda name=name: self._ready(name), f"{name} is ready")  # type: ignore[misc]
            except AssertionError as error:
                raise AssertionError(f"{error}\n{node.log('kubelet')}") from error

    def _ready(self, name: str) -> bool:
        with self.plane.client() as client:
            nodes = {item["metadata"]["name"]: item for item in client.list(NODE)}
        conditions = nodes[name]["status"].get("conditions", ()) if name in nodes else ()
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _node_object(cluster: str, node: KubeletNode) -> dict[str, Any]:
    spec: dict[str, object] = {"podCIDR": node.pod_cidrs[0], "podCIDRs": list(node.pod_cidrs)}
    spec["providerID"] = f"kind://docker/{cluster}/{node.name}"
    labels = {}
    if node.name.endswith("control-plane"):
        labels = {_CONTROL_PLANE: "", EXCLUDED: ""}
        spec["taints"] = [{"key": _CONTROL_PLANE, "effect": "NoSchedule"}]
    return {"metadata": {"name": node.name, "labels": labels}, "spec": spec}


@contextlib.contextmanager
def kubelet_cluster(  # noqa: PLR0913 - what clusters of tests differ by
    images: Path | None = None,
    mode: str = "iptables",
    sibling: Cluster | None = None,
    roles: Sequence[str] = ROLES,
    shared: Sequence[Path] = (),
    *,
    external: bool = False,
) -> Iterator[Cluster]:
    """Run a cluster; `mode` is kube-proxy's. With a `sibling`, it is on that one's network and has the same pods."""
    remove_abandoned()
    ranges = sibling.plane.ranges.after(len(sibling.nodes)) if sibling else unused()
    name = f"llb-{secrets.token_hex(3)}"
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root)
        lock = stack.enter_context((root / "lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        stack.callback(_remove, root)
        network = sibling.network if sibling else _make_network(name, root, ranges)
        names = tuple(f"{name}-{role}" for role in roles)
        plane = KubeletControlPlane(name, root / "c", ranges.gateways[0], ranges=ranges, nodes=names)
        stack.enter_context(running(plane))
        plane.start_controllers()
        made = Cluster(plane, network, tuple(shared), external)
        for number in range(len(names)):
            made.add(number, images or pod_images(), mode)
        made.wait()
        yield made


def _make_network(name: str, root: Path, ranges: Ranges) -> str:
    terms = [word for node in ranges.nodes for word in ("--subnet", node)]
    terms += [word for gateway in ranges.gateways for word in ("--gateway", gateway)]
    docker("network", "create", "--ipv6", *terms, "--label", f"{OWNER}={root}", name)
    return name


def _remove(root: Path | str) -> None:
    """Remove what a cluster has in Docker."""
    label = ("--filter", f"label={OWNER}={root}")
    if containers := docker("ps", "--all", "--quiet", *label).split():
        docker("rm", "--force", "--volumes", *containers)
    if networks := docker("network", "ls", "--quiet", *label).split():
        docker("network", "rm", *networks)


def remove_abandoned() -> None:
    """Remove what runs that were killed left in Docker: nobody holds their locks."""
    show = ("--filter", f"label={OWNER}", "--format", f'{{{{.Label "{OWNER}"}}}}')
    for root in {*docker("ps", "--all", *show).split(), *docker("network", "ls", *show).split()}:
        if _abandoned(Path(root)):
            with contextlib.suppress(DockerError):  # another run may do the same
                _remove(root)


def _abandoned(root: Path) -> bool:
    try:
        with (root / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True
