"""The deployed side of a comparison, read back from its resources.

Envoy's configuration is in its files, and those are in the state and in what `pulumi preview --json` prints: so
listeners, sources and backends are read from there (`envoy_files`) and nothing is stored twice. Reading is lenient,
because the resources may be of another version: what isn't as we write it is not known. Not here: where they come from.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.envoy.fragments import as_files
from locallb.model import state_resource
from locallb.model.fields import object_of, text_of, texts_of
from locallb.model.identities import IPAddress, ObjectKey, Protocol
from locallb.model.naming import owner_from
from locallb.planning.runs import run_planner, run_types
from locallb.report.envoy_files import Listener, as_address, listed_backends, listed_listeners
from locallb.report.sides import Balancer, Port, Side, fingerprint

_READ = {state_resource.ADDRESS, state_resource.PORTS, state_resource.CONFIG, state_resource.SERVICE}
_LABEL = re.compile(r"(\d{1,5})/(TCP|UDP|SCTP)(?:=(\d{1,5}))?(?: (\w+))?")


class Resource(Struct, frozen=True):
    """A resource with the properties that it is declared with (JSON-like values, from any source)."""

    type: str
    name: str
    inputs: Mapping[str, object]


class _Parts(Struct):
    """The resources of one Service."""

    addresses: list[IPAddress] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    owner: Mapping[str, str] = field(default_factory=dict)
    proxy: str = ""
    proxy_name: str = ""
    serves: str = ""
    """Owner of the whole, for a proxy of the stack."""
    files: Mapping[str, str] = field(default_factory=dict)
    envoy: str = ""
    container: tuple[str, ...] = ()


def deployed_side(label: str, resources: Iterable[Resource]) -> Side:
    """Return the side of the deployed resources. Never raises."""
    parts: dict[ObjectKey, _Parts] = defaultdict(_Parts)
    by_name: dict[str, Resource] = {}
    of_stack: dict[str, _Parts] = defaultdict(_Parts)
    for resource in resources:
        if resource.type == state_resource.BALANCER:
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
            balancer.order = texts_of(by_name[str(key)].inputs.get("addresses"))
            balancer.labels = texts_of(by_name[str(key)].inputs.get("ports"))
    return Side(label, MappingProxyType({key: _balancer(key, parts[key]) for key in sorted(parts)}))


def _key(resource: Resource) -> ObjectKey | None:
    """Return the Service that a resource belongs to; None for resources that don't matter here."""
    if runtime := run_types().get(resource.type):
        return run_planner(runtime).owner(resource.inputs)
    if resource.type not in _READ:
        return None
    try:
        return owner_from(_strings(resource.inputs.get("owner"))).service
    except KeyError:
        return None


def _take(parts: _Parts, resource: Resource) -> None:
    inputs = resource.inputs
    match resource.type:
        case state_resource.ADDRESS | state_resource.PORTS:
            if (address := as_address(inputs.get("address"))) is not None:
                parts.addresses.append(address)
                parts.owner = parts.owner or _strings(inputs.get("owner"))
        case state_resource.CONFIG:
            parts.owner, parts.files = _strings(inputs.get("owner")), _strings(inputs.get("files"))
            parts.proxy, parts.proxy_name = text_of(inputs.get("proxy")), text_of(inputs.get("name"))
            parts.serves = text_of(inputs.get("serves"))
        case state_resource.SERVICE:
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
        proxy=parts.proxy_name,
        uid=parts.owner.get("uid", ""),
        envoy=parts.envoy,
        container=parts.container,
        files=parts.files,
        fingerprint=fingerprint(
            (parts.order, parts.labels),
            parts.proxy,
            parts.owner,
            parts.files,
            "\n".join((parts.envoy, *parts.container)),
        ),
    )


def _ports(parts: _Parts, addresses: tuple[IPAddress, ...]) -> tuple[Port, ...]:
    """Return the ports already shown, in their order, then other listening ones."""
    by_port: dict[tuple[int, Protocol], list[Listener]] = defaultdict(list)
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
    listeners: list[Listener],
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
