"""The control plane of a cluster with kubelets: all controllers, the scheduler, and Nodes that authenticate as such."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.cluster_build import kubernetes
from tests.support.cluster_ranges import Ranges
from tests.support.control_plane import ControlPlane
from tests.support.node_files import GRACE
from tests.support.waiting import TIMEOUT


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
