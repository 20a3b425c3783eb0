"""The last good reading of each source, kept so that a source that can't be read isn't taken for an empty one.

One JSON file a source, mode 0600, replaced in one step. It has only the objects that are read of each file: at most a
reference to a Secret in the same file, and no managed fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field

from locallb.kubernetes.relevant import Document
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName
from locallb.model.memory import Memo
from locallb.model.texts import TEXT_FAULT, cleaned
from locallb.sources import SourceError
from locallb.storage import files, paths

FORMAT = 1
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_FIELDS = frozenset(
    {"apiVersion", "kind", "metadata", "spec", "status", "addressType", "endpoints", "ports", TEXT_FAULT}
)
"""Fields of objects that are read; other fields have no meaning here."""
Objects = tuple[Document, ...]
FilesOfObjects = Mapping[str, Objects]
"""Objects by the path of their file."""


class TextCache(Struct):
    """Texts that were written for a source, cached for repeated writes."""

    entries: Memo[str] = field(default_factory=Memo)
    """Serialized entries of files with identical objects."""
    text: str = ""
    """All of the last one."""


class ReadCache(Struct, frozen=True):
    """The directory of the readings of one stack, created with the first one."""

    directory: Path

    def load(self, cluster: ClusterName) -> FilesOfObjects | None:
        """Return the last good reading of a source; None if there is none.

        Raises:
            SourceError: if there is one that can't be used.

        """
        path = self._path(cluster)
        try:
            text = files.read(path)
            return None if text is None else _unpacked(json.loads(text))
        except (ClientError, ValueError, RecursionError) as error:
            why = error if isinstance(error, ClientError) else "it isn't ours"
            raise SourceError(
                f"source {cluster}: its last reading {path} can't be used ({why});"
                " repair the source and remove that file"
            ) from None

    def keep(self, cluster: ClusterName, objects: FilesOfObjects, existing: TextCache | None = None) -> None:
        """Store the last good reading of a source. Raises SourceError if it can't be written.

        `existing` caches the last written texts, for repeated writes.
        """
        existing = existing or TextCache()
        full = [path for path in sorted(objects) if objects[path]]
        entries = existing.entries.each(_entry, full, map(objects.__getitem__, full))
        text = f'{{"cluster":{_text(cluster)},"files":{{{",".join(entries)}}},"version":{FORMAT}}}'
        path = self._path(cluster)
        try:
            if (existing.text and existing.text != text) or files.read(path) != text:
                paths.private_directory(self.directory)
                files.write(path, text)
            existing.text = text
        except ClientError as error:
            raise SourceError(f"source {cluster}: its reading can't be kept: {error}") from None

    def drop(self, cluster: ClusterName) -> None:
        """Remove the last good reading of a source that is gone; absent is fine. Raises SourceError."""
        try:
            files.remove(self._path(cluster))
        except ClientError as error:
            raise SourceError(f"source {cluster}: its reading can't be removed: {error}") from None

    def forget(self) -> None:
        """Remove all readings of the stack; absent is fine. Raises ClientError."""
        files.remove_tree(self.directory, self.directory.parent)

    def _path(self, cluster: ClusterName) -> Path:
        return self.directory / f"{cluster}.json"


def _entry(path: str, objects: Objects) -> str:
    return f"{json.dumps(path)}:{_text(objects)}"


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def slim(document: Document) -> Document:
    """Leave out what a load balancer never needs and what makes objects large."""
    document = {key: value for key, value in document.items() if key in _FIELDS}
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping):
        return document
    retained = {key: value for key, value in metadata.items() if key != "managedFields"}
    annotations = retained.get("annotations")
    if isinstance(annotations, Mapping):
        retained["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
    return {**document, "metadata": retained}


def _unpacked(packed: object) -> FilesOfObjects:
    """Check what was read. Raises ValueError."""
    if not isinstance(packed, dict) or packed.get("version") != FORMAT or not isinstance(packed.get("files"), dict):
        raise ValueError
    return {path: _objects(listed) for path, listed in packed["files"].items()}


def _objects(listed: Iterable[object]) -> Objects:
    if not isinstance(listed, list):
        raise ValueError  # noqa: TRY004 - one kind of mistake: the file isn't ours
    return tuple(cleaned(item) for item in listed if isinstance(item, dict))
