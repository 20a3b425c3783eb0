"""Parses Secrets of type kubernetes.io/tls: certificate, key, and the digest by which they are compared.

A key leaves this only for the file that a proxy reads. Not here: requests and files.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from locallb.kubernetes.parsing.relevant import opened
from locallb.model.fields import at
from locallb.model.identities import Digest

CHAIN, KEY = "tls.crt", "tls.key"


class TlsSecretError(Exception):
    """A Secret has no usable certificate: the fault, without any of its content."""


@dataclass(frozen=True, slots=True)
class TlsPair:
    """A certificate with its chain, and its key, both PEM."""

    chain: bytes
    key: bytes = field(repr=False)

    @property
    def digest(self) -> Digest:
        """Return a digest of certificate and key, so that a change of either is seen; it reveals nothing of the key."""
        return Digest(hashlib.sha256(self.chain + b"\0" + self.key).hexdigest())


def tls_pair(document: Mapping[object, object] | Mapping[str, object]) -> TlsPair:
    """Read a Secret as the API or a manifest has it. Raises TlsSecretError."""
    return TlsPair(_entry(document, CHAIN), _entry(document, KEY))


def secret_among(
    documents: Iterable[object], namespace: str, name: str, digest: Digest
) -> Mapping[object, object] | None:
    """Return the Secret of this name among documents of manifests: of several the one that was meant."""
    listed = [item for document in documents for item in opened(document) if _is(item, namespace, name)]
    return next((secret for secret in listed if _digest(secret) == digest), listed[0] if listed else None)


def _digest(document: Mapping[object, object]) -> Digest:
    try:
        return tls_pair(document).digest
    except TlsSecretError:
        return Digest("")


def _is(document: Mapping[object, object], namespace: str, name: str) -> bool:
    metadata = document.get("metadata")
    if document.get("kind") != "Secret" or not isinstance(metadata, Mapping):
        return False
    return metadata.get("name") == name and (metadata.get("namespace") or "default") == namespace


def _entry(document: Mapping[object, object] | Mapping[str, object], key: str) -> bytes:
    plain, given = at(document, "stringData", key), at(document, "data", key)
    if isinstance(plain, str):
        return plain.encode()
    if not isinstance(given, str):
        raise TlsSecretError(f"it has no {key}")
    try:
        return base64.b64decode(given, validate=True)
    except binascii.Error:
        raise TlsSecretError(f"its {key} isn't base64") from None
