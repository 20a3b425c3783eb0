"""Parses a TSIG key file as BIND writes it: `key "name" { algorithm hmac-sha256; secret "…"; };`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_COMMENT = re.compile(r'("[^"\n]*")|(?://|#)[^\n]*|/\*.*?\*/', re.DOTALL)
_KEY = re.compile(r'key\s+"?([\w.-]+)"?\s*\{([^}]*)\}')
_FIELD = re.compile(r'(algorithm|secret)\s+"?([\w.+/=-]+)"?\s*;')
ALGORITHMS = ("hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha1", "hmac-md5")


@dataclass(frozen=True, slots=True)
class TsigKey:
    """A key; its secret is never printed."""

    name: str
    algorithm: str
    secret: str = field(repr=False)


def parse_key(text: str) -> TsigKey | None:
    """Read the first key of a file, comments apart; None where there is none."""
    match = _KEY.search(_COMMENT.sub(lambda part: part[1] or " ", text))
    fields = dict(_FIELD.findall(match[2])) if match else {}
    algorithm = fields.get("algorithm", "hmac-sha256")
    if not match or "secret" not in fields or algorithm not in ALGORITHMS:
        return None
    return TsigKey(match[1], algorithm, fields["secret"])
