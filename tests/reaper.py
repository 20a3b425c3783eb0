"""The process beside a test run that ends what the run started, should it be killed before it could do so itself.

    python reaper.py SESSION PIDFD

SESSION stands in the environment of whatever the run starts (`left_behind`), PIDFD is the run's own descriptor.
Standard input names the run's temporary directories, a line each, and at a good end says goodbye: then nothing is
ended. It is in a session of its own, so that what kills the run's group leaves it alone, and needs nothing but Python's
own library. Linux only. Not here: files, mounts and network devices, which stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

VARIABLE = "LOCALLB_TEST_SESSION"
GOODBYE = "goodbye"
ROUNDS, PAUSE = 200, 0.05
"""Until no more is found twice: who is ended may just have started another one."""
ENGINES = ("docker", "podman")
PODMAN_SETTINGS = "containers.conf"
"""The file that a Podman of the tests' own has in its directory, beside its `storage`."""
TIMEOUT = 20.0
"""Seconds until an engine that doesn't answer is given up."""


def is_below(path: str, directories: Collection[str]) -> bool:
    """Return whether a path is one of the directories, or lies in one."""
    return any(path == one or path.startswith(f"{one}/") for one in directories)


def is_of(pid: int, session: str, directories: Collection[str]) -> bool:
    """Return whether a process was started by the session, or works in one of its directories."""
    place = Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):
        if f"{VARIABLE}={session}".encode() in (place / "environ").read_bytes().split(b"\0"):
            return True
    with contextlib.suppress(OSError):
        return is_below(str((place / "cwd").readlink()).removesuffix(" (deleted)"), directories)
    return False


def end_processes(session: str, directories: Collection[str]) -> int:
    """Kill what is the session's; return how many there were."""
    ended = 0
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        if pid != os.getpid() and is_of(pid, session, directories):
            ended += _end(pid, session, directories)
    return ended


def _end(pid: int, session: str, directories: Collection[str]) -> bool:
    """Kill a process that is still the session's: its number may be another one's meanwhile, a descriptor never is."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if is_of(pid, session, directories):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def those_of(inspected: Collection[Mapping[str, Any]], directories: Collection[str]) -> list[str]:
    """Return the ids of containers or networks that name one of the directories in a label, or mount from it."""
    return [
        str(one.get("Id") or one.get("id")) for one in inspected if any(is_below(p, directories) for p in _paths(one))
    ]


def _paths(one: Mapping[str, Any]) -> Iterator[str]:
    for labels in (one.get("Labels"), one.get("labels"), (one.get("Config") or {}).get("Labels")):
        yield from (labels or {}).values()
    yield from (str(mount.get("Source", "")) for mount in one.get("Mounts") or ())


def is_used(engine: str) -> bool:
    """Return whether an engine may have containers: one that a user's Podman has never made storage for has none.

    To ask that Podman would make its storage, and start a process that stays.
    """
    if engine == "podman" and os.geteuid() != 0:
        data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        return shutil.which(engine) is not None and (data / "containers" / "storage").is_dir()
    return shutil.which(engine) is not None


def remove_containers(directories: Collection[str]) -> None:
    """Remove containers and networks of the session from every engine that answers."""
    for engine in filter(is_used, ENGINES):
        for listing, reading, removing in (
            (("ps", "--all", "--quiet"), ("inspect",), ("rm", "--force", "--volumes")),
            (("network", "ls", "--quiet"), ("network", "inspect"), ("network", "rm")),
        ):
            listed = _ask(engine, *listing).split()
            inspected = json.loads(_ask(engine, *reading, *listed) or "[]") if listed else []
            if ids := those_of(inspected, directories):
                _ask(engine, *removing, *ids)


def remove_from_own_podmans(directories: Collection[str]) -> None:
    """Remove all containers of Podmans whose storage is the session's: they have neither its mark nor its directory."""
    for directory in filter(os.path.isdir, directories):
        settings, storage = Path(directory) / PODMAN_SETTINGS, Path(directory) / "storage"
        if settings.is_file() and storage.is_dir() and shutil.which("podman"):
            places = ("--root", str(storage), "--runroot", f"{directory}/run/containers")
            _ask("podman", *places, "rm", "--all", "--force", "--time", "0", CONTAINERS_CONF=str(settings))


def _ask(*terms: str, **environment: str) -> str:
    """Return what an engine prints; nothing where it doesn't answer. Of what is gone meanwhile it prints nothing."""
    retained = {**os.environ, **environment}
    try:
        done = subprocess.run(terms, check=False, capture_output=True, text=True, timeout=TIMEOUT, env=retained)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def listen(run: int) -> Collection[str] | None:
    """Collect the directories until the run is over; None after its goodbye."""
    text, lines, descriptors = b"", sys.stdin.fileno(), {run, sys.stdin.fileno()}
    while GOODBYE.encode() not in text.splitlines():  # forked children of the run keep its end of the pipe open
        ready, _, _ = select.select(descriptors, [], [])
        if lines in ready:
            text += (piece := os.read(lines, 1 << 16))
            descriptors -= set() if piece else {lines}
        elif run in ready:
            break
    reported = text.decode().splitlines()
    return None if GOODBYE in reported else set(reported)


def main() -> None:
    """Wait for the end of the run, and end what it left."""
    session, run = sys.argv[1], int(sys.argv[2])
    if (directories := listen(run)) is None:
        return
    quiet = 0
    for _ in range(ROUNDS):
        quiet = 0 if end_processes(session, directories) else quiet + 1
        if quiet > 1:
            break
        time.sleep(PAUSE)
    remove_from_own_podmans(directories)
    remove_containers(directories)


if __name__ == "__main__":
    main()
