"""Frames of SPDY/3.1, as far as port forwarding uses them. Pure.

Headers are compressed without the protocol's dictionary, which is optional for a sender, and those of the other side
are never read: what a reply says is that it came. Not here: the connection (`carriers`).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from enum import IntEnum
from struct import Struct as Layout
from typing import NamedTuple

VERSION = 0x8003
"""With the bit of control frames."""
HEADER = 8
"""Bytes before the content of a frame."""
LARGEST_CONTROL = 1 << 16
"""Bytes of a control frame: those of port forwarding have a few dozen."""
_HEAD, _NUMBERS = Layout(">II"), Layout(">IIBB")
_FIN = 1
_CANCEL = 5


class Kind(IntEnum):
    """Kinds of frames; DATA isn't a number of the protocol's."""

    DATA = 0
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


_KINDS = {kind.value: kind for kind in Kind if kind}
_OF_STREAMS = {Kind.SYN_REPLY, Kind.RST_STREAM, Kind.HEADERS}


class SpdyError(Exception):
    """The other side doesn't speak SPDY/3.1: half a sentence."""


class Frame(NamedTuple):
    """A control frame, or a piece of a data frame."""

    kind: Kind
    stream: int
    """0 if it is of none."""
    content: bytes
    ends: bool
    """Whether the other side sends nothing more on the stream."""


class FrameReader:
    """Takes bytes as they come, and returns frames. What it holds is less than a control frame."""

    def __init__(self) -> None:
        self._held = b""
        self._stream, self._remaining, self._ends = 0, 0, False

    def feed(self, data: bytes) -> list[Frame]:
        """Return what these bytes complete; data frames come in pieces. Raises SpdyError."""
        data, self._held = self._held + data if self._held else data, b""
        frames, at = list[Frame](), 0
        while at < len(data):
            if self._remaining:
                piece = data[at : at + self._remaining]
                at, self._remaining = at + len(piece), self._remaining - len(piece)
                frames.append(Frame(Kind.DATA, self._stream, piece, self._ends and not self._remaining))
                continue
            if len(data) - at < HEADER:
                break
            first, second = _HEAD.unpack_from(data, at)
            flags, size = second >> 24, second & 0xFFFFFF
            if not first >> 31:
                at += HEADER
                self._stream, self._remaining, self._ends = first, size, bool(flags & _FIN)
                if not size:
                    frames.append(Frame(Kind.DATA, first, b"", self._ends))
                continue
            _require_control(first, size)
            if len(data) - at < HEADER + size:
                break
            frames.append(_control(first & 0xFFFF, flags, data[at + HEADER : at + HEADER + size]))
            at += HEADER + size
        self._held = data[at:]
        return frames


def _require_control(first: int, size: int) -> None:
    if first >> 16 != VERSION:
        raise SpdyError("it answers with something that isn't SPDY/3.1")
    if size > LARGEST_CONTROL:
        raise SpdyError(f"it sends a control frame of {size} bytes, more than the {LARGEST_CONTROL} that are read")


def _control(number: int, flags: int, content: bytes) -> Frame:
    kind = _KINDS.get(number)
    if kind is None:
        raise SpdyError(f"it sends a control frame of type {number}, which SPDY/3.1 hasn't")
    if kind not in _OF_STREAMS:
        return Frame(kind, 0, content, ends=False)
    if len(content) < 4:  # noqa: PLR2004 - a number of a stream
        raise SpdyError("it sends a control frame without the number of its stream")
    ends = kind is Kind.RST_STREAM or bool(flags & _FIN)
    return Frame(kind, int.from_bytes(content[:4]) & 0x7FFFFFFF, content, ends)


class FrameWriter:
    """Makes the frames of one connection, of which the headers are compressed as one stream."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj()

    def open(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """Open a stream."""
        pairs = [text.encode() for pair in headers.items() for text in pair]
        block = len(headers).to_bytes(4) + b"".join(len(text).to_bytes(4) + text for text in pairs)
        compressed = self._compressor.compress(block) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        return _frame(Kind.SYN_STREAM, _NUMBERS.pack(stream, 0, 0, 0) + compressed)


def data_head(stream: int, size: int) -> bytes:
    """Return what comes before so many bytes of data."""
    return _HEAD.pack(stream, size)


def finish(stream: int) -> bytes:
    """Send nothing more on a stream."""
    return _HEAD.pack(stream, _FIN << 24)


def cancel(stream: int) -> bytes:
    """End a stream in both directions."""
    return _frame(Kind.RST_STREAM, _HEAD.pack(stream, _CANCEL))


def pong(ping: Frame) -> bytes:
    return _frame(Kind.PING, ping.content)


def _frame(kind: Kind, content: bytes) -> bytes:
    return _HEAD.pack(VERSION << 16 | kind, len(content)) + content
