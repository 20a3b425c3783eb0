"""Access log entries of a proxy: parsed from Envoy's messages, and matched with their Service.

Messages are those of OpenTelemetry's logs in protobuf's encoding, of which only texts in known places are looked at.
Pure. Not here: who takes them (`reading`), and how a line is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from locallb.envoy.access_logs import NONE
from locallb.model.identities import ObjectKey
from locallb.planning.planned import Plan

_BODIES = (1, 2, 2, 5, 6, 1)
"""Numbers of the fields that lead to what a line has: resources, scopes, records, bodies, lists, values."""
_RECORDS, _VALUES = _BODIES[:3], _BODIES[3:]
_TEXT = 1
_LENGTH_DELIMITED, _FIXED = 2, {1: 8, 5: 4}


class Line(Struct, frozen=True):
    """A connection, or a request, that has ended."""

    time: str
    listener: str
    client: str
    backend: str
    """Empty where it came to none."""
    received: int
    sent: int
    milliseconds: int
    flags: tuple[str, ...] = ()
    """What Envoy found wrong, such as `UpstreamConnectionFailure`."""
    protocol: str = ""
    """Empty for a connection; the rest is of requests."""
    method: str = ""
    host: str = ""
    path: str = ""
    status: int = 0


def lines(message: bytes) -> Iterator[Line]:
    """Read a message. Raises ValueError for one that isn't of this kind."""
    for record in _inside([message], _RECORDS):
        yield _line(dict(map(_pair, _inside([record], _VALUES))))


def services_by_listener(plan: Plan) -> Mapping[str, ObjectKey]:
    """Return the Service of each listener, by its name."""
    return {
        listener.name: placement.key
        for placement in plan.placements
        for planned in placement.ports
        for listener in planned.listeners
    }


def _line(values: Mapping[str, str]) -> Line:
    def text(name: str) -> str:
        value = values.get(name, NONE)
        return "" if value == NONE else value

    def number(name: str) -> int:
        return int(text(name) or 0)

    return Line(
        *(text("time"), text("listener"), text("client"), text("backend")),
        *(number("in"), number("out"), number("milliseconds")),
        tuple(filter(None, text("flags").split(","))),
        *(text("protocol"), text("method"), text("host"), text("path")),
        number("status"),
    )


def _pair(message: bytes) -> tuple[str, str]:
    """Read a name and a text."""
    key, value = dict(_fields(message)).get(1, b""), dict(_fields(message)).get(2, b"")
    return key.decode(errors="replace"), dict(_fields(value)).get(_TEXT, b"").decode(errors="replace")


def _inside(messages: Iterable[bytes], numbers: Iterable[int]) -> Iterable[bytes]:
    """Follow numbers of fields into messages."""
    for wanted in numbers:
        messages = [content for message in messages for number, content in _fields(message) if number == wanted]
    return messages


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message that have a length."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        if tag & 7 == _LENGTH_DELIMITED:
            size, at = _number(message, at)
            yield tag >> 3, message[at : at + size]
            at += size
        elif tag & 7:
            at += _FIXED.get(tag & 7, len(message))
        else:
            _, at = _number(message, at)


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length; return where it ended."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that another one follows
            return value, at
    raise ValueError("a number ends in the middle")
