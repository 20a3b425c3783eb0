"""The user's browser, which outlives us: whether one can be shown here, and handing it a URL.

The standard library chooses it and starts it without a shell; `programs` runs what ends before we do. Not here: what
is opened (`display.links`).
"""

from __future__ import annotations

import os
import sys
import webbrowser

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_SUDO = "SUDO_UID"


def obstacle() -> str:
    """Return why no browser is started here; empty where one may be."""
    if os.geteuid() == 0 and _SUDO in os.environ:
        return "root's browser under sudo would not be yours; open it yourself, or run it without sudo"
    if not all(map(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep))):
        return "PATH has a directory that isn't absolute, from which anybody's program may be run; open it yourself"
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _DISPLAYS):
        return "there is no display here; open it where there is one, or name a browser in BROWSER"
    return ""


def show(url: str) -> bool:
    """Have the user's browser show a URL that `display.links` made; return whether one was started."""
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
