"""One question at an Envoy's admin socket, put and answered without waiting for anything.

Not here: what an answer says (`admin`), and how long it may take (`watch.marks.silence`).
"""

from __future__ import annotations

import socket
import struct
from enum import Enum
from pathlib import Path

from locallb.envoy.bootstrap import ADMIN_SOCKET
from locallb.storage.paths import by_descriptor

_REQUEST = b"GET /ready HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n"
_BYTES = 4096
_PEER = struct.Struct("3i")


class Reply(Enum):
    """What is known of a question."""

    NONE = "none"
    """It waits for an answer."""
    ANSWERED = "answered"
    ENDED = "ended"
    """The queried process has closed the connection without an answer, most often by ending."""


class QueueFullError(Exception):
    """The kernel's accept queue is full: the query was not sent."""


class Question:
    """A query whether an Envoy answers at all. Raises QueueFullError, and OSError if it can't connect."""

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            with by_descriptor(directory) as short:
                self._socket.connect(str(short / ADMIN_SOCKET))
            self.pid = _listener(self._socket)
            """Listening process; 0 if it is unknown."""
            self._socket.send(_REQUEST)
        except BlockingIOError:
            self._socket.close()
            raise QueueFullError from None
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor that gets readable with the answer."""
        return self._socket.fileno()

    def reply(self) -> Reply:
        """Return what came so far."""
        try:
            answer = self._socket.recv(_BYTES)
        except BlockingIOError:
            return Reply.NONE
        except OSError:
            return Reply.ENDED
        return Reply.ANSWERED if answer else Reply.ENDED

    def close(self) -> None:
        """Ask no more."""
        self._socket.close()


def _listener(connection: socket.socket) -> int:
    """Return the process that listens at the other end, as the kernel names it; 0 for one that isn't seen from here."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid: int = _PEER.unpack(answer)[0]
    return max(0, pid)
