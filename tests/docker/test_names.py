"""Names answered by a container on the host's network, as by a process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.backends import Backend
from tests.support.containers import configure, containers, docker, identities
from tests.support.dns_questions import NXDOMAIN, addresses, requested
from tests.support.manifests import node, port, service
from tests.support.stages import Stage

pytestmark = [pytest.mark.docker, pytest.mark.envoy]


def test_a_container_answers_and_is_repaired(play: Stage, backend: Callable[..., Backend]) -> None:
    """A change of names leaves it as it is; a container that is gone comes back."""
    server = play.at(200), 5300
    configure(play, dns={"zones": [{"zone": "test", "embedded": f"{server[0]}:{server[1]}"}]})
    web, late = (service(name, port(8080, backend("one").port)) for name in ("web", "late"))
    play.write("all.yaml", node(), web)
    play.up()
    at = play.addresses()
    assert addresses(server, "web.n.c.test") == [at["n/web"]]
    before = identities(play)["names"]
    play.write("all.yaml", node(), web, late)
    play.up()
    assert addresses(server, "late.n.c.test") == [play.addresses()["n/late"]]
    assert identities(play)["names"] == before
    docker("rm", "-f", before)
    play.up()
    assert addresses(server, "web.n.c.test") == [at["n/web"]]
    play.write("all.yaml", node(), late)
    play.up()
    assert requested(server, "web.n.c.test")[0] == NXDOMAIN
    assert play.run("destroy", "--yes").code == 0
    assert not containers(play)
