"""Stacks of which it is written down whose they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.sources.stack_home import NAME
from tests.support.backends import ask, backends
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage

COMMANDS = ["up --yes", "preview", "refresh --yes", "status", "watch --plain", "gc", "destroy --yes"]


def record(play: Stage, stack: str = "dev") -> Path:
    """Name the file in which it is written whose the stack is."""
    return play.root / ".state/locallb" / stack / NAME


def state(play: Stage) -> bytes:
    return (play.root / ".state/.pulumi/stacks/local-lb/dev.json").read_bytes()


def served(play: Stage) -> str:
    """Ask the Service by the address that the state has."""
    found = json.loads(state(play))["checkpoint"]["latest"]["resources"]
    address = next(resource["id"] for resource in found if resource["type"] == "locallb:index:LoopbackAddress")
    return ask(address, 8080)


@pytest.fixture
def play() -> Iterator[Stage]:
    """Return a deployed stack of one Service."""
    with backends() as backend, stage() as made:
        made.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
        made.up()
        yield made
