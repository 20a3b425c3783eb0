"""The sources of a stack's file: their names, and the file with more of them. Pure.

Not here: what an entry means (`sources.entries`), and the edit of a text (`stack_file`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct

from locallb.cli.project import Sources
from locallb.cli.stack_file import Path, with_items
from locallb.config.registry import SOURCES, source_entry
from locallb.config.values import Mistakes
from locallb.engine.state.project import parsed
from locallb.model.fields import objects_of

_KIND, _ALL = "kind", "all"


class ListedSource(Struct, frozen=True):
    """One source, as it is listed: of kind each cluster that is named."""

    name: str
    type: str
    place: str
    number: int
    """Of its entry."""


def listed_sources(sources: Sources) -> Iterator[ListedSource]:
    """List sources by their names; entries that `up` refuses are left out."""
    for number, entry in enumerate(sources):
        for word in (word for word in SOURCES if word in entry):
            parsed = source_entry(word).parse(Mistakes(), "", entry)
            if word == _KIND and parsed is not None:
                value = entry[word]
                names = value if isinstance(value, list) else [_KIND]
                place = f"{'every cluster' if value == _ALL else 'a cluster'} on this host's Docker"
                yield from (ListedSource(str(name), word, place, number) for name in names)
            elif parsed is not None:
                yield ListedSource(str(getattr(parsed, "cluster", "")), word, parsed.place, number)


SOURCES_PATH = ("config", "local-lb:sources")
"""Where a stack's file has its sources."""


def with_sources(text: str, added: Sources, path: Path = SOURCES_PATH) -> str:
    """Return a stack's file with more sources behind its own, and clusters of kind in its one source of kind.

    Everything else of the file stays as it is. Raises NotEditable, and YAMLError or ValueError for no YAML.
    """
    return with_items(text, path, merged(sources_of(text, path), added))


def sources_of(text: str, path: Path = SOURCES_PATH) -> Sources:
    """Return what a stack's file names; nothing where it can't be understood."""
    try:
        found: Any = parsed(text.encode())
        for part in path:
            found = found[part]
        return objects_of(json.loads(found) if isinstance(found, str) else found)
    except (yaml.YAMLError, LookupError, TypeError, ValueError, RecursionError):
        return ()


def merged(sources: Sources, added: Sources) -> Mapping[int, object]:
    """Return the entries that change so that the `added` ones are among them, by number."""
    entries = [*sources]
    for one in added:
        of_kind = next((number for number, entry in enumerate(entries) if _KIND in entry and _KIND in one), None)
        if of_kind is None:
            entries.extend([one] if one not in entries else ())
        else:
            entries[of_kind] = {**entries[of_kind], _KIND: _clusters(entries[of_kind][_KIND], one[_KIND])}
    return {number: entry for number, entry in enumerate(entries) if [entry] != [*sources[number : number + 1]]}


def _clusters(*names: object) -> object:
    """Return the clusters that are of any of these, in order; `all` for every one."""
    every: list[object] = []
    for name in (name for each in names for name in (each if isinstance(each, list) else [each])):
        every.extend([name] if name not in every else ())
    return _ALL if _ALL in every else every
