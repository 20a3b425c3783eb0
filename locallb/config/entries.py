"""The interface for implementations to parse their part of the configuration: entries of `sources`, keys of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Protocol, cast

from locallb.config.registry import OUTPUTS, SOURCES, Finder, Source
from locallb.config.values import Mistakes


class SourceEntry(Protocol):
    """Parser of a source entry of one type."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it may have, its own word first."""

    @property
    def finds(self) -> bool:
        """Whether it gives a finder, not a source."""

    @property
    def single_entry_example(self) -> str:
        """An example with everything in one entry, if only one is allowed; otherwise empty."""

    def parse(self, mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> Source | Finder | None:
        """Return the parsed entry at `key`; None if it is invalid, which is noted."""


class OutputEntry(Protocol):
    """Parser of the stack's key with an output's name."""

    def parse(self, mistakes: Mistakes, key: str, value: object) -> object:
        """Return the output's parsed settings, frozen and comparable."""


def output_entry(word: str) -> OutputEntry:
    """Return how the key of an output is parsed."""
    return cast("OutputEntry", OUTPUTS.load(word, "entry"))


@cache
def source_entry(word: str) -> SourceEntry:
    """Return how entries of a type are parsed."""
    return cast("SourceEntry", SOURCES.load(word, "entry"))
