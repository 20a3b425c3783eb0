"""Names of the files of an HTTP proxy: hashes, so that no name from a cluster becomes a path.

A file's name, without its ending, is what Envoy calls the resource in it as well.
"""

from __future__ import annotations

import hashlib

from locallb.model.http.serving import AnyCertificate, Chain, HttpListener
from locallb.model.serving import Upstream


def table(listener: HttpListener, chain: Chain) -> str:
    """Name the routes of a chain."""
    return f"rds-{_short(listener.name, *sorted(chain.names))}"


def clients(listener: HttpListener, chain: Chain) -> str:
    """Name the authorities that clients of a chain are checked by."""
    return f"sds-{_short('clients', listener.name, *sorted(chain.names))}"


def authorities(upstream: Upstream) -> str:
    """Name the authorities that an upstream's backends are checked by."""
    return f"sds-{_short('authorities', upstream.name)}"


def pair(certificate: AnyCertificate) -> str:
    """Name what says which files have a certificate and its key: the same for its successor."""
    return f"sds-{_secret(certificate)}"


def chain_file(certificate: AnyCertificate) -> str:
    """Name the file of a certificate; its successor's is another."""
    return f"tls-{_secret(certificate)}-{certificate.digest[:16]}.crt"


def key_file(certificate: AnyCertificate) -> str:
    """Name the file of a certificate's key."""
    return f"tls-{_secret(certificate)}-{certificate.digest[:16]}.key"


def _secret(certificate: AnyCertificate) -> str:
    return _short(*certificate.terms)


def _short(*terms: str) -> str:
    return hashlib.sha256("\n".join(terms).encode()).hexdigest()[:12]
