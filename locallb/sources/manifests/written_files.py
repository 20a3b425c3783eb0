"""Delays the effect of lost content: only once a file was unchanged for a moment.

Editors, `>` and `rsync --inplace` write a file piece by piece, and half of a YAML file is valid YAML. Additional or
changed content counts at once. Lost content counts once the file was unchanged for `QUIET` seconds: until then a lost
object counts as it was, and an object that lost fields, or items of lists, does as a whole.

A file that is removed, or replaced by another one under its name, loses its content at once: `rename` puts whole files
in place. Pure; the time is an argument. Not here: files that can't be read at all (`reading`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache

from msgspec import Struct, field

from locallb.kubernetes.identity import Identity
from locallb.sources.readings import Objects
from locallb.storage.folders import FileId, FolderFile

QUIET = 1.0
"""Seconds for which a file must be unchanged until its lost content counts."""


class _Believed(Struct, frozen=True):
    """One file as it was read last."""

    file: FileId | None
    """Identity of the file; None if unknown."""
    read: Objects
    counted: Objects
    changed: float
    """Time of its last change, or of its first read; for earlier readings its modification time."""


class WrittenFiles(Struct):
    """The files of one directory at the last reading. Times are seconds of one clock."""

    due: float | None = None
    """Time of the next loss to count if its file stays unchanged; None if none is pending."""
    _files: dict[str, _Believed] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """Return whether nothing was read yet."""
        return not self._files

    def begin(self, objects: Mapping[str, Objects], changed: Mapping[str, float]) -> None:
        """Start with the objects that an earlier process read, from files with these modification times."""
        self._files = {
            path: _Believed(None, listed, listed, changed[path]) for path, listed in objects.items() if path in changed
        }

    def identify(self, files: Iterable[FolderFile]) -> None:
        """Note which files have the contents that are known."""
        for file in files:
            existing = self._files.get(file.path)
            if existing and existing.file != file.identity:
                self._files[file.path] = _Believed(file.identity, existing.read, existing.counted, existing.changed)

    def believe(
        self,
        objects: Mapping[str, Objects],
        identities: Mapping[str, FileId | None],
        is_broken: Callable[[str], bool],
        now: float,
    ) -> dict[str, Objects]:
        """Return what counts of each file that can be read.

        Args:
            objects: what each has now.
            identities: which file each is.
            is_broken: whether a file that isn't among `objects` is there but can't be read.
            now: when they were read.

        """
        self._files = {path: existing for path, existing in self._files.items() if path in objects or is_broken(path)}
        self.due = None
        elsewhere = cache(
            lambda: frozenset(Identity.of(document) for listed in objects.values() for document in listed)
        )
        counted: dict[str, Objects] = {}
        for path, read in objects.items():
            existing = self._files.get(path)
            if existing is None or existing.read is not read or existing.counted is not read:
                existing = self._files[path] = self._next(existing, identities.get(path), read, elsewhere, now)
            counted[path] = existing.counted
        return counted

    def _next(
        self,
        existing: _Believed | None,
        file: FileId | None,
        read: Objects,
        elsewhere: Callable[[], Collection[Identity]],
        now: float,
    ) -> _Believed:
        is_replaced = existing is not None and existing.file is not None and existing.file != file
        if existing is None or is_replaced:
            return _Believed(file, read, read, now)
        is_new = existing.read is not read and existing.file is not None
        changed = now if is_new else existing.changed
        counted = read
        if now < changed + QUIET:
            counted = _with_lost(existing.counted, read, elsewhere)
            if counted is not read:
                self.due = min(self.due or changed + QUIET, changed + QUIET)
        return _Believed(file, read, counted, changed)


def _with_lost(before: Objects, read: Objects, elsewhere: Callable[[], Collection[Identity]]) -> Objects:
    """Return a file's objects with the lost ones; the identical ones if none was lost."""
    now = {Identity.of(document): document for document in reversed(read)}
    counted, lost = dict(now), []
    for document in before:
        identity = Identity.of(document)
        if identity not in now:
            lost += [] if identity in elsewhere() else [document]
        elif loses(document, now[identity]):
            counted[identity] = document
    if not lost and counted == now:
        return read
    firsts = {id(document): identity for identity, document in now.items()}
    retained = (counted[firsts[id(document)]] if id(document) in firsts else document for document in read)
    return (*retained, *lost)


def loses(before: object, after: object) -> bool:
    """Return whether a value lacks a field, or an item of a list, that it had before; another value is no loss."""
    if isinstance(before, Mapping):
        if not isinstance(after, Mapping):
            return bool(before)
        return any(key not in after or loses(value, after[key]) for key, value in before.items())
    if isinstance(before, list | tuple):
        if not isinstance(after, list | tuple):
            return bool(before)
        return len(after) < len(before) or any(map(loses, before, after))
    return before is not None and after is None
