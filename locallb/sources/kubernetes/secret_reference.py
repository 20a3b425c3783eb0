"""A reference to a Secret of a cluster, for a Gateway that names it: nothing of it but a digest leaves this.

Not here: which Secrets may be read (`gateway.needs`), and who reads the key when a proxy is told of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from locallb.gateway.parsing.referred import SECRET_REFERENCE
from locallb.kubernetes.access.errors import Fault, KubeError
from locallb.kubernetes.api import live_service
from locallb.kubernetes.parsing.relevant import Document
from locallb.model.gateway.objects import Named
from locallb.model.snapshot import Access
from locallb.sources.certificates import TYPE, certificate_said

_RIGHTS = "local-lb may not read it; bind the ClusterRole local-lb-secrets of deploy/ in its namespace"


@dataclass(slots=True)
class NamedSecrets:
    """What stands for the Secrets that Gateways of a cluster name, as they were read last."""

    access: Access
    _read: Mapping[Named, Document | None] = field(default_factory=dict)

    def read(self, named: Iterable[Named], *, again: bool) -> bool:
        """Read those that are new, or all; what can't be read stays as it was. Return whether everything could be."""
        now: dict[Named, Document | None] = {}
        is_whole = True
        for each in sorted(named):
            if each in self._read:
                now[each] = self._read[each]
            if again or each not in now:
                try:
                    now[each] = secret_reference(self.access, each, self._read.get(each))
                except KubeError:
                    is_whole = False
        self._read = now
        return is_whole

    def know(self, named: Collection[Named]) -> bool:
        """Return whether all of these were read."""
        return self._read.keys() >= set(named)

    def objects(self) -> list[Document]:
        """Return those that there are."""
        return [one for one in self._read.values() if one is not None]


def secret_reference(access: Access, named: Named, before: Document | None) -> Document | None:
    """Return what stands for a Secret, as `before` where it may not be read; None if there is none.

    Raises KubeError where that can't be told.
    """
    try:
        secret = live_service.secret(access, named.namespace, named.name)
    except KubeError as error:
        if error.fault is not Fault.REFUSED:
            raise
        return before or _made(named, {"problem": _RIGHTS})
    if secret is None:
        return None
    if secret.get("type") != TYPE:
        return _made(named, {"problem": f"its type isn't {TYPE}; make one of that type"})
    document: dict[object, object] = {key: secret[key] for key in secret}
    return _made(named, certificate_said(document))


def _made(named: Named, said: object) -> Document:
    metadata = {"name": named.name, "namespace": named.namespace}
    reference: dict[object, object] = {"metadata": metadata, "spec": said, **SECRET_REFERENCE}
    return reference
