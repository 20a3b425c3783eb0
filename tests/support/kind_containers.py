"""A daemon that has the Nodes of kind's clusters and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pytest

from locallb.runtimes.docker.engine_api import Containers


class KindContainers(Protocol):
    """What kind's clusters are found by."""

    def labelled(self, label: str) -> list[Mapping[str, Any]]:
        """List the Nodes of every cluster."""

    def inspect(self, identity: str) -> Mapping[str, Any]:
        """Read one."""

    def file(self, identity: str, path: str, maximum: int, /) -> bytes | None:
        """Read a file of one."""


def put_in_place_of_docker(monkeypatch: pytest.MonkeyPatch, made: KindContainers) -> None:
    """Have every client of Docker ask this daemon."""
    for name in ("labelled", "inspect", "file"):
        monkeypatch.setattr(Containers, name, lambda _self, *terms, name=name: getattr(made, name)(*terms))
