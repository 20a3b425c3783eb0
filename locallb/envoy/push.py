"""Puts a file of Envoy's into place, and waits until the Envoy that runs there has taken it or refused it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from locallb.envoy import rollout
from locallb.envoy.access_logs import CLOSED, GATE, gate
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError, Subscription, Subscriptions
from locallb.envoy.waiting import pauses
from locallb.storage import files

PATIENCE = 2.0
"""Seconds to wait until a running Envoy has taken a file on which the next one builds; it takes a few milliseconds."""
_SELDOM = 3
"""Questions for the version of which one is followed by that for refusals: those are rare."""


def put(directory: Path, step: rollout.Write, mode: int, patience: float = PATIENCE) -> None:
    """Write a file; where it has a version and an Envoy runs, give that the time to follow."""
    before = _refused(directory, step.name) if step.version else None
    files.write(directory / step.name, step.text, mode=mode)
    if before is not None:
        _follow(directory, step, before, patience)


def close_gate(directory: Path, mode: int) -> None:
    """Write the gate of a proxy's logs, closed, where there is none yet."""
    if not (directory / GATE).exists():
        files.write(directory / GATE, gate(CLOSED), mode=mode)
    files.set_mode(directory / GATE, mode)


def texts(directory: Path) -> Mapping[str, str]:
    """Read Envoy's files in a proxy's directory, by name. Raises FilesError."""
    try:
        names = sorted(entry.name for entry in directory.iterdir() if rollout.NAME.fullmatch(entry.name))
    except OSError as error:
        raise files.FilesError(f"{directory} can't be read: {error.strerror}") from error
    read = {name: files.read_shared(directory / name) for name in names}
    return {name: text for name, text in read.items() if text is not None}


def _follow(directory: Path, step: rollout.Write, before: int, patience: float) -> None:
    """Wait until Envoy runs this version or has refused it; what it refused is for Reachable to tell."""
    deadline, pause, asked = time.monotonic() + patience, pauses(), 0
    while time.monotonic() < deadline:
        if _active(directory, step) in {None, step.version}:
            return
        asked += 1
        if asked % _SELDOM == 0 and _refused(directory, step.name) != before:
            return
        time.sleep(next(pause))


def _active(directory: Path, step: rollout.Write) -> str | None:
    """Ask Envoy for the version of a file that it runs; None where none answers."""
    admin = EnvoyAdmin(directory)
    try:
        if step.name.startswith(rollout.ROUTES):
            return step.version if step.version in admin.referred() else ""
        return _of(step.name, admin.active()).version
    except EnvoyAdminError:
        return None


def _refused(directory: Path, name: str) -> int | None:
    """Ask Envoy how often it has refused a file; None where none answers."""
    try:
        return _of(name, EnvoyAdmin(directory).attempts()).rejected
    except EnvoyAdminError:
        return None


def _of(name: str, subscriptions: Subscriptions) -> Subscription:
    return subscriptions.lds if name == rollout.LISTENERS else subscriptions.cds
