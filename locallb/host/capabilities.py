"""Differences between platforms, in one place: what can't be relied on is refused with a sentence, not guessed.

Proxies in containers need a daemon that shares this host's network, files and users. Docker Desktop (macOS, Windows,
WSL2) runs it in a machine of its own, a remote daemon elsewhere. A rootless Docker has a network of its own: it does
for ports of the loopback address, which it publishes as any other. Rootless Podman shares all three: its
`--network host` is this host's, and root in its containers is this user.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

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
