"""Validation of a TLS certificate and key by OpenSSL, without a file on any disk.

Not here: their owner, and the files that a proxy reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from locallb.storage import files

_CURVES = frozenset({"secp256r1", "secp384r1", "secp521r1"})
"""Those with which Envoy serves."""
_ALGORITHMS = frozenset(
    bytes.fromhex(text)
    for text in (
        "300d06092a864886f70d0101010500",  # RSA
        "301306072a8648ce3d020106082a8648ce3d030107",  # P-256
        "301006072a8648ce3d020106052b81040022",  # P-384
        "301006072a8648ce3d020106052b81040023",  # P-521
        "300506032b6570",  # Ed25519
    )
)
"""How those kinds of keys are named with which Envoy serves: neither DSA nor RSA-PSS, and curves by name."""
_SMALLEST_RSA, _LARGEST_RSA, _LARGEST_EXPONENT = 2048, 16384, 33
_VERSION = 0xA0
_REMEDY = "make one of RSA with 2048 bits, or on P-256"
_FOREIGN = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"})


def key_pair_fault(chain: bytes, key: bytes) -> str:
    """Return why TLS can't be served with them, without what is in them; empty where it can."""
    import ssl  # noqa: PLC0415 - as below

    try:
        with in_memory(chain) as chain_path, in_memory(key) as key_path:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain_path, key_path, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        if reason in _FOREIGN:
            return "its tls.key isn't the key of its tls.crt; write the two that belong together"
        if reason == "EE_KEY_TOO_SMALL":
            return f"its key is too small; {_REMEDY}"
        why = reason.replace("_", " ").lower()
        return f"its tls.crt or tls.key can't be used ({why}); write both in PEM, the key without a password"
    return _kind_fault(chain)


def is_for_tcp_alone(chain: bytes) -> bool:
    """Return whether Envoy serves with the key of a certificate by TCP and not by QUIC."""
    from cryptography import x509  # noqa: PLC0415 - as below
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - as below

    return isinstance(x509.load_pem_x509_certificate(chain).public_key(), Ed25519PublicKey)


def _kind_fault(chain: bytes) -> str:
    """Return why Envoy doesn't serve with a key of a kind that would hold up all of its proxy."""
    from cryptography import x509  # noqa: PLC0415 - loaded where certificates are read only
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # noqa: PLC0415 - as above

    try:
        certificate = x509.load_pem_x509_certificate(chain)
        public, algorithm = certificate.public_key(), _algorithm(certificate.tbs_certificate_bytes)
    except (ValueError, UnsupportedAlgorithm, IndexError):
        return "its tls.crt can't be understood; write an X.509 certificate in PEM"
    if isinstance(public, EllipticCurvePublicKey) and public.curve.name not in _CURVES:
        return f"its key is on the curve {public.curve.name}; make one on P-256"
    if algorithm not in _ALGORITHMS:
        return f"its key is of a kind with which Envoy doesn't serve; {_REMEDY}"
    if isinstance(public, RSAPublicKey):
        exponent = public.public_numbers().e
        if not _SMALLEST_RSA <= public.key_size <= _LARGEST_RSA or exponent.bit_length() > _LARGEST_EXPONENT:
            return f"its key is of RSA with {public.key_size} bits and an exponent of {exponent:.10g}; {_REMEDY}"
    return ""


def _algorithm(der: bytes) -> bytes:
    """Return how a certificate names the kind of its key, as it stands there: libraries read more than they tell."""
    at, _ = _element(der, 0)
    if der[at] == _VERSION:
        _, at = _element(der, at)
    for _name in ("serial", "signature", "issuer", "validity", "subject"):
        _, at = _element(der, at)
    at, _ = _element(der, at)
    return der[at : _element(der, at)[1]]


def _element(der: bytes, at: int) -> tuple[int, int]:
    """Return where what is in an element begins, and where it ends."""
    start, length = at + 2, der[at + 1]
    if length & 0x80:
        many = length & 0x7F
        start, length = start + many, int.from_bytes(der[start : start + many])
    return start, start + length


@contextmanager
def in_memory(content: bytes) -> Iterator[str]:
    """Name a file that is on no disk, where the kernel has such: Python's TLS reads from files alone."""
    if not hasattr(os, "memfd_create"):  # macOS
        with files.scratch("certificates") as directory:
            path = directory / "content"
            files.write(path, content.decode())
            yield str(path)
        return
    with os.fdopen(os.memfd_create("tls"), "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"
