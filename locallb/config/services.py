"""Parses the keys about Services: which are served, their addresses and the routes to their pods, and `policies`. Pure.

Services are selected by `classes`, `gatewayClasses`, `namespaces` and `selector`; a pool has the last two as well. A
pool has a name, ranges and exclusions; pools that contradict each other are rejected. `podCIDRs` are the ranges of
pods, of a source or by cluster. A preview that violates a policy is refused, so that a pull request fails.

Not here: the addresses that a pool may hand out (`candidates`), and the routes that result (`planning.pod_routes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_network
from types import MappingProxyType

from locallb.config.candidates import candidates, never
from locallb.config.registry import RUNTIMES, Source
from locallb.config.settings import Classes, Headroom, IpMode, OtherServices, PodRouting, Policies, Pool, PortRange
from locallb.config.values import Mistakes, parse_address
from locallb.model.http_checks import hostname
from locallb.model.identities import KEY_PREFIX, ClusterName, Family, IPAddress, IPNetwork, Protocol
from locallb.model.objects import ServiceType
from locallb.model.ranges import AddressRange
from locallb.model.texts import clipped, shown
from locallb.patterns import pattern

_EXAMPLE_CLASS = f"{KEY_PREFIX}local"
_CLASSES = f"{{default: true, names: [{_EXAMPLE_CLASS}]}}"
_CLUSTER_IP = ServiceType.CLUSTER_IP.value
_TYPES = (_CLUSTER_IP, ServiceType.NODE_PORT.value)
_SERVICES = f"{{types: [{_CLUSTER_IP}], namespaces: [shop]}}"
_NAMES = f"a list such as [{_EXAMPLE_CLASS}]"


def parse_classes(mistakes: Mistakes, value: object) -> Classes:
    """Read the key `classes`. A name may be empty: some controllers take that class for the default one."""
    entry = mistakes.mapping("classes", value, _CLASSES)
    mistakes.unknown("classes.", entry, ("default", "names"))
    entries = mistakes.items("classes.names", entry.get("names", []), _NAMES)
    names = frozenset(item if item == "" else mistakes.text(item_key, item, _NAMES) for item_key, item in entries)
    return Classes(mistakes.flag("classes.default", entry.get("default", True)), names)


def parse_services(mistakes: Mistakes, value: object) -> OtherServices:
    """Read the key `services`; absent, Services of type LoadBalancer alone are served."""
    if value is None:
        return OtherServices()
    entry = mistakes.mapping("services", value, _SERVICES)
    mistakes.unknown("services.", entry, ("types", "namespaces", "selector"))
    entries = mistakes.items("services.types", entry.get("types", [_CLUSTER_IP]), f"a list such as [{_CLUSTER_IP}]")
    types = (mistakes.choice(key, item, _TYPES, _CLUSTER_IP, "type") for key, item in entries)
    return OtherServices(
        frozenset(map(ServiceType, types)),
        parse_namespaces(mistakes, "services.namespaces", entry.get("namespaces", [])),
        parse_selector(mistakes, "services.selector", entry.get("selector", {})),
    )


def parse_gateway_classes(mistakes: Mistakes, value: object) -> frozenset[str] | None:
    """Read the key `gatewayClasses`; absent, every GatewayClass of our controller counts."""
    if value is None:
        return None
    entries = mistakes.items("gatewayClasses", value, "a list such as [local]")
    return frozenset(name for key, item in entries if (name := mistakes.text(key, item, "a name such as local")))


def parse_namespaces(mistakes: Mistakes, key: str, value: object) -> frozenset[str]:
    """Read a list of namespaces."""
    entries = mistakes.items(key, value, "a list such as [shop]")
    return frozenset(name for item_key, item in entries if (name := mistakes.label(item_key, item, "shop")))


def parse_selector(mistakes: Mistakes, key: str, value: object) -> Mapping[str, str]:
    """Read labels that a Service must have, all of them."""
    selector = {}
    for label, wanted in mistakes.mapping(key, value, "labels such as {team: web}").items():
        if isinstance(wanted, str):
            selector[label] = wanted
        else:
            mistakes.add(f"{key}.{clipped(label)}", f"must be a text, not {shown(wanted)}; write it in quotes")
    return selector


_POLICIES = ("addressChanges", "sourceRanges", "ports", "headroom", "hostnames", "tls")
_POLICY_KEYS = (*_POLICIES, "advisory")
_POLICIES_EXAMPLE = "{addressChanges: forbidden, sourceRanges: required, ports: [443, 8000-8999, 53/UDP], headroom: 4}"
_PORT = pattern(r"(\d{1,5})(?:-(\d{1,5}))?(?:/(TCP|UDP|SCTP))?")
_HOSTNAMES = 'such as "*.test" or shop.example.com'
_PORTS = "such as 443, 8000-8999 or 53/UDP"
_LARGEST_PORT = 65535
_WHOLE = 100


def parse_policies(mistakes: Mistakes, value: object) -> Policies:
    """Read the key `policies`."""
    entry = mistakes.mapping("policies", value, _POLICIES_EXAMPLE)
    mistakes.unknown("policies.", entry, _POLICY_KEYS)
    return Policies(
        address_changes_forbidden=_choice(
            mistakes, "policies.addressChanges", entry.get("addressChanges", "allowed"), "forbidden", "allowed"
        ),
        source_ranges_required=_choice(
            mistakes, "policies.sourceRanges", entry.get("sourceRanges", "optional"), "required", "optional"
        ),
        ports=_ports(mistakes, entry["ports"]) if "ports" in entry else (),
        headroom=_headroom(mistakes, entry["headroom"]) if "headroom" in entry else None,
        hostnames=_hostnames(mistakes, entry["hostnames"]) if "hostnames" in entry else (),
        tls_required=_choice(mistakes, "policies.tls", entry.get("tls", "optional"), "required", "optional"),
        advisory=_advisory(mistakes, entry.get("advisory", ())),
    )


def _advisory(mistakes: Mistakes, value: object) -> frozenset[str]:
    named = list(mistakes.items("policies.advisory", value, "a list of policies such as headroom"))
    for key, item in named:
        if item not in _POLICIES:
            mistakes.add(key, f"{shown(item)} is no policy; name some of {', '.join(_POLICIES)}")
    return frozenset(str(item) for _, item in named)


def _choice(mistakes: Mistakes, key: str, value: object, strict: str, lenient: str) -> bool:
    if value not in {strict, lenient} if isinstance(value, str) else True:
        mistakes.add(key, f"{shown(value)} is neither {strict} nor {lenient}; write one of them")
    return value == strict


def _ports(mistakes: Mistakes, value: object) -> tuple[PortRange, ...]:
    entries = _some(mistakes, "ports", value, f"a list {_PORTS}")
    return tuple(port for key, item in entries if (port := _port(mistakes, key, item)))


def _some(mistakes: Mistakes, name: str, value: object, example: str) -> list[tuple[str, object]]:
    """Read the entries of a list that mustn't be empty."""
    entries = list(mistakes.items(f"policies.{name}", value, example))
    if isinstance(value, list | tuple) and not entries:
        sentence = f"the list is empty and would forbid every {name.removesuffix('s')}; name some or remove the key"
        mistakes.add(f"policies.{name}", sentence)
    return entries


def _hostnames(mistakes: Mistakes, value: object) -> tuple[str, ...]:
    entries = _some(mistakes, "hostnames", value, f"a list {_HOSTNAMES}")
    return tuple(name for key, item in entries if (name := _hostname(mistakes, key, item)))


def _hostname(mistakes: Mistakes, key: str, value: object) -> str:
    try:
        return hostname(value.lower() if isinstance(value, str) else "")
    except ValueError:
        mistakes.add(key, f"{shown(value)} is no hostname; write one {_HOSTNAMES}")
        return ""


def _port(mistakes: Mistakes, key: str, value: object) -> PortRange | None:
    match = _PORT.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if match is None:
        mistakes.add(key, f"{shown(value)} is no port; write one {_PORTS}")
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= _LARGEST_PORT:
        mistakes.add(key, f"{shown(value)} is no range of ports from 1 to {_LARGEST_PORT}; write one {_PORTS}")
        return None
    return PortRange(first, last, Protocol(match[3]) if match[3] else None)


def _headroom(mistakes: Mistakes, value: object) -> Headroom | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Headroom(value)
    match = re.fullmatch(r"(\d{1,3})%", value) if isinstance(value, str) else None
    if match and int(match[1]) <= _WHOLE:
        return Headroom(int(match[1]), percent=True)
    remedy = 'write a number such as 4, or a part of the pool such as "25%"'
    mistakes.add("policies.headroom", f"{shown(value)} is no number of addresses; {remedy}")
    return None


DEFAULT_POOL = Pool("default", (AddressRange(IPv4Address("127.77.0.0"), IPv4Address("127.77.0.31")),))
"""The pool of a stack without the key `pools`: 32 addresses that every Linux host has, without any right."""

_POOL_KEYS = ("name", "addresses", "exclude", "priority", "namespaces", "selector")
_RANGES = "a list such as [127.77.0.0/27, 127.78.0.10-127.78.0.20]"
_POOL = "{name: shop, addresses: [127.77.0.0/27]}"


def parse_pools(mistakes: Mistakes, value: object) -> tuple[Pool, ...]:
    """Read the key `pools`. A pool with a mistake in its ranges is left out of the result."""
    entries = list(mistakes.items("pools", value, f"a list such as [{_POOL}]"))
    if isinstance(value, list | tuple) and not entries:
        mistakes.add("pools", "the list is empty; name a pool, or leave the key out for the default 127.77.0.0/27")
    pools = [pool for key, entry in entries if (pool := _pool(mistakes, key, entry))]
    _complain_of_names(mistakes, pools)
    _complain_of_overlaps(mistakes, pools)
    return tuple(pools)


def _pool(mistakes: Mistakes, key: str, value: object) -> Pool | None:
    entry = mistakes.mapping(key, value, _POOL)
    if not entry:
        if isinstance(value, Mapping) and not value:
            mistakes.add(key, f"the pool is empty; write {_POOL}")
        return None
    mistakes.unknown(f"{key}.", entry, _POOL_KEYS)
    pool = Pool(
        name=mistakes.label(f"{key}.name", entry.get("name"), "shop"),
        ranges=_ranges(mistakes, f"{key}.addresses", entry.get("addresses")),
        exclude=_ranges(mistakes, f"{key}.exclude", entry.get("exclude", [])),
        priority=mistakes.number(f"{key}.priority", entry.get("priority", 0)),
        namespaces=parse_namespaces(mistakes, f"{key}.namespaces", entry.get("namespaces", [])),
        selector=parse_selector(mistakes, f"{key}.selector", entry.get("selector", {})),
    )
    _complain_of_emptiness(mistakes, key, pool, entry.get("addresses"))
    return pool if pool.name and pool.ranges else None


def _ranges(mistakes: Mistakes, key: str, value: object) -> tuple[AddressRange, ...]:
    ranges = []
    for item_key, item in mistakes.items(key, value, _RANGES):
        text = mistakes.text(item_key, item, "127.77.0.0/27 or 127.78.0.10-127.78.0.20")
        parsed = text and parse_range(text)
        if isinstance(parsed, AddressRange):
            ranges.append(parsed)
        elif parsed:
            mistakes.add(item_key, parsed)
    return tuple(ranges)


def parse_range(text: str) -> AddressRange | str:
    """Parse a CIDR, a start-end range or a single address; return a text with the mistake for anything else."""
    if "/" in text:
        return _cidr(text)
    first_text, dash, last_text = (part.strip() for part in text.partition("-"))
    first, last = parse_address(first_text), parse_address(last_text if dash else first_text)
    if first is None or last is None:
        return f"{shown(text)} is neither a CIDR nor a range; write 127.77.0.0/27 or 127.78.0.10-127.78.0.20"
    if first.version != last.version:
        return f"{text} begins with {Family.of(first)} and ends with {Family.of(last)}; write one range for each family"
    if int(last) < int(first):
        return f"{text} ends before it begins; write {last}-{first}"
    return AddressRange(first, last)


def _cidr(text: str) -> AddressRange | str:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return f"{shown(text)} is neither a CIDR nor a range; write 127.77.0.0/27 or 127.78.0.10-127.78.0.20"
    written = parse_address(text.partition("/")[0])
    if written != network.network_address:
        return f"{text} has bits set beyond its prefix; write {network} for the network, or {written} for one address"
    return AddressRange(network.network_address, network.broadcast_address)


def _complain_of_emptiness(mistakes: Mistakes, key: str, pool: Pool, addresses: object) -> None:
    if isinstance(addresses, list | tuple) and not addresses:
        mistakes.add(f"{key}.addresses", f"the list is empty; write {_RANGES}")
    for part in pool.ranges:
        if not _usable([part], ()):
            what = never(part.first)
            mistakes.add(f"{key}.addresses", f"{part} is never handed out ({what}); choose another range")
    if _usable(pool.ranges, ()) and not _usable(pool.ranges, pool.exclude):
        mistakes.add(f"{key}.exclude", "nothing is left of the pool; exclude less, or remove the pool")
    for excluded in pool.exclude:
        if pool.ranges and not any(_common(excluded, other) for other in pool.ranges):
            mistakes.add(f"{key}.exclude", f"{excluded} is not in the pool; remove it")


def _usable(ranges: Iterable[AddressRange], exclude: Iterable[AddressRange]) -> bool:
    pool = Pool("", tuple(ranges), tuple(exclude))
    return any(candidates(pool, family).size for family in Family)


def _complain_of_names(mistakes: Mistakes, pools: Sequence[Pool]) -> None:
    names = [pool.name for pool in pools]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        mistakes.add("pools", f"{names.count(name)} pools are called {name}; give each a name of its own")


def _complain_of_overlaps(mistakes: Mistakes, pools: Sequence[Pool]) -> None:
    """Name every pair of pools that have addresses in common, and the lowest range of these."""
    for number, pool in enumerate(pools):
        for other in pools[:number]:
            common = [overlap for mine in pool.ranges for theirs in other.ranges if (overlap := _common(mine, theirs))]
            if common:
                first = min(common, key=lambda overlap: (overlap.first.version, int(overlap.first)))
                where = f"the pools {other.name} and {pool.name} overlap in {first}"
                mistakes.add("pools", f"{where}; take it out of one of them")


def _common(mine: AddressRange, other: AddressRange) -> AddressRange | None:
    if mine.first.version != other.first.version:
        return None
    first, last = max(int(mine.first), int(other.first)), min(int(mine.last), int(other.last))
    make: type[IPAddress] = IPv4Address if mine.first.version == 4 else IPv6Address  # noqa: PLR2004 - IP version 4
    return AddressRange(make(first), make(last)) if first <= last else None


_LOOPBACK, _OFF = "loopback", "off"


def parse_port_mapping(mistakes: Mistakes, config: Mapping[str, object]) -> bool:
    """Read it, and refuse what goes by addresses of Services' own."""
    value = config.get("portMapping", _OFF)
    if value is False or value == _OFF:  # YAML 1.1 takes `off` for false
        return False
    if value != _LOOPBACK:
        mistakes.add("portMapping", f"{shown(value)} is no way to map ports; use {_LOOPBACK}, or remove the key")
        return False
    for key in ("pools", "pins"):
        if key in config:
            mistakes.add(key, "with portMapping every Service is at 127.0.0.1; remove this key, or portMapping")
    if config.get("ipMode") == IpMode.VIP:
        mistakes.add("ipMode", "with portMapping it would take what Nodes send to their own 127.0.0.1; use Proxy")
    if config.get("http3") is True:
        mistakes.add("http3", "with portMapping its ports of UDP are nobody's to keep; remove one of the two")
    return True


_KEY = "podCIDRs"
_POD_RANGES = "a list such as [10.244.0.0/16]"
_PUBLISHED = "runtime docker or podman and network publish"
_WIDEST = {4: 8, 6: 16}
"""Bits of the widest range of one cluster's pods, by IP version."""


def parse_pod_routes(mistakes: Mistakes, config: Mapping[str, object], sources: Iterable[Source]) -> PodRouting:
    """Read `podRoutes`, and refuse what can't go with the runtime, or lets others choose this host's own routes."""
    value = config.get("podRoutes", PodRouting.AUTO)
    if value is False:  # YAML 1.1 takes `off` for it
        return PodRouting.OFF
    if value not in list(PodRouting):
        mistakes.add("podRoutes", f"{shown(value)} is no place for routes; use auto, off, host, container or api")
        return PodRouting.OFF
    routing, foreign = (
        PodRouting(str(value)),
        [source for source in sources if source.nodes and source.nodes.is_foreign],
    )
    if routing is PodRouting.HOST:
        _refuse_foreign(mistakes, foreign)
    elif routing is PodRouting.CONTAINER and not _is_published(config):
        remedy = "set both, or use off" if foreign else "use host"
        mistakes.add("podRoutes", f"container is for proxies with {_PUBLISHED}; {remedy}")
    elif routing is PodRouting.API and config.get("runtime", "process") != "process":
        mistakes.add("podRoutes", "api is for proxies that are processes of this host; leave out `runtime`")
    return routing


def _is_published(config: Mapping[str, object]) -> bool:
    return config.get("runtime") in RUNTIMES.having("route_helper") and config.get("network", "host") != "host"


def _refuse_foreign(mistakes: Mistakes, sources: Iterable[Source]) -> None:
    for source in sources:
        mistakes.add(
            "podRoutes",
            f"host would let whoever writes the kubeconfig in `nodes` of {source.cluster} lead connections of this"
            f" host elsewhere; use container, with {_PUBLISHED}, or if that kubeconfig is your own, name it in"
            " $KUBECONFIG instead",
        )


def parse_pod_cidrs(mistakes: Mistakes, key: str, value: object) -> tuple[IPNetwork, ...]:
    """Read where a cluster's pods have their addresses."""
    ranges = [_range(mistakes, path, item) for path, item in mistakes.items(key, value, _POD_RANGES)]
    return tuple(cidr for cidr in ranges if cidr)


def parse_cidrs_of_clusters(mistakes: Mistakes, value: object) -> Mapping[ClusterName, tuple[IPNetwork, ...]]:
    """Read where the pods of each cluster have their addresses, whatever source it is of."""
    clusters = mistakes.mapping(_KEY, value, "clusters and their ranges, such as {kind: [10.42.0.0/16]}")
    return MappingProxyType(
        {
            ClusterName(mistakes.label(_KEY, name, "kind")): parse_pod_cidrs(
                mistakes, f"{_KEY}.{clipped(name)}", ranges
            )
            for name, ranges in clusters.items()
        }
    )


def _range(mistakes: Mistakes, key: str, value: object) -> IPNetwork | None:
    try:
        network = ip_network(str(value))
    except ValueError:
        mistakes.add(key, f"{shown(value)} is no range; write {_POD_RANGES}")
        return None
    if network.prefixlen < _WIDEST[network.version]:
        mistakes.add(key, f"{network} is wider than a cluster's pods ever are; write what the CNI's configuration says")
        return None
    return network
