"""Containers as runs of Envoy, each drained at most once."""

from __future__ import annotations

from pathlib import Path

from locallb.runtimes import draining
from locallb.runtimes.docker.containers import PROXY_LABEL
from locallb.runtimes.docker.daemon import Document as Container
from locallb.storage.proxy_directories import Proxies, is_id


def drain_container(seen: Container) -> None:
    """Close the listeners of a running container's Envoy, and leave open connections a moment.

    `seen` is what Docker tells of it. Once is enough, whoever deletes the proof or the container; an Envoy that
    doesn't answer has no connections worth waiting for.
    """
    directory, process = _directory(seen), int(seen["State"]["Pid"] or 0)
    if directory is not None and process and not was_drained(seen):
        draining.drain(directory, _note(seen), process)


def was_drained(seen: Container) -> bool:
    """Return whether this very run of a container was told to stop: it lives, but listens no longer."""
    directory = _directory(seen)
    return directory is not None and draining.was_told(directory, _note(seen))


def _directory(seen: Container) -> Path | None:
    proxy = (seen["Config"].get("Labels") or {}).get(PROXY_LABEL, "")
    return Proxies.ours().path(proxy) if is_id(proxy) else None


def _note(seen: Container) -> str:
    return f"{seen['Id']} {seen['State']['StartedAt']}\n"
