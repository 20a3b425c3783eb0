"""Readers of values of the stack configuration: every mistake is collected, none stops the reading of the rest.

The meaning of keys is in `parsing`; here is only the conversion of values to types. A place is an address and a port on
this host's loopback, as a user writes it: `127.0.0.1:9477` or `[::1]:9477`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from typing import TypeVar

from locallb.config.candidates import never
from locallb.model.fields import LABEL, LABEL_REMEDY
from locallb.model.identities import IPAddress
from locallb.model.texts import any_of, clipped, nearest, shown

NAMESPACE = "local-lb"
_Word = TypeVar("_Word", bound=str)


class Mistakes:
    """The mistakes found so far: one sentence each, with the key, the value and the remedy."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def add(self, key: str, sentence: str) -> None:
        self.sentences.append(f"{NAMESPACE}:{key}: {sentence}")

    def mapping(self, key: str, value: object, example: str) -> Mapping[str, object]:
        """Take `value` for a mapping with words as keys; empty if it isn't one."""
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return value
        self.add(key, f"must be a mapping, not {shown(value)}; write {example}")
        return {}

    def items(self, key: str, value: object, example: str) -> Iterator[tuple[str, object]]:
        """Go through the list `value`: each item with its own key."""
        if isinstance(value, list | tuple):
            for number, item in enumerate(value):
                yield f"{key}[{number}]", item
        else:
            self.add(key, f"must be a list, not {shown(value)}; write {example}")

    def texts(self, key: str, value: object, example: str) -> list[str]:
        """Parse `value` as a list of words; invalid items are left out."""
        return [
            text for item_key, item in self.items(key, value, example) if (text := self.text(item_key, item, example))
        ]

    def text(self, key: str, value: object, example: str) -> str:
        """Take `value` for a text; empty if it isn't one."""
        if isinstance(value, str) and value.strip():
            return value.strip()
        self.add(key, f"must be a text, not {shown(value)}; write {example}")
        return ""

    def optional_texts(self, prefix: str, given: Mapping[str, object], examples: Mapping[str, str]) -> dict[str, str]:
        """Take the values of some keys for texts; empty where a key is absent or has none."""
        return {
            key: self.text(f"{prefix}{key}", given[key], example) if key in given else ""
            for key, example in examples.items()
        }

    def label(self, key: str, value: object, example: str) -> str:
        """Take `value` for a DNS label; empty if it isn't one."""
        text = self.text(key, value, f"a name such as {example}")
        if not text or LABEL.fullmatch(text):
            return text
        self.add(key, f"{shown(text)} is not a name; {LABEL_REMEDY}, such as {example}")
        return ""

    def choice(self, key: str, value: object, terms: Iterable[_Word], default: _Word, what: str = "choice") -> _Word:
        """Take `value` for one of some words; the default if it is none of them."""
        existing = {str(word): word for word in terms}
        if isinstance(value, str) and value in existing:
            return existing[value]
        self.add(key, f"{shown(value)} is no {what}; use {any_of(existing)}, or remove the key")
        return default

    def flag(self, key: str, value: object) -> bool:
        """Take `value` for true or false; false if it is neither."""
        if not isinstance(value, bool):
            self.add(key, f"{shown(value)} is neither true nor false; write one of them, without quotes")
        return value is True

    def number(self, key: str, value: object) -> int:
        """Take `value` for a whole number; 0 if it isn't one."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.add(key, f"{shown(value)} is not a whole number; write one without quotes, such as 10")
        return 0

    def unknown(self, prefix: str, given: Mapping[str, object], existing: Collection[str]) -> None:
        """Note every unknown key, with the nearest existing one."""
        for key in given:
            if key not in existing:
                near = nearest(key, existing)
                remedy = f"did you mean {near}?" if near else f"the keys are {', '.join(existing)}"
                self.add(f"{prefix}{clipped(key)}", f"no such key; {remedy}")


def parse_address(text: str) -> IPAddress | None:
    """Parse an address; None if it isn't one. A scope (`%eth0`) isn't part of an address that a Service can have."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def usable_address(mistakes: Mistakes, key: str, text: str, example: str) -> IPAddress | None:
    """Read an address that may be handed out."""
    address = parse_address(text)
    if address is None:
        mistakes.add(key, f"{shown(text)} is not an address; write one such as {example}")
        return None
    if what := never(address):
        mistakes.add(key, f"{address} is never handed out ({what}); choose another address")
        return None
    return address


METRICS, PAGE = "127.0.0.1:9477", "127.0.0.1:9478"
"""Usual places."""
_USUAL = {"metrics": METRICS, "page": PAGE}
_LAST_PORT = 65535


def loopback_place(text: str, usual: str = METRICS) -> tuple[IPAddress, int]:
    """Parse a place. Raises ValueError with a sentence that has the mistake and the `usual` place as the remedy."""
    address, port = _place(text, usual)
    if not address.is_loopback:
        raise ValueError(f"{address} isn't a loopback address, and others on the network could reach it; use {usual}")
    return address, port


def private_place(text: str) -> tuple[IPAddress, int]:
    """Read a place on the loopback or in a private network, reachable by its members. Raises as `loopback_place`."""
    address, port = _place(text, METRICS)
    if not address.is_private or address.is_unspecified:
        raise ValueError(f"{address} is no address of the loopback or of a private network; use {METRICS}")
    return address, port


def _place(text: str, usual: str) -> tuple[IPAddress, int]:
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        address = None
    if not colon or address is None or isinstance(address, IPv6Address) != bracketed:
        raise ValueError(f"{shown(text)} is no address with a port; write {usual}")
    if not (port.isascii() and port.isdigit()) or int(port) > _LAST_PORT:
        raise ValueError(f"{shown(port)} is no port; write {usual}")
    return address, int(port)


def parse_place(mistakes: Mistakes, config: Mapping[str, object], key: str) -> str:
    """Parse the address and port of a key; empty if invalid or absent."""
    if key not in config:
        return ""
    text = mistakes.text(key, config[key], f"a loopback address with a port, such as {_USUAL[key]}")
    try:
        if text:
            loopback_place(text, _USUAL[key])
    except ValueError as error:
        mistakes.add(key, str(error))
    return text
