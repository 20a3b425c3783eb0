"""Changes of exposure: what clients can reach on the new side and could not on the old one, and the reverse.

A port counts as declared, whether or not it has backends at this moment: a closed port opens when a pod gets
ready. An unknown old side (a port that was closed when it was deployed) counts as not reachable. Going backwards, all
of this is what can't be reached any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from ipaddress import ip_network

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.identities import Family, IPAddress, IPNetwork
from locallb.model.ranges import covered
from locallb.report.sides import Balancer, Port


class Wider(StrEnum):
    """In which way more can be reached."""

    SERVICE = "new-service"
    FAMILY = "new-address"
    """An address of a family in which it had none."""
    PORT = "new-port"
    OPENS = "port-opens"
    """A port that was closed and has backends now."""
    UNRESTRICTED = "source-ranges-removed"
    SOURCES = "source-ranges-widened"


class Exposure(Struct, frozen=True):
    """One thing that became reachable."""

    kind: Wider
    ports: tuple[str, ...] = ()
    addresses: tuple[IPAddress, ...] = ()
    sources: tuple[IPNetwork, ...] = ()
    """Newly allowed clients; empty means all. For widened ranges, only the new ones."""
    before: tuple[IPNetwork, ...] = ()
    """Who might come before; only where ranges were removed or widened."""


class Narrower(StrEnum):
    """In which way less can be reached: what `Wider` is seen from the other side."""

    SERVICE = "removed-service"
    FAMILY = "lost-address"
    PORT = "removed-port"
    CLOSES = "port-closes"
    """A port that lost its last backend."""
    RESTRICTED = "source-ranges-added"
    SOURCES = "source-ranges-narrowed"


_OBSERVED_BACKWARDS = dict(zip(Wider, Narrower, strict=True))


class Narrowing(Struct, frozen=True):
    """One thing that can't be reached any more."""

    kind: Narrower
    ports: tuple[str, ...] = ()
    addresses: tuple[IPAddress, ...] = ()
    sources: tuple[IPNetwork, ...] = ()
    """Clients that lose access, at least from some addresses; empty means all."""
    after: tuple[IPNetwork, ...] = ()
    """Who may still come; only where ranges were added or narrowed."""


ANY_SOURCE = {Family.IPV4: ip_network("0.0.0.0/0"), Family.IPV6: ip_network("::/0")}


def exposures(before: Balancer | None, after: Balancer | None) -> tuple[Exposure, ...]:
    """Return what became reachable of one Service."""
    if after is None or not after.addresses:
        return ()
    if before is None or not before.addresses:
        return tuple(_new_service(after))
    return _joined((*_families(before, after), *_ports(before, after)))


def narrowings(before: Balancer | None, after: Balancer | None) -> tuple[Narrowing, ...]:
    """Return what of one Service can't be reached any more: all that would be exposed by going back."""
    return tuple(
        Narrowing(
            _OBSERVED_BACKWARDS[exposure.kind], exposure.ports, exposure.addresses, exposure.sources, exposure.before
        )
        for exposure in exposures(after, before)
    )


def _joined(exposures: Iterable[Exposure]) -> tuple[Exposure, ...]:
    """Merge changes that differ in their ports only."""
    ports: dict[Exposure, tuple[str, ...]] = {}
    for exposure in exposures:
        alike = replace(exposure, ports=())
        ports[alike] = (*ports.get(alike, ()), *exposure.ports)
    return tuple(replace(alike, ports=labels) for alike, labels in ports.items())


def _new_service(after: Balancer) -> Iterator[Exposure]:
    """One exposure for each set of sources: in practice one."""
    for sources in dict.fromkeys(port.sources or () for port in after.ports):
        labels = tuple(port.label for port in after.ports if (port.sources or ()) == sources)
        yield Exposure(Wider.SERVICE, labels, after.addresses, sources)


def _families(before: Balancer, after: Balancer) -> Iterator[Exposure]:
    had = {Family.of(address) for address in before.addresses}
    new = tuple(address for address in after.addresses if Family.of(address) not in had)
    if new:
        labels = tuple(port.label for port in after.ports)
        yield Exposure(Wider.FAMILY, labels, new, next((port.sources or () for port in after.ports), ()))


def _ports(before: Balancer, after: Balancer) -> Iterator[Exposure]:
    old = {port.label: port for port in before.ports}
    for port in after.ports:
        mine = (port.label,), after.addresses, port.sources or ()
        was = old.get(port.label)
        if was is None:
            yield Exposure(Wider.PORT, *mine)
        elif port.listens and was.problem and not was.listens:
            yield Exposure(Wider.OPENS, *mine)
        if was is not None and was.sources is not None and was.sources != port.sources:
            yield from _sources(was.sources, port, after)


def _sources(was: tuple[IPNetwork, ...], port: Port, after: Balancer) -> Iterator[Exposure]:
    if port.sources is None or _is_unrestricted(was, after.addresses):
        return
    if _is_unrestricted(port.sources, after.addresses):
        yield Exposure(Wider.UNRESTRICTED, (port.label,), after.addresses, (), was)
        return
    new = tuple(network for network in port.sources if not covered(network, was))
    if new:
        yield Exposure(Wider.SOURCES, (port.label,), after.addresses, new, was)


def _is_unrestricted(sources: tuple[IPNetwork, ...], addresses: Iterable[IPAddress]) -> bool:
    return not sources or all(covered(ANY_SOURCE[Family.of(address)], sources) for address in addresses)


def is_open(sources: tuple[IPNetwork, ...] | None, addresses: Iterable[IPAddress]) -> bool:
    """Return whether all clients may reach one of the addresses; unknown sources count as closed."""
    if sources is None:
        return False
    return not sources or any(covered(ANY_SOURCE[Family.of(address)], sources) for address in addresses)
