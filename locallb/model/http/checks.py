"""Validation of texts in an HTTP configuration: header names and values, hostnames, paths, statuses; all bounded.

Each function returns its text or raises ValueError with one sentence that names it; every value of `http` is validated
here, so that nothing from a cluster reaches a proxy unvalidated. Not here: regular expressions (`regexes`).
"""

from __future__ import annotations

import re
import ssl
from functools import lru_cache

from locallb.model.formatting import shown

MAX_TEXT = 1024
"""Characters of a path, an expression or a value that is compared."""
MAX_VALUE = 4096
"""Characters of a header's value that is set."""
MAX_HOSTNAME = 253
MAX_AUTHORITIES = 256 << 10
"""Characters of the certificates of authorities together: what usual systems trust together fits."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOSTNAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_HOST = re.compile(r"(?:\*\.)?[a-z0-9._-]{1,253}")
_PATH = re.compile(r"/[\x21\x22\x24-\x3e\x40-\x7e]*")
_UNCHANGEABLE = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "upgrade", "content-length", "te"})
"""Headers of a message's host and length: set by the proxy alone."""


def header_name(text: str) -> str:
    """Return the name of a header or of a parameter: a token of RFC 9110."""
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{shown(text)} isn't the name of a header: use letters, digits and hyphens")
    return text


def changed_header(text: str) -> str:
    """Return the name of a header that may be set or removed."""
    if header_name(text).lower() in _UNCHANGEABLE or text.lower().startswith("x-envoy-"):
        raise ValueError(f"the header {shown(text)} is the proxy's own: it can't be set or removed")
    return text


def header_value(text: str) -> str:
    """Return what a header is set to: no line ends in it, and neither does another header begin."""
    if len(text) > MAX_VALUE or not _VALUE.fullmatch(text):
        raise ValueError(f"{shown(text)} isn't a header's value: at most {MAX_VALUE} characters, none that ends a line")
    return text


def compared(text: str) -> str:
    """Return a value that a header or parameter is compared with."""
    if len(text) > MAX_TEXT or not _VALUE.fullmatch(text):
        raise ValueError(f"{shown(text)} can't be compared: at most {MAX_TEXT} characters, none that ends a line")
    return text


def hostname(text: str, *, wildcard: bool = True) -> str:
    """Return a hostname in lower case, or `*.` and a name if wildcards are allowed; no address, no port."""
    fits = len(text) <= MAX_HOSTNAME and _HOSTNAME.fullmatch(text) and (wildcard or not text.startswith("*"))
    if not fits:
        raise ValueError(f"{shown(text)} isn't a hostname: use lower-case labels of letters, digits and hyphens")
    return text


def host(text: str) -> str:
    """Return what requests may name as their host, or `*.` and a name: hostnames, and names that DNS doesn't have."""
    if not _HOST.fullmatch(text):
        raise ValueError(f"{shown(text)} is no host of requests: use lower-case letters, digits, hyphens and dots")
    return text


def path(text: str) -> str:
    """Return a path: it begins with a slash and has neither query, fragment nor blanks."""
    if len(text) > MAX_TEXT or not _PATH.fullmatch(text):
        raise ValueError(f"{shown(text)} isn't a path: begin with a slash, use at most {MAX_TEXT} printable characters")
    return text


@lru_cache(maxsize=64)
def authorities(pem: str) -> str:
    """Return certificates in PEM, at least one, that can be read, and not too many."""
    if len(pem) > MAX_AUTHORITIES:
        raise ValueError(f"the authorities are larger than {MAX_AUTHORITIES >> 10} KiB")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, TypeError, ValueError) as error:
        raise ValueError("the authorities aren't certificates in PEM") from error
    return pem


def within(number: int, low: int, high: int, what: str) -> int:
    """Return a number that lies within its limits."""
    if not low <= number <= high:
        raise ValueError(f"{what} {number} isn't within {low} and {high}")
    return number
