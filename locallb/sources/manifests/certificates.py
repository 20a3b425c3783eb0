"""Certificates and authorities in manifests: reduced to digests, so that no key leaves the file.

They stand among the objects of a source, so that the last good reading has them, too. Not here: reading the keys when
a proxy's certificates are written (`provider.resources.served_certificate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from locallb.gateway.parsing.referred import BUNDLE_REFERENCE, SECRET_REFERENCE
from locallb.kubernetes.parsing.authority_bundles import has_authorities, listed_authorities
from locallb.kubernetes.parsing.relevant import Document, opened
from locallb.sources.certificates import TYPE, certificate_summary


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
