"""Texts that are safe and stable: names and digests, untrusted values in messages, and cleaned texts of objects.

Names and digests must be the same in every run, so they are made only here. Nothing from a cluster becomes part of a
path: directories are named by digest, files by constants. Values in messages are short, printable, on one line, at a
bounded cost. Not here: the sentences themselves; each is written where its mistake is found.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec

from locallb.model.identities import (
    KEY_PREFIX,
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
from locallb.patterns import pattern

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


LONGEST = 60
"""Characters of a text that are shown; of a longer one its beginning."""
_LARGEST_BITS = 128
"""Integers beyond an IPv6 address are described, not written out."""


def shown(value: object) -> str:
    """Write `value` (JSON-like, of any size, from any source) as a short printable text; texts in double quotes."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{clipped(value)}"'
        case int():
            return str(value) if value.bit_length() <= _LARGEST_BITS else f"a number of {value.bit_length()} bits"
        case _:
            return _described(value)


def clipped(text: str) -> str:
    """Return the printable beginning of `text`, without quotes."""
    if len(text) > LONGEST:
        return f"{printable(text[:LONGEST])}… ({len(text)} characters)"
    return printable(text)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun: `1 field`, `2 fields`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def few(names: Collection[str], maximum: int = 5, between: str = ", ") -> str:
    """List names, those beyond `maximum` as a number: `a, b and 3 more`."""
    more = len(names) - maximum
    return between.join(islice(names, maximum)) + (f" and {more} more" if more > 0 else "")


def nearest(text: str, choices: Iterable[str]) -> str:
    """Return the one of these words that is spelled most like `text`; empty if none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - only mistakes need it

    return next(iter(get_close_matches(text, [*choices], n=1)), "")


def any_of(terms: Iterable[str]) -> str:
    """List words of which one is meant: `a, b or c`."""
    *maximum, last = terms
    return f"{', '.join(maximum)} or {last}" if maximum else last


def _described(value: object) -> str:
    match value:
        case float():
            return repr(value)
        case Mapping():
            return f"an object of {counted(len(value), 'field')}"
        case Sequence():
            return f"a list of {counted(len(value), 'item')}"
        case _:
            return f"a {type(value).__name__}"


def printable(text: str) -> str:
    """Replace what a terminal would act on: control characters, and whatever isn't printable."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


TEXT_FAULT = f"{KEY_PREFIX}fault"
"""The field with the fault of a cleaned object: half a sentence."""
DEEPEST = 200
"""Objects and lists within each other that are accepted."""
MAX_ALIASED = 1 << 20
"""Limit of characters that the aliases of a YAML text expand to, also if one names another."""
_SUSPICIOUS = pattern(rb"\\[ubf]|\x7f|\xc2[\x80-\x9f]")
"""JSON escapes of control characters; escaped backslashes in texts may look alike."""
_HALVES = pattern("[\ud800-\udfff]")
_UNWRITABLE = pattern("[\x00\ud800-\udfff]")
_CONTROLS = pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_Key = TypeVar("_Key", bound=object)
_JSON = msgspec.json.Encoder()


def cleaned(document: Mapping[_Key, object]) -> dict[_Key, object]:
    """Return an object unchanged or, if a text of it can't be written, with the text escaped and `TEXT_FAULT`.

    JSON can write half of a surrogate pair, which no encoding of a file or a request takes, and control characters in
    names. Every source passes its objects through here before anything else reads them. An object with such a text
    keeps its name, as far as that can be written, and the fault, with which its parser refuses it.
    """
    clean: dict[Any, object] = document if isinstance(document, dict) else dict(document)
    if _is_plain(clean):
        return clean
    faults: list[str] = []
    escaped = _object(clean, "", 0, faults)
    if faults:
        escaped[TEXT_FAULT] = faults[0]
    return escaped if faults else clean


def fault_of(document: Mapping[object, object]) -> str:
    """Return why an object was cleaned; empty for nearly all."""
    fault = document.get(TEXT_FAULT)
    return fault if isinstance(fault, str) else ""


def _is_plain(document: dict[Any, object]) -> bool:
    """Return whether all texts can be written and none is deep within, as far as that is seen at a glance."""
    try:
        text = _JSON.encode(document)
        return text.count(b"{") + text.count(b"[") <= DEEPEST and not _SUSPICIOUS.search(text)
    except (UnicodeEncodeError, RecursionError, OverflowError, TypeError, ValueError):
        return False


def _value(value: object, path: str, depth: int, faults: list[str]) -> object:
    if depth > DEEPEST:
        faults.append(f"{clipped(path)} is nested deeper than {DEEPEST}; make it flatter")
        return None
    match value:
        case str():
            return _text(value, path, _forbidden(path), faults)
        case dict():
            return _object(value, path, depth, faults)
        case list() | tuple():
            return [_value(inner, f"{path}[{number}]", depth + 1, faults) for number, inner in enumerate(value)]
        case _:
            return value


def _object(value: Mapping[Any, object], path: str, depth: int, faults: list[str]) -> dict[Any, object]:
    made: dict[Any, object] = {}
    for key, inner in value.items():
        name = _text(key, f"a key of {path or 'the object'}", _CONTROLS, faults) if isinstance(key, str) else key
        made[name] = _value(inner, f"{path}.{key}" if path else str(key), depth + 1, faults)
    return made


def _forbidden(path: str) -> re.Pattern[str]:
    """Return what a text may not have: labels and annotations may be any text, other metadata names something."""
    if path.startswith(("metadata.labels", "metadata.annotations")):
        return _HALVES
    return _CONTROLS if path.startswith("metadata.") else _UNWRITABLE


def _text(text: str, path: str, forbidden: re.Pattern[str], faults: list[str]) -> str:
    found = forbidden.search(text)
    if found is None:
        return text
    character = found[0]
    name = unicodedata.name(character, "half a character" if character >= "\ud800" else "a control character")
    faults.append(f"{clipped(path)} has U+{ord(character):04X}, {name}; take it out")
    return forbidden.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
