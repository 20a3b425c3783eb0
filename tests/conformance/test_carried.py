"""The definitions that local-lb carries are those that Gateway API published."""

from __future__ import annotations

import pytest

from locallb.gateway.crds import carried
from tests.conformance.carried import published

pytestmark = pytest.mark.cluster


def test_carried_crds_equal_the_published_release() -> None:
    """Compared with the Go module that the conformance tier pins, whose checksum Go verifies."""
    bundle = carried()
    assert {
        "version": bundle.version,
        "channels": {name: list(of) for name, of in bundle.channels.items()},
    } == published()
