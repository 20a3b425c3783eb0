"""References to the certificates of a file of manifests: nothing of a Secret but its digest leaves this.

They stand among the objects of a source, so that the last good reading has them, too. Not here: who reads the keys,
when a proxy is told of them (`provider.resources.served_certificate`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from locallb.gateway.parsing.referred import SECRET_REFERENCE
from locallb.kubernetes.relevant import Document, opened
from locallb.kubernetes.tls_secrets import TlsSecretError, tls_pair
from locallb.storage.key_pairs import key_pair_fault

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s[A-Za-z0-9+/=\s]+-----END [A-Z ]*PRIVATE KEY-----")
_TYPE = "kubernetes.io/tls"


def certificate_references(documents: Iterable[object], file: str) -> Iterator[Document]:
    """Return a reference for each Secret among documents that is there for TLS, which `file` has."""
    for document in (item for each in documents for item in opened(each)):
        metadata = document.get("metadata")
        about = tuple(document.get(key) for key in ("apiVersion", "kind", "type"))
        if about == ("v1", "Secret", _TYPE) and isinstance(metadata, Mapping):
            named = {"name": metadata.get("name"), "namespace": metadata.get("namespace")}
            spec = {**_said(document), "file": file}
            reference: dict[object, object] = {"metadata": named, "spec": spec, **SECRET_REFERENCE}
            yield reference


def without_references(documents: Iterable[Document]) -> Iterator[Document]:
    """Leave out what somebody wrote to look like one: a file elsewhere isn't theirs to name."""
    return (one for one in documents if one.get("apiVersion") != SECRET_REFERENCE["apiVersion"])


def _said(document: Document) -> Mapping[str, str]:
    """Return the digest of a Secret's certificate and key, or why they can't be used."""
    try:
        pair = tls_pair(document)
    except TlsSecretError as error:
        return {"problem": f"{error}; write the certificate and the key in PEM"}
    for name, text, pattern in (("tls.crt", pair.chain, _CERTIFICATE), ("tls.key", pair.key, _KEY)):
        if not pattern.search(text):
            return {"problem": f"its {name} isn't PEM; write the certificate and the key in PEM"}
    why = key_pair_fault(pair.chain, pair.key)
    return {"problem": why} if why else {"digest": pair.digest}
