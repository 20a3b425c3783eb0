"""Parses the key `ingress`."""

from __future__ import annotations

from collections.abc import Iterator

from locallb.config.ingress_settings import AddressPer, Dialect, IngressSettings
from locallb.config.values import Mistakes
from locallb.model.fields import LABEL, LABEL_REMEDY
from locallb.model.formatting import shown

DEFAULT_CLASS = "local-lb"
_EXAMPLE = "{class: local-lb, http: 80, https: 443, address: class}"
_LARGEST_PORT = 65535


def parse_ingress(mistakes: Mistakes, value: object) -> IngressSettings:
    """Read it; false serves none, absent are the classes of our controller."""
    if value is None or value is False:
        return IngressSettings(is_off=value is False)
    entry = mistakes.mapping("ingress", value, f"{_EXAMPLE}, or false")
    mistakes.unknown("ingress.", entry, ("class", "http", "https", "address", "annotations"))
    name = _class(mistakes, entry.get("class", DEFAULT_CLASS))
    http, https = _port(mistakes, "http", entry.get("http", 80)), _port(mistakes, "https", entry.get("https", 443))
    if http == https:
        mistakes.add("ingress.https", f"{https} is the port of `http` as well; give each a port of its own")
    address = mistakes.choice("ingress.address", entry.get("address", AddressPer.CLASS), AddressPer, AddressPer.CLASS)
    return IngressSettings(
        name, http, https, address, annotations=frozenset(_dialects(mistakes, entry.get("annotations", ())))
    )


def _class(mistakes: Mistakes, value: object) -> str:
    text = mistakes.text("ingress.class", value, f"a name such as {DEFAULT_CLASS}")
    if text and not all(LABEL.fullmatch(part) for part in text.split(".")):
        mistakes.add("ingress.class", f"{shown(text)} is no name of a class; {LABEL_REMEDY}, such as {DEFAULT_CLASS}")
    return text


def _port(mistakes: Mistakes, key: str, value: object) -> int:
    number = mistakes.number(f"ingress.{key}", value)
    if number and not 1 <= number <= _LARGEST_PORT:
        mistakes.add(f"ingress.{key}", f"{number} is no port; use a number from 1 to {_LARGEST_PORT}")
    return number


def _dialects(mistakes: Mistakes, value: object) -> Iterator[Dialect]:
    for text in mistakes.texts("ingress.annotations", value, f"[{', '.join(Dialect)}]"):
        if text in list(Dialect):
            yield Dialect(text)
        else:
            why = f"{shown(text)} is no controller whose annotations are known; use {' or '.join(Dialect)}"
            mistakes.add("ingress.annotations", why)
