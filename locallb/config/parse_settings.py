"""From the decoded values of the stack configuration (namespace `local-lb`) to `Settings`, or to all that is wrong.

A mistake never hides another one: everything is read, then one error tells all. Keys that this version doesn't have yet
are refused by name, never ignored. Not here: how the stack file is found and decoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from locallb.config.candidates import candidates, listed
from locallb.config.loopback_socket import parse_metrics
from locallb.config.parse_containers import parse_containers
from locallb.config.parse_election import parse_election
from locallb.config.parse_kind import parse_kind
from locallb.config.parse_policies import parse_policies
from locallb.config.parse_pools import DEFAULT_POOL, parse_pools
from locallb.config.parse_proxies import parse_proxies
from locallb.config.parse_selection import parse_classes, parse_namespaces, parse_selector
from locallb.config.registry import RUNTIMES
from locallb.config.settings import (
    IpMode,
    KubernetesSource,
    ManifestsSource,
    Pool,
    Settings,
    SettingsError,
    Source,
)
from locallb.config.values import NAMESPACE, Mistakes, usable_address
from locallb.model.fields import LABEL
from locallb.model.formatting import clipped, shown
from locallb.model.identities import ClusterName, Family, IPAddress
from locallb.model.objects import BackendChoice

KEYS = (
    *("sources", "runtime", "network", "pools", "pins", "classes", "namespaces", "selector"),
    *(
        "backends",
        "proxies",
        "image",
        "limits",
        "compat",
        "policies",
        "metrics",
        "leaderElection",
        "takeOver",
        "ipMode",
    ),
)
_SOURCE_KINDS = ("manifests", "kubernetes", "kind")
_SOURCE = "{manifests: DIRECTORY, name: CLUSTER}"
_CLUSTER = "{kubernetes: {name: CLUSTER, kubeconfig: FILE, context: CONTEXT}}"


def parse_settings(config: Mapping[str, object]) -> Settings:
    """Read the configuration; `config` has the keys without the namespace and JSON-like values.

    Raises SettingsError with one sentence for each mistake.
    """
    mistakes = Mistakes()
    mistakes.unknown("", config, KEYS)
    settings = Settings(
        sources=_sources(mistakes, config.get("sources")),
        pools=parse_pools(mistakes, config["pools"]) if "pools" in config else (DEFAULT_POOL,),
        pins=_pins(mistakes, config.get("pins", {})),
        classes=parse_classes(mistakes, config.get("classes", {})),
        namespaces=parse_namespaces(mistakes, "namespaces", config.get("namespaces", [])),
        selector=parse_selector(mistakes, "selector", config.get("selector", {})),
        runtime=_runtime(mistakes, config.get("runtime", "process")),
        container=parse_containers(mistakes, config),
        proxies=parse_proxies(mistakes, config),
        backends=_backends(mistakes, config.get("backends", BackendChoice.AUTO)),
        ip_mode=_ip_mode(mistakes, config.get("ipMode", IpMode.PROXY)),
        take_over=mistakes.flag("takeOver", config.get("takeOver", False)),
        kind=parse_kind(mistakes, config.get("sources")),
        policies=parse_policies(mistakes, config.get("policies", {})),
        metrics=parse_metrics(mistakes, config["metrics"]) if "metrics" in config else "",
    )
    election = parse_election(mistakes, config.get("leaderElection", {}), settings.sources)
    if not mistakes.sentences:
        _complain_of_unreachable_pins(mistakes, settings)
    if mistakes.sentences:
        raise SettingsError(tuple(mistakes.sentences))
    return replace(settings, leader_election=election)


def _backends(mistakes: Mistakes, value: object) -> BackendChoice:
    if value not in list(BackendChoice):
        mistakes.add("backends", f"{shown(value)} is no choice; use auto, pods or nodePorts, or remove the key")
        return BackendChoice.AUTO
    return BackendChoice(str(value))


def _ip_mode(mistakes: Mistakes, value: object) -> IpMode:
    if value not in list(IpMode):
        mistakes.add("ipMode", f"{shown(value)} is no mode; use Proxy or VIP, or remove the key")
        return IpMode.PROXY
    return IpMode(str(value))


def _runtime(mistakes: Mistakes, value: object) -> str:
    if value not in list(RUNTIMES):
        mistakes.add("runtime", f"{shown(value)} is no runtime; use {' or '.join(RUNTIMES)}, or remove the key")
        return "process"
    return str(value)


def _sources(mistakes: Mistakes, value: object) -> tuple[Source, ...]:
    if value is None or value == []:
        mistakes.add("sources", f"there is none; write a list such as [{_SOURCE}]")
        return ()
    entries = mistakes.items("sources", value, f"a list such as [{_SOURCE}]")
    sources = [source for key, entry in entries if (source := _source(mistakes, key, entry))]
    names = [source.cluster for source in sources]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        places = " and ".join(_place(source) for source in sources if source.cluster == name)
        mistakes.add("sources", f"{places} are both called {name}; give one of them another `name`")
    return tuple(sources)


def _source(mistakes: Mistakes, key: str, value: object) -> Source | None:
    entry = mistakes.mapping(key, value, _SOURCE)
    kinds = [kind for kind in _SOURCE_KINDS if kind in entry]
    if kinds[:1] == ["manifests"] and len(kinds) == 1:
        mistakes.unknown(f"{key}.", entry, ("manifests", "name"))
        return _manifests(mistakes, key, entry)
    if kinds == ["kind"]:
        mistakes.unknown(f"{key}.", entry, ("kind",))
        return None  # read by parse_kind
    if kinds == ["kubernetes"]:
        mistakes.unknown(f"{key}.", entry, ("kubernetes",))
        return _kubernetes(mistakes, f"{key}.kubernetes", entry["kubernetes"])
    if len(kinds) > 1:
        mistakes.add(key, f"it is {' and '.join(kinds)} at once; write each as a source of its own")
        return None
    if not kinds and isinstance(value, Mapping):
        mistakes.unknown(f"{key}.", entry, (*_SOURCE_KINDS, "name"))
        mistakes.add(key, f"it names no directory; write {_SOURCE}")
    return None


def _manifests(mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> ManifestsSource | None:
    directory = mistakes.text(f"{key}.manifests", entry["manifests"], "a directory such as examples/shop/manifests")
    if not directory:
        return None
    if "name" in entry:
        name = mistakes.label(f"{key}.name", entry["name"], "shop")
    else:
        name = cluster_name(directory)
        if not name:
            mistakes.add(key, f"{shown(directory)} gives the cluster no name; add `name`, such as {_SOURCE}")
    return ManifestsSource(ClusterName(name), directory) if name else None


def _kubernetes(mistakes: Mistakes, key: str, value: object) -> KubernetesSource | None:
    entry = mistakes.mapping(key, value, _CLUSTER)
    mistakes.unknown(f"{key}.", entry, ("name", "kubeconfig", "context"))
    texts = {
        field: mistakes.text(f"{key}.{field}", entry[field], example) if field in entry else ""
        for field, example in (("kubeconfig", "a file such as ~/.kube/config"), ("context", "a name such as kind-shop"))
    }
    if not entry.get("name"):
        mistakes.add(key, f"the cluster has no name; write {_CLUSTER}, the last two as needed")
        return None
    name = mistakes.label(f"{key}.name", entry["name"], "shop")
    return KubernetesSource(ClusterName(name), texts["kubeconfig"], texts["context"]) if name else None


def _place(source: Source) -> str:
    """Return which source is meant, for a user who has two of one name."""
    if isinstance(source, ManifestsSource):
        return clipped(source.directory)
    return clipped(source.context or source.kubeconfig or "the current context")


def cluster_name(directory: str) -> str:
    """Make a DNS label of a directory's last part; empty if nothing is left of it."""
    last = directory.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")[:63].rstrip("-")


def _pins(mistakes: Mistakes, value: object) -> Mapping[str, tuple[IPAddress, ...]]:
    pins = {}
    owners: dict[IPAddress, str] = {}
    for service, addresses in mistakes.mapping("pins", value, "{shop/web: [127.77.0.5]}").items():
        key = f"pins.{clipped(service)}"
        parts = service.split("/")
        if len(parts) != len(("namespace", "name")) or not all(LABEL.fullmatch(part) for part in parts):
            mistakes.add(
                f"pins.{clipped(service)}", "the key is not a Service; write `namespace/name`, such as shop/web"
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
    for each, item in mistakes.items(key, value, "a list such as [127.77.0.5]"):
        text = mistakes.text(each, item, "an address such as 127.77.0.5")
        address = usable_address(mistakes, each, text, "127.77.0.5") if text else None
        if address is None:
            continue
        other = addresses.setdefault(Family.of(address), address)
        if other is not address:
            mistakes.add(each, f"{address} is a second {Family.of(address)} address beside {other}; keep one of them")
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
