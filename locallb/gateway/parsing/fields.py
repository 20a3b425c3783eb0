"""Readers for fields that Gateway API objects have in common: names, hostnames, durations, lists, references.

Each raises FieldError with the value and the remedy, by the bounds of the API's CRDs, because manifests never passed an
API server.

Not here: the fields of each kind (`gateways`, `routes`, `policies`), and which references are allowed
(`gateway.listeners`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from locallb.model import http_checks as check
from locallb.model.fields import FieldError, Fields, as_text
from locallb.model.gateway_objects import Named, Reference
from locallb.model.gateway_rules import BackendRef
from locallb.model.http_routes import MAX_WEIGHT
from locallb.model.texts import shown

LARGEST_PORT = 65535


def reference(fields: Fields, group: str, kind: str, namespace: str) -> Reference:
    """Return a reference; fields that it omits are as given."""
    key = Named(namespace_of(fields, namespace), name_of(fields))
    return Reference(group_of(fields, group), kind_of(fields, kind), key)


def backend_ref(fields: Fields, namespace: str) -> BackendRef:
    """Return a reference to a backend, a Service by default."""
    to = reference(fields, "", "Service", namespace)
    return BackendRef(to.group, to.kind, *to.key, optional_port(fields), fields.integer("weight", 0, MAX_WEIGHT, 1))


def optional_port(fields: Fields) -> int:
    """Return a port; 0 if absent."""
    return fields.integer("port", 1, LARGEST_PORT) if fields.get("port") is not None else 0


_Made = TypeVar("_Made")
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOSTNAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DURATION = re.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}")
_PART = re.compile(r"([0-9]+)(ms|h|m|s)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_KIND = re.compile(r"[a-zA-Z]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")
_LONGEST_NAME = 253


def made(fields: Fields, make: Callable[[], _Made]) -> _Made:
    """Return the result of `make`. Raises FieldError if the proxy's model refuses it with ValueError."""
    try:
        return make()
    except ValueError as error:
        raise FieldError(f"{fields.path}: {error}") from None


def items(fields: Fields, name: str, maximum: int) -> Iterator[Fields]:
    """Return the objects of a list with at most `maximum` items."""
    for path, item in raw_items(fields, name, maximum):
        yield Fields.of(path, item)


def raw_items(fields: Fields, name: str, maximum: int) -> list[tuple[str, object]]:
    """Return the items of a list with at most `maximum` items, each with its path."""
    value = fields.get(name)
    if isinstance(value, list | tuple) and len(value) > maximum:
        raise FieldError(f"{fields.at(name)} has {len(value)} entries; {maximum} are allowed, so split it")
    return list(fields.items(name))


def texts(fields: Fields, name: str, maximum: int) -> tuple[str, ...]:
    """Return the texts of a list with at most `maximum` items."""
    return tuple(as_text(path, item) for path, item in raw_items(fields, name, maximum))


def hostname(path: str, text: str) -> str:
    """Return a hostname in lower case, possibly with a leading `*.`. An empty text is no hostname."""
    lower = text.lower()
    plain = lower.removeprefix("*.")
    if text and (len(text) > _LONGEST_NAME or not _HOSTNAME.fullmatch(plain) or _is_address(plain)):
        raise FieldError(f"{path} is {shown(text)}; give a DNS name such as shop.example.com or *.example.com")
    return lower


def _is_address(text: str) -> bool:
    return all(part.isdecimal() for part in text.split("."))


def hostnames(fields: Fields, problems: list[str]) -> tuple[str, ...] | None:
    """Return the names in `hostnames`, each once, and note which aren't understood; None where none of them is."""
    names, entries = dict[str, None](), list[tuple[str, object]]()
    try:
        entries = raw_items(fields, "hostnames", 16)
    except FieldError as error:
        problems.append(str(error))
        return None
    for path, item in entries:
        try:
            name = hostname(path, as_text(path, item))
        except FieldError as error:
            problems.append(str(error))
            name = odd_host(item)
        names |= {name: None} if name else {}
    return tuple(names) if names or not entries else None


def odd_host(item: object) -> str:
    """Return an invalid DNS name that requests may have all the same; empty for other values."""
    try:
        return check.host(item.lower()) if isinstance(item, str) else ""
    except ValueError:
        return ""


def duration(fields: Fields, name: str) -> int:
    """Return a duration in milliseconds, 0 if absent."""
    text = fields.text(name)
    if text and not _DURATION.fullmatch(text):
        raise FieldError(f"{fields.at(name)} is {shown(text)}; give a duration such as 500ms or 1m30s")
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))


def is_name(text: str) -> bool:
    """Return whether a text is a DNS subdomain, as names of objects are."""
    return len(text) <= _LONGEST_NAME and _HOSTNAME.fullmatch(text) is not None


def name_of(fields: Fields, name: str = "name") -> str:
    """Return an object's name: a DNS subdomain, never a path."""
    text = fields.text(name)
    if not is_name(text):
        raise FieldError(f"{fields.at(name)} is {shown(text)}; use lower-case letters, digits, hyphens and dots")
    return text


def namespace_of(fields: Fields, default: str) -> str:
    return fields.label("namespace", default)


def group_of(fields: Fields, default: str) -> str:
    """Return an API group; absent and empty are two things here."""
    text = default if fields.get("group") is None else fields.text("group")
    if text and (len(text) > _LONGEST_NAME or not _HOSTNAME.fullmatch(text)):
        raise FieldError(f'{fields.at("group")} is {shown(text)}; give an API group, or "" for the core')
    return text


def kind_of(fields: Fields, default: str) -> str:
    text = fields.text("kind") or default
    if not _KIND.fullmatch(text):
        raise FieldError(f"{fields.at('kind')} is {shown(text)}; give a kind such as {default or 'Service'}")
    return text
