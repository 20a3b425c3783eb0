"""The one place that prints: plain lines, colours on a terminal, no control characters from a cluster's names."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text


def printable(text: str) -> str:
    """Replace what a terminal would act on: control characters, and whatever isn't printable."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class Out:
    """Standard output for results, standard error for complaints."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = Console(file=out or sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._err = Console(file=err or sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def live(self) -> bool:
        """Tell whether somebody looks at it, on a terminal."""
        return self._out.is_terminal

    @property
    def together(self) -> bool:
        """Return whether results and complaints go to one terminal: who sees the one sees the other."""
        return self._out.is_terminal and self._err.is_terminal

    @property
    def console(self) -> Console:
        """Give the console for live displays."""
        return self._out

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of parts, each a text or (text, style)."""
        self._out.print(_styled(parts))

    def raw(self, text: str) -> None:
        """Print text of our own making as it is: JSON."""
        self._out.print(text)

    def document(self, text: str) -> None:
        """Write a whole document to standard output: these bytes (UTF-8) and no others, wherever it goes."""
        stream = self._out.file
        stream.flush()
        binary = getattr(stream, "buffer", None)
        if binary is None:
            stream.write(text)
        else:
            binary.write(text.encode())
            binary.flush()

    def error(self, message: str) -> None:
        """Print one complaint, a line for each sentence."""
        for sentence in message.splitlines():
            self._err.print(_styled((("error: ", "bold red"), sentence)))

    def warning(self, message: str) -> None:
        """Print one warning."""
        self._err.print(_styled((("warning: ", "yellow"), message)))

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str | tuple[str, str]]]) -> None:
        """Print aligned columns; no cell is ever cut or wrapped."""
        lines = [[_styled(((name, "bold"),)) for name in head], *([_styled((cell,)) for cell in row] for row in rows)]
        widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]
        for line in lines:
            text = Text()
            for cell, width in zip(line, widths, strict=True):
                text.append_text(cell).append(" " * (width - cell.cell_len + GAP))
            text.rstrip()
            self._out.print(text)


GAP = 3
"""Spaces between columns."""


def _styled(parts: Iterable[str | tuple[str, str]]) -> Text:
    text = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(printable(words), style)
    return text
