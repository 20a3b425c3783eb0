"""Platforms and container engines of this host: unsupported ones are refused with a sentence, and nothing is guessed.

Proxies in containers need a daemon that shares this host's network, files and users. Docker Desktop (macOS, Windows,
WSL2) runs it in a virtual machine, a remote daemon runs on another host. A rootless Docker has a network of its own: it
is enough for ports of the loopback address, which it publishes as any other does. Rootless Podman shares all three: its
`--network host` is this host's, and root in its containers is this user.

Sockets of engines are found and tried without an engine's client. Not here: requests to an engine
(`runtimes.docker.daemon`, `runtimes.podman`).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from locallb.model.texts import clipped
from locallb.storage import files

_REMEDIES = {
    "docker": "use a Docker daemon that runs on this Linux host as root, the runtime podman, or the runtime process",
    "podman": "use a Podman that runs on this Linux host, or the runtime process",
}
_DESKTOP = "Docker Desktop"
_DESKTOPS_REMEDY = (
    "use Docker Engine on this Linux host itself, as root (`docker context use default`, where both are installed), or"
    " the runtime podman or process for clusters that this host reaches"
)
_MAPPED = "`network: publish` with `portMapping: loopback`"
NO_MACOS = (
    "local-lb doesn't serve on macOS: run it in a Linux machine that forwards its ports of 127.0.0.1, with the"
    " clusters' Docker in that machine, and have the stack say `local-lb:portMapping: loopback`"
)
"""Untested."""
_WSLS = "microsoft"
"""What kernels of WSL2 have in their release."""


def is_macos() -> bool:
    """Return whether this is macOS, which lacks Linux's routes and limits. Untested there."""
    return sys.platform == "darwin"


def is_wsl(release: str) -> bool:
    """Return whether the kernel's release is one of Linux in Windows. Untested there."""
    return _WSLS in release.lower()


def shortcoming_of(runtime: str, info: Mapping[str, object], host: str, *, mapped: bool = False) -> str:
    """Return why the daemon of a runtime at `host` with this answer of /info won't do; empty if it will.

    `mapped`: it only publishes ports of the loopback address.
    """
    what = _shortcoming(runtime, info, host, mapped=mapped)
    remedy = _DESKTOPS_REMEDY if _is_desktop(info) else _REMEDIES[runtime]
    return f"local-lb:runtime {runtime} can't be used with the daemon at {host}: {what}; {remedy}" if what else ""


def is_rootless(info: Mapping[str, object]) -> bool:
    """Return whether a daemon with this answer of /info runs without root's rights."""
    options = info.get("SecurityOptions")
    return isinstance(options, list) and any("name=rootless" in str(option) for option in options)


def _shortcoming(runtime: str, info: Mapping[str, object], host: str, *, mapped: bool) -> str:
    if sys.platform != "linux":
        return "this host isn't Linux, and addresses of a machine behind it aren't this host's"
    if _is_desktop(info):
        return (
            f"{_DESKTOP} runs containers in a machine of its own, which shares neither this host's network nor the"
            f" sockets by which proxies are steered, so {_MAPPED} doesn't help"
        )
    if info.get("OSType", "linux") != "linux":
        return f"it runs containers of {info['OSType']}"
    if runtime == "docker" and is_rootless(info) and not mapped:  # Podman's containers share this host's network
        return f"it is rootless, with a network of its own; {_MAPPED} does with it"
    if _is_remote(host) or (runtime == "podman" and urlsplit(host).scheme != "unix"):
        return "it isn't on this host"
    return ""


def _is_desktop(info: Mapping[str, object]) -> bool:
    return _DESKTOP in str(info.get("OperatingSystem", ""))


def _is_remote(host: str) -> bool:
    """Return whether an address of Docker's form names another host; a name counts as one, but for localhost."""
    parts = urlsplit(host)
    if parts.scheme in {"unix", "npipe"}:
        return False
    name = parts.hostname or ""
    try:
        return not ip_address(name).is_loopback
    except ValueError:
        return name != "localhost"


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
