"""Certificates in Secrets as an input of the plan: a digest, or the reason that one can't be used.

Not here: which Secrets are read, and reading their keys when a proxy's certificates are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from locallb.kubernetes.parsing.relevant import Document
from locallb.kubernetes.parsing.tls_secrets import TlsSecretError, tls_pair
from locallb.storage.key_pairs import is_for_tcp_alone, key_pair_fault

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s[A-Za-z0-9+/=\s]+-----END [A-Z ]*PRIVATE KEY-----")
TYPE = "kubernetes.io/tls"


def certificate_summary(document: Document) -> Mapping[str, str | bool]:
    """Return the digest of a Secret's certificate and key, or why they can't be used."""
    try:
        pair = tls_pair(document)
    except TlsSecretError as error:
        return {"problem": f"{error}; write the certificate and the key in PEM"}
    for name, text, pattern in (("tls.crt", pair.chain, _CERTIFICATE), ("tls.key", pair.key, _KEY)):
        if not pattern.search(text):
            return {"problem": f"its {name} isn't PEM; write the certificate and the key in PEM"}
    why = key_pair_fault(pair.chain, pair.key)
    if why:
        return {"problem": why}
    return {"digest": pair.digest, **({"tcpOnly": True} if is_for_tcp_alone(pair.chain) else {})}
