"""Upgraded connections to pods, each of which carries one connection of a client at a time, and is used again.

They speak SPDY/3.1, as far as port forwarding uses it. Headers are compressed without the protocol's dictionary, which
is optional for a sender, and those of the other side are never read: what a reply says is that it came.

SPDY has no flow control here: its servers read whatever comes and stop only when their own peer does. With one stream
at a time the kernel's buffers of both connections are the bound, and a slow client holds up nobody else. A pair of
streams is opened for each client: one for data, one on which the kubelet says why there are none.

Bytes of a client that a pod has not taken for certain are kept, so that another pod can get them. Not here: which pod
is tried (`process`).
"""

from __future__ import annotations

import asyncio
import select
import ssl
import zlib
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from socket import SHUT_WR, socket
from struct import Struct as Layout
from typing import TYPE_CHECKING, NamedTuple

from locallb.patterns import pattern

if TYPE_CHECKING:
    from locallb.kubernetes.api.upgrade import Upgraded

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


PIECE = 1 << 16
"""Bytes that are read at once, on either side."""
REPLAYED = 1 << 16
"""Bytes of a client that are kept for another pod, until the first one answers."""
ANSWER = 5.0
"""Seconds for the reply to a new stream."""
LAST_TERMS = 1.0
"""Seconds for the end of the stream of errors, once the other one has ended."""
_REMAINS = 256
"""Pieces for a client that has left, that are passed over before the next one."""
_LONGEST = 500
"""Bytes of an error."""
_LAST = 1 << 30
"""The number of a stream after which a connection isn't used again."""
_UNTAKEN = pattern(
    r"refused|\bdial\b|not found|no such|not running|unreachable|does not exist|failed to (?:find|connect)|no route"
)
"""What the kubelet or a container runtime say where no process of the pod has accepted the connection."""


class CarrierError(Exception):
    """A connection to a pod can't be made or used: half a sentence."""


class UntakenError(CarrierError):
    """It can't, and nothing in the pod has accepted the client."""


def settle(ready: asyncio.Future[None]) -> None:
    """Let a wait end, once."""
    if not ready.done():
        ready.set_result(None)


async def readable(connection: socket) -> None:
    """Wait until there is something to take. It is taken by the caller: a cancelled wait loses nothing."""
    loop, number = asyncio.get_running_loop(), connection.fileno()
    if number < 0:
        raise ConnectionAbortedError
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(number, settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(number)


class Client:
    """A client's connection, and which of its bytes no pod has taken for certain."""

    def __init__(self, connection: socket) -> None:
        self.connection = connection
        self.unanswered: bytearray | None = bytearray()
        """None once a pod has answered, or there are too many."""
        self.has_ended = False
        """Whether it sends nothing more."""

    def note(self, data: bytes) -> None:
        if self.unanswered is not None:
            self.unanswered += data
            if len(self.unanswered) > REPLAYED:
                self.unanswered = None

    @property
    def has_left(self) -> bool:
        """Return whether it reads nothing more either."""
        poll = select.poll()
        poll.register(self.connection, select.POLLHUP)
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


class Wire:
    """A socket that doesn't block, in plain TCP or TLS, as coroutines."""

    def __init__(self, upgraded: Upgraded) -> None:
        self._upgraded, self._socket = upgraded, upgraded.socket
        self._loop = asyncio.get_running_loop()
        self._writing = asyncio.Lock()
        self.is_torn = False
        """Whether a frame was begun and not ended."""

    async def read(self) -> bytes:
        """Return what comes next; empty at the end. Raises OSError."""
        while True:
            try:
                return self._socket.recv(PIECE)
            except (ssl.SSLWantReadError, BlockingIOError):
                await readable(self._socket)
            except ssl.SSLWantWriteError:
                await asyncio.sleep(0.001)

    def buffered(self) -> bytes | None:
        """Return what has come already; empty at the end, None if nothing has. Raises OSError."""
        try:
            return self._socket.recv(PIECE)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return None

    async def write(self, data: bytes) -> None:
        """Send whole frames. Raises OSError."""
        async with self._writing:
            self.is_torn, remaining = True, memoryview(data)
            while remaining:
                try:
                    remaining = remaining[self._socket.send(remaining) :]
                except (ssl.SSLWantWriteError, BlockingIOError):
                    await self._writable()
                except ssl.SSLWantReadError:
                    await asyncio.sleep(0.001)
            self.is_torn = False

    async def _writable(self) -> None:
        ready, number = self._loop.create_future(), self._socket.fileno()
        if number < 0:
            raise ConnectionAbortedError
        self._loop.add_writer(number, settle, ready)
        try:
            await ready
        finally:
            self._loop.remove_writer(number)

    def close(self) -> None:
        number = self._socket.fileno()
        if number >= 0:
            self._loop.remove_reader(number)
            self._loop.remove_writer(number)
        with suppress(OSError):
            self._upgraded.close()


class Carrier:
    """An upgraded connection to one pod."""

    def __init__(self, upgraded: Upgraded) -> None:
        self._wire = Wire(upgraded)
        self._frames, self._writer = FrameReader(), FrameWriter()
        self._error_stream, self._data_stream = -1, -1
        self._next, self._early = 1, list[Frame]()
        self._error, self._errors_ended = "", False
        self._goes, self._has_sent = False, False
        self.answered = False
        """Whether the pod has sent anything to the present client."""

    @property
    def is_usable(self) -> bool:
        """Return whether it can carry another client: nothing has come meanwhile that ends it."""
        if self._wire.is_torn or self._goes or self._next > _LAST:
            return False
        with suppress(OSError, SpdyError):
            for _ in range(_REMAINS):
                if (data := self._wire.buffered()) is None:
                    return True
                if not data or any(frame.kind is Kind.GOAWAY for frame in self._frames.feed(data)):
                    return False
        return False

    def close(self) -> None:
        self._wire.close()

    async def open(self, port: int) -> None:
        """Open the streams for a client. Raises CarrierError."""
        self._error_stream, self._data_stream, self._next = self._next, self._next + 2, self._next + 4
        self._error, self._errors_ended, self._early = "", False, []
        self.answered, self._has_sent = False, False
        headers = {"port": str(port), "requestid": str(self._data_stream)}
        opening = [
            self._writer.open(self._error_stream, {"streamtype": "error", **headers}),
            self._writer.open(self._data_stream, {"streamtype": "data", **headers}),
        ]
        try:
            async with asyncio.timeout(ANSWER):
                await self._wire.write(b"".join(opening))
                await self._replies()
                await self._wire.write(finish(self._error_stream))
        except TimeoutError:
            raise CarrierError(f"its kubelet answers nothing within {ANSWER:g} s") from None
        except OSError as error:
            raise CarrierError(
                f"the API server ended the connection ({error.strerror or type(error).__name__})"
            ) from None
        except SpdyError as error:
            raise CarrierError(str(error)) from None

    async def _replies(self) -> None:
        """Wait for the replies to both streams; keep what comes after them."""
        wanted = {self._error_stream, self._data_stream}
        while wanted:
            for frame in await self._read():
                if frame.kind is Kind.SYN_REPLY:
                    wanted.discard(frame.stream)
                elif frame.kind is Kind.RST_STREAM and frame.stream in wanted:
                    raise CarrierError("its kubelet refuses the connection")
                elif frame.stream in {self._error_stream, self._data_stream}:
                    self._early.append(frame)

    async def _received(self) -> list[Frame]:
        """Return the next frames, those first that came early. Raises CarrierError, OSError, SpdyError."""
        if self._early:
            early, self._early = self._early, []
            return early
        return await self._read()

    async def _read(self) -> list[Frame]:
        if not (data := await self._wire.read()):
            raise CarrierError("the API server ended the connection")
        frames = self._frames.feed(data)
        for frame in frames:
            if frame.kind is Kind.PING and int.from_bytes(frame.content[:4]) % 2 == 0:
                await self._wire.write(pong(frame))
            elif frame.kind is Kind.GOAWAY:
                self._goes = True
                if int.from_bytes(frame.content[:4]) < self._data_stream:
                    raise UntakenError("its kubelet takes no further connection")
        return frames

    async def carry(self, client: Client) -> bool:
        """Carry a client's bytes both ways until one side ends; return whether another client may follow.

        Raises CarrierError where the pod has failed: while the client has bytes `unanswered`, another one may get it.
        """
        sending = asyncio.create_task(self._send(client))
        receiving = asyncio.create_task(self._receive(client))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not receiving.done() and sending.result():
                await _stopped(receiving)
                return await self._cancel()
            took_all = await receiving
            await _stopped(sending)
            return await self._ended(client, took_all)
        except UntakenError:
            raise
        except (CarrierError, OSError, SpdyError) as error:
            if self._has_sent:
                client.unanswered = None
            raise CarrierError(str(error) or type(error).__name__) from None
        finally:
            await _stopped(sending, receiving)

    async def _send(self, client: Client) -> bool:
        """Send what the client sends; return whether it is gone for good. Raises OSError of the API's side."""
        if client.unanswered:
            await self._write(bytes(client.unanswered))
        while not client.has_ended:
            try:
                await readable(client.connection)
                data = client.connection.recv(PIECE)
            except OSError:
                return True
            if not data:
                client.has_ended = True
                break
            client.note(data)
            await self._write(data)
        if client.has_left:
            return True
        await self._wire.write(finish(self._data_stream))
        return await self._left(client)

    async def _write(self, data: bytes) -> None:
        self._has_sent = True
        await self._wire.write(data_head(self._data_stream, len(data)) + data)

    async def _left(self, client: Client) -> bool:
        """Wait until a client that sends nothing more reads nothing more either."""
        while not client.has_left:  # noqa: ASYNC110 - the kernel tells the event loop of half an end only
            await asyncio.sleep(0.05)
        return True

    async def _receive(self, client: Client) -> bool:
        """Give the client what the pod sends; return whether it took all until the pod's end."""
        loop = asyncio.get_running_loop()
        while True:
            frames = await self._received()
            for index, frame in enumerate(frames):
                if frame.stream == self._error_stream:
                    self._hear(frame)
                elif frame.stream == self._data_stream:
                    if frame.kind is Kind.DATA and frame.content:
                        self.answered, client.unanswered = True, None
                        try:
                            await loop.sock_sendall(client.connection, frame.content)
                        except OSError:
                            return False
                    if frame.ends:
                        self._early = frames[index + 1 :]
                        return True
            if self._errors_ended and self._error:
                return True

    def _hear(self, frame: Frame) -> None:
        if frame.kind is Kind.DATA:
            self._error = (self._error + frame.content.decode(errors="replace"))[:_LONGEST]
        self._errors_ended = self._errors_ended or frame.ends

    async def _cancel(self) -> bool:
        if self._wire.is_torn:
            return False
        try:
            async with asyncio.timeout(ANSWER):
                await self._wire.write(cancel(self._data_stream) + cancel(self._error_stream))
        except (TimeoutError, OSError):
            return False
        return True

    async def _ended(self, client: Client, took_all: bool) -> bool:  # noqa: FBT001 - a result
        """Find out why the pod's side has ended; tell the client that it has. Raises CarrierError."""
        if not took_all:
            return await self._cancel()
        try:
            async with asyncio.timeout(LAST_TERMS):
                while not self._errors_ended:
                    for frame in await self._received():
                        if frame.stream == self._error_stream:
                            self._hear(frame)
        except TimeoutError:
            pass
        if self._error and not self.answered:
            raise (UntakenError if _UNTAKEN.search(self._error) else CarrierError)(self._error)
        with suppress(OSError):
            client.connection.shutdown(SHUT_WR)
        return self._errors_ended and not self._error and await self._cancel()


async def _stopped(*tasks: asyncio.Task[bool]) -> None:
    if pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending)
