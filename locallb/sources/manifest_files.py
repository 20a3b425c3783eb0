"""The files of a directory of manifests: the objects in each, why some can't be read, and when lost content counts.

A file with the bytes of the last reading isn't read again. Certificates and authorities are reduced to digests, so that
no key leaves the file; they are among the objects of a source, so that the last good reading has them, too.

Not here: the replacement of a broken file (`source`), and reading keys when a proxy's certificates are written
(`provider.certificates`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from pathlib import Path

import yaml
from msgspec import Struct, field

from locallb.gateway.parsing import BUNDLE_REFERENCE, SECRET_REFERENCE
from locallb.kubernetes.documents import AliasAllowance, DocumentError, ReadDocument, read_documents
from locallb.kubernetes.events import Identity
from locallb.kubernetes.relevant import Document, kinds_of, opened, relevant
from locallb.kubernetes.service_parsing import DEFAULT_NAMESPACE
from locallb.kubernetes.tls_parsing import has_authorities, listed_authorities
from locallb.model.texts import MAX_ALIASED, cleaned, clipped, shown
from locallb.planning.refused import few_kinds
from locallb.sources.configuration import TYPE, certificate_summary
from locallb.sources.readings import Objects, slim
from locallb.storage.folders import FileId, Folder, FolderFile


def certificate_references(documents: Iterable[object], file: str) -> Iterator[Document]:
    """Return the stand-in of each TLS Secret, and ConfigMap with authorities, among documents of `file`."""
    for document in (item for listed in documents for item in opened(listed)):
        metadata = document.get("metadata")
        kind = document.get("kind") if document.get("apiVersion") == "v1" else None
        if not isinstance(metadata, Mapping):
            continue
        named = {"name": metadata.get("name"), "namespace": metadata.get("namespace")}
        if kind == "Secret" and document.get("type") == TYPE:
            yield {"metadata": named, "spec": {**certificate_summary(document), "file": file}, **SECRET_REFERENCE}
        elif kind == "ConfigMap" and has_authorities(document):
            yield {"metadata": named, "spec": listed_authorities(document), **BUNDLE_REFERENCE}


def without_references(documents: Iterable[Document]) -> Iterator[Document]:
    """Leave out a manifest that imitates such a reference: it may not name files elsewhere."""
    return (document for document in documents if document.get("apiVersion") != SECRET_REFERENCE["apiVersion"])


MAX_ALIASED_IN_ALL = 16 * MAX_ALIASED
"""Limit of characters that the aliases of all files expand to."""
_TEMPLATE = "it is a template: put here what `helm template` makes of it"
_MAX_NOTICES = 20
"""Limit of notices reported for one file."""


class ParsedFile(Struct, frozen=True):
    """One file: its bytes, and what they mean."""

    data: bytes
    objects: Objects
    notices: tuple[str, ...]
    kinds: Mapping[str, int]
    aliased: int
    """Characters that its aliases expand to."""


class FilesNow(Struct):
    """Current contents of the files."""

    understood: dict[str, ParsedFile] = field(default_factory=dict)
    """Each file that could be read."""
    objects: dict[str, Objects] = field(default_factory=dict)
    """The effective objects of each file; none of an emptied file."""
    broken: dict[str, str] = field(default_factory=dict)
    """The reason that a file or directory can't be read: half a sentence by path."""
    notices: list[str] = field(default_factory=list)
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Number of objects, by kind."""


def understood_files(folder: Folder, before: Mapping[str, ParsedFile], directory: Path) -> FilesNow:
    """Split files into readable ones, with their objects, and broken ones; `before` has earlier results.

    `directory` is their location.
    """
    fresh = FilesNow()
    for link in folder.links:
        fresh.notices.append(f"{clipped(link)} is a link to a directory and isn't read; put the directory itself there")
    for link in folder.outside:
        fresh.notices.append(f"{clipped(link)} is a link out of its directory and isn't followed in a comparison")
    aliased = 0
    for file in folder.files:
        if file.why:
            fresh.broken[file.path] = f" can't be read ({file.why})"
            continue
        try:
            existing = before.get(file.path)
            understood = existing if existing and existing.data == file.data else _understood(file, aliased, directory)
        except DocumentError as error:
            line = f" line {error.line}" if error.line else ""
            what = _TEMPLATE if b"{{" in file.data else error.what
            fresh.broken[file.path] = f"{line} can't be read ({what})"
            continue
        aliased += understood.aliased
        fresh.understood[file.path] = understood
    fresh.objects = {path: file.objects for path, file in fresh.understood.items()}
    fresh.notices.extend(chain.from_iterable(file.notices for file in fresh.understood.values()))
    return fresh


def _understood(file: FolderFile, aliased: int, directory: Path) -> ParsedFile:
    """Read a file; `aliased` is the size of earlier files' expanded aliases. Raises DocumentError."""
    allowance = AliasAllowance(min(MAX_ALIASED, MAX_ALIASED_IN_ALL - aliased))
    documents = read_documents(file.data, is_json=file.path.endswith(".json"), allowance=allowance)
    sorted_out = [(document, *relevant([document.value])) for document in documents]
    written = without_references(document for _, retained, _ in sorted_out for document in retained)
    certificates = certificate_references((document.value for document in documents), str(directory / file.path))
    objects = tuple(slim(cleaned(document)) for document in (*written, *certificates))
    notices = (notice for entry in sorted_out for notice in _notices(file.path, *entry))
    first, more = tuple(islice(notices, _MAX_NOTICES)), sum(1 for _ in notices)
    shown = (*first, f"{clipped(file.path)}: and {more} more like these") if more else first
    kinds = few_kinds(kinds_of(document.value for document in documents))
    return ParsedFile(file.data, objects, shown, kinds, allowance.used)


def object_lines(file: FolderFile) -> Iterator[tuple[str, str, str, int, Mapping[str, int]]]:
    """Yield kind, namespace, name and line of the objects of a file, and lines of fields, as far as it can be read."""
    try:
        for document in yaml.compose_all(file.data, yaml.CSafeLoader):
            listed = _fields(document).get("items")
            for node in listed.value if isinstance(listed, yaml.SequenceNode) else [document]:
                kind, metadata = _fields(node).get("kind"), _fields(_fields(node).get("metadata"))
                namespace, name = metadata.get("namespace"), metadata.get("name")
                if isinstance(kind, yaml.ScalarNode) and isinstance(name, yaml.ScalarNode):
                    within = namespace.value if isinstance(namespace, yaml.ScalarNode) else DEFAULT_NAMESPACE
                    fields = dict(_field_lines(_fields(_fields(node).get("spec"))))
                    yield kind.value, within, name.value, name.start_mark.line + 1, fields
    except (yaml.YAMLError, ValueError, RecursionError):
        return


def _field_lines(spec: Mapping[str, yaml.Node]) -> Iterator[tuple[str, int]]:
    """Yield the lines of an object's ports or listeners, of its clients and of its requested addresses."""
    for name in ("ports", "listeners"):
        entries = spec.get(name)
        for entry in entries.value if isinstance(entries, yaml.SequenceNode) else ():
            port, protocol = _fields(entry).get("port"), _fields(entry).get("protocol")
            if isinstance(port, yaml.ScalarNode):
                transport = protocol.value if isinstance(protocol, yaml.ScalarNode) else "TCP"
                transport = "TCP" if name == "listeners" and transport != "UDP" else transport
                yield f"{port.value}/{transport}", port.start_mark.line + 1
    for name, about in (("loadBalancerSourceRanges", "sources"), ("loadBalancerIP", "addresses"), ("addresses",) * 2):
        if name in spec:
            yield about, spec[name].start_mark.line + 1


def _fields(node: yaml.Node | None) -> Mapping[str, yaml.Node]:
    """Return what an object has, by the names of its fields."""
    return {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def _notices(path: str, document: ReadDocument, retained: list[Document], left_out: tuple[str, ...]) -> Iterator[str]:
    """Return what of a document is left out, or read generously."""
    if not isinstance(document.value, dict | None):
        yield f"{clipped(path)} has {_sort_of(document.value)} where an object should be; it is passed over"
    yield from (f"{clipped(path)}: {notice}" for notice in left_out)
    yield from _repeated(path, document) if retained else ()


def _sort_of(value: object) -> str:
    """Describe a value that is no object without its content: it may be any file, and others may read reports."""
    return shown(value) if isinstance(value, list) else "a text" if isinstance(value, str) else "a single value"


def _repeated(path: str, document: ReadDocument) -> Iterable[str]:
    for key in document.repeated:
        yield f"{clipped(path)} line {key.line} has the key {shown(key.key)} again and the last one counts; remove one"


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
    """The files of one directory at the last reading. Times are seconds of one clock. Pure; the time is an argument.

    Editors, `>` and `rsync --inplace` write a file piece by piece, and half of a YAML file is valid YAML. Additional or
    changed content counts at once. Lost content counts once the file was unchanged for `QUIET` seconds: until then a
    lost object counts as it was, and an object that lost fields, or items of lists, does as a whole.

    A file that is removed, or replaced by another one under its name, loses its content at once: `rename` puts whole
    files in place.
    """

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
