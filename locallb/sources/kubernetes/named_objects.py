"""What stands for the Secrets and ConfigMaps of a cluster that are named: each is read by its name, and no other.

Of a Secret nothing leaves this but a digest, of a ConfigMap nothing but certificates of authorities. Not here: which
may be read (`gateway.needs`, `ingress.needs`), and who reads a key when a proxy is told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from locallb.gateway.needs import CONFIG_MAP, SECRET
from locallb.gateway.parsing.referred import BUNDLE_REFERENCE, SECRET_REFERENCE
from locallb.kubernetes.access.errors import Fault, KubeError
from locallb.kubernetes.api import live_service
from locallb.kubernetes.parsing.authority_bundles import authorities_said
from locallb.kubernetes.parsing.relevant import Document
from locallb.model.gateway.objects import Named, Reference
from locallb.model.snapshot import Access
from locallb.sources.certificates import TYPE, certificate_said

KINDS = (SECRET, CONFIG_MAP)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How objects of a kind are read, and what is kept of them."""

    read: Callable[[Access, str, str], Mapping[str, object] | None]
    said: Callable[[Document], Mapping[str, str]]
    mark: Document
    role: str
    """The ClusterRole that gives the right."""


@dataclass(slots=True)
class NamedObjects:
    """What stands for the objects that are named, as they were read last."""

    access: Access
    _read: Mapping[Reference, Document | None] = field(default_factory=dict)

    def read(self, named: Iterable[Reference], *, again: bool) -> bool:
        """Read those that are new, or all; what can't be read stays as it was. Return whether everything could be."""
        now: dict[Reference, Document | None] = {}
        is_whole = True
        for each in sorted(named):
            if each in self._read:
                now[each] = self._read[each]
            if again or each not in now:
                try:
                    now[each] = stand_in(self.access, each, self._read.get(each))
                except KubeError:
                    is_whole = False
        self._read = now
        return is_whole

    def know(self, named: Collection[Reference]) -> bool:
        """Return whether all of these were read."""
        return self._read.keys() >= set(named)

    def objects(self, *kinds: str) -> list[Document]:
        """Return those that there are, all or of these kinds."""
        return [one for named, one in self._read.items() if one is not None and (not kinds or named.kind in kinds)]


def stand_in(access: Access, named: Reference, before: Document | None) -> Document | None:
    """Return what stands for an object, as `before` where it may not be read; None if there is none.

    Raises KubeError where that can't be told.
    """
    kind = _KINDS[named.kind]
    try:
        live = kind.read(access, *named.key)
    except KubeError as error:
        if error.fault is not Fault.REFUSED:
            raise
        why = f"local-lb may not read it; bind the ClusterRole {kind.role} of deploy/ in its namespace"
        return before or _made(named.key, {"problem": why}, kind.mark)
    if live is None:
        return None
    document: dict[object, object] = {key: live[key] for key in live}
    return _made(named.key, kind.said(document), kind.mark)


def _secret_said(document: Document) -> Mapping[str, str]:
    if document.get("type") != TYPE:
        return {"problem": f"its type isn't {TYPE}; make one of that type"}
    return certificate_said(document)


def _made(named: Named, said: object, mark: Document) -> Document:
    metadata = {"name": named.name, "namespace": named.namespace}
    reference: dict[object, object] = {"metadata": metadata, "spec": said, **mark}
    return reference


_KINDS = {
    SECRET: _Kind(live_service.secret, _secret_said, SECRET_REFERENCE, "local-lb-secrets"),
    CONFIG_MAP: _Kind(live_service.config_map, authorities_said, BUNDLE_REFERENCE, "local-lb-authorities"),
}
