"""A DNS provider as a stranger writes it, in this file alone: a zone in a file of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from locallb.dns.provider import DnsProvider, DnsProviderError
from locallb.dns.updates import TYPES, Marker, ServerAnswer, Update, marker_name
from locallb.model.identities import OwnerId

EXAMPLE, KEYS = "{server: 127.0.0.1:53, path: FILE}", {"path": "the file that has the zone"}


class Shelf(DnsProvider):
    """A TTL and values, by type and name."""

    def names(self, owner: OwnerId) -> Iterator[tuple[str, Marker]]:
        for place, (_, *values) in self._read().items():
            kind, _, name = place.removeprefix("TXT ").partition("-")
            marker = Marker.parse(str(values[0]))
            if place.startswith("TXT ") and kind.upper() in TYPES and marker and marker.owner == owner:
                yield name, marker

    def records(self, name: str, *, classic: bool = False) -> ServerAnswer:
        """Look the types of this name up."""
        there = self._read()
        sets = {kind: there[f"{kind} {name}"] for kind in TYPES if f"{kind} {name}" in there}
        texts = {kind: there.get(f"TXT {marker_name(name, kind)}", [0]) for kind in TYPES}
        return ServerAnswer(
            {kind: tuple(map(str, values)) for kind, (_, *values) in sets.items()},
            {kind: tuple(map(str, values)) for kind, (_, *values) in texts.items() if values},
            next((int(ttl) for ttl, *_ in sets.values()), 0),
            tuple(map(str, there.get(f"TXT {name}", [0])[1:])) if classic else (),
        )

    def apply(self, update: Update, ttl: int) -> bool:
        there = self._read()
        if any(there.get(f"{each.kind} {each.name}", [0])[1:] != [*each.values] for each in update.present):
            return False
        if any(f"{each.kind} {each.name}" in there for each in update.absent):
            return False
        gone = {f"{each.kind} {each.name}" for each in update.removed}
        put = {f"{each.kind} {each.name}": [ttl, *each.values] for each in update.put}
        self._path.write_text(json.dumps({key: there[key] for key in there if key not in gone} | put))
        return True

    def version(self) -> object:
        try:
            return self._path.read_text()
        except OSError:
            return None

    @property
    def _path(self) -> Path:
        return self.file("path") or Path("missing")

    def _read(self) -> Mapping[str, list[int | str]]:
        try:
            there: dict[str, list[int | str]] = json.loads(self._path.read_text())
        except OSError:
            raise DnsProviderError(f"{self} has no file {self._path}; create it") from None
        return there


PROVIDER = Shelf
