"""A proxy's container as pulumi-docker takes it, in a form in which a second update finds nothing to change.

Pure. Not here: what is decided about a container (`containers`).
"""

from __future__ import annotations

from collections.abc import Mapping

from locallb.model.desired import Ref, ResourceKey
from locallb.model.identities import Family
from locallb.runtimes.docker.containers import BOOTSTRAP_LABEL, DIRECTORY, ProxyContainer

GRACE = 5
"""Seconds from SIGTERM to SIGKILL; Envoy takes a few milliseconds."""


def container_inputs(run: ProxyContainer, config: ResourceKey) -> Mapping[str, object]:
    """Return the inputs of the container that serves what `config` writes.

    It has no right but to bind low ports, a root file system that it can't write, and nothing of the host but the
    proxy's directory. Docker starts it again after a crash and after a restart of its own.
    """
    labels: dict[str, object] = {**run.labels, BOOTSTRAP_LABEL: Ref(config, ("bootstrap",))}
    volume = {"hostPath": Ref(config, ("directory",)), "containerPath": DIRECTORY}
    return {
        "name": run.name,
        "image": run.image,
        "command": list(run.command),
        "workingDir": DIRECTORY,
        "restart": "unless-stopped",
        "labels": [{"label": key, "value": labels[key]} for key in sorted(labels)],
        "volumes": [volume],
        "user": run.user,
        "capabilities": {"adds": ["CAP_NET_BIND_SERVICE"], "drops": ["ALL"]},
        "readOnly": True,
        "securityOpts": ["no-new-privileges:true"],
        "memory": run.memory,
        "memorySwap": run.memory,
        "logDriver": "json-file",
        "logOpts": {"max-size": "1m", "max-file": "2"},
        "mustRun": True,
        "destroyGraceSeconds": GRACE,
        **({"cpus": run.cpus} if run.cpus else {}),
        **(_on_network(run) if run.network else {"networkMode": "host"}),
        **({"ports": _ports(run)} if run.ports else {}),
    }


def _on_network(run: ProxyContainer) -> Mapping[str, object]:
    """Put it on the network of published ports; an address that isn't fixed is Docker's choice."""
    fixed = {"ipv4Address": run.address(Family.IPV4), "ipv6Address": run.address(Family.IPV6)}
    existing = {name: address for name, address in fixed.items() if address}
    return {"networksAdvanced": [{"name": run.network, **existing}]}


def _ports(run: ProxyContainer) -> list[Mapping[str, object]]:
    """Publish; in the order of the container's ports, which the official plugin keeps."""
    return [
        {
            "internal": port.container_port,
            "external": port.port,
            "ip": str(port.address),
            "protocol": port.protocol.lower(),
        }
        for port in run.ports
    ]
