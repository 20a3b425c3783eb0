"""Where engines of containers listen on this host, and whether they take connections: without a client of theirs.

Not here: what an engine is asked (`runtimes`).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from locallb.model.formatting import clipped
from locallb.storage import files

DOCKER = "/var/run/docker.sock"
PODMAN = "CONTAINER_HOST"
"""The variable by which Podman's own command is told where its service is."""
_ROOTS = "/run/podman/podman.sock"
CONTEXT = "DOCKER_CONTEXT"
"""The variable that names a context of Docker, before its configuration does."""
UNIX = "unix://"
_USUAL_CONTEXT = "default"
_PATIENCE = 1.0


def docker_path() -> str:
    """Return the path of Docker's socket: the one that DOCKER_HOST names, otherwise the usual one."""
    given = os.environ.get("DOCKER_HOST", "")
    return given.removeprefix(UNIX) if given.startswith(UNIX) else DOCKER


def docker_elsewhere() -> str:
    """Return where Docker is, if that can't be looked at here: another host, or what a context leads to."""
    given = os.environ.get("DOCKER_HOST", "")
    if given:
        return "" if given.startswith(UNIX) else f"at {clipped(given)}, as DOCKER_HOST says"
    if named := os.environ.get(CONTEXT, ""):
        return "" if named == _USUAL_CONTEXT else f"where its context {clipped(named)} leads, as {CONTEXT} says"
    try:
        path = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
        context = json.loads(files.read(path) or "{}").get("currentContext") or _USUAL_CONTEXT
    except (files.FilesError, RuntimeError, ValueError, AttributeError):  # Docker's client passes over that, too
        return ""
    return "" if context == _USUAL_CONTEXT else f"where its context {clipped(str(context))} leads, as {path} says"


def podman_place() -> str:
    """Return where Podman's service is: as its own command has it, otherwise root's for root, or this user's own."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    own = f"{runtime}/podman/podman.sock" if os.geteuid() else _ROOTS
    return os.environ.get(PODMAN) or UNIX + own


def podman_sockets() -> Iterator[tuple[str, str]]:
    """Return the sockets that may be Podman's for this user and for root, each with what `state` says of it."""
    paths = dict.fromkeys((podman_place().removeprefix(UNIX), _ROOTS))
    yield from ((path, state(path)) for path in paths if path.startswith("/"))


def state(path: str) -> str:
    """Return whether an engine is `usable`, runs but is `closed` to this user, or doesn't run (empty)."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_PATIENCE)
            client.connect(path)
    except PermissionError:
        return "closed"
    except OSError:
        return ""
    return "usable"
