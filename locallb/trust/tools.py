"""Runs the tools that keep stores, and reads certificates out of what they print."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Sequence

from locallb.model.errors import ClientError
from locallb.model.identities import Fingerprint
from locallb.programs.program import Program, ProgramError

TIMEOUT = 60
"""Seconds for a tool; gathering the system's certificates takes some."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]{1,65536}-----END CERTIFICATE-----")


class TrustError(ClientError):
    """A store can't be read or changed: one sentence."""


def run(terms: Sequence[str]) -> str:
    """Run a tool and return what it says. Raises TrustError with the last that it complained of."""
    try:
        return Program(tuple(terms), TIMEOUT).output()
    except ProgramError as error:
        raise TrustError(str(error)) from None


def fingerprints(text: str) -> frozenset[Fingerprint]:
    """Return the fingerprints of all certificates in a text; what is none is passed over."""
    return frozenset(filter(None, map(_fingerprint, _PEM.findall(text))))


def _fingerprint(pem: str) -> Fingerprint:
    try:
        return Fingerprint(hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest())
    except ValueError:
        return Fingerprint("")
