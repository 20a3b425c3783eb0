"""Readers for fields that Gateway API objects have in common: bounded lists, hostnames, durations, names.

Every one raises FieldError with the value and the remedy, by the bounds of the API's CRDs, because manifests never met
an API server. Not here: which field has what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from locallb.model.fields import FieldError, Fields, as_text
from locallb.model.formatting import shown

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOSTNAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DURATION = re.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}")
_PART = re.compile(r"([0-9]+)(ms|h|m|s)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_KIND = re.compile(r"[a-zA-Z]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")
_LONGEST_NAME = 253


def items(fields: Fields, name: str, most: int) -> Iterator[Fields]:
    """Return the objects of a list that has no more than so many."""
    for path, item in raw_items(fields, name, most):
        yield Fields.of(path, item)


def raw_items(fields: Fields, name: str, most: int) -> list[tuple[str, object]]:
    """Return the items of a list that has no more than so many, each with its path."""
    value = fields.get(name)
    if isinstance(value, list | tuple) and len(value) > most:
        raise FieldError(f"{fields.at(name)} has {len(value)} entries; {most} are allowed, so split it")
    return list(fields.items(name))


def texts(fields: Fields, name: str, most: int) -> tuple[str, ...]:
    """Return the texts of a list that has no more than so many."""
    return tuple(as_text(path, item) for path, item in raw_items(fields, name, most))


def hostname(path: str, text: str) -> str:
    """Return a hostname in lower case, possibly with a leading `*.`. An empty text is no hostname."""
    lower = text.lower()
    plain = lower.removeprefix("*.")
    if text and (len(text) > _LONGEST_NAME or not _HOSTNAME.fullmatch(plain) or _is_address(plain)):
        raise FieldError(f"{path} is {shown(text)}; give a DNS name such as shop.example.com or *.example.com")
    return lower


def _is_address(text: str) -> bool:
    return all(part.isdecimal() for part in text.split("."))


def hostnames(fields: Fields) -> tuple[str, ...]:
    """Return the names in `hostnames`, each once."""
    entries = raw_items(fields, "hostnames", 16)
    return tuple(dict.fromkeys(name for path, item in entries if (name := hostname(path, as_text(path, item)))))


def duration(fields: Fields, name: str) -> int:
    """Return a duration in milliseconds, 0 if absent."""
    text = fields.text(name)
    if text and not _DURATION.fullmatch(text):
        raise FieldError(f"{fields.at(name)} is {shown(text)}; give a duration such as 500ms or 1m30s")
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))


def name_of(fields: Fields, name: str = "name") -> str:
    """Return an object's name: a DNS subdomain, never a path."""
    text = fields.text(name)
    if not text or len(text) > _LONGEST_NAME or not _HOSTNAME.fullmatch(text):
        raise FieldError(f"{fields.at(name)} is {shown(text)}; use lower-case letters, digits, hyphens and dots")
    return text


def namespace_of(fields: Fields, default: str) -> str:
    """Return a namespace."""
    return fields.label("namespace", default)


def group_of(fields: Fields, default: str) -> str:
    """Return an API group; absent and empty are two things here."""
    text = default if fields.get("group") is None else fields.text("group")
    if text and (len(text) > _LONGEST_NAME or not _HOSTNAME.fullmatch(text)):
        raise FieldError(f'{fields.at("group")} is {shown(text)}; give an API group, or "" for the core')
    return text


def kind_of(fields: Fields, default: str) -> str:
    """Return a kind."""
    text = fields.text("kind") or default
    if not _KIND.fullmatch(text):
        raise FieldError(f"{fields.at('kind')} is {shown(text)}; give a kind such as {default or 'Service'}")
    return text
