"""The image of local-lb: it serves with a Docker socket, ends on SIGTERM, traffic goes on, the next one takes over."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.docker.support import await_true, docker, docker_only
from tests.docker.tool_image import Served, asked, proxies, tool
from tests.e2e.support import Backend, node, port, service
from tests.packaging.conftest import wheel

__all__ = ["tool", "wheel"]
pytestmark = [pytest.mark.docker, pytest.mark.root(only="can make a root file system with mmdebstrap"), docker_only]


@pytest.fixture
def served(image: str, tool: str) -> Iterator[Served]:
    """Make such a directory; at the end nothing is left of what was served."""
    place = Served(image)
    try:
        yield place
        place.run(tool, "destroy", "--yes")
        assert docker("ps", "-aq", "--filter", f"label=local-lb.dev/root={place.root}/local-lb") == ""
    finally:
        shutil.rmtree(place.root)


def test_it_serves_ends_and_is_taken_over_while_traffic_goes_on(
    tool: str, served: Served, backend: Callable[..., Backend]
) -> None:
    """As a user without rights but Docker's, on a root file system that it can't write; not one request fails."""
    web = backend("web")
    served.write("shop.yaml", node(), service("web", port(80, web.port)))
    with served.watching(tool) as first:
        await_true(lambda: served.address(tool) != "")
        await_true(lambda: docker("inspect", "--format", "{{.State.Health.Status}}", first) == "healthy")
        address, before = served.address(tool), proxies(served)
    with asked(address, 80, "web: hello") as failures:
        served.write("more.yaml", service("more", port(81, web.port)))
        with served.watching(tool):
            await_true(lambda: len(proxies(served)) == len(before) + 1)
    assert failures == []
    assert before < proxies(served)
