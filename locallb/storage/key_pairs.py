"""Whether TLS can be served with a certificate and a key, asked of OpenSSL without a file on any disk.

Not here: whose they are, and the files that a proxy reads.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

_CURVES = frozenset({"secp256r1", "secp384r1", "secp521r1"})
"""Those with which Envoy serves. Another one would keep all of its proxy from being proven."""
_FOREIGN = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"})


def key_pair_fault(chain: bytes, key: bytes) -> str:
    """Return why TLS can't be served with them, without what is in them; empty where it can."""
    try:
        with _in_memory(chain) as chain_path, _in_memory(key) as key_path:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain_path, key_path, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        if reason in _FOREIGN:
            return "its tls.key isn't the key of its tls.crt; write the two that belong together"
        why = reason.replace("_", " ").lower()
        return f"its tls.crt or tls.key can't be used ({why}); write both in PEM, the key without a password"
    return _curve_fault(chain)


def _curve_fault(chain: bytes) -> str:
    from cryptography import x509  # noqa: PLC0415 - loaded where certificates are read only
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey  # noqa: PLC0415 - as above

    try:
        public = x509.load_pem_x509_certificate(chain).public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "its tls.crt can't be understood; write an X.509 certificate in PEM"
    if isinstance(public, EllipticCurvePublicKey) and public.curve.name not in _CURVES:
        return f"its key is on the curve {public.curve.name}; make one on P-256"
    return ""


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Name a file that is nowhere: Python's TLS reads from files alone."""
    with os.fdopen(os.memfd_create("tls"), "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"
