"""Parses the decoded values of the stack configuration (namespace `local-lb`) into `Settings`, or reports all mistakes.

A mistake never hides another one: everything is read, then one error lists all. Keys that this version doesn't know
are refused by name, never ignored. The keys `leaderElection` and `ingress` are parsed here, too. Entries of `sources`
are parsed by their implementations (`registry.SourceEntry`).

Not here: reading the stack file (`engine.state.project`), and decoding its values (`sources.configuration`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from msgspec.structs import replace

from locallb.config.candidates import candidates, listed
from locallb.config.dns import parse_dns
from locallb.config.proxies import parse_containers, parse_proxies
from locallb.config.registry import RUNTIMES, SOURCES, Finder, Source, source_entry
from locallb.config.services import (
    DEFAULT_POOL,
    parse_cidrs_of_clusters,
    parse_classes,
    parse_gateway_classes,
    parse_namespaces,
    parse_pod_routes,
    parse_policies,
    parse_pools,
    parse_port_mapping,
    parse_selector,
    parse_services,
)
from locallb.config.settings import (
    AddressPer,
    Dialect,
    IngressSettings,
    IpMode,
    LeaderElection,
    Pool,
    Settings,
    SettingsError,
    StatusOrder,
    Timing,
)
from locallb.config.values import NAMESPACE, Mistakes, parse_place, usable_address
from locallb.model.fields import LABEL, LABEL_REMEDY
from locallb.model.identities import Family, IPAddress
from locallb.model.objects import BackendChoice
from locallb.model.texts import clipped, shown

KEY = "leaderElection"
_EXAMPLE = "{enabled: true, cluster: shop, lease: local-lb, namespace: kube-system}"
_TIMES = {"leaseDuration": "lease_duration", "renewDeadline": "renew_deadline", "retryPeriod": "retry_period"}


def parse_election(mistakes: Mistakes, value: object, sources: Sequence[Source]) -> LeaderElection | None:
    """Read the key; None where it isn't enabled."""
    entry = mistakes.mapping(KEY, value, _EXAMPLE)
    mistakes.unknown(f"{KEY}.", entry, ("enabled", "cluster", "lease", "namespace", *_TIMES))
    if not mistakes.flag(f"{KEY}.enabled", entry.get("enabled", False)):
        return None
    live = [source.cluster for source in sources if source.live]
    cluster = _cluster(mistakes, entry, live)
    lease = mistakes.label(f"{KEY}.lease", entry.get("lease", "local-lb"), "local-lb")
    own = "namespace" not in entry
    namespace = "" if own else mistakes.label(f"{KEY}.namespace", entry["namespace"], "kube-system")
    timing = _timing(mistakes, entry)
    live_cluster = next((name for name in live if name == cluster), None)
    return LeaderElection(live_cluster, lease, namespace, timing) if live_cluster else None


def _cluster(mistakes: Mistakes, entry: Mapping[str, object], live: Sequence[str]) -> str:
    if not live:
        mistakes.add(KEY, "no source is a live cluster, so nobody has a Lease; remove the key")
        return ""
    if "cluster" not in entry and len(live) > 1:
        mistakes.add(f"{KEY}.cluster", f"it is missing; name the cluster that has the Lease: {' or '.join(live)}")
        return ""
    name = mistakes.label(f"{KEY}.cluster", entry.get("cluster", live[0]), live[0])
    if name and name not in live:
        mistakes.add(f"{KEY}.cluster", f"{clipped(name)} is no live cluster; name {' or '.join(live)}")
    return name


def _timing(mistakes: Mistakes, entry: Mapping[str, object]) -> Timing:
    given: dict[str, float] = {}
    for key, field in _TIMES.items():
        value = entry.get(key, getattr(Timing(), field))
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            mistakes.add(f"{KEY}.{key}", f"{shown(value)} is no number of seconds; write one such as 15")
            return Timing()
        given[field] = float(value)
    timing = Timing(**given)
    if not timing.lease_duration > timing.renew_deadline > timing.retry_period:
        mistakes.add(KEY, "leaseDuration must be longer than renewDeadline, and that longer than retryPeriod")
    return timing


DEFAULT_CLASS = "local-lb"
_INGRESS_EXAMPLE = "{class: local-lb, http: 80, https: 443, address: class}"
_LARGEST_PORT = 65535


def parse_ingress(mistakes: Mistakes, value: object) -> IngressSettings:
    """Read it; false serves none, absent are the classes of our controller."""
    if value is None or value is False:
        return IngressSettings(is_off=value is False)
    entry = mistakes.mapping("ingress", value, f"{_INGRESS_EXAMPLE}, or false")
    mistakes.unknown("ingress.", entry, ("class", "http", "https", "address", "annotations"))
    name = _class(mistakes, entry.get("class", DEFAULT_CLASS))
    http, https = _port(mistakes, "http", entry.get("http", 80)), _port(mistakes, "https", entry.get("https", 443))
    if http == https:
        mistakes.add("ingress.https", f"{https} is the port of `http` as well; give each a port of its own")
    address = mistakes.choice("ingress.address", entry.get("address", AddressPer.CLASS), AddressPer, AddressPer.CLASS)
    return IngressSettings(
        name, http, https, address, annotations=frozenset(_dialects(mistakes, entry.get("annotations", ())))
    )


def _class(mistakes: Mistakes, value: object) -> str:
    text = mistakes.text("ingress.class", value, f"a name such as {DEFAULT_CLASS}")
    if text and not all(LABEL.fullmatch(part) for part in text.split(".")):
        mistakes.add("ingress.class", f"{shown(text)} is no name of a class; {LABEL_REMEDY}, such as {DEFAULT_CLASS}")
    return text


def _port(mistakes: Mistakes, key: str, value: object) -> int:
    number = mistakes.number(f"ingress.{key}", value)
    if number and not 1 <= number <= _LARGEST_PORT:
        mistakes.add(f"ingress.{key}", f"{number} is no port; use a number from 1 to {_LARGEST_PORT}")
    return number


def _dialects(mistakes: Mistakes, value: object) -> Iterator[Dialect]:
    for text in mistakes.texts("ingress.annotations", value, f"[{', '.join(Dialect)}]"):
        if text in list(Dialect):
            yield Dialect(text)
        else:
            why = f"{shown(text)} is no controller whose annotations are known; use {' or '.join(Dialect)}"
            mistakes.add("ingress.annotations", why)


KEYS = (
    *("sources", "runtime", "network", "portMapping", "pools", "pins", "classes", "namespaces", "selector", "services"),
    *("podRoutes", "podCIDRs", "backends", "proxies", "image", "limits", "compat"),
    *("policies", "metrics", "leaderElection", "takeOver", "ipMode", "statusOrder", "gatewayClasses", "ingress", "dns"),
    *("trafficDetails", "trafficMetrics", "accessLogs", "certificates", "http3", "page", "localhost", "nodes"),
)
_PORTS, _MAX_PORTS = 100, 1000
"""Default and limit of the number of ports with metrics."""
_SECRETS, _LOCAL = "secrets", "local"
"""Where certificates come from."""
_LEAVE, _INITIALIZE = "leave", "initialize"
"""What becomes of Nodes that wait for a cloud provider."""
_SOURCE = "{manifests: DIRECTORY, name: CLUSTER}"


def parse_settings(config: Mapping[str, object]) -> Settings:
    """Read the configuration; `config` has the keys without the namespace and JSON-like values.

    Raises SettingsError with one sentence for each mistake.
    """
    mistakes = Mistakes()
    mistakes.unknown("", config, KEYS)
    sources, finders = _sources(mistakes, config.get("sources"))
    _refuse_repeated(mistakes, config.get("sources"))
    mapped = parse_port_mapping(mistakes, config)
    pools = parse_pools(mistakes, config["pools"]) if "pools" in config else () if mapped else (DEFAULT_POOL,)
    certificates = mistakes.choice("certificates", config.get("certificates", _SECRETS), (_SECRETS, _LOCAL), _SECRETS)
    settings = Settings(
        sources=sources,
        finders=finders,
        pools=pools,
        port_mapping=mapped,
        pins=_pins(mistakes, config.get("pins", {})),
        classes=parse_classes(mistakes, config.get("classes", {})),
        namespaces=parse_namespaces(mistakes, "namespaces", config.get("namespaces", [])),
        selector=parse_selector(mistakes, "selector", config.get("selector", {})),
        services=parse_services(mistakes, config.get("services")),
        runtime=mistakes.choice("runtime", config.get("runtime", "process"), RUNTIMES, "process", "runtime"),
        container=parse_containers(mistakes, config),
        proxies=parse_proxies(mistakes, config),
        backends=mistakes.choice("backends", config.get("backends", "auto"), BackendChoice, BackendChoice.AUTO),
        ip_mode=mistakes.choice("ipMode", config.get("ipMode", "Proxy"), IpMode, IpMode.PROXY, "mode"),
        status_order=mistakes.choice(
            "statusOrder", config.get("statusOrder", "ipFamilies"), StatusOrder, StatusOrder.IP_FAMILIES, "order"
        ),
        take_over=mistakes.flag("takeOver", config.get("takeOver", False)),
        initializes_nodes=mistakes.choice("nodes", config.get("nodes", _LEAVE), (_LEAVE, _INITIALIZE), _LEAVE)
        == _INITIALIZE,
        pod_routes=parse_pod_routes(mistakes, config, sources),
        pod_cidrs=parse_cidrs_of_clusters(mistakes, config.get("podCIDRs", {})),
        gateway_classes=parse_gateway_classes(mistakes, config.get("gatewayClasses")),
        ingress=parse_ingress(mistakes, config.get("ingress")),
        traffic_details=mistakes.flag("trafficDetails", config.get("trafficDetails", False)),
        traffic_metrics=_bound(mistakes, config.get("trafficMetrics", False)),
        http3=mistakes.flag("http3", config.get("http3", False)),
        localhost=mistakes.flag("localhost", config.get("localhost", False)),
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
    for word in (word for word in SOURCES if (source_entry(word).single_entry_example)):
        alone = [number for number, entry in enumerate(listed) if [key for key in SOURCES if key in entry] == [word]]
        for number in alone[1:]:
            sentence = f"there is one before it; write all names into one, {source_entry(word).single_entry_example}"
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
