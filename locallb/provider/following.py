"""Puts a file of Envoy's into place, and waits until the Envoy that runs there has taken it or refused it."""

from __future__ import annotations

import time
from pathlib import Path

from locallb.clients import files
from locallb.clients.envoy_admin import EnvoyAdmin, EnvoyAdminError, Subscription
from locallb.provider import rollout
from locallb.provider.waiting import pauses

PATIENCE = 2.0
"""Seconds to wait until a running Envoy has taken a file on which the next one builds; it takes a few milliseconds."""


def put(directory: Path, step: rollout.Write, mode: int, patience: float = PATIENCE) -> None:
    """Write a file; where it has a version and an Envoy runs, give that the time to follow."""
    before = _taken(directory, step.name) if step.version else None
    files.write(directory / step.name, step.text, mode=mode)
    if before is not None:
        _follow(directory, step, before, patience)


def _follow(directory: Path, step: rollout.Write, before: Subscription, patience: float) -> None:
    """Wait until Envoy runs this version or has refused it; what it refused is for Reachable to tell."""
    deadline, pause = time.monotonic() + patience, pauses()
    while time.monotonic() < deadline:
        now = _taken(directory, step.name)
        if now is None or now.version == step.version or now.rejected > before.rejected:
            return
        time.sleep(next(pause))


def _taken(directory: Path, name: str) -> Subscription | None:
    """Ask Envoy about a file; None where none runs."""
    try:
        versions = EnvoyAdmin(directory).versions()
    except EnvoyAdminError:
        return None
    return versions.lds if name == rollout.LISTENERS else versions.cds
