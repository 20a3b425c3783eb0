"""Parses the decoded values of the stack configuration (namespace `local-lb`) into `Settings`, or all mistakes.

A mistake never hides another one: everything is read, then one error lists all. Keys that this version doesn't know
are refused by name, never ignored. Not here: how the stack file is found and decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import cast

from msgspec.structs import replace

from locallb.config.candidates import candidates, listed
from locallb.config.entries import output_entry, source_entry
from locallb.config.loopback_socket import parse_place
from locallb.config.parsing.containers import parse_containers
from locallb.config.parsing.dns import parse_dns
from locallb.config.parsing.election import parse_election
from locallb.config.parsing.ingress import parse_ingress
from locallb.config.parsing.pod_routes import parse_cidrs_of_clusters, parse_pod_routes
from locallb.config.parsing.policies import parse_policies
from locallb.config.parsing.pools import DEFAULT_POOL, parse_pools
from locallb.config.parsing.port_mapping import parse_port_mapping
from locallb.config.parsing.proxies import parse_proxies
from locallb.config.parsing.selection import parse_classes, parse_gateway_classes, parse_namespaces, parse_selector
from locallb.config.registry import OUTPUTS, RUNTIMES, SOURCES
from locallb.config.settings import Pool, Settings, SettingsError
from locallb.config.source import Finder, Source
from locallb.config.status_settings import IpMode, StatusOrder
from locallb.config.values import NAMESPACE, Mistakes, usable_address
from locallb.model.fields import LABEL
from locallb.model.formatting import clipped, shown
from locallb.model.identities import Family, IPAddress
from locallb.model.objects import BackendChoice

KEYS = (
    *("sources", "runtime", "network", "portMapping", "pools", "pins", "classes", "namespaces", "selector"),
    *("podRoutes", "podCIDRs", "backends", "proxies", "image", "limits", "compat"),
    *("policies", "metrics", "leaderElection", "takeOver", "ipMode", "statusOrder", "gatewayClasses", "ingress", "dns"),
    *("trafficDetails", "trafficMetrics", "accessLogs", "certificates", "http3", "page"),
)
_PORTS, _MAX_PORTS = 100, 1000
"""Default and limit of the number of ports with metrics."""
_SECRETS, _LOCAL = "secrets", "local"
"""Where certificates come from."""
_SOURCE = "{manifests: DIRECTORY, name: CLUSTER}"


def parse_settings(config: Mapping[str, object]) -> Settings:
    """Read the configuration; `config` has the keys without the namespace and JSON-like values.

    Raises SettingsError with one sentence for each mistake.
    """
    mistakes = Mistakes()
    mistakes.unknown("", config, (*KEYS, *OUTPUTS.having("entry")))
    sources, finders = _sources(mistakes, config.get("sources"))
    _refuse_repeated(mistakes, config.get("sources"))
    mapped = parse_port_mapping(mistakes, config)
    pools = parse_pools(mistakes, config["pools"]) if "pools" in config else () if mapped else (DEFAULT_POOL,)
    certificates = mistakes.choice("certificates", config.get("certificates", _SECRETS), (_SECRETS, _LOCAL), _SECRETS)
    settings = Settings(
        sources=sources,
        finders=finders,
        outputs=_outputs(mistakes, config),
        pools=pools,
        port_mapping=mapped,
        pins=_pins(mistakes, config.get("pins", {})),
        classes=parse_classes(mistakes, config.get("classes", {})),
        namespaces=parse_namespaces(mistakes, "namespaces", config.get("namespaces", [])),
        selector=parse_selector(mistakes, "selector", config.get("selector", {})),
        runtime=mistakes.choice("runtime", config.get("runtime", "process"), RUNTIMES, "process", "runtime"),
        container=parse_containers(mistakes, config),
        proxies=parse_proxies(mistakes, config),
        backends=mistakes.choice("backends", config.get("backends", "auto"), BackendChoice, BackendChoice.AUTO),
        ip_mode=mistakes.choice("ipMode", config.get("ipMode", "Proxy"), IpMode, IpMode.PROXY, "mode"),
        status_order=mistakes.choice(
            "statusOrder", config.get("statusOrder", "ipFamilies"), StatusOrder, StatusOrder.IP_FAMILIES, "order"
        ),
        take_over=mistakes.flag("takeOver", config.get("takeOver", False)),
        pod_routes=parse_pod_routes(mistakes, config, sources),
        pod_cidrs=parse_cidrs_of_clusters(mistakes, config.get("podCIDRs", {})),
        gateway_classes=parse_gateway_classes(mistakes, config.get("gatewayClasses")),
        ingress=parse_ingress(mistakes, config.get("ingress")),
        traffic_details=mistakes.flag("trafficDetails", config.get("trafficDetails", False)),
        traffic_metrics=_bound(mistakes, config.get("trafficMetrics", False)),
        http3=mistakes.flag("http3", config.get("http3", False)),
        access_logs=mistakes.flag("accessLogs", config.get("accessLogs", False)),
        local_certificates=certificates == _LOCAL,
        policies=parse_policies(mistakes, config.get("policies", {})),
        dns=parse_dns(mistakes, config.get("dns"), pools),
        metrics=parse_place(mistakes, config, "metrics"),
        page=parse_place(mistakes, config, "page"),
    )
    election = parse_election(mistakes, config.get("leaderElection", {}), settings.sources)
    if not mistakes.sentences:
        _complain_of_unreachable_pins(mistakes, settings)
    if mistakes.sentences:
        raise SettingsError(tuple(mistakes.sentences))
    proxies = replace(settings.proxies, logs=settings.access_logs)
    return replace(settings, leader_election=election, proxies=proxies)


def _bound(mistakes: Mistakes, value: object) -> int:
    """Read `trafficMetrics`: whether, or of how many ports."""
    if isinstance(value, bool):
        return _PORTS if value else 0
    if not isinstance(value, int) or not 1 <= value <= _MAX_PORTS:
        mistakes.add("trafficMetrics", f"{shown(value)} is neither true nor a number of ports from 1 to {_MAX_PORTS}")
        return 0
    return value


def _outputs(mistakes: Mistakes, config: Mapping[str, object]) -> Mapping[str, object]:
    """Read the keys that turn outputs on."""
    terms = (word for word in OUTPUTS.having("entry") if word in config)
    return MappingProxyType({word: output_entry(word).parse(mistakes, word, config[word]) for word in terms})


def _sources(mistakes: Mistakes, value: object) -> tuple[tuple[Source, ...], tuple[Finder, ...]]:
    """Read the sources that are named, and the finders of more."""
    if value is None or value == []:
        mistakes.add("sources", f"there is none; write a list such as [{_SOURCE}]")
        return (), ()
    entries = mistakes.items("sources", value, f"a list such as [{_SOURCE}]")
    parsed = [(word, source) for key, entry in entries for word, source in _source(mistakes, key, entry)]
    sources = [cast("Source", source) for word, source in parsed if not source_entry(word).finds]
    finders = [cast("Finder", finder) for word, finder in parsed if source_entry(word).finds]
    called = [
        *((source.cluster, source) for source in sources),
        *((finder.name, finder) for finder in finders if finder.name),
    ]
    names = [name for name, _ in called]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        places = " and ".join(entry.place for other, entry in called if other == name)
        mistakes.add("sources", f"{places} are both called {name}; give one of them another `name`")
    return tuple(sources), (*finders, *(source.nodes for source in sources if source.nodes))


def _source(mistakes: Mistakes, key: str, value: object) -> Iterator[tuple[str, Source | Finder]]:
    """Return the word of an entry and its parsed value; nothing where it is invalid."""
    entry = mistakes.mapping(key, value, _SOURCE)
    terms = [word for word in SOURCES if word in entry]
    if len(terms) > 1:
        mistakes.add(key, f"it is {' and '.join(terms)} at once; write each as a source of its own")
    elif terms:
        (word,) = terms
        mistakes.unknown(f"{key}.", entry, source_entry(word).keys)
        if (parsed := source_entry(word).parse(mistakes, key, entry)) is not None:
            yield word, parsed
    elif isinstance(value, Mapping):
        mistakes.unknown(f"{key}.", entry, (*SOURCES, "name"))
        mistakes.add(key, f"it names no directory; write {_SOURCE}")


def _refuse_repeated(mistakes: Mistakes, value: object) -> None:
    """Note entries of which everything belongs into one."""
    listed = [entry if isinstance(entry, Mapping) else {} for entry in value] if isinstance(value, list | tuple) else []
    for word in (word for word in SOURCES if (source_entry(word).once)):
        alone = [number for number, entry in enumerate(listed) if [key for key in SOURCES if key in entry] == [word]]
        for number in alone[1:]:
            sentence = f"there is one before it; write all names into one, {source_entry(word).once}"
            mistakes.add(f"sources[{number}].{word}", sentence)


def _pins(mistakes: Mistakes, value: object) -> Mapping[str, tuple[IPAddress, ...]]:
    pins = {}
    owners: dict[IPAddress, str] = {}
    for service, addresses in mistakes.mapping("pins", value, "{shop/web: [127.77.0.5]}").items():
        key = f"pins.{clipped(service)}"
        parts = service.split("/")
        if len(parts) != len(("namespace", "name")) or not all(
            LABEL.fullmatch(part.replace("*", "x")) for part in parts
        ):
            mistakes.add(
                f"pins.{clipped(service)}",
                "the key is not a Service; write `namespace/name`, such as shop/web, with `*` for any text",
            )
        pins[service] = tuple(_pinned(mistakes, key, addresses))
        for address in pins[service]:
            if owners.setdefault(address, service) != service:
                where = f"{address} is already pinned to {clipped(owners[address])}"
                mistakes.add(key, f"{where}; give each Service an address of its own")
    return MappingProxyType(pins)


def _pinned(mistakes: Mistakes, key: str, value: object) -> list[IPAddress]:
    addresses: dict[Family, IPAddress] = {}
    if value in ([], ()):
        mistakes.add(key, "the list is empty; name an address or remove the pin")
    for item_key, item in mistakes.items(key, value, "a list such as [127.77.0.5]"):
        text = mistakes.text(item_key, item, "an address such as 127.77.0.5")
        address = usable_address(mistakes, item_key, text, "127.77.0.5") if text else None
        if address is None:
            continue
        other = addresses.setdefault(Family.of(address), address)
        if other is not address:
            mistakes.add(
                item_key, f"{address} is a second {Family.of(address)} address beside {other}; keep one of them"
            )
    return list(addresses.values())


def _complain_of_unreachable_pins(mistakes: Mistakes, settings: Settings) -> None:
    for service, addresses in settings.pins.items():
        for address in addresses:
            if not any(address in candidates(pool, Family.of(address)) for pool in settings.pools):
                mistakes.add(f"pins.{service}", _unreachable(address, settings.pools))


def _unreachable(address: IPAddress, pools: tuple[Pool, ...]) -> str:
    for pool in pools:
        if listed(pool, address):
            return f"{address} is excluded from the pool {pool.name}; choose another one or take it out of `exclude`"
    return f"{address} is in no pool; choose one of a pool's addresses or add it to {NAMESPACE}:pools"
