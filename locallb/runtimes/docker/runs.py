"""Containers as runs of Envoy: told to stop, found paused or silent, and their last words."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from locallb.envoy.waiting import comes_to_answer
from locallb.model.identities import ProxyId, RunIdentity
from locallb.resources.errors import ProviderError
from locallb.runtimes import draining
from locallb.runtimes.docker.containers import PROXY_LABEL
from locallb.runtimes.docker.daemon import ContainersError
from locallb.runtimes.docker.daemon import Document as Container
from locallb.runtimes.docker.engine_api import Containers
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies, is_id

START_PATIENCE = 10.0
"""Seconds until the Envoy of a container that was just started must answer; it takes 0.1 to 0.3."""


def drain_container(seen: Container) -> None:
    """Have the Envoy of a running container listen no longer, and give open connections a moment.

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


def drain(run: RunIdentity) -> None:
    """Drain it by its identity. Who removes the container says that Docker can't be asked."""
    with suppress(ContainersError):
        if seen := Containers().inspect(run.id):
            drain_container(seen)


def is_drained(run: RunIdentity, directory: Path) -> bool:
    """Return whether it was told to stop: its listeners look alive, for a moment or for good."""
    if not (directory / draining.STOPPING).exists():
        return False
    seen = Containers().inspect(run.id)
    return seen is not None and was_drained(seen)


def await_start(run: RunIdentity, directory: Path) -> None:
    """Wait for its Envoy: a container is made before that is ready.

    Refuses one that an interrupted run told to stop: it answers, but listens no longer.
    """
    if is_drained(run, directory):
        name = name_of(run)
        raise ProviderError(
            f"the container {name} was told to stop by a run that was interrupted:"
            f" `docker restart {name}`, then run up again"
        )
    comes_to_answer(directory, START_PATIENCE)


def is_paused(run: RunIdentity) -> bool:
    """Return whether a container is paused; the official plugin takes it for one that runs."""
    try:
        seen = Containers().inspect(run.id)
    except ContainersError:
        return False
    return bool(seen and seen["State"].get("Paused"))


def last_words(run: RunIdentity) -> str:
    """Return the end of a container's log: an image of another kind tells there what it is."""
    try:
        return Containers().logs(run.id, 2) or "it says nothing"
    except ContainersError as error:
        return str(error)


def end_hanging(directory: Path) -> None:
    """Stop the proxy's containers, where its directory is one that containers use. Raises ContainersError."""
    if Proxies(paths.proxies_root()).is_shared(ProxyId(directory.name)):
        for container in Containers().labelled(f"{PROXY_LABEL}={directory.name}"):
            Containers().stop(str(container["Id"]), 0)


def name_of(run: RunIdentity) -> str:
    """Return the name under which its user finds it."""
    return run.id[:12]


def _directory(seen: Container) -> Path | None:
    proxy = (seen["Config"].get("Labels") or {}).get(PROXY_LABEL, "")
    return Proxies(paths.proxies_root()).path(proxy) if is_id(proxy) else None


def _note(seen: Container) -> str:
    return f"{seen['Id']} {seen['State']['StartedAt']}\n"
