"""Typed access to the fields of an untrusted object: each reader gives the value of one kind, or raises FieldError.

A FieldError is one half sentence with the field's path, its value and the remedy; the caller completes it with the
object. Absent and null are the same, as for the Kubernetes API. `at`, `text_of` and similar readers skip values of
another kind, for callers that report nothing. Not here: what the fields mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from locallb.model.identities import IPAddress
from locallb.model.texts import clipped, shown
from locallb.patterns import pattern

JsonObject: TypeAlias = Mapping[str, Any]
"""An object as JSON has it: names and values, unchecked, of the form that its writer promises."""
_Choice = TypeVar("_Choice", bound=StrEnum)

LABEL = pattern(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label as RFC 1123 has it, which includes those of RFC 1035."""
LABEL_REMEDY = "use at most 63 lower-case letters, digits and inner hyphens"
_NAME = pattern(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
LONGEST_NAME = 253


class FieldError(Exception):
    """A field can't be used: its path and value and, after a semicolon, the remedy."""


class StructuralFault(NamedTuple):
    """Where in its spec an object isn't as the definition of its kind demands, and a sentence."""

    path: tuple[str | int, ...]
    sentence: str


class Fields(Struct, frozen=True):
    """An object and its path, such as `spec.ports[0]`; empty for a whole document."""

    path: str
    data: Mapping[object, object]

    @classmethod
    def of(cls, path: str, value: object) -> Fields:
        """Take `value`, found at `path`, as an object. Raises FieldError if it is none."""
        if value is None:
            return cls(path, {})
        if not isinstance(value, Mapping):
            raise FieldError(f"{path} is {shown(value)}; give an object")
        return cls(path, value)

    def at(self, name: str) -> str:
        """Return the path of the field `name`."""
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> object:
        """Return a field as it is; None if absent."""
        return self.data.get(name)

    def inner(self, name: str) -> Fields:
        """Return the object in a field, empty if absent."""
        return Fields.of(self.at(name), self.data.get(name))

    def text(self, name: str) -> str:
        """Return a text, empty if absent."""
        return as_text(self.at(name), self.data.get(name))

    def label(self, name: str, default: str = "") -> str:
        """Return a DNS label, or the default where it is absent or empty."""
        text = self.text(name) or default
        if text and not LABEL.fullmatch(text):
            raise FieldError(f"{self.at(name)} is {shown(text)}; {LABEL_REMEDY}")
        return text

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """Return a number from `low` to `high`; if absent the default, or FieldError where there is none."""
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            state = "missing" if value is None else shown(value)
            raise FieldError(f"{self.at(name)} is {state}; use a number from {low} to {high}")
        return value

    def choice(self, name: str, default: _Choice) -> _Choice:
        """Return one of the default's kind, or the default where the field is absent or empty."""
        return as_choice(self.at(name), self.text(name) or default, type(default))

    def flag(self, name: str) -> bool | None:
        """Return true, false, or None if absent."""
        value = self.data.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise FieldError(f"{self.at(name)} is {shown(value)}; write true or false")

    def items(self, name: str) -> Iterator[tuple[str, object]]:
        """Return each item of a list with its path; nothing if the list is absent."""
        value = self.data.get(name)
        if value is None:
            return
        if not isinstance(value, list | tuple):
            raise FieldError(f"{self.at(name)} is {shown(value)}; give a list")
        for number, item in enumerate(value):
            yield f"{self.at(name)}[{number}]", item

    def texts(self, name: str) -> Mapping[str, str]:
        """Return an object of texts, such as labels."""
        inner = self.inner(name)
        return {_key(inner, key): _value(inner, key, value) for key, value in inner.data.items()}


def is_name(text: str) -> bool:
    """Return whether a text is a DNS subdomain, as names of objects are."""
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def as_text(path: str, value: object) -> str:
    """Take `value`, found at `path`, as a text; null is empty. Raises FieldError."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise FieldError(f"{path} is {shown(value)}; give a text, in quotes if it looks like something else")
    return value


def as_choice(path: str, text: str, kind: type[_Choice]) -> _Choice:
    """Take `text`, found at `path`, as a member of `kind`. Raises FieldError."""
    try:
        return kind(text)
    except ValueError:
        raise FieldError(f"{path} is {shown(text)}; use {' or '.join(kind)}") from None


def as_address(path: str, text: str) -> IPAddress:
    """Take `text`, found at `path`, as an IP address without a zone. Raises FieldError."""
    try:
        address = ip_address(text)
    except ValueError:
        address = None
    if address is None or "%" in text:
        raise FieldError(f"{path} is {shown(text)}; give an IPv4 or IPv6 address")
    return address


def at(value: object, *names: str) -> object:
    """Return the field at a path of names; None if the path doesn't exist."""
    for name in names:
        value = object_of(value).get(name)
    return value


def text_of(value: object) -> str:
    """Return a text; empty for what is none."""
    return value if isinstance(value, str) else ""


def texts_of(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def object_of(value: object) -> Mapping[Any, Any]:
    """Return an object; empty for what is none."""
    return value if isinstance(value, Mapping) else {}


def objects_of(value: object) -> list[Mapping[Any, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _key(inner: Fields, key: object) -> str:
    if not isinstance(key, str):
        raise FieldError(f"{inner.path} has the key {shown(key)}; put it in quotes")
    return key


def _value(inner: Fields, key: object, value: object) -> str:
    if not isinstance(value, str | None):
        raise FieldError(f'{inner.path}["{clipped(str(key))}"] is {shown(value)}; put it in quotes')
    return value or ""
