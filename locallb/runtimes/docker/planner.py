"""Plans a proxy in a container: on the host's network, or with published ports. Pure.

With `network: publish` clients use the Service's address and port, and Envoy binds a port of its container on every
address there: two different things, joined here and nowhere else. The resource's inputs are in the form in which
pulumi-docker finds nothing to change in a second update. Not here: the container's specification (`containers`), and
making it (`engine_api`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Pool
from locallb.envoy.overload import MAX_HEAP
from locallb.model.desired import CONFIG, CONTAINER, Ref, ResourceKey
from locallb.model.fields import object_of, objects_of, text_of
from locallb.model.http_serving import HttpListener
from locallb.model.identities import Family, IPAddress, ObjectKey, Owner, Protocol, ProxyId, RunIdentity
from locallb.model.serving import HeapBounds, Listener, Proxy, PublishedPort
from locallb.model.snapshot import Subnet
from locallb.planning.planned import DesiredRun, RunInputs, SocketAddress
from locallb.runtimes.docker.containers import (
    BOOTSTRAP_LABEL,
    DIRECTORY,
    ProxyContainer,
    container_of,
    container_summary,
    labelled_owner,
)

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


PLANNER = DockerPlanner()
