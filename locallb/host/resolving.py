"""Resolves a name by this host's own resolver, as every program here does, and by a zone's server."""

from __future__ import annotations

import socket
from queue import Empty, SimpleQueue

from locallb.dns.zones import Zone
from locallb.host.observation import NameSeen
from locallb.threads.supervised import Task, do_once

PATIENCE = 3.0
"""Seconds for the resolver, which may itself wait for servers that are away."""


def look(name: str, zone: Zone) -> NameSeen:
    """See what both answer."""
    return NameSeen(name, str(zone.server), asked_at(name, zone), asked_here(name))


def asked_here(name: str) -> frozenset[str]:
    """Return the addresses that this host's resolver knows for a name; none where it doesn't answer in time."""
    answers: SimpleQueue[frozenset[str]] = SimpleQueue()
    # Not in an executor, whose threads are waited for at the end of the process.
    do_once(Task.RESOLVER, f"resolver {name}", lambda: answers.put(_resolved(name)))
    try:
        return answers.get(timeout=PATIENCE)
    except Empty:
        return frozenset()


def asked_at(name: str, zone: Zone) -> frozenset[str] | None:
    """Return the addresses that the zone's server knows; None where it doesn't answer."""
    from locallb.dns.rfc2136 import NameServer, NameServerError  # noqa: PLC0415 - for stacks with zones only

    try:
        seen = NameServer(zone.name, str(zone.server.address), zone.server.port).addresses(name)
    except NameServerError:
        return None
    return frozenset(seen)


def _resolved(name: str) -> frozenset[str]:
    try:
        return frozenset(str(entry[4][0]) for entry in socket.getaddrinfo(name, None))
    except OSError:
        return frozenset()
