"""What Docker says of this stack, where its proxies are containers: what is ours, the network, whether it will do.

A Docker that can't be asked isn't one without containers: every failure is told. Not here: making containers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from locallb.config.settings import ContainerSettings, PullPolicy
from locallb.host.capabilities import docker_shortcoming
from locallb.model.identities import Home, Protocol
from locallb.model.snapshot import HostFacts, Subnet
from locallb.planning.containers import PROXY_LABEL, image_of, labelled_owner
from locallb.planning.port_mapping import Place
from locallb.runtimes.docker import Containers, Document
from locallb.sources import SourceError


@dataclass(frozen=True, slots=True)
class Contained:
    """What this stack's containers hold."""

    pids: frozenset[int] = frozenset()
    """Their processes, as far as they run."""
    places: frozenset[Place] = frozenset()
    """The host's ports that Docker publishes for them."""


def require_suitable(containers: Containers, settings: ContainerSettings, host: HostFacts) -> None:
    """Refuse a Docker that can't do what the configuration wants. Raises SourceError, ContainersError."""
    if shortcoming := docker_shortcoming(containers.info(), containers.host):
        raise SourceError(shortcoming)
    image = image_of(settings, host)
    if settings.pull is PullPolicy.NEVER and not containers.has_image(image):
        raise SourceError(
            f"local-lb:image: {image} isn't there, and pullPolicy Never forbids to fetch it:"
            " `docker pull` it, let `locallb image` make one, or choose another policy"
        )


def read_contained(containers: Containers, home: Home) -> Contained:
    """Find this stack's containers. Raises ContainersError."""
    listed = [one for one in containers.labelled(PROXY_LABEL) if _home_of(one) == home]
    seen = [found for one in listed if (found := containers.inspect(str(one["Id"])))]
    pids = {int(one["State"]["Pid"]) for one in seen}
    return Contained(frozenset(pids - {0}), frozenset(place for one in seen for place in _places(one)))


def read_subnets(containers: Containers, network: str) -> tuple[Subnet, ...]:
    """Read the subnets of the network on which ports are published. Raises SourceError, ContainersError."""
    found = containers.network(network)
    if found is None:
        raise SourceError(
            f"local-lb:network: Docker has no network {network}; make a kind cluster or run `docker network create"
            f" {network}`, or name another one: {{publish: NETWORK}}"
        )
    configured = (found.get("IPAM") or {}).get("Config") or ()
    return tuple(_subnet(one) for one in configured if one.get("Subnet"))


def _subnet(config: Mapping[str, str]) -> Subnet:
    gateway, handed_out = config.get("Gateway"), config.get("IPRange")
    return Subnet(
        ip_network(config["Subnet"], strict=False),
        ip_address(gateway.partition("/")[0]) if gateway else None,
        ip_network(handed_out, strict=False) if handed_out else None,
    )


def _home_of(listed: Document) -> Home | None:
    owner = labelled_owner(listed.get("Labels") or {})
    return owner.home if owner else None


def _places(seen: Document) -> Iterator[Place]:
    """Return what Docker publishes now; nothing for a container that doesn't run."""
    for inner, bindings in (seen["NetworkSettings"].get("Ports") or {}).items():
        protocol = Protocol(inner.rpartition("/")[2].upper())
        yield from ((ip_address(one["HostIp"]), int(one["HostPort"]), protocol) for one in bindings or ())
