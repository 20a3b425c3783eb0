"""References to the certificates of a file of manifests: nothing of a Secret but its digest leaves this.

They stand among the objects of a source, so that the last good reading has them, too. Not here: who reads the keys,
when a proxy is told of them (`provider.resources.served_certificate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from locallb.gateway.parsing.referred import SECRET_REFERENCE
from locallb.kubernetes.parsing.relevant import Document, opened
from locallb.sources.certificates import TYPE, certificate_said


def certificate_references(documents: Iterable[object], file: str) -> Iterator[Document]:
    """Return a reference for each Secret among documents that is there for TLS, which `file` has."""
    for document in (item for each in documents for item in opened(each)):
        metadata = document.get("metadata")
        about = tuple(document.get(key) for key in ("apiVersion", "kind", "type"))
        if about == ("v1", "Secret", TYPE) and isinstance(metadata, Mapping):
            named = {"name": metadata.get("name"), "namespace": metadata.get("namespace")}
            spec = {**certificate_said(document), "file": file}
            reference: dict[object, object] = {"metadata": named, "spec": spec, **SECRET_REFERENCE}
            yield reference


def without_references(documents: Iterable[Document]) -> Iterator[Document]:
    """Leave out what somebody wrote to look like one: a file elsewhere isn't theirs to name."""
    return (one for one in documents if one.get("apiVersion") != SECRET_REFERENCE["apiVersion"])
