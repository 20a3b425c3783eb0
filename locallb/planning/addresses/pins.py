"""Pins of the configuration: a fixed address for one Service by its name, or for any that matches a pattern.

Not here: the syntax of pins (`config.parsing`), and which of several candidates gets the address (`allocation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from locallb.model.identities import IPAddress, ObjectKey

ANY = "*"
"""Stands for any text within a namespace or a name."""


class Pins:
    """All pins by name: `<namespace>/<name>`, either with `*`."""

    def __init__(self, addresses: Mapping[str, Iterable[IPAddress]]) -> None:
        self.addresses = addresses
        self._patterns = tuple(name for name in addresses if ANY in name)

    def of(self, key: ObjectKey) -> str:
        """Return the pin for a Service: its very name or the first pattern that fits; empty: none."""
        if not self.addresses:
            return ""
        name = f"{key.namespace}/{key.name}"
        if name in self.addresses:
            return name
        return next((pattern for pattern in self._patterns if _fits(key, pattern)), "")


def _fits(key: ObjectKey, pattern: str) -> bool:
    namespace, _, name = pattern.partition("/")
    return fnmatchcase(key.namespace, namespace) and fnmatchcase(key.name, name)
