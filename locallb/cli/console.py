"""The one place that prints: plain lines, colours on a terminal, no control characters from a cluster's names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO, cast

from rich.console import Console
from rich.text import Text

from locallb.model.formatting import printable


class Stream:
    """A text stream that a program may write to whatever becomes of it; what went wrong first is kept."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def write(self, text: str) -> int:
        """Write, as long as that works."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def write_bytes(self, document: bytes) -> None:
        """Write these bytes and no others, as long as that works."""
        self.flush()
        binary = getattr(self._stream, "buffer", None)
        self._try(lambda: binary.write(document) if binary else self._stream.write(document.decode()))
        self.flush()

    def flush(self) -> None:
        """Flush, as long as that works."""
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a stream has
        return getattr(self._stream, name)

    def _try(self, action: Callable[[], object]) -> None:
        if self.fault is None:
            try:
                action()
            except OSError as error:
                self.fault = error


class Out:
    """Standard output for results, standard error for complaints."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, *, render: Callable[[str], str] = str
    ) -> None:
        """Print to `out` and `err`; `render` completes commands in sentences."""
        self.render = render
        self._stream = Stream(out or sys.stdout)
        out, err = cast("TextIO", self._stream), cast("TextIO", Stream(err or sys.stderr))
        self._out = Console(file=out, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._err = Console(file=err, highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def live(self) -> bool:
        """Return whether somebody looks at it, on a terminal."""
        return self._out.is_terminal

    @property
    def together(self) -> bool:
        """Return whether results and complaints go to one terminal: who sees the one sees the other."""
        return self._out.is_terminal and self._err.is_terminal

    @property
    def console(self) -> Console:
        """Return the console for live displays."""
        return self._out

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of parts, each a text or (text, style)."""
        self._out.print(self._styled(parts))

    def raw(self, text: str) -> None:
        """Print text of our own making as it is: JSON."""
        self._out.print(text)

    def document(self, text: str) -> None:
        """Write a whole document to standard output: these bytes (UTF-8) and no others, wherever it goes."""
        self._stream.write_bytes(text.encode())

    @property
    def gone(self) -> bool:
        """Whether nobody reads standard output any more, or nobody can."""
        return self._stream.fault is not None

    @property
    def fault(self) -> str:
        """Why standard output could not be written; empty if it could, or if a reader has had enough (`| head`)."""
        fault = self._stream.fault
        return "" if fault is None or isinstance(fault, BrokenPipeError) else str(fault.strerror or fault)

    def error(self, message: str) -> None:
        """Print one complaint, a line for each sentence."""
        for sentence in message.splitlines():
            self._err.print(self._styled((("error: ", "bold red"), sentence)))

    def warning(self, message: str) -> None:
        """Print one warning."""
        self._err.print(self._styled((("warning: ", "yellow"), message)))

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str | tuple[str, str]]]) -> None:
        """Print aligned columns; no cell is ever cut or wrapped."""
        lines = [self._cells((name, "bold") for name in head), *(self._cells(row) for row in rows)]
        widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]
        for line in lines:
            text = Text()
            for cell, width in zip(line, widths, strict=True):
                text.append_text(cell).append(" " * (width - cell.cell_len + GAP))
            text.rstrip()
            self._out.print(text)

    def _cells(self, row: Iterable[str | tuple[str, str]]) -> list[Text]:
        return [self._styled((cell,)) for cell in row]

    def _styled(self, parts: Iterable[str | tuple[str, str]]) -> Text:
        text = Text()
        for part in parts:
            words, style = (part, "") if isinstance(part, str) else part
            text.append(printable(self.render(words)), style)
        return text


GAP = 3
"""Spaces between columns."""
