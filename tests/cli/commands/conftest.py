"""A project for the tests of commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage

SCTP = {"port": 80, "protocol": "SCTP"}


@pytest.fixture
def play() -> Iterator[Stage]:
    """Return a project of two Services that was never deployed: one has an address."""
    with stage() as made:
        made.write("s.yaml", node(), service("web", port(8080, 30000)), service("odd", SCTP))
        yield made
