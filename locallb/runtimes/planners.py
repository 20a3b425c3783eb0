"""Plans how a proxy runs: as a process, or in a container of Docker or Podman, perhaps with published ports. Pure.

With `network: publish` clients use the Service's address and port, and Envoy binds a port of its container on every
address there: two different things, joined here and nowhere else. Inputs of Docker's resource are in the form in which
pulumi-docker finds nothing to change in a second update. Not here: making containers (`docker.engine_api`, `podman`),
and Envoy's files, which are mounted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import Compat, ContainerSettings, Pool, PullPolicy
from locallb.envoy import ARGUMENTS, arguments
from locallb.envoy.overload import MAX_HEAP
from locallb.model.desired import CONFIG, CONTAINER, PODMAN_CONTAINER, PROCESS, Ref, ResourceKey
from locallb.model.fields import object_of, objects_of, text_of
from locallb.model.http_serving import HttpListener
from locallb.model.identities import (
    KEY_PREFIX,
    Family,
    ImageName,
    IPAddress,
    ObjectKey,
    Owner,
    Protocol,
    ProxyId,
    RunIdentity,
    place,
)
from locallb.model.objects import EMPTY
from locallb.model.serving import HeapBounds, Listener, Proxy, PublishedPort
from locallb.model.snapshot import HostFacts, Subnet
from locallb.model.texts import digest, owner_fields, owner_from
from locallb.planning.planned import DesiredRun, RunInputs, SocketAddress
from locallb.resources.properties import PodmanContainerInputs

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


FIRST_OTHER_PORT = 10_000
"""Where container ports begin that can't be the Service's own number."""
LAST_BYTES = 256
GARDENERS_FIRST = 224
"""Last bytes from here on are the load balancers' in Gardener's layout; below, Docker numbers nodes."""


def published_ports(places: Iterable[SocketAddress]) -> tuple[PublishedPort, ...]:
    """Assign a container port to each place: the same number where that is free, the next one otherwise.

    The official plugin never settles on one container port that is published at two addresses, so that a dual-stack
    port has two. The answer doesn't depend on the order of `places`.
    """
    claimed: set[tuple[int, Protocol]] = set()
    mappings = []
    wanted = sorted(places, key=lambda place: (place[0].version, place[1], place[2], int(place[0])))
    own = {(port, protocol) for _, port, protocol in wanted}
    for address, port, protocol in wanted:
        numbers = (port, *range(FIRST_OTHER_PORT, 1 << 16), *range(1, FIRST_OTHER_PORT))
        fits = (n for n in numbers if (n, protocol) not in claimed and (n == port or (n, protocol) not in own))
        inside = next(fits)
        claimed.add((inside, protocol))
        mappings.append(PublishedPort(address, port, protocol, inside))
    return tuple(sorted(mappings, key=lambda mapping: (mapping.container_port, mapping.protocol)))


def publish(proxy: Proxy, places: Iterable[SocketAddress]) -> Proxy:
    """Publish `places`, and bind the listeners inside of the container; their names stay what clients use."""
    published = published_ports(places)
    inside = {(mapping.address, mapping.port, mapping.protocol): mapping.container_port for mapping in published}

    def port(listener: Listener | HttpListener) -> int:
        return inside[listener.address, listener.port, listener.protocol]

    listeners = tuple(replace(listener, container_port=port(listener)) for listener in proxy.listeners)
    http = tuple(replace(listener, container_port=port(listener)) for listener in proxy.http)
    return replace(proxy, listeners=listeners, http=http, published=published)


def internal_addresses(
    addresses: Iterable[IPAddress], subnets: Sequence[Subnet], pools: Sequence[Pool], proxy: ProxyId
) -> Iterator[IPAddress]:
    """Return the container's fixed addresses: at most one per family, with the last byte of the Service's address.

    None for a family with no room in its subnet outside Docker's own range, or if another owner's container has that
    address: then Docker chooses. Docker's choice for `proxy` stays when the address becomes free.
    """
    done: set[Family] = set()
    for address in addresses:
        family, last = Family.of(address), int(address) % LAST_BYTES
        if family in done or _ambiguous(last, family, pools):
            continue
        inside = next((own for subnet in subnets if (own := _at(subnet, family, last, proxy))), None)
        if inside:
            done.add(family)
            yield inside


def _at(subnet: Subnet, family: Family, last: int, proxy: ProxyId) -> IPAddress | None:
    """Return the address of a subnet that ends in this byte, if nothing else has it, nor ever gets it from Docker."""
    network = subnet.network
    if Family.of(network) is not family or network.num_addresses < LAST_BYTES or proxy in subnet.chosen:
        return None
    address = network.network_address + last
    if address in {network.network_address, network.broadcast_address, subnet.gateway} or address in subnet.claimed:
        return None
    return address if is_ignored(address, subnet) else None


def is_ignored(address: IPAddress, subnet: Subnet) -> bool:
    """Return whether Docker never chooses an address of a subnet by itself."""
    if subnet.handed_out is not None:
        return address not in subnet.handed_out
    return GARDENERS_FIRST <= int(address) - int(subnet.network.network_address) < LAST_BYTES


def _ambiguous(last: int, family: Family, pools: Iterable[Pool]) -> bool:
    """Return whether two addresses of the pools end in this byte."""
    ranges = [span for pool in pools for span in pool.ranges if Family.of(span.first) is family]
    return (
        sum((int(span.last) - last) // LAST_BYTES - (int(span.first) - 1 - last) // LAST_BYTES for span in ranges) > 1
    )


def plan_container(proxy: Proxy, inputs: RunInputs, runtime: str) -> tuple[Proxy, ProxyContainer]:
    """Publish the places of a Service's own proxy where the configuration wants that."""
    if proxy.heap is None:
        proxy = replace(proxy, heap=HeapBounds(max_heap_within(inputs.settings.container.memory)))
    if not inputs.settings.container.network or not inputs.addresses:
        return proxy, container_of(proxy, inputs, runtime)
    proxy = publish(proxy, inputs.places)
    mapped = inputs.settings.port_mapping  # then the last bytes of all addresses are the same
    subnets, pools = inputs.host.subnets, inputs.settings.pools
    own = () if mapped else internal_addresses(inputs.addresses, subnets, pools, proxy.id)
    return proxy, container_of(proxy, inputs, runtime, tuple(own))


def max_heap_within(memory: int) -> int:
    """Return the bytes of the heap at which Envoy refuses in a container of `memory` MiB, before the kernel ends it."""
    return min(MAX_HEAP, (memory << 20) * 3 // 4)


def declared_summary(declared: Mapping[str, object], network: object) -> tuple[str, ...]:
    """Return how a declared container runs, in the words of the configuration."""
    memory = declared.get("memory")
    number = int(memory) if isinstance(memory, int | float) else 0
    return container_summary(text_of(declared.get("image")), number, text_of(declared.get("cpus")), text_of(network))


class DockerPlanner(Struct, frozen=True):
    """Plans containers."""

    token: str = CONTAINER
    makes_containers: bool = True

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, ProxyContainer]:
        return plan_container(proxy, inputs, "docker")

    def desired(self, run: ProxyContainer, proxy: Proxy, owner: Owner) -> DesiredRun:
        """Return a container of pulumi-docker's; its labels have the owner."""
        del owner
        key = ResourceKey(CONTAINER, proxy.name)
        identity = RunIdentity("{}", "docker")
        named, container = (Ref(key, ("id",), text) for text in (str(identity), identity.container))
        return DesiredRun(key, container_inputs(run, ResourceKey(CONFIG, proxy.name)), named, container)

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        pairs = objects_of(declared.get("labels"))
        owner = labelled_owner({text_of(pair.get("label")): text_of(pair.get("value")) for pair in pairs})
        return owner.service if owner else None

    def reported(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        """Read how a container is declared with pulumi-docker; its image tells the version."""
        networks = declared.get("networksAdvanced")
        network = object_of(networks[0]).get("name") if isinstance(networks, list) and networks else ""
        return "", declared_summary(declared, network)


DOCKER_PLANNER = DockerPlanner()


class ProcessRun(Struct, frozen=True):
    """A process of this host; another version of Envoy is another one."""

    envoy: str = ""
    runtime: str = "process"
    container: str = ""
    reported: tuple[str, ...] = ()
    by_group: bool = False
    released: tuple[str, ...] = ()
    """As `serving.Proxy` has it."""


class ProcessPlanner(Struct, frozen=True):
    """Plans processes."""

    token: str = PROCESS
    makes_containers: bool = False

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, ProcessRun]:
        """Take the version that is installed."""
        return proxy, ProcessRun(inputs.host.envoy, released=proxy.released)

    def desired(self, run: ProcessRun, proxy: Proxy, owner: Owner) -> DesiredRun:
        """Return the process that serves what the proxy's directory has."""
        key, config = ResourceKey(PROCESS, proxy.name), ResourceKey(CONFIG, proxy.name)
        inputs = {
            "proxy": proxy.id,
            "owner": owner_fields(owner),
            "bootstrap": Ref(config, ("bootstrap",)),
            "version": run.envoy,
            **({"released": " ".join(run.released)} if run.released else {}),
        }
        return DesiredRun(key, inputs, Ref(key, ("pid", "started"), str(RunIdentity.of_process("{}", "{}"))))

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        """Read the property `owner`."""
        owner = object_of(declared.get("owner"))
        try:
            return owner_from({name: text for name, text in owner.items() if isinstance(text, str)}).service
        except (KeyError, ValueError):
            return None

    def reported(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        return text_of(declared.get("version")), ()


PROCESS_PLANNER = ProcessPlanner()


SPEC_LABEL = f"{KEY_PREFIX}spec"
"""Digest of all that a container is made of: Podman tells much of it in other words than it was asked."""
_MIB, _NANO = 1 << 20, 1_000_000_000


def mapping(port: PublishedPort) -> str:
    """Write a published port: `127.77.0.5:80/TCP 10000`, where clients come and the port inside."""
    return f"{place(port.address, port.port)}/{port.protocol} {port.container_port}"


def body(inputs: PodmanContainerInputs, directory: str) -> dict[str, Any]:
    """Make the body, as the runtime docker declares its own: one capability, a root that can't be written, limits."""
    config: dict[str, Any] = {
        "Image": inputs.image,
        "Cmd": list(inputs.command),
        "User": inputs.user,
        "WorkingDir": DIRECTORY,
        "ExposedPorts": {inside: {} for inside, _ in _published(inputs.ports)},
        "HostConfig": _host(inputs, directory),
        "NetworkingConfig": {"EndpointsConfig": _endpoints(inputs)},
    }
    labels = {f"{KEY_PREFIX}{key}": value for key, value in owner_fields(inputs.owner).items()}
    labels |= {**inputs.labels, PROXY_LABEL: inputs.proxy, BOOTSTRAP_LABEL: inputs.bootstrap}
    return {**config, "Labels": {**labels, SPEC_LABEL: digest({**config, "Labels": labels})}}


def _host(inputs: PodmanContainerInputs, directory: str) -> dict[str, Any]:
    bindings: dict[str, list[dict[str, str]]] = {}
    for inside, outside in _published(inputs.ports):
        bindings.setdefault(inside, []).append(outside)
    return {
        "Binds": [f"{directory}:{DIRECTORY}:rw"],
        "NetworkMode": inputs.network or "host",
        "PortBindings": bindings,
        "RestartPolicy": {"Name": "unless-stopped"},
        "CapAdd": ["CAP_NET_BIND_SERVICE"],
        "CapDrop": ["ALL"],
        "ReadonlyRootfs": True,
        "SecurityOpt": ["no-new-privileges:true"],
        "Memory": inputs.memory * _MIB,
        "MemorySwap": inputs.memory * _MIB,
        "NanoCpus": int(Decimal(inputs.cpus or 0) * _NANO),
        "LogConfig": {"Type": "k8s-file", "Config": {"max-size": "1m"}},
    }


def _published(ports: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    pairs = []
    for line in ports:
        outside, _, inside = line.partition(" ")
        where, _, protocol = outside.rpartition("/")
        address, _, port = where.rpartition(":")
        pairs.append((f"{inside}/{Protocol(protocol).lower()}", {"HostIp": address.strip("[]"), "HostPort": port}))
    return pairs


def _endpoints(inputs: PodmanContainerInputs) -> Mapping[str, object]:
    if not inputs.network:
        return {}
    fixed = {"IPv6Address" if ":" in address else "IPv4Address": address for address in inputs.addresses}
    return {inputs.network: {"IPAMConfig": fixed} if fixed else {}}


class PodmanPlanner(Struct, frozen=True):
    """Plans containers."""

    token: str = PODMAN_CONTAINER
    makes_containers: bool = True

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, ProxyContainer]:
        return plan_container(proxy, inputs, "podman")

    def desired(self, run: ProxyContainer, proxy: Proxy, owner: Owner) -> DesiredRun:
        """Return a container as a resource of our own: pulumi-docker's finds changes in Podman's answers."""
        key, config = ResourceKey(PODMAN_CONTAINER, proxy.name), ResourceKey(CONFIG, proxy.name)
        inputs = {
            "proxy": proxy.id,
            "owner": owner_fields(owner),
            "bootstrap": Ref(config, ("bootstrap",)),
            "name": run.name,
            "image": run.image,
            "pull": str(run.pull),
            "command": list(run.command),
            "user": run.user,
            "memory": run.memory,
            "cpus": run.cpus,
            "network": run.network,
            "addresses": [str(address) for address in run.inside],
            "ports": [mapping(port) for port in run.ports],
            "labels": dict(run.labels),
        }
        identity = RunIdentity("{}", "podman")
        named, container = (Ref(key, ("container",), text) for text in (str(identity), identity.container))
        return DesiredRun(key, inputs, named, container)

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        """Read the property `owner`, as a process has it."""
        return ProcessPlanner().owner(declared)

    def reported(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        """Read the image, which tells the version, limits and network."""
        return "", declared_summary(declared, declared.get("network"))


PODMAN_PLANNER = PodmanPlanner()
