"""The only calls of macOS: reads and changes the aliases of lo0 by `ifconfig`. Untested on a Mac."""

from __future__ import annotations

from collections.abc import Sequence

from locallb.host.macos.aliases import DEVICE, adding, parsed, removing
from locallb.model.identities import IPAddress
from locallb.programs.program import Program

_SECONDS = 10


def aliases() -> frozenset[IPAddress]:
    """Return the addresses of lo0. Raises ProgramError."""
    return parsed(_run(("ifconfig", DEVICE)))


def change(address: IPAddress, *, wanted: bool) -> None:
    """Give lo0 an address, or take it away. Raises ProgramError."""
    _run(adding(address) if wanted else removing(address))


def _run(terms: Sequence[str]) -> str:
    return Program(tuple(terms), _SECONDS, "run this as root").output()
