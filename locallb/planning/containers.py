"""The container of a proxy: what is said of it to Docker, and how its owner is told by its labels.

Pure. Not here: Docker's API, the resource that declares it, Envoy's files (they are mounted).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from locallb.planning.envoy import ARGUMENTS
from locallb.planning.model import EMPTY, HostFacts, Owner
from locallb.planning.naming import owner_fields, owner_from
from locallb.planning.serving import Proxy
from locallb.planning.settings import ContainerSettings

LABEL_PREFIX = "local-lb.dev/"
PROXY_LABEL = f"{LABEL_PREFIX}proxy"
BOOTSTRAP_LABEL = f"{LABEL_PREFIX}bootstrap"
"""sha256 of the bootstrap.json that the container's Envoy reads: another one is another container."""
OFFICIAL_IMAGE = "envoyproxy/envoy:distroless-v{version}"
DIRECTORY = "/run/proxy"
"""Where the proxy's directory is mounted, and Envoy's working directory."""
NAME_PREFIX = "local-lb-"
IDENTITY_PREFIX = "docker:"
"""How the identity of a run begins that is a container's: `docker:<id>`."""


@dataclass(frozen=True, slots=True)
class ProxyContainer:
    """One proxy's container, but for what is known only when its directory exists."""

    name: str
    image: str
    user: str
    """`0:<gid>`: root without rights but to bind low ports, which uses the directory by its owner's group."""
    memory: int
    """MiB, also of memory and swap together."""
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    command: tuple[str, ...] = ARGUMENTS

    @property
    def fields(self) -> Mapping[str, object]:
        """All of it as JSON-like values, for digests."""
        return {
            "name": self.name,
            "image": self.image,
            "user": self.user,
            "memory": self.memory,
            "labels": dict(self.labels),
            "command": list(self.command),
        }


def container_of(proxy: Proxy, owner: Owner, settings: ContainerSettings, host: HostFacts) -> ProxyContainer:
    """Decide how `proxy` runs in a container."""
    return ProxyContainer(
        name=container_name(proxy.id),
        image=settings.image or OFFICIAL_IMAGE.format(version=host.envoy),
        user=f"0:{host.group}",
        memory=settings.memory,
        labels={**{LABEL_PREFIX + key: value for key, value in owner_fields(owner).items()}, PROXY_LABEL: proxy.id},
    )


def container_name(proxy: str) -> str:
    """Name the container of a proxy: unique on the host, as the proxy's id is."""
    return f"{NAME_PREFIX}{proxy}"


def labelled_owner(labels: Mapping[str, str]) -> Owner | None:
    """Read whose a container is; None where its labels don't tell."""
    try:
        return owner_from({key.removeprefix(LABEL_PREFIX): value for key, value in labels.items()})
    except KeyError:
        return None
