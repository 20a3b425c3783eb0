"""Listeners, their allowed clients and the backends of each upstream, read back from Envoy's configuration files.

Lenient, because the files may be of another version or anybody's: what isn't as we write it is not known. Not here:
which resources have the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network

from msgspec import Struct

from locallb.model.fields import at, object_of, objects_of, text_of, texts_of
from locallb.model.identities import IPAddress, IPNetwork, Protocol
from locallb.report.sides import sorted_networks

_PLACE = re.compile(r"(?:(?P<four>[\d.]+)|\[(?P<six>[^]]+)\]):(?P<port>\d{1,5})/(?P<protocol>TCP|UDP)")
"""A listener's name, as `serving.Listener.name` makes it."""


class Listener(Struct, frozen=True):
    """A listener as clients meet it."""

    address: IPAddress
    port: int
    protocol: Protocol
    upstreams: tuple[str, ...]
    sources: tuple[IPNetwork, ...]
    affinity: bool


def listed_listeners(files: Mapping[str, str]) -> Iterator[Listener]:
    """Read Envoy's listeners by their names: where ports are published, it binds other ones."""
    for raw in _resources(files, "lds.json"):
        place = _PLACE.fullmatch(text_of(raw.get("name")))
        if place is None or (address := as_address(place["four"] or place["six"])) is None:
            continue
        everything = list(_walk(raw))
        upstreams = [
            text_of(part["cluster"]) for part in [*everything, *_routes(files, everything)] if "cluster" in part
        ]
        ranges = [part for part in everything if "address_prefix" in part]
        yield Listener(
            address=address,
            port=int(place["port"]),
            protocol=Protocol(place["protocol"]),
            upstreams=tuple(dict.fromkeys(upstreams)),
            sources=sorted_networks(tuple(network for span in ranges if (network := _network(span)) is not None)),
            affinity=any("hash_policy" in part or "hash_policies" in part for part in everything),
        )


def _routes(files: Mapping[str, str], listener: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """Return every object of the routes to which a listener refers."""
    names = (text_of(part["route_config_name"]) for part in listener if "route_config_name" in part)
    return (part for name in names for resource in _resources(files, f"{name}.json") for part in _walk(resource))


class Entrance(Struct, frozen=True):
    """What of requests, or of connections by name, a port takes."""

    port: str
    """As `sides.Port.label` has it."""
    hostnames: tuple[str, ...]
    """`*` for every hostname."""
    clear: bool
    """Requests are taken without TLS, and not only to be sent elsewhere by https."""


def listed_entrances(files: Mapping[str, str]) -> Iterator[Entrance]:
    """Read what listeners of HTTP and TLS accept, one entrance per chain, without what Envoy answers itself."""
    for raw in _resources(files, "lds.json"):
        place = _PLACE.fullmatch(text_of(raw.get("name")))
        for chain in objects_of(raw.get("filter_chains")) if place else ():
            hosts = [host for part in _tables(files, chain) for host in objects_of(part.get("virtual_hosts"))]
            claimed = [
                host for host in hosts if any("direct_response" not in part for part in objects_of(host.get("routes")))
            ]
            secure = "transport_socket" in chain
            names = texts_of(at(chain, "filter_chain_match", "server_names"))
            if not any("http_filters" in part for part in _walk(chain)):  # bytes
                hostnames = names or (["*"] if secure else [])
            else:
                hostnames = [name for host in claimed for name in texts_of(host.get("domains"))]
            clear = not secure and any(_is_served(part) for host in claimed for part in objects_of(host.get("routes")))
            if place and hostnames:
                label = f"{place['port']}/{place['protocol']}"
                yield Entrance(label, tuple(dict.fromkeys(hostnames)), clear)


def _tables(files: Mapping[str, str], chain: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Return the tables of routes of a chain, its own ones or those to which it refers."""
    parts = [*_walk(chain)]
    return (part for part in [*parts, *_routes(files, parts)] if "virtual_hosts" in part)


def _is_served(route: Mapping[str, object]) -> bool:
    sent = at(route, "redirect", "scheme_redirect") == "https"
    return not sent and "direct_response" not in route


def listed_backends(files: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Read the backends of each upstream: from its own file, or from the clusters."""
    assignments = [resource for name in files if name.startswith("eds-") for resource in _resources(files, name)]
    assignments += [object_of(resource.get("load_assignment")) for resource in _resources(files, "cds.json")]
    backends = {}
    for assignment in assignments:
        if "cluster_name" in assignment:
            first = [endpoint for endpoint in objects_of(assignment.get("endpoints")) if not endpoint.get("priority")]
            # Not every address: that of a health check is none where traffic goes.
            addresses = [
                object_of(at(part, "endpoint", "address"))
                for part in _walk(first)
                if "endpoint" in part and part.get("health_status") != "DEGRADED"
            ]
            sockets = [object_of(address["socket_address"]) for address in addresses if "socket_address" in address]
            backends[text_of(assignment["cluster_name"])] = tuple(_endpoint(socket) for socket in sockets)
    return backends


def _endpoint(socket: Mapping[str, object]) -> str:
    address, port = text_of(socket.get("address")), socket.get("port_value")
    number = port if isinstance(port, int) else 0
    return f"[{address}]:{number}" if ":" in address else f"{address}:{number}"


def _resources(files: Mapping[str, str], name: str) -> list[Mapping[str, object]]:
    try:
        document = json.loads(files.get(name, "{}"))
    except (ValueError, RecursionError):
        return []
    return objects_of(at(document, "resources"))


def _walk(value: object) -> Iterator[Mapping[str, object]]:
    """Return every object within `value`, outer ones first; however deep it is."""
    remaining = [value]
    while remaining:
        part = remaining.pop()
        if isinstance(part, dict):
            yield part
            remaining.extend(reversed(list(part.values())))
        elif isinstance(part, list):
            remaining.extend(reversed(part))


def _network(prefix: Mapping[str, object]) -> IPNetwork | None:
    try:
        return ip_network(f"{text_of(prefix.get('address_prefix'))}/{prefix.get('prefix_len')}")
    except ValueError:
        return None


def as_address(value: object) -> IPAddress | None:
    """Read an address; None where it is none."""
    try:
        return ip_address(text_of(value))
    except ValueError:
        return None
