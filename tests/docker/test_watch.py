"""`locallb watch` over containers: what others do to a container is undone by itself."""

from __future__ import annotations

import pytest

from tests.docker.support import HARMS, docker, identities
from tests.e2e.support import Stage
from tests.e2e.watching import answers, becomes, watching

pytestmark = [pytest.mark.docker, pytest.mark.envoy]


def test_a_container_that_is_harmed_serves_again_under_its_address(shop: Stage) -> None:
    """Killed, paused, stopped, removed: each time by itself, and the neighbour's container stays."""
    with watching(shop) as watch:
        becomes(lambda: answers(shop.addresses()["n/web"], 80, "web"), watch)
        becomes(lambda: answers(shop.addresses()["n/dns"], 53, "dns"), watch)
        address, neighbour = shop.addresses()["n/web"], identities(shop)["dns"]
        for harm in HARMS:
            docker(*harm.words, identities(shop)["web"])
            becomes(lambda: answers(address, 80, "web"), watch)
        assert shop.addresses()["n/web"] == address
        assert identities(shop)["dns"] == neighbour
