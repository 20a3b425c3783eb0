"""What a Node with a kubelet reads: the configuration of kubelet, kube-proxy, containerd and the pod network, as text.

Pure. Everything is known before a Node starts: its addresses and the network of its pods are chosen, not waited for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain

import yaml

from tests.support.cluster_ranges import Ranges
from tests.support.kubelet_images import PAUSE

GRACE, LEASE = 12, 8
"""Seconds after which a Node that says nothing isn't ready, and the lifetime of its lease: a fourth of the usual."""
DNS = "10.96.0.10"
"""Where pods ask for names; in most of these clusters nobody answers."""


def files(ranges: Ranges, number: int, nodes: int, mode: str) -> Mapping[str, str]:
    """Return the files of /etc/kubernetes by name, for one of so many Nodes; `mode` is kube-proxy's."""
    return {
        "kubelet.yaml": yaml.safe_dump(_kubelet()),
        "kube-proxy.yaml": yaml.safe_dump(_kube_proxy(ranges, mode)),
        "containerd.toml": _CONTAINERD,
        "cni/10-pods.conflist": json.dumps(_pod_network(ranges, number)),
        "network.sh": _network(ranges, number, nodes),
    }


def _kubelet() -> Mapping[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubernetes/api-client.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/kubelet",
        "oomScoreAdj": 0,
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS],
        "imageGCHighThresholdPercent": 100,
        "evictionHard": dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"),
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": LEASE,
    }


def _kube_proxy(ranges: Ranges, mode: str) -> Mapping[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "clientConnection": {"kubeconfig": "/etc/kubernetes/kube-proxy.conf"},
        "clusterCIDR": ",".join(ranges.pods),
        "healthzBindAddress": "[::]:10256",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    }


_CONTAINERD = f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/kubernetes/cni"
"""


def _pod_network(ranges: Ranges, number: int) -> Mapping[str, object]:
    ipam = {
        "type": "host-local",
        "dataDir": "/run/pod-addresses",
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        "ranges": [[{"subnet": cidr}] for cidr in ranges.pods_of(number)],
    }
    way = {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.3.1", "name": "pods", "plugins": [way, ports]}


def _network(ranges: Ranges, number: int, nodes: int) -> str:
    """Write commands that lead to other Nodes' pods, hide pods from the host, and let nothing out of the cluster.

    A packet to a pod that has just gone would otherwise leave by the default route, for whoever answers out there.
    """
    routes = chain.from_iterable(
        zip(ranges.pods_of(other), ranges.node(other), strict=True) for other in range(nodes) if other != number
    )
    hidden = zip(("iptables", "ip6tables"), ranges.pods, strict=True)
    lines = ["ip -4 route del default", "ip -6 route del default"]
    lines += [f"ip route replace {host} via {at}" for host, at in zip(ranges.host, ranges.gateways, strict=True)]
    lines += [f"ip route replace blackhole {pods}" for pods in ranges.pods]
    lines += [f"ip route replace {pods} via {node}" for pods, node in routes]
    lines += [f"{tool} -w -t nat -A POSTROUTING -s {pods} ! -d {pods} -o eth0 -j MASQUERADE" for tool, pods in hidden]
    return "\n".join([*lines, ""])
