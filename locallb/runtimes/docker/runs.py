"""Containers as runs of Envoy: each is drained at most once, and some only serve again after a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path

from locallb.envoy import ADMIN_SOCKET
from locallb.model.identities import Protocol
from locallb.planning.runs import Place
from locallb.runtimes import draining
from locallb.runtimes.docker.containers import DIRECTORY, PROXY_LABEL
from locallb.runtimes.docker.daemon import Document as Container
from locallb.runtimes.published_ports import unpublished_places
from locallb.storage.proxy_directories import Proxies, is_id

START_SECONDS = 10.0
"""Seconds until the Envoy of a container that was just started must answer; it takes 0.1 to 0.3."""


def drain_container(observed: Container) -> None:
    """Close the listeners of a running container's Envoy, and leave open connections a moment.

    `observed` is Docker's description of it. Draining once is enough, even if the marker or the container is deleted;
    an Envoy that doesn't answer has no connections worth waiting for.
    """
    directory, process = _directory(observed), int(observed["State"]["Pid"] or 0)
    if directory is not None and process and not was_drained(observed):
        draining.drain(directory, _note(observed), process)


def was_drained(observed: Container) -> bool:
    """Return whether this run of a container was drained: it lives, but listens no longer."""
    directory = _directory(observed)
    return directory is not None and draining.was_notified(directory, _note(observed))


def needs_restart(observed: Container) -> bool:
    """Return whether a container runs and yet can't serve until it is started again.

    It was drained, it has another directory than the proxy's (which was removed and made again), or this host no longer
    holds one of its published ports (their forwarder ended).
    """
    state = observed["State"]
    if not state["Running"] or state.get("Restarting") or state.get("Paused"):
        return was_drained(observed)
    return was_drained(observed) or _has_lost_directory(observed) or any(unpublished_places(published_places(observed)))


def published_places(observed: Container) -> Iterator[Place]:
    """Return the ports of this host that are published for a container now; none if it doesn't run."""
    for inner, bindings in (observed["NetworkSettings"].get("Ports") or {}).items():
        protocol = Protocol(inner.rpartition("/")[2].upper())
        yield from ((ip_address(binding["HostIp"]), int(binding["HostPort"]), protocol) for binding in bindings or ())


def lacks_network(observed: Container, network: str) -> bool:
    """Return whether a container was taken from a network, which is given by its name or id."""
    connected = (observed["NetworkSettings"].get("Networks") or {}).items()
    return not any(network in {name, existing.get("NetworkID")} for name, existing in connected)


def _has_lost_directory(observed: Container) -> bool:
    directory, pid = _directory(observed), int(observed["State"]["Pid"] or 0)
    if directory is None or not pid:
        return False
    try:
        mounted = Path(f"/proc/{pid}/root{DIRECTORY}").stat()
    except OSError:  # most often for want of a right: then its socket tells, once there should be one
        return not os.path.lexists(directory / ADMIN_SOCKET) and started_before(observed, time.time() - START_SECONDS)
    try:
        return not os.path.samestat(mounted, directory.stat())
    except OSError:
        return True


def started_before(observed: Container, at: float) -> bool:
    """Return whether the run of a container began before that time (Unix); False if its start is unknown."""
    try:
        return datetime.fromisoformat(str(observed["State"]["StartedAt"])).timestamp() < at
    except (ValueError, TypeError):
        return False


def _directory(observed: Container) -> Path | None:
    proxy = (observed["Config"].get("Labels") or {}).get(PROXY_LABEL, "")
    return Proxies.ours().path(proxy) if is_id(proxy) else None


def _note(observed: Container) -> str:
    return f"{observed['Id']} {observed['State']['StartedAt']}\n"
