"""The deployed side of a comparison, read back from its resources and from Envoy's configuration files in them.

The files are in the state and in the output of `pulumi preview --json`, so listeners, allowed clients and backends are
read from there and nothing is stored twice. Reading is lenient, because resources and files may be of another version,
or written by anyone: whatever isn't as local-lb writes it is not known.

Not here: where the resources come from, and the planned side (`sides`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.envoy.fragments import as_files
from locallb.envoy.http_chains import NO_CLIENT
from locallb.model import desired
from locallb.model.fields import at, object_of, objects_of, text_of
from locallb.model.identities import IPAddress, IPNetwork, ObjectKey, Protocol
from locallb.model.ranges import sorted_networks
from locallb.model.texts import owner_from
from locallb.patterns import pattern
from locallb.planning.planned import run_planner, run_types
from locallb.report.sides import Balancer, Port, Side, fingerprint

_PLACE = pattern(r"(?:(?P<four>[\d.]+)|\[(?P<six>[^]]+)\]):(?P<port>\d{1,5})/(?P<protocol>TCP|UDP)")
"""A listener's name, as `serving.Listener.name` makes it."""
_MIRRORS = "request_mirror_policies"


class DeployedListener(Struct, frozen=True):
    """A listener as clients meet it."""

    address: IPAddress
    port: int
    protocol: Protocol
    upstreams: tuple[str, ...]
    sources: tuple[IPNetwork, ...]
    affinity: bool


def listed_listeners(files: Mapping[str, str]) -> Iterator[DeployedListener]:
    """Read Envoy's listeners by their names: where ports are published, it binds other ones."""
    for raw in _resources(files, "lds.json"):
        place = _PLACE.fullmatch(text_of(raw.get("name")))
        if place is None or (address := as_address(place["four"] or place["six"])) is None:
            continue
        everything = list(_walk(raw))
        upstreams = _upstreams((*everything, *_routes(files, everything)))
        ranges = [part for part in everything if "address_prefix" in part and part != NO_CLIENT]
        yield DeployedListener(
            address=address,
            port=int(place["port"]),
            protocol=Protocol(place["protocol"]),
            upstreams=tuple(dict.fromkeys(upstreams)),
            sources=sorted_networks(network for span in ranges if (network := _network(span)) is not None),
            affinity=any("hash_policy" in part or "hash_policies" in part for part in everything),
        )


def _upstreams(parts: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield the clusters that answer clients: those of filters and routes."""
    for part in parts:
        if "cluster" in part:
            yield text_of(part["cluster"])
        yield from (text_of(share.get("name")) for share in objects_of(at(part, "weighted_clusters", "clusters")))


def _routes(files: Mapping[str, str], listener: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """Return every object of the routes to which a listener refers."""
    names = (text_of(part["route_config_name"]) for part in listener if "route_config_name" in part)
    return (part for name in names for resource in _resources(files, f"{name}.json") for part in _walk(resource))


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
    """Return every object within `value` but mirrors, outer ones first; however deep it is."""
    remaining = [value]
    while remaining:
        part = remaining.pop()
        if isinstance(part, dict):
            yield part
            remaining.extend(reversed([inner for name, inner in part.items() if name != _MIRRORS]))
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


_READ = {desired.ADDRESS, desired.PORTS, desired.CONFIG, desired.SERVICE_CONFIG}
_LABEL = pattern(r"(\d{1,5})/(TCP|UDP|SCTP)(?:=(\d{1,5}))?(?: (\w+))?")


class DeployedResource(Struct, frozen=True):
    """A resource with the properties that it is declared with (JSON-like values, from any source)."""

    type: str
    name: str
    inputs: Mapping[str, object]


class _Parts(Struct):
    """The resources of one Service."""

    addresses: list[IPAddress] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    hostnames: list[str] = field(default_factory=list)
    without_tls: list[str] = field(default_factory=list)
    owner: Mapping[str, str] = field(default_factory=dict)
    proxy: str = ""
    proxy_name: str = ""
    serves: str = ""
    """Owner of the whole, for a proxy of the stack."""
    files: Mapping[str, str] = field(default_factory=dict)
    envoy: str = ""
    container: tuple[str, ...] = ()
    routes: tuple[str, ...] | None = None


def deployed_side(label: str, resources: Iterable[DeployedResource]) -> Side:
    """Return the side of the deployed resources. Never raises."""
    parts: dict[ObjectKey, _Parts] = defaultdict(_Parts)
    by_name: dict[str, DeployedResource] = {}
    of_stack: dict[str, _Parts] = defaultdict(_Parts)
    for resource in resources:
        if resource.type == desired.BALANCER:
            by_name[resource.name] = resource
        elif (key := _key(resource)) is not None:
            _take(parts[key] if key.cluster else of_stack[key.name], resource)
    for claimed in of_stack.values():
        if claimed.serves:
            mine = parts[ObjectKey.parse(claimed.serves)]
            mine.proxy, mine.files = claimed.proxy, claimed.files
    by_id = {balancer.proxy: balancer for balancer in of_stack.values()}
    for key, balancer in parts.items():
        if host := by_id.get(balancer.proxy):
            balancer.proxy_name, balancer.envoy, balancer.container = host.proxy_name, host.envoy, host.container
        if str(key) in by_name:
            inputs = by_name[str(key)].inputs
            balancer.order = desired.shown_items(inputs.get("addresses"))
            balancer.labels = desired.shown_items(inputs.get("ports"))
            balancer.names = desired.shown_items(inputs.get("names"), "\n")
            balancer.hostnames = desired.shown_items(inputs.get("hostnames"))
            balancer.without_tls = desired.shown_items(inputs.get("withoutTls"))
            # Absent where it is a Service, and where an earlier version deployed it.
            balancer.routes = tuple(text_of(inputs["routes"]).splitlines()) if "routes" in inputs else None
    return Side(label, MappingProxyType({key: _balancer(key, parts[key]) for key in sorted(parts)}))


def _key(resource: DeployedResource) -> ObjectKey | None:
    """Return the Service that a resource belongs to; None for resources that don't matter here."""
    if runtime := run_types().get(resource.type):
        return run_planner(runtime).owner(resource.inputs)
    if resource.type not in _READ:
        return None
    try:
        return owner_from(_strings(resource.inputs.get("owner"))).service
    except KeyError:
        return None


def _take(parts: _Parts, resource: DeployedResource) -> None:
    inputs = resource.inputs
    match resource.type:
        case desired.ADDRESS | desired.PORTS:
            if (address := as_address(inputs.get("address"))) is not None:
                parts.addresses.append(address)
                parts.owner = parts.owner or _strings(inputs.get("owner"))
        case desired.CONFIG:
            parts.owner, parts.files = _strings(inputs.get("owner")), _strings(inputs.get("files"))
            parts.proxy, parts.proxy_name = text_of(inputs.get("proxy")), text_of(inputs.get("name"))
            parts.serves = text_of(inputs.get("serves"))
        case desired.SERVICE_CONFIG:
            parts.owner, parts.proxy = _strings(inputs.get("owner")), text_of(inputs.get("proxy"))
            parts.files = as_files(_strings(inputs.get("listeners")), _strings(inputs.get("clusters")))
        case _:
            parts.envoy, parts.container = run_planner(run_types()[resource.type]).reported(inputs)


def _balancer(key: ObjectKey, parts: _Parts) -> Balancer:
    rank = {text: number for number, text in enumerate(parts.order)}
    addresses = tuple(sorted(parts.addresses, key=lambda a: (rank.get(str(a), len(rank)), a.version, int(a))))
    return Balancer(
        key=key,
        addresses=addresses,
        ports=_ports(parts, addresses),
        names=tuple(parts.names),
        proxy=parts.proxy_name,
        uid=parts.owner.get("uid", ""),
        envoy=parts.envoy,
        container=parts.container,
        routes=parts.routes,
        hostnames=tuple(parts.hostnames),
        without_tls=tuple(parts.without_tls),
        fingerprint=fingerprint(
            (parts.order, parts.labels, parts.names),
            parts.proxy,
            parts.owner,
            parts.files,
            "\n".join((parts.envoy, *parts.container)),
        ),
    )


def _ports(parts: _Parts, addresses: tuple[IPAddress, ...]) -> tuple[Port, ...]:
    """Return the ports already shown, in their order, then other listening ones."""
    by_port: dict[tuple[int, Protocol], list[DeployedListener]] = defaultdict(list)
    for listener in listed_listeners(parts.files):
        by_port[listener.port, listener.protocol].append(listener)
    backends = listed_backends(parts.files)
    shown = [match.groups() for text in parts.labels if (match := _LABEL.fullmatch(text))]
    wanted = {
        (int(mapped or number), Protocol(protocol)): (int(number), problem or "")
        for number, protocol, mapped, problem in shown
    }
    wanted |= {key: (key[0], "") for key in by_port if key not in wanted}
    rank = {address: number for number, address in enumerate(addresses)}
    return tuple(
        replace(
            _port(number, protocol, problem, by_port.get((mapped, protocol), []), backends, rank),
            mapped=mapped if mapped != number else 0,
        )
        for (mapped, protocol), (number, problem) in wanted.items()
    )


def _port(  # noqa: PLR0913, PLR0917 - private, one caller
    number: int,
    protocol: Protocol,
    problem: str,
    listeners: list[DeployedListener],
    backends: Mapping[str, tuple[str, ...]],
    rank: Mapping[IPAddress, int],
) -> Port:
    ordered = sorted(listeners, key=lambda listener: (rank.get(listener.address, len(rank)), listener.address.version))
    upstreams = sorted({name for listener in listeners for name in listener.upstreams})
    return Port(
        number=number,
        protocol=protocol,
        listens=tuple(address.address for address in ordered),
        sources=ordered[0].sources if ordered else None,
        backends=tuple(backend for name in upstreams for backend in backends.get(name, ())),
        affinity=ordered[0].affinity if ordered else None,
        problem=problem,
    )


def _strings(value: object) -> Mapping[str, str]:
    return {key: item for key, item in object_of(value).items() if isinstance(item, str)}
