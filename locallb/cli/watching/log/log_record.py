"""One record of the log of `watch`, whatever its format.

Not here: the records of each event (`records`), and the output formats (`lines`, `screen`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field


class Level(StrEnum):
    """How much a record matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogRecord(Struct, frozen=True):
    """One record of the log; `fields` are JSON's, with stable names (docs/watch.md)."""

    at: float
    """Seconds since the epoch."""
    level: Level
    event: str
    sentence: str
    fields: Mapping[str, object] = field(default_factory=dict)
