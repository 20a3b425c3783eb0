"""Names and digests that must be the same in every run: made only here.

Nothing from a cluster becomes part of a path: directories are named by digest, files by constants.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from locallb.model.identities import (
    ClusterName,
    Digest,
    Family,
    Home,
    IPAddress,
    ObjectKey,
    ObjectKind,
    Owner,
    PartId,
    Protocol,
    ProxyId,
    ProxyName,
    Uid,
    UpstreamName,
)

NAME_SERVER = ProxyName("names")
"""The proxy of a stack that answers for embedded zones."""
PROXY_ID_DIGITS = 12
_METRICS, _METRIC_BITS = 0x40000000, 28


def digest(value: object) -> Digest:
    """Make the sha256 (hex) of `value`'s canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Digest(hashlib.sha256(text.encode()).hexdigest())


def proxy_id(home: Home, name: ProxyName) -> ProxyId:
    """Name the directory of proxy `name`: twelve hex digits, unique on the host for project, stack and root."""
    return ProxyId(digest([home.project, home.stack, home.root, name])[:PROXY_ID_DIGITS])


def address_name(service: ObjectKey, address: IPAddress) -> str:
    """Name the resource of an address. IPv6 in full: `::` separates the parts of a URN, which the SDK splits there."""
    return f"{service}/{address.exploded}"


def named_after(name: str, keys: Mapping[str, ObjectKey]) -> ObjectKey | None:
    """Return which of `keys`, by what they print as, a resource is named after: only an address adds something."""
    return keys.get(name) or keys.get(name.rpartition("/")[0])


def upstream_name(protocol: Protocol, port: int, family: Family) -> UpstreamName:
    """Name an upstream, and with it its EDS file: `tcp-8080-ipv4`."""
    return UpstreamName(f"{protocol}-{port}-{family}".lower())


def owner_fields(owner: Owner) -> Mapping[str, str]:
    """Write an owner flat, as a property of resources; a Service's kind is left out, as before there were others."""
    key = {name: text for name, text in owner.service._asdict().items() if text is not ObjectKind.SERVICE}
    return {**owner.home._asdict(), **key, "uid": owner.uid}


def owner_from(fields: Mapping[str, str]) -> Owner:
    """Read what `owner_fields` wrote. Raises KeyError for a missing field, ValueError for an unknown kind."""
    cluster, kind = ClusterName(fields["cluster"]), ObjectKind(fields.get("kind", ObjectKind.SERVICE))
    key = ObjectKey(cluster, fields["namespace"], fields["name"], kind)
    return Owner(Home(*(fields[name] for name in Home._fields)), key, Uid(fields["uid"]))


def proxy_name(service: ObjectKey) -> ProxyName:
    """Name the proxy of one Service."""
    return ProxyName(str(service))


def proxy_owner(home: Home, name: ProxyName) -> Owner:
    """Name the owner of a proxy that is the stack's and not one Service's: no cluster, no namespace, the proxy."""
    return Owner(home, ObjectKey(ClusterName(""), "", name))


def part_id(service: ObjectKey) -> PartId:
    """Name a Service's share of a proxy that other Services may use too: twelve hex digits."""
    return PartId(digest(["part", str(service)])[:PROXY_ID_DIGITS])


def metric_of(home: Home) -> int:
    """Return the metric of a stack's routes: it identifies their owner, and is so high that all others go first."""
    return _METRICS | int(digest([home.project, home.stack, home.root]), 16) % (1 << _METRIC_BITS)
