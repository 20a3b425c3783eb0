"""Parses the key `dns`: zones with their servers, and additional names.

Pure. Not here: the assignment of names (`dns.records`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from locallb.config.candidates import listed
from locallb.config.settings import Pool
from locallb.config.values import Mistakes, parse_address, private_place
from locallb.dns.provider import PROVIDERS
from locallb.dns.records import MAX_TTL
from locallb.dns.zones import (
    CLUSTER_DOMAIN,
    TTL,
    DnsSettings,
    Embedded,
    UpdatedServer,
    Zone,
    is_of_clusters,
    is_wildcard,
    is_within,
    name_fault,
    normal,
    zone_of,
)
from locallb.model.identities import IPAddress, OwnerId, ZoneName
from locallb.model.texts import clipped, shown
from locallb.patterns import pattern

_KEYS = ("zones", "template", "ttl", "records", "inStatus", "shortNames", "clusters")
_EMBEDDED = "embedded"
_PLACE = "127.0.0.77:5300"
_ZONE = f"{{zone: test, embedded: {_PLACE}}}"
_EXAMPLE = f"{{zones: [{_ZONE}]}}"
_TEMPLATE = "{name}.{namespace}.{cluster}"
_FIELD = pattern(r"\{(name|namespace|cluster)\}")
_OWNERS = ("owner", "takeOver")
_OWNER = pattern(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?")
_WITH_PORT = pattern(r"(^[^:]*|\]):[0-9]{1,5}$")
_PORT, _LAST_PORT = 53, 65535
_STUB, _REACHED = "stub", "172.18.0.1:5300 on kind's network"


def parse_dns(mistakes: Mistakes, value: object, pools: Sequence[Pool]) -> DnsSettings | None:
    """Read the key; None where it is missing or has no zone that could be used."""
    if value is None:
        return None
    entry = mistakes.mapping("dns", value, _EXAMPLE)
    if not isinstance(value, Mapping):
        return None
    mistakes.unknown("dns.", entry, _KEYS)
    zones = _zones(mistakes, entry.get("zones"))
    if not zones:
        return None
    for server in (zone.server for zone in zones if not zone.updated):
        for pool in (pool for pool in pools if listed(pool, server.address)):
            sentence = f"{server.address} is an address of the pool {pool.name}; choose one that no Service can get"
            mistakes.add("dns.zones", sentence)
    return DnsSettings(
        zones,
        _template(mistakes, entry.get("template", f"{_TEMPLATE}.{zones[0].name}"), zones),
        _ttl(mistakes, entry["ttl"]) if "ttl" in entry else TTL,
        _records(mistakes, entry.get("records", {}), zones),
        mistakes.flag("dns.inStatus", entry.get("inStatus", False)),
        _short_names(mistakes, entry["shortNames"], zones) if "shortNames" in entry else "",
        "clusters" in entry and _in_clusters(mistakes, entry["clusters"], zones),
    )


def _short_names(mistakes: Mistakes, value: object, zones: Sequence[Zone]) -> str:
    """Read the namespace whose Services are called by their name alone."""
    namespace = mistakes.label("dns.shortNames", value, "default")
    if namespace and not any(is_of_clusters(zone) and not zone.updated for zone in zones):
        mistakes.add("dns.shortNames", f"no embedded server has the names of a cluster; add the zone {CLUSTER_DOMAIN}")
    return namespace


def _in_clusters(mistakes: Mistakes, value: object, zones: Sequence[Zone]) -> bool:
    """Read whether clusters get the zones as stub zones; their pods must reach the zones' servers."""
    if value != _STUB:
        mistakes.add("dns.clusters", f"{shown(str(value))} isn't known; write {_STUB}, or leave it out")
    for zone in zones:
        if zone.server.address.is_loopback or zone.server == Embedded():
            server = f"{zone.server}" if zone.server != Embedded() else "the stack's own address"
            why = f"pods don't reach {server}, which answers for {zone.name}: it is this host's loopback"
            mistakes.add("dns.clusters", f"{why}; have it answer at an address that Nodes reach, such as {_REACHED}")
    return value == _STUB


def _zones(mistakes: Mistakes, value: object) -> tuple[Zone, ...]:
    if value is None or value == []:
        mistakes.add("dns.zones", f"there is none; write a list such as [{_ZONE}]")
        return ()
    entries = mistakes.items("dns.zones", value, f"a list such as [{_ZONE}]")
    zones = [zone for key, item in entries if (zone := _zone(mistakes, key, item))]
    names = [zone.name for zone in zones]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        mistakes.add("dns.zones", f"{name} is there twice; keep one of them")
    return tuple(zones)


def _zone(mistakes: Mistakes, key: str, value: object) -> Zone | None:
    entry = mistakes.mapping(key, value, _ZONE)
    words = (_EMBEDDED, *PROVIDERS)
    mistakes.unknown(f"{key}.", entry, ("zone", *words))
    name = _name(mistakes, f"{key}.zone", entry.get("zone"))
    servers = [word for word in words if word in entry]
    if len(servers) != 1:
        why = "two servers answer for it; keep one of them" if servers else f"no server answers for it; write {_ZONE}"
        mistakes.add(key, why)
        return None
    (word,) = servers
    parse = _embedded if word == _EMBEDDED else partial(_updated, word)
    server = parse(mistakes, f"{key}.{word}", entry[word])
    return Zone(name, server) if name and server else None


def _name(mistakes: Mistakes, key: str, value: object) -> ZoneName:
    name = ZoneName(normal(mistakes.text(key, value, "a zone such as test")))
    if name and (fault := "a zone has no wildcard; leave it out" if is_wildcard(name) else name_fault(name)):
        mistakes.add(key, f"{shown(name)} is no zone: {fault}")
        return ZoneName("")
    return name


def _embedded(mistakes: Mistakes, key: str, value: object) -> Embedded | None:
    if value is True:
        return Embedded()
    text = mistakes.text(key, value, f"an address and a port for the server, such as {_PLACE}")
    try:
        return Embedded(*private_place(text)) if text else None
    except ValueError as error:
        mistakes.add(key, str(error))
        return None


def _updated(provider: str, mistakes: Mistakes, key: str, value: object) -> UpdatedServer | None:
    example, keys = PROVIDERS[provider].example, PROVIDERS[provider].keys
    entry = mistakes.mapping(key, value, example)
    mistakes.unknown(f"{key}.", entry, ("server", *keys, *_OWNERS))
    if not isinstance(value, Mapping):
        return None
    text = mistakes.text(f"{key}.server", entry.get("server"), "an address, such as 127.0.0.1:53")
    options = mistakes.optional_texts(f"{key}.", entry, keys)
    server = _server(text)
    if text and server is None:
        mistakes.add(f"{key}.server", f"{shown(text)} is no address; write one such as 127.0.0.1:53 or [fd00::53]:53")
    owner, over = (_owner(mistakes, f"{key}.{word}", entry[word]) if word in entry else OwnerId("") for word in _OWNERS)
    given = tuple((name, option) for name, option in options.items() if option)
    return UpdatedServer(*server, provider, given, owner, over) if server else None


def _owner(mistakes: Mistakes, key: str, value: object) -> OwnerId:
    owner = OwnerId(mistakes.text(key, value, "a word"))
    if owner and not _OWNER.fullmatch(owner):
        mistakes.add(key, f"{shown(owner)} can't stand in a mark; use up to 63 letters, digits, -, . and _")
    return owner


def _server(text: str) -> tuple[IPAddress, int] | None:
    """Read an address, with its port unless that is 53."""
    host, colon, port = text.rpartition(":") if _WITH_PORT.search(text) else (text, "", "")
    address = parse_address(host.removeprefix("[").removesuffix("]"))
    number = int(port) if colon else _PORT
    return (address, number) if address and 0 < number <= _LAST_PORT else None


def _template(mistakes: Mistakes, value: object, zones: Sequence[Zone]) -> str:
    if value is False:
        return ""
    example = f"{_TEMPLATE}.{zones[0].name}"
    text = mistakes.text("dns.template", value, f"a name such as {example}, or false for none")
    name = normal(_FIELD.sub("x", text))
    if text and (fault := name_fault(name)):
        mistakes.add(
            "dns.template",
            f"{shown(text)} makes no names: {fault}; the fields are {{name}}, {{namespace}}, {{cluster}}",
        )
    elif text and not any(is_within(name, zone.name) for zone in zones):
        mistakes.add("dns.template", f"{shown(text)} lies in none of the zones; write one such as {example}")
    return text


def _ttl(mistakes: Mistakes, value: object) -> int:
    seconds = mistakes.number("dns.ttl", value)
    if value == seconds and not 0 < seconds <= MAX_TTL:
        mistakes.add("dns.ttl", f"{seconds} seconds is no TTL; use 1 to {MAX_TTL}, such as {TTL}")
    return seconds


def _records(mistakes: Mistakes, value: object, zones: Sequence[Zone]) -> Mapping[str, tuple[str, ...]]:
    example = f"{{db.{zones[0].name}: [127.0.0.1]}}"
    records = {}
    for text, targets in mistakes.mapping("dns.records", value, example).items():
        key, name = f"dns.records.{clipped(text)}", normal(text)
        if fault := name_fault(name):
            mistakes.add(key, f"it is no name: {fault}")
        elif (zone := zone_of(name, zones)) is None:
            mistakes.add(key, f"it lies in none of the zones; write one such as db.{zones[0].name}")
        elif zone.updated:
            mistakes.add(
                key, f"the zone {zone.name} has a server of its own; write the record there and remove this one"
            )
        records[name] = tuple(_targets(mistakes, key, targets))
    return MappingProxyType(records)


def _targets(mistakes: Mistakes, key: str, value: object) -> list[str]:
    """Read addresses, or one other name."""
    example = "[127.0.0.1, fd00::1]"
    texts = mistakes.texts(key, value, f"a list of addresses such as {example}")
    if value in ([], ()):
        mistakes.add(key, f"the list is empty; write addresses such as {example}")
    others = [text for text in texts if not parse_address(text)]
    if others and (len(texts) > 1 or name_fault(normal(others[0]))):
        mistakes.add(key, f"{shown(others[0])} is no address; write {example}, or one other name")
    return texts
