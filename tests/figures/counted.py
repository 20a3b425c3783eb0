"""Traffic that is counted, and what is reported of it."""

from __future__ import annotations

import socket
from typing import Any

from tests.support.stages import Stage


def reported(play: Stage, name: str) -> dict[str, Any]:
    """Return what is told of one Service's only row."""
    (row,) = play.run("top", "--once", "--json", name).json["services"]
    return dict(row)


def speak(address: str, size: int) -> int:
    """Send a line of so many bytes on a connection of its own; return how many bytes came back."""
    with socket.create_connection((address, 8080), 10) as client, client.makefile("rb") as lines:
        client.sendall(b"x" * (size - 1) + b"\n")
        return len(lines.readline())
