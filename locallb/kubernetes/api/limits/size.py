"""The size limit of one answer: no API can fill the memory. Not here: lines of watches (`answers`)."""

from __future__ import annotations

import httpx2

from locallb.kubernetes.answers import AnswerError

LARGEST = 256 << 20
"""Bytes of one answer, unpacked. A page has 1000 objects at most, of which a large one has a tenth of a MiB."""


def read_whole(response: httpx2.Response) -> None:
    """Read an answer to its end, before anybody else does. Raises AnswerError where it is too large."""
    parts, size = [], 0
    for part in response.iter_bytes():
        size += len(part)
        if size > LARGEST:
            raise AnswerError(f"its answer is larger than {LARGEST >> 20} MiB")
        parts.append(part)
    response._content = b"".join(parts)  # noqa: SLF001 - as `read` does, which has no bound
