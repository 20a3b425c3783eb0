"""The meaning of exit codes, the same for every command; docs/commands.md documents it."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CHANGES = 7
    UNSERVED = 8
    ADDRESS_CHANGES = 10
    SOURCE_RANGES = 11
    PORTS = 12
    HEADROOM = 13
    HOSTNAMES = 14
    TLS = 15
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "success",
    Exit.FAILED: "something failed; the message says what, and what to do",
    Exit.USAGE: "invalid command line",
    Exit.CHANGES: "--expect-no-changes, and there are changes",
    Exit.UNSERVED: "`up --fail-on`: a Service is in one of these states; everything else was done",
    Exit.ADDRESS_CHANGES: "`preview`: an address changes, and local-lb:policies forbids it",
    Exit.SOURCE_RANGES: "`preview`: a port is open to everybody, and local-lb:policies forbids it",
    Exit.PORTS: "`preview`: a port isn't among those that local-lb:policies allows",
    Exit.HEADROOM: "`preview`: a pool keeps less room than local-lb:policies asks for",
    Exit.HOSTNAMES: "`preview`: a hostname isn't among those that local-lb:policies allows",
    Exit.TLS: "`preview`: requests are taken without TLS, and local-lb:policies forbids it",
    Exit.INTERRUPTED: "interrupted by Ctrl-C, SIGTERM or SIGHUP",
}
