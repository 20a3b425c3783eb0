"""The sockets of container engines on this host, and whether they accept connections: without an engine's client.

Not here: what an engine is asked (`runtimes`).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from locallb.model.formatting import clipped
from locallb.storage import files

DOCKER = "/var/run/docker.sock"
PODMAN = "CONTAINER_HOST"
"""Environment variable with the address of Podman's service."""
_ROOTS = "/run/podman/podman.sock"
CONTEXT = "DOCKER_CONTEXT"
"""The variable that names a context of Docker, before its configuration does."""
UNIX = "unix://"
_USUAL_CONTEXT = "default"
_TIMEOUT = 1.0


def docker_path() -> str:
    """Return the path of Docker's socket: the one that DOCKER_HOST names, otherwise the usual one."""
    given = os.environ.get("DOCKER_HOST", "")
    return given.removeprefix(UNIX) if given.startswith(UNIX) else DOCKER


def docker_elsewhere() -> str:
    """Return where Docker is, if that can't be looked at here: another host, or what a context leads to."""
    given = os.environ.get("DOCKER_HOST", "")
    if given:
        return "" if given.startswith(UNIX) else f"at {clipped(given)}, as DOCKER_HOST says"
    context, by = docker_context()
    return f"where its context {clipped(context)} leads, as {by} says" if context else ""


def docker_context() -> tuple[str, str]:
    """Return the context of Docker that counts and who names it; empty for the usual one. DOCKER_HOST counts before."""
    if named := os.environ.get(CONTEXT, ""):
        return ("", "") if named == _USUAL_CONTEXT else (named, CONTEXT)
    try:
        path = _docker_directory() / "config.json"
        context = json.loads(files.read(path) or "{}").get("currentContext") or _USUAL_CONTEXT
    except (files.FilesError, RuntimeError, ValueError, AttributeError):  # Docker's client passes over that, too
        return "", ""
    return ("", "") if context == _USUAL_CONTEXT else (str(context), str(path))


def docker_context_problem() -> str:
    """Return that the context which counts isn't there, and what to do, in one sentence; empty if all is well."""
    context, by = docker_context()
    place = context_place(context, "meta", "meta.json")
    if os.environ.get("DOCKER_HOST") or not context or os.path.isfile(place):  # noqa: PTH113 - may lie in a closed directory
        return ""
    remedy = f"unset {CONTEXT}" if by == CONTEXT else "run `docker context use default`"
    return (
        f"there is no Docker context {clipped(context)}, which {by} names:"
        f" name one that `docker context ls` lists, or {remedy}"
    )


def context_place(context: str, *parts: str) -> Path:
    """Return where Docker's command keeps `parts` of a context: its directory `meta` or `tls`, and what is in it."""
    kind, *below = parts
    name = hashlib.sha256(context.encode(errors="backslashreplace")).hexdigest()
    return _docker_directory().joinpath("contexts", kind, name, *below)


def _docker_directory() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker"))  # noqa: PTH111 - no home is no error


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
        try_to_reach(path, _TIMEOUT)
    except PermissionError:
        return "closed"
    except OSError:
        return ""
    return "usable"


def try_to_reach(path: str, seconds: float) -> None:
    """Connect once to an engine's socket. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(seconds)
        client.connect(path)
