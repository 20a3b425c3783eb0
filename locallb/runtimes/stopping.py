"""The end of a proxy's processes: found by what they carry in their environment, stopped without cutting clients short.

Who was told to stop is noted beside it, because it goes on answering although it listens no longer. Not here: starting.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from locallb.envoy.admin import EnvoyAdmin
from locallb.host.sockets import connections
from locallb.model.errors import ClientError
from locallb.model.identities import Protocol, ProxyId
from locallb.planning.containers import PROXY_LABEL
from locallb.runtimes import processes
from locallb.runtimes.docker import Containers
from locallb.runtimes.docker import Document as Container
from locallb.runtimes.processes import Process
from locallb.storage import files, paths
from locallb.storage.proxy_directories import PROXY_MARK, Proxies, is_id

LINGER = 2.0
"""Seconds that open connections get when their proxy is stopped."""
STOP_PATIENCE = 2.0
"""Seconds from SIGTERM to SIGKILL."""
STOPPING = "stopping"
"""Which process was told to stop, so that a run after an interrupted one doesn't take it for a proxy that serves."""
_PAUSE = 0.005


def running(directory: Path) -> tuple[Process, ...]:
    """Find the processes that were started for the proxy in `directory`, even if nobody noted them."""
    return processes.find(PROXY_MARK, str(directory))


def runs_in(directory: Path, process: Process) -> bool:
    """Return whether `process` lives, is ours, works in this very directory, and wasn't told to stop.

    The directory may have been removed and made again; who was told to stop listens no longer, though it still answers.
    """
    if processes.mark_of(process).get(PROXY_MARK) != str(directory):
        return False
    if _read_or_nothing(directory / STOPPING) == _stop_note(process):
        return False
    try:
        return Path(f"/proc/{process.pid}/cwd").samefile(directory)
    except OSError:
        return False


def stop_all(directory: Path) -> None:
    """Stop every process of the proxy in `directory`."""
    for process in running(directory):
        stop_process(directory, process)


def stop_process(directory: Path, process: Process) -> None:
    """Stop one: it listens no longer, open connections get LINGER seconds, then it ends. Raises ProcessError."""
    _drain(directory, _stop_note(process), process.pid)
    processes.stop(process, STOP_PATIENCE)


def end_hanging(directory: Path) -> None:
    """End an Envoy that runs but doesn't answer, as a process or in a container: it may listen still.

    Raises ProcessError, ContainersError.
    """
    stop_all(directory)
    proxies = Proxies(paths.proxies_root())
    if proxies.is_shared(ProxyId(directory.name)):  # with Docker; nobody else is asked
        for one in Containers().labelled(f"{PROXY_LABEL}={directory.name}"):
            Containers().stop(str(one["Id"]), 0)


def drain_container(seen: Container) -> None:
    """Have the Envoy of a running container listen no longer, and give open connections LINGER seconds.

    `seen` is what Docker tells of it. Once is enough, whoever deletes the proof or the container; an Envoy that
    doesn't answer has no connections worth waiting for.
    """
    directory, process = _container_directory(seen), int(seen["State"]["Pid"] or 0)
    if directory is not None and process and not was_drained(seen):
        _drain(directory, _container_note(seen), process)


def was_drained(seen: Container) -> bool:
    """Return whether this very run of a container was told to stop: it lives, but listens no longer."""
    directory = _container_directory(seen)
    return directory is not None and _read_or_nothing(directory / STOPPING) == _container_note(seen)


def _drain(directory: Path, note: str, process: int) -> None:
    with suppress(files.FilesError):  # no directory: nobody will take the process for one that serves
        files.write(directory / STOPPING, note)
    with suppress(ClientError):  # one that doesn't answer has no connections worth waiting for
        admin = EnvoyAdmin(directory)
        places = admin.places() | admin.draining()  # who is gone from a proxy of the stack may have streams, too
        listening = {(address, port) for address, port, protocol in places if protocol is Protocol.TCP}
        admin.drain()
        deadline = time.monotonic() + LINGER
        while connections(listening, process) and time.monotonic() < deadline:
            time.sleep(_PAUSE)


def _container_directory(seen: Container) -> Path | None:
    proxy = (seen["Config"].get("Labels") or {}).get(PROXY_LABEL, "")
    return Proxies(paths.proxies_root()).path(proxy) if is_id(proxy) else None


def _container_note(seen: Container) -> str:
    return f"{seen['Id']} {seen['State']['StartedAt']}\n"


def _stop_note(process: Process) -> str:
    return f"{process.pid} {process.started}\n"


def _read_or_nothing(path: Path) -> str:
    try:
        return files.read_shared(path) or ""
    except files.FilesError:
        return ""
