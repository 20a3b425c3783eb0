"""Published ports (`network: publish`): the port on the host, and the port that Envoy binds in the container.

Clients use the Service's address and port, Envoy binds a port of its container on every address there: two different
things, joined here and nowhere else. Pure. Not here: how a container is declared, what Docker makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from locallb.config.settings import Pool
from locallb.model.http.serving import HttpListener
from locallb.model.identities import Family, IPAddress, Protocol, ProxyId
from locallb.model.serving import Listener, Proxy, PublishedPort
from locallb.model.snapshot import Subnet
from locallb.planning.runs import Place

FIRST_OTHER_PORT = 10_000
"""Where container ports begin that can't be the Service's own number."""
LAST_BYTES = 256
GARDENERS_FIRST = 224
"""Last bytes from here on are the load balancers' in Gardener's layout; below, Docker numbers nodes."""


def published_ports(places: Iterable[Place]) -> tuple[PublishedPort, ...]:
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


def publish(proxy: Proxy, places: Iterable[Place]) -> Proxy:
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
