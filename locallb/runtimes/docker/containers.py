"""The specification of a proxy's container for Docker, and its owner by its labels.

Pure. Not here: Docker's API, the resource that declares it, Envoy's files (they are mounted).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from msgspec import Struct, field

from locallb.config.settings import Compat, ContainerSettings, PullPolicy
from locallb.envoy import ARGUMENTS, arguments
from locallb.model.identities import KEY_PREFIX, Family, ImageName, IPAddress, Owner
from locallb.model.objects import EMPTY
from locallb.model.serving import Proxy, PublishedPort
from locallb.model.snapshot import HostFacts
from locallb.model.texts import owner_fields, owner_from
from locallb.planning.planned import RunInputs

HELPER_LABEL = f"{KEY_PREFIX}route-helper"
"""On containers that change routes and are gone then."""
PROXY_LABEL = f"{KEY_PREFIX}proxy"
BOOTSTRAP_LABEL = f"{KEY_PREFIX}bootstrap"
"""sha256 of the bootstrap.json that the container's Envoy reads: another one is another container."""
OFFICIAL_IMAGE = "envoyproxy/envoy:distroless-v{version}"
DIRECTORY = "/run/proxy"
"""Where the proxy's directory is mounted, and Envoy's working directory."""
NAME_PREFIX = "local-lb-"


class ProxyContainer(Struct, frozen=True):
    """One proxy's container, but for what is known only when its directory exists."""

    name: str
    image: ImageName
    user: str
    """`0:<gid>`: root without rights but to bind low ports, which uses the directory by its owner's group."""
    memory: int
    """MiB, also of memory and swap together."""
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    command: tuple[str, ...] = ARGUMENTS
    cpus: str = ""
    """CPUs at most, a decimal number; empty for no limit."""
    network: str = ""
    """The Docker network on which `ports` are published; empty for the host's own network."""
    inside: tuple[IPAddress, ...] = ()
    """Its fixed addresses on that network, at most one per family; Docker chooses the others."""
    ports: tuple[PublishedPort, ...] = ()
    runtime: str = "docker"
    pull: PullPolicy = PullPolicy.IF_NOT_PRESENT
    """When the image is fetched: asked when a container is made, so no part of what it is."""
    envoy: str = ""
    by_group: bool = True

    @property
    def container(self) -> str:
        return self.name

    @property
    def reported(self) -> tuple[str, ...]:
        """Its description for a report."""
        return container_summary(self.image, self.memory, self.cpus, self.network)

    def address(self, family: Family) -> str | None:
        """Return its fixed address of a family."""
        return next((str(address) for address in self.inside if Family.of(address) is family), None)


def container_of(proxy: Proxy, inputs: RunInputs, runtime: str, inside: tuple[IPAddress, ...] = ()) -> ProxyContainer:
    """Decide how `proxy` runs in a container; `inside` are its fixed addresses on the configured network."""
    owner, settings, host = inputs.owner, inputs.settings.container, inputs.host
    labels = {KEY_PREFIX + key: value for key, value in owner_fields(owner).items()}
    gardeners = settings.compat is Compat.GARDENER
    return ProxyContainer(
        name=_gardeners_name(owner) if gardeners else f"{NAME_PREFIX}{proxy.id}",
        image=image_of(settings, host),
        user=f"0:{host.group}",
        memory=settings.memory,
        labels={**labels, PROXY_LABEL: proxy.id, **(_gardeners_labels(owner) if gardeners else {})},
        command=arguments(udp_only=proxy.udp_only),
        cpus=settings.cpus,
        network=settings.network,
        inside=inside,
        ports=proxy.published,
        runtime=runtime,
        pull=settings.pull,
    )


def image_of(settings: ContainerSettings, host: HostFacts) -> ImageName:
    """Return the image: the one that is configured or Envoy's official one, from the mirror if there is one."""
    image = settings.image or ImageName(OFFICIAL_IMAGE.format(version=host.envoy))
    return ImageName(f"{settings.mirror}/{_without_registry(image)}") if settings.mirror else image


def _without_registry(image: str) -> str:
    """Leave out the registry; Docker takes the first part for one if it has a dot or a port, or is `localhost`."""
    first, slash, rest = image.partition("/")
    return rest if slash and ("." in first or ":" in first or first == "localhost") else image


def _gardeners_name(owner: Owner) -> str:
    """Name the container as Gardener's cloud-controller-manager-local does; a manifest without uid goes by its key."""
    return f"gardener-lb-{hashlib.sha256((owner.uid or str(owner.service)).encode()).hexdigest()[:8]}"


def _gardeners_labels(owner: Owner) -> Mapping[str, str]:
    return {
        "gardener.cloud/role": "loadbalancer",
        "gardener.cloud/service": f"{owner.service.namespace}/{owner.service.name}",
        "kubernetes.io/cluster": owner.service.cluster,
    }


def container_summary(image: str, memory: int, cpus: str, network: str) -> tuple[str, ...]:
    """Return how a container runs, in the words of the configuration; `network` is empty for the host's."""
    limits = (f"memory {memory} MiB", *([f"cpus {cpus}"] if cpus else []))
    return (f"image {image}", *limits, f"network {network or 'host'}")


def labelled_owner(labels: Mapping[str, str]) -> Owner | None:
    """Read a container's owner from its labels; None if they name none."""
    try:
        return owner_from({key.removeprefix(KEY_PREFIX): value for key, value in labels.items()})
    except (KeyError, ValueError):
        return None
