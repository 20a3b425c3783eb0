"""Stub zones in a cluster's own CoreDNS: the marked block that forwards a stack's zones to their servers. Pure.

The block stands at the end of the `Corefile` in the ConfigMap `coredns`, or by itself in `coredns-custom` where the
Corefile imports that one, as in Gardener and k3s. Marked blocks in other programs' texts, such as /etc/hosts, have the
same form: a comment that names the block begins and ends it, and the text around it is kept byte for byte.

Not here: reading and writing ConfigMaps (`outputs.names`), and files of this host (`host.setup_changes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from locallb.dns.zones import is_within
from locallb.model.fields import JsonObject, at, object_of, objects_of, text_of
from locallb.model.identities import OwnerId, ZoneName
from locallb.model.texts import clipped, few
from locallb.patterns import pattern

ENDS = "# local-lb: end of "
BEGINS = "# local-lb: names of "
_JOINED = " (the line before had no end)"
_LINE = pattern(r"[^\n]*\n|[^\n]+")


def block(name: str, lines: Sequence[str]) -> str:
    """Return a block with these lines; empty where there are none."""
    return "".join(f"{line}\n" for line in (f"{BEGINS}{name}", *lines, f"{ENDS}{name}")) if lines else ""


def block_in(text: str, name: str) -> str:
    """Return the block of this name in a text, as `block` writes it; empty where there is none."""
    _, lines, _ = _parted(_LINE.findall(text), name)
    return "".join(lines).replace(f"{_JOINED}\n", "\n")


def with_block(text: str, name: str, wanted: str) -> str:
    """Return the text with this block in place of the one of this name; without one where it is empty."""
    before, existing, after = _parted(_LINE.findall(text), name)
    joined = bool(existing) and existing[0].endswith(f"{_JOINED}\n")
    if not wanted:
        above = "".join(before)
        return (above.removesuffix("\n") if joined and not after else above) + "".join(after)
    if not existing and before and not before[-1].endswith("\n"):
        before, joined = [*before[:-1], f"{before[-1]}\n"], True
    head, _, rest = wanted.partition("\n")
    return "".join([*before, f"{head}{_JOINED if joined else ''}\n{rest}", *after])


def _parted(lines: list[str], name: str) -> tuple[list[str], list[str], list[str]]:
    """Part the lines before a block, of it, and after it. One that lost its beginning or its end is none."""
    heads = {f"{BEGINS}{name}\n", f"{BEGINS}{name}{_JOINED}\n"}
    first, whole = -1, (len(lines), len(lines))
    for number, line in enumerate(lines):
        if line in heads:
            first = number
        elif line == f"{ENDS}{name}\n" and first >= 0:
            whole, first = (first, number + 1), -1
    return lines[: whole[0]], lines[slice(*whole)], lines[whole[1] :]


NAMESPACE, MAIN, CUSTOM = "kube-system", "coredns", "coredns-custom"
COREFILE = "Corefile"
_SERVERS = ".server"
_IMPORT = pattern(r"^[ \t]*import[ \t]+\S*custom/\*\.server[ \t\r]*$", re.MULTILINE)
_PORT = pattern(r":([0-9]{1,5})$")
_IS_DNS = pattern(r"(?i:dns://|(?!\(|[a-z]+://))")
"""Before a server block, but for those of other protocols and for snippets."""
_USUAL, _APPLIED = "53", "Apply"
_RECONCILED = ("addonmanager.kubernetes.io/mode", "Reconcile")
_OF_K3S = "objectset.rio.cattle.io/id"
_MANAGER = "local-lb"
ConfigMap = JsonObject


class StubError(Exception):
    """Zones can't be put there: one sentence."""


class BlockLocation(Struct, frozen=True):
    """Where the block of a stack is."""

    config_map: str
    key: str

    def __str__(self) -> str:
        return f"{self.key} of ConfigMap {NAMESPACE}/{self.config_map}"


def stub_zone(zone: ZoneName, server: str) -> str:
    """Write a zone and its server in one word, as a resource has it."""
    return f"{zone} {server}"


def stub_block(owner: OwnerId, zones: Sequence[str], main: ConfigMap | None) -> str:
    """Return the block of a stack, for the port at which a cluster's CoreDNS answers; `owner` names it."""
    port = _port(_data(main).get(COREFILE, ""))
    return block(owner, [line for zone, server in _split_lines(zones) for line in _stub(zone, server, port)])


def _split_lines(zones: Iterable[str]) -> Iterator[tuple[ZoneName, str]]:
    """Take what `stub_zone` wrote apart."""
    for entry in zones:
        zone, _, server = entry.partition(" ")
        yield ZoneName(zone), server


def _stub(zone: ZoneName, server: str, port: str) -> Iterator[str]:
    yield from (f"{zone}:{port} {{", "    errors", "    cache 5", f"    forward . {server} {{", "        prefer_udp")
    yield from ("    }", "}")


def place_of(owner: OwnerId, main: ConfigMap | None, custom: ConfigMap | None) -> BlockLocation:
    """Return where a stack's block belongs. Raises StubError."""
    if main is None or not isinstance(_data(main).get(COREFILE), str):
        raise StubError(f"there is no ConfigMap {NAMESPACE}/{MAIN} with a {COREFILE}: only CoreDNS takes stub zones")
    if not _IMPORT.search(_data(main)[COREFILE]):
        return BlockLocation(MAIN, COREFILE)
    if custom is None:
        make = f"`kubectl create configmap {CUSTOM} -n {NAMESPACE}`"
        raise StubError(f"the {COREFILE} imports what is in ConfigMap {NAMESPACE}/{CUSTOM}, which isn't there: {make}")
    return BlockLocation(CUSTOM, f"{owner}{_SERVERS}")


def text_at(place: BlockLocation, main: ConfigMap | None, custom: ConfigMap | None) -> str:
    """Return what stands at a place; empty where nothing does."""
    return text_of(_data({MAIN: main, CUSTOM: custom}[place.config_map]).get(place.key))


def changed_data(place: BlockLocation, text: str, owner: OwnerId, wanted: str) -> Mapping[str, str | None]:
    """Return what of a ConfigMap's data becomes what; a key of ours goes with its block."""
    after = with_block(text, owner, wanted)
    return {place.key: after if after or place.key == COREFILE else None}


def refusal(
    place: BlockLocation, owner: OwnerId, zones: Iterable[str], main: ConfigMap | None, custom: ConfigMap | None
) -> str:
    """Return why zones can't be put at a place, where nothing of ours is; empty if they can."""
    if place.config_map == MAIN and main and (manager := _manager(main)):
        why = f"ConfigMap {NAMESPACE}/{MAIN} is kept by {manager}, which would take them out again"
        return f"{why}; have that {COREFILE} import custom/*.server and make {CUSTOM}, or remove local-lb:dns.clusters"
    own = sorted(_own_zones(_data(main).get(COREFILE)))
    if over := [
        zone
        for zone, _ in _split_lines(zones)
        if any(is_within(zone, own_zone) or is_within(own_zone, zone) for own_zone in own)
    ]:
        theirs = few([clipped(own_zone) for own_zone in own])
        return f"{few(over)} would take names of {theirs}, which are the cluster's own; use another zone"
    served = set(_served(owner, main, custom))
    if twice := [zone for zone, _ in _split_lines(zones) if zone in served]:
        return f"the cluster's CoreDNS serves {few(twice)} already; remove that there, or use another zone"
    return ""


def _served(owner: OwnerId, main: ConfigMap | None, custom: ConfigMap | None) -> Iterator[str]:
    """Return the zones for which others have a server block at our port: CoreDNS starts with no zone twice."""
    corefile = _data(main).get(COREFILE, "")
    port, texts = _port(corefile), [corefile]
    texts += [text for key, text in _data(custom).items() if str(key).endswith(_SERVERS)]
    for text in texts:
        for zone, theirs in _zones(with_block(text, owner, "")) if isinstance(text, str) else ():
            if theirs == port:
                yield zone


def _port(corefile: object) -> str:
    """Return the port of the zone that has all others: 53, where none is said."""
    ports = (port for zone, port in _zones(str(corefile)) if not zone)
    return next(ports, _USUAL)


def _own_zones(corefile: object) -> Iterator[str]:
    """Return the zones of the cluster itself, without which nothing in it works."""
    for line in str(corefile).splitlines():
        terms = line.partition("#")[0].split()
        if terms[:1] == ["kubernetes"]:
            yield from (zone for word in terms[1:] if word != "{" and (zone := _zone(word)[0]))


def _zones(corefile: str) -> Iterator[tuple[str, str]]:
    """Return the zones that have a server block, each with its port."""
    depth, above = 0, list[str]()
    for line in corefile.splitlines():
        text = line.partition("#")[0].rstrip()
        terms = text.replace(",", " ").split()
        before = [*above, *terms[:-1]] if depth == 0 and terms and terms[-1] == "{" else ()
        yield from (_zone(word) for word in before if _IS_DNS.match(word))
        if depth == 0 and text.endswith(","):
            above.extend(terms)
        elif terms:
            above = []
        depth = max(0, depth + terms.count("{") - terms.count("}"))


def _zone(word: str) -> tuple[str, str]:
    """Read what stands before a server block: `dns://shop.test.:53`."""
    name = word.lower().removeprefix("dns://")
    port = _PORT.search(name)
    return _PORT.sub("", name).removesuffix("."), port[1] if port else _USUAL


def _manager(config_map: ConfigMap) -> str:
    """Return the controller that rewrites the Corefile; empty if none is known."""
    if at(config_map, "metadata", "labels", _RECONCILED[0]) == _RECONCILED[1]:
        return "the cluster's addon manager"
    if _OF_K3S in object_of(at(config_map, "metadata", "annotations")):
        return "k3s"
    for existing in objects_of(at(config_map, "metadata", "managedFields")):
        fields = object_of(at(existing, "fieldsV1", "f:data"))
        if existing.get("operation") == _APPLIED and existing.get("manager") != _MANAGER and f"f:{COREFILE}" in fields:
            return f"{clipped(str(existing.get('manager')))}, who applies it,"
    return ""


def _data(config_map: ConfigMap | None) -> JsonObject:
    return object_of(at(config_map, "data"))
