"""The types of Envoy's JSON documents, and their canonical serialisation.

Canonical (sorted keys, compact, one newline at the end), so that the same proxy is the same bytes on every machine and
a digest of the text is a version. JSON and not YAML, because YAML reads `id: n` as false.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Raw, Struct
from msgspec.json import Encoder

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | bool | Raw"
Message: TypeAlias = Mapping[str, Json]
"""A protobuf message of Envoy's API in its JSON form."""

_ENCODER = Encoder(order="sorted")


def text(message: Message) -> str:
    return f"{_ENCODER.encode(message).decode()}\n"


def encoded(part: Json) -> Raw:
    """Encode a part of a document once for all uses."""
    return Raw(_ENCODER.encode(part))


def digest(message: Message) -> str:
    """Name a document by its content: 16 hex digits."""
    return hashlib.sha256(_ENCODER.encode(message) + b"\n").hexdigest()[:16]


def typed(kind: str, /, **fields: Json) -> Message:
    """Make a google.protobuf.Any: the message `kind` with its fields."""
    return {"@type": f"type.googleapis.com/{kind}", **fields}


def socket_address(address: str, port: int, protocol: str = "TCP") -> Message:
    return {"socket_address": {"address": address, "port_value": port, "protocol": protocol}}


def subscription(path: str) -> Message:
    """Make the ConfigSource of a file. Envoy watches its directory and reads it again after a rename into place."""
    return {"path_config_source": {"path": path}, "resource_api_version": "V3"}


class Discovered(Struct, frozen=True):
    """An LDS, CDS or EDS file: resources, and as their version the digest of them."""

    resources: Raw
    version: str
    """The version that Envoy reports as `version_text` once it accepted the file."""

    @classmethod
    def of(cls, resources: Sequence[Message]) -> Discovered:
        listed = encoded(resources)
        return cls(listed, digest({"resources": listed}))

    @property
    def response(self) -> Message:
        """The DiscoveryResponse that the file holds."""
        return {"version_info": self.version, "resources": self.resources}


READING = 30.0
"""Seconds that an Envoy gets for each million bytes of its files; it takes about 12."""
SETTLING = 5.0
"""Seconds that it gets besides; it takes a few milliseconds."""


def reading_time(size: int) -> float:
    """Return the seconds that an Envoy may take to read files of so many bytes."""
    return READING * size / 1e6


def settling_time(size: int) -> float:
    """Return the seconds until an Envoy must serve what files of so many bytes say."""
    return SETTLING + reading_time(size)


KEEPALIVE: Message = {"keepalive_time": 60, "keepalive_interval": 10, "keepalive_probes": 6}
"""Seconds. A stream is closed two minutes after its peer vanished; an idle one never."""
