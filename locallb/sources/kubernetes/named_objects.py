"""Reads single Secrets and ConfigMaps of a cluster by name, and keeps only digests and authority certificates.

Of a Secret only a digest leaves this module, of a ConfigMap only certificates of authorities. One that can't be read
delays no other: it counts as last read, and is retried at growing intervals. Not here: which may be read
(`gateway.kinds`, `ingress.parsing`), and reading a key when a proxy's certificates are written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from locallb.gateway.kinds import CONFIG_MAP, SECRET
from locallb.gateway.parsing import BUNDLE_REFERENCE, SECRET_REFERENCE, parse_referred
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.servers import KubeError, RefusedError
from locallb.kubernetes.relevant import Document
from locallb.kubernetes.tls_parsing import listed_authorities
from locallb.model.gateway_objects import Named, Reference
from locallb.model.gateway_of_cluster import ApiObject
from locallb.model.pacing import Backoff, Pace
from locallb.model.snapshot import Access
from locallb.sources.configuration import TYPE, certificate_summary
from locallb.sources.kubernetes.informers import Fault
from locallb.threads import jitter

KINDS = (SECRET, CONFIG_MAP)
RETRY_DELAY = Pace(first=2.0, longest=60.0, floor=1.0)
"""Of one that can't be read."""
FIRST, LATER = 0.2, 1.0
"""Seconds without any request after the first failure of an object, and after a further one; they add up in a pass."""
MAX = 1.0
"""Seconds of that after which a pass ends: no more is refused in one."""


class _Kind(Struct, frozen=True):
    """How objects of a kind are read, and the part of them that is kept."""

    read: Callable[[Access, str, str], Mapping[str, object] | None]
    stated: Callable[[Document], Mapping[str, str | bool] | Mapping[str, str]]
    mark: Document
    role: str
    """The ClusterRole that gives the right."""


class _Failure(NamedTuple):
    error: KubeError
    backoff: Backoff

    def is_due(self) -> bool:
        return self.backoff.is_due(time.monotonic())


class NamedObjects(Struct):
    """Stand-ins of the named objects, as one thread read them last; readable from any thread."""

    access: Access
    _read: Mapping[Reference, Document | None] = field(default_factory=dict)
    _failures: Mapping[Reference, _Failure] = field(default_factory=dict)
    _waiting: frozenset[Reference] = frozenset()
    _not_before: float = -math.inf
    """Time of the next request: failures cost time, so many failing objects cause no load."""

    def read(self, named: Collection[Reference], *, retry: Collection[Reference] = ()) -> None:
        """Read references that are new or in `retry`, until too many fail; unread ones stay as they were, and due."""
        documents = {reference: self._read[reference] for reference in named if reference in self._read}
        failures = {reference: self._failures[reference] for reference in named if reference in self._failures}
        waiting = {*self._waiting.union(retry).intersection(named), *failures, *(set(named) - documents.keys())}
        waiting = {reference for reference in waiting if reference not in failures or failures[reference].is_due()}
        if time.monotonic() >= self._not_before:
            self._not_before = self._ask(waiting, documents, failures) + time.monotonic()
        self._read, self._failures, self._waiting = documents, failures, frozenset(waiting)

    def _ask(
        self, waiting: set[Reference], documents: dict[Reference, Document | None], failures: dict[Reference, _Failure]
    ) -> float:
        """Read the waiting objects, failed ones last and in turn. Returns the seconds that failures cost."""
        cost = 0.0
        for reference in sorted(waiting, key=lambda key: (_turn(failures.get(key)), key)):
            waiting.discard(reference)
            try:
                documents[reference] = stand_in(self.access, reference)
                failures.pop(reference, None)
            except KubeError as error:
                cost += LATER if reference in failures else FIRST
                failures[reference] = _failed(error, failures.get(reference))
                if not isinstance(error, RefusedError) or cost >= MAX:
                    break
        return cost

    @property
    def due(self) -> float:
        """Return the time of the next read of a failed or unread object; infinite if none remains."""
        at = min((failure.backoff.not_before for failure in self._failures.values()), default=math.inf)
        return max(self._not_before, -math.inf if self._waiting else at)

    @property
    def unreadable(self) -> Collection[Reference]:
        return self._failures.keys()

    @property
    def failure(self) -> Fault:
        """Return the fault of an unreadable object; empty if all can be read."""
        return next((Fault().then(failure.error) for failure in self._failures.values()), Fault())

    def know(self, named: Collection[Reference]) -> bool:
        return self._read.keys() >= set(named)

    def existing(self, named: Iterable[Reference], last: Mapping[Reference, ApiObject]) -> Iterator[ApiObject]:
        """Return these as they were read, else as they were in `last`, else why they can't be read."""
        read, failures = self._read, self._failures
        for reference in sorted(named):
            if reference not in read and reference in last:
                yield last[reference]
                continue
            instead = unreadable(reference, failures[reference].error) if reference in failures else None
            if referred := parse_referred(read.get(reference, instead) or {}):
                yield referred

    def objects(self) -> list[Document]:
        """Return the stand-ins of existing objects."""
        read = self._read
        return [document for reference in sorted(read) if (document := read[reference]) is not None]


def _turn(failure: _Failure | None) -> float:
    return failure.backoff.not_before if failure else -math.inf


def _failed(error: KubeError, before: _Failure | None) -> _Failure:
    backoff = before.backoff if before else Backoff(RETRY_DELAY)
    same = before and type(before.error) is type(error)
    return _Failure(before.error if before and same else error, backoff.failed(time.monotonic(), jitter()))


def stand_in(access: Access, named: Reference) -> Document | None:
    """Return the stand-in of an object; None if it doesn't exist. Raises KubeError if it can't be read."""
    kind = _KINDS[named.kind]
    try:
        live = kind.read(access, *named.key)
    except KubeError as error:
        why = _missing(kind) if isinstance(error, RefusedError) else str(error)
        raise type(error)(f"{named.kind} {named.key}: {why}") from None
    if live is None:
        return None
    document: dict[object, object] = {key: live[key] for key in live}
    return _made(named.key, kind.stated(document), kind.mark)


def unreadable(named: Reference, error: KubeError) -> Document:
    """Return the stand-in of an object that can't be read, and never was."""
    kind = _KINDS[named.kind]
    why = "it can't be read; a notice about its source tells why"
    return _made(named.key, {"problem": _missing(kind) if isinstance(error, RefusedError) else why}, kind.mark)


def _missing(kind: _Kind) -> str:
    return f"local-lb may not read it; bind the ClusterRole {kind.role} of deploy/ in its namespace"


def _secret_summary(document: Document) -> Mapping[str, str | bool]:
    if document.get("type") != TYPE:
        return {"problem": f"its type isn't {TYPE}; make one of that type"}
    return certificate_summary(document)


def _made(named: Named, stated: object, mark: Document) -> Document:
    metadata = {"name": named.name, "namespace": named.namespace}
    reference: dict[object, object] = {"metadata": metadata, "spec": stated, **mark}
    return reference


_KINDS = {
    SECRET: _Kind(live_object.secret, _secret_summary, SECRET_REFERENCE, "local-lb-secrets"),
    CONFIG_MAP: _Kind(live_object.config_map, listed_authorities, BUNDLE_REFERENCE, "local-lb-authorities"),
}
