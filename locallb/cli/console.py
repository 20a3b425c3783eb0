"""The one place that prints: plain lines, colours on a terminal, no control characters from a cluster's names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, cast

from rich.cells import cell_len

from locallb.model.texts import printable

if TYPE_CHECKING:
    from rich.console import Console

_Part: TypeAlias = tuple[str, str]
"""A text and its style."""


class Stream:
    """A text stream that a program may write to whatever becomes of it; what went wrong first is kept."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: OSError | None = None
        self.used = False
        """Whether something was written."""

    def write(self, text: str) -> int:
        """Write, as long as that works."""
        self.used = True
        self._try(lambda: self._stream.write(text))
        return len(text)

    def write_bytes(self, document: bytes) -> None:
        """Write these bytes and no others, as long as that works."""
        self.used = True
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


class _Plain:
    """Lines without styles, for streams that aren't terminals."""

    is_terminal = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self, parts: Iterable[_Part]) -> None:
        self._stream.write("".join(text for text, _ in parts) + "\n")
        self._stream.flush()


class _Styled:
    """Lines with styles, where the terminal has them."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415 - only on a terminal

        self.console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        """Whether it is one, where the cursor can be moved."""
        return self.console.is_terminal

    def line(self, parts: Iterable[_Part]) -> None:
        from rich.text import Text  # noqa: PLC0415 - as above

        self.console.print(Text.assemble(*parts))


def _printer(stream: TextIO) -> _Plain | _Styled:
    """Choose by what the stream is, and by the variables that say otherwise."""
    stated = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"
    return _Styled(stream) if stated or _is_terminal(stream) else _Plain(stream)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # nobody's any more
        return False


class Out:
    """Standard output for results, standard error for complaints."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, *, render: Callable[[str], str] = str
    ) -> None:
        """Print to `out` and `err`; `render` completes commands in sentences."""
        self.render = render
        self.errors: list[str] = []
        """The complaints, a sentence each."""
        self._stream = Stream(out or sys.stdout)
        self._out = _printer(cast("TextIO", self._stream))
        self._err = _printer(cast("TextIO", Stream(err or sys.stderr)))

    @property
    def live(self) -> bool:
        """Return whether standard output is a terminal."""
        return self._out.is_terminal

    @property
    def redraws(self) -> bool:
        """Return whether what is shown there can be replaced: a dumb terminal only takes lines."""
        return self.live and not self.console.is_dumb_terminal

    @property
    def together(self) -> bool:
        """Return whether results and complaints go to one terminal, where the reader sees both."""
        return self._out.is_terminal and self._err.is_terminal

    @property
    def console(self) -> Console:
        """Return the console for live displays, which only a terminal has."""
        return cast("_Styled", self._out).console

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of parts, each a text or (text, style)."""
        self._out.line(self._styled(parts))

    def raw(self, text: str) -> None:
        """Print text of our own making as it is: JSON."""
        self._out.line([(text, "")])

    def document(self, text: str) -> None:
        """Write a whole document to standard output: these bytes (UTF-8) and no others, wherever it goes."""
        self._stream.write_bytes(text.encode())

    @property
    def used(self) -> bool:
        """Whether a result was printed."""
        return self._stream.used

    @property
    def removed(self) -> bool:
        """Whether writing to standard output has failed, such as without a reader."""
        return self._stream.fault is not None

    @property
    def fault(self) -> str:
        """Why standard output could not be written; empty if it could, or if a reader has had enough (`| head`)."""
        fault = self._stream.fault
        return "" if fault is None or isinstance(fault, BrokenPipeError) else str(fault.strerror or fault)

    def error(self, message: str) -> None:
        """Print one complaint, a line for each sentence."""
        for sentence in message.splitlines():
            self.errors.append(self.render(sentence))
            self._err.line(self._styled((("error: ", "bold red"), sentence)))

    def warning(self, message: str) -> None:
        self._err.line(self._styled((("warning: ", "yellow"), message)))

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str | tuple[str, str]]]) -> None:
        """Print aligned columns; no cell is ever cut or wrapped."""
        lines = [self._styled((name, "bold") for name in head), *map(self._styled, rows)]
        widths = [max(cell_len(text) for text, _ in column) for column in zip(*lines, strict=True)]
        for line in lines:
            while line and not line[-1][0]:  # a line has no blanks at its end
                line.pop()
            spaces = [" " * (width - cell_len(text) + GAP) for (text, _), width in zip(line, widths, strict=False)]
            padded = [part for cell, more in zip(line[:-1], spaces, strict=False) for part in (cell, (more, ""))]
            self._out.line([*padded, *line[-1:]])

    def _styled(self, parts: Iterable[str | _Part]) -> list[_Part]:
        both = ((part, "") if isinstance(part, str) else part for part in parts)
        return [(printable(self.render(terms)), style) for terms, style in both]


GAP = 3
"""Spaces between columns."""
