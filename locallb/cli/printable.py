"""Text from elsewhere, made fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replace what a terminal would act on: control characters, and whatever isn't printable."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
