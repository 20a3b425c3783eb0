"""Names answered by a container on the host's network, as by a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.dns.questions import NXDOMAIN, addresses, requested
from tests.docker.support import configure, containers, docker, identities, own_pool, word
from tests.e2e.support import Backend, Stage, node, port, service, stage

pytestmark = [pytest.mark.docker, pytest.mark.envoy]


@pytest.fixture
def play(image: str) -> Iterator[Stage]:
    """Return a stage for containers, with a pool that nobody else uses."""
    with stage() as made:
        made.configure(runtime=word(), image=image, pools=own_pool())
        yield made


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
