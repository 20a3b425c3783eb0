"""Runs the tools that keep stores: lists of words, no shell, no terminal to ask for a password, and not for ever."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Sequence

from locallb.model.errors import ClientError
from locallb.model.formatting import shown

PATIENCE = 60
"""Seconds for a tool; gathering the system's certificates takes some."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]{1,65536}-----END CERTIFICATE-----")


class TrustError(ClientError):
    """A store can't be read or changed: one sentence."""


def find_tool(name: str) -> str:
    """Return where a tool is; empty if it isn't installed."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


def run(words: Sequence[str]) -> str:
    """Run a tool and return what it says. Raises TrustError with the last that it complained of."""
    program = find_tool(words[0])
    if not program:
        raise TrustError(f"{words[0]} isn't installed")
    try:
        done = subprocess.run(
            [program, *words[1:]],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE,
            start_new_session=True,
        )
    except OSError as error:
        raise TrustError(f"{words[0]} can't be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise TrustError(f"{words[0]} hasn't ended after {PATIENCE} s") from None
    if done.returncode:
        told = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise TrustError(f"{words[0]} says {shown(told[-1].removeprefix(f'{words[0]}: '))}")
    return done.stdout


def fingerprints(text: str) -> frozenset[str]:
    """Return the fingerprints of all certificates in a text; what is none is passed over."""
    return frozenset(filter(None, map(_fingerprint, _PEM.findall(text))))


def _fingerprint(pem: str) -> str:
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    except ValueError:
        return ""
