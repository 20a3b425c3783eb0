"""The proof that published ports work: that connections to them arrive at the proxy in its container.

That a connection opens proves nothing, because Docker's own proxy takes it first: Envoy's counters tell. Datagrams
would reach the application, so for UDP it is enough that Docker holds the port and Envoy listens. Not here: what Envoy
serves.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator

from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.http_chains import QUIC
from locallb.host.sockets import LISTEN, SocketError, connect, rows, split_place
from locallb.model.identities import Family, IPAddress, Protocol
from locallb.model.texts import upstream_name
from locallb.planning.planned import SocketAddress
from locallb.resources.resource_type import ProviderError

TIMEOUT = 2.0
"""Seconds that a connection may take to arrive; it takes a few milliseconds."""
_PAUSE = 0.003


def unpublished(listeners: Collection[str]) -> Iterator[str]:
    """Name the listeners without a held port on this host for the container."""
    places = {split_listener(name): name for name in listeners}
    return (places[place] for place in unpublished_places(places))


def unpublished_places(places: Iterable[SocketAddress]) -> Iterator[SocketAddress]:
    """Yield the places that no socket of this host holds. Raises SocketError."""
    if not (wanted := tuple(places)):
        return
    held = {(row.address, row.port, Protocol.TCP) for row in rows(Protocol.TCP, LISTEN)}
    held |= {(row.address, row.port, Protocol.UDP) for row in rows(Protocol.UDP)}
    yield from (place for place in wanted if place not in held)


def prove(listeners: Collection[str], admin: EnvoyAdmin, connected: Collection[str]) -> None:
    """Check that every port is held, and that a connection to each of `connected` arrives; those of UDP are skipped.

    Raises ProviderError, EnvoyAdminError.
    """
    if missing := sorted(unpublished(listeners)):
        raise ProviderError(
            f"{missing[0]} isn't published: nothing listens on it on this host. Docker must run on this host, with its"
            " userland proxy; `docker restart` of the container publishes its ports again"
        )
    before = admin.arrivals()
    tried = [name for name in connected if name.endswith(f"/{Protocol.TCP}")]
    for name in tried:
        address, port, _ = split_listener(name)
        try:
            connect(address, port, TIMEOUT)
        except SocketError as error:
            raise ProviderError(f"{name} is published, but a client of this host can't reach it: {error}") from error
    _await_arrivals(tried, admin, before)


def split_listener(name: str) -> tuple[IPAddress, int, Protocol]:
    """Read a listener's name, `127.77.0.5:80/TCP`; one of HTTP/3 has a port of UDP. Raises ValueError."""
    place, _, protocol = name.rpartition("/")
    return (*split_place(place), Protocol.UDP if protocol == QUIC else Protocol(protocol))


def _await_arrivals(names: Collection[str], admin: EnvoyAdmin, before: dict[str, int]) -> None:
    deadline = time.monotonic() + TIMEOUT
    remaining = set(names)
    while remaining := {name for name in remaining if _count(name, admin.arrivals()) <= _count(name, before)}:
        if time.monotonic() > deadline:
            raise ProviderError(
                f"{min(remaining)} is published, but connections to it don't arrive in the container: look at"
                " `docker port`, and run up again"
            )
        time.sleep(_PAUSE)


def _count(name: str, arrivals: dict[str, int]) -> int:
    address, port, protocol = split_listener(name)
    return arrivals.get(upstream_name(protocol, port, Family.of(address)), 0)
