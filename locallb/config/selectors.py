"""Parses the keys that select Services, and `policies`, the conditions under which a preview fails.

Services are selected by `classes`, `gatewayClasses`, `namespaces` and `selector`; a pool has the last two as well. A
preview that violates a policy is refused, so that a pull request fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from locallb.config.settings import Classes, Headroom, OtherServices, Policies, PortRange
from locallb.config.values import Mistakes
from locallb.model.http_checks import hostname
from locallb.model.identities import KEY_PREFIX, Protocol
from locallb.model.objects import ServiceType
from locallb.model.texts import clipped, shown

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
_KEYS = (*_POLICIES, "advisory")
_EXAMPLE = "{addressChanges: forbidden, sourceRanges: required, ports: [443, 8000-8999, 53/UDP], headroom: 4}"
_PORT = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?(?:/(TCP|UDP|SCTP))?")
_HOSTNAMES = 'such as "*.test" or shop.example.com'
_PORTS = "such as 443, 8000-8999 or 53/UDP"
_LARGEST_PORT = 65535
_WHOLE = 100


def parse_policies(mistakes: Mistakes, value: object) -> Policies:
    """Read the key `policies`."""
    entry = mistakes.mapping("policies", value, _EXAMPLE)
    mistakes.unknown("policies.", entry, _KEYS)
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
