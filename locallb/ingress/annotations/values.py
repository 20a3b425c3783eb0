"""Readers of annotation values. Each raises FieldError, with the annotation and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_network
from typing import TypeVar

from msgspec import Struct, field

from locallb.model.fields import FieldError
from locallb.model.formatting import shown
from locallb.model.identities import IPNetwork

_Value = TypeVar("_Value")
LONGEST = 4096
"""Characters of a value."""
_MAX = 200
"""Items of a list."""
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}
_NUMBER = re.compile(r"[0-9]{1,9}")


class Values(Struct):
    """The annotations of one controller on an Ingress; it records which were read."""

    prefix: str
    data: Mapping[str, str]
    requested: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, prefix: str, annotations: Mapping[str, str]) -> Values:
        """Take those with a prefix."""
        return cls(
            prefix, {name.removeprefix(prefix): text for name, text in annotations.items() if name.startswith(prefix)}
        )

    @property
    def unknown(self) -> list[str]:
        """The names of annotations that no reader requested."""
        return sorted(self.data.keys() - self.requested)

    def fault(self, name: str, remedy: str) -> FieldError:
        """Make the error for an unsupported value."""
        return FieldError(f"{self.prefix}{name} is {shown(self.data.get(name, ''))}; {remedy}")

    def text(self, name: str) -> str:
        """Return a value without blanks around it; empty where there is none."""
        self.requested.add(name)
        text = self.data.get(name, "")
        if len(text) > LONGEST:
            raise self.fault(name, f"give at most {LONGEST} characters")
        return text.strip()

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return true or false."""
        text = self.text(name)
        if text and text not in _TRUE | _FALSE:
            raise self.fault(name, "use true or false")
        return text in _TRUE if text else default

    def number(self, name: str, low: int, high: int, default: int) -> int:
        """Return a whole number."""
        text = self.text(name)
        if not text:
            return default
        if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
            raise self.fault(name, f"use a number from {low} to {high}")
        return int(text)

    def items(self, name: str) -> tuple[str, ...]:
        """Return the texts between commas."""
        listed = tuple(item.strip() for item in self.text(name).split(",") if item.strip())
        if len(listed) > _MAX:
            raise self.fault(name, f"list at most {_MAX}")
        return listed

    def networks(self, name: str) -> Iterator[IPNetwork]:
        """Return ranges of addresses; one that is written is never none."""
        listed = self.items(name)
        if not listed and name in self.data:
            raise self.fault(name, "give ranges such as 10.0.0.0/8")
        for text in listed:
            fault = self.fault(name, "give ranges such as 10.0.0.0/8, with commas between them")
            if "%" in text:  # a scope, which means nothing to who sees only a packet's address
                raise fault
            try:
                yield ip_network(text, strict=False)
            except ValueError:
                raise fault from None

    def made(self, name: str, make: Callable[[], _Value]) -> _Value:
        """Return what a type of the model takes, with the annotation where it refuses."""
        try:
            return make()
        except ValueError as error:
            raise FieldError(f"{self.prefix}{name}: {error}") from None
