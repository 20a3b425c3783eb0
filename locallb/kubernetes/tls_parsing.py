"""Parses TLS Secrets, and ConfigMaps with certificate authorities in `ca.crt`.

Authorities are parsed as strictly as a proxy will, so that one invalid bundle is refused by itself, with a reason, and
breaks no other configuration. TLS Secrets are compared by digest, which reveals nothing of the key.

Not here: requests and files, and which ConfigMaps and Secrets an object may refer to (`gateway.listeners`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from locallb.kubernetes.relevant import opened
from locallb.model.fields import at
from locallb.model.http_checks import MAX_AUTHORITIES, authorities
from locallb.model.identities import Digest
from locallb.model.texts import clipped
from locallb.patterns import pattern

CHAIN, KEY = "tls.crt", "tls.key"


class TlsSecretError(Exception):
    """A Secret has no usable certificate: the fault, without any of its content."""


@dataclass(frozen=True, slots=True)
class TlsPair:
    """A certificate with its chain, and its key, both PEM.

    The key is passed on only for the file that a proxy reads.
    """

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


ENTRY = "ca.crt"
_LARGEST_TEXT = 2 << 20
_BLOCK = pattern(r"-----BEGIN ([A-Z0-9 ]{1,40})-----([^-]*)-----END \1-----")
_EDGE = pattern(r"-----(?:BEGIN|END) ")
_LINE = 64


class BundleError(Exception):
    """A bundle can't be used: the fault, without its content, and the remedy."""


def listed_authorities(document: Mapping[object, object]) -> Mapping[str, str]:
    """Return the authorities that a ConfigMap has, or why they can't be used."""
    text = at(document, "data", ENTRY)
    if not isinstance(text, str):
        return {"problem": f"it has no {ENTRY} in its data; write the certificates of authorities there"}
    try:
        return {"authorities": authorities_in(text)}
    except BundleError as error:
        return {"problem": str(error)}


def has_authorities(document: Mapping[object, object]) -> bool:
    """Return whether a ConfigMap seems to be meant for that."""
    data = document.get("data")
    return isinstance(data, Mapping) and ENTRY in data


def authorities_in(text: str) -> str:
    """Return the certificates of a bundle, each once, in PEM. Raises BundleError.

    They are serialized again, so that only certificates are returned: never a private key from the same file.
    """
    if len(text) > _LARGEST_TEXT:
        raise BundleError(_too_large())
    certificates = dict.fromkeys(_certificates(text))
    if not certificates:
        raise BundleError(f"its {ENTRY} has no certificate; write the certificates of authorities there, in PEM")
    bundle = "".join(map(_pem, certificates))
    if len(bundle) > MAX_AUTHORITIES:
        raise BundleError(_too_large())
    try:
        return authorities(bundle)
    except ValueError:
        raise BundleError(_odd()) from None


def _certificates(text: str) -> Iterator[bytes]:
    """Return the certificates, each of them parsable; other text is ignored."""
    blocks = list(_BLOCK.finditer(text))
    if 2 * len(blocks) != len(_EDGE.findall(text)):
        raise BundleError(f"its {ENTRY} has a block of PEM that doesn't end; write whole certificates")
    for block in blocks:
        what = block[1]
        if what != "CERTIFICATE":
            secret = ", and a key belongs into a Secret" if "KEY" in what else ""
            raise BundleError(f"its {ENTRY} has a block {clipped(what)}{secret}; leave only certificates in it")
        try:
            certificate = base64.b64decode("".join(block[2].split()), validate=True)
        except binascii.Error:
            raise BundleError(_odd()) from None
        _check(certificate)
        yield certificate


def _check(certificate: bytes) -> None:
    """Raise BundleError for a certificate of which anything that a proxy may look at can't be read."""
    from cryptography import utils, x509  # noqa: PLC0415 - loaded where certificates are read only

    warnings.simplefilter("ignore", utils.CryptographyDeprecationWarning)  # of odd ones that are still read
    try:
        read = x509.load_der_x509_certificate(certificate)
        _ = read.subject, read.issuer, read.extensions, read.not_valid_after_utc
    except Exception:  # noqa: BLE001 - rubbish makes it raise errors of many classes
        raise BundleError(_odd()) from None


def _pem(certificate: bytes) -> str:
    text = base64.b64encode(certificate).decode()
    lines = (text[at : at + _LINE] for at in range(0, len(text), _LINE))
    return "\n".join(("-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""))


def _odd() -> str:
    return f"its {ENTRY} has a certificate that can't be read; write X.509 certificates in PEM"


def _too_large() -> str:
    return f"its {ENTRY} is larger than {MAX_AUTHORITIES >> 10} KiB; leave the authorities that are needed"
