"""The image of local-lb: it serves with a Docker socket, ends on SIGTERM, traffic goes on, the next one takes over."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.backends import Backend
from tests.support.containers import docker, docker_only
from tests.support.manifests import node, port, service
from tests.support.packages import wheel
from tests.support.tool_image import Served, proxies, requested, tool
from tests.support.waiting import becomes

__all__ = ["tool", "wheel"]
pytestmark = [pytest.mark.docker, pytest.mark.root(only="can make a root file system with mmdebstrap"), docker_only]


def composing() -> tuple[str, ...]:
    """Return how compose is called here: as Docker's plugin, or as a program; empty without either."""
    pod_paths = (("docker", "compose"), ("docker-compose",))
    return next((way for way in pod_paths if shutil.which(way[0]) and not _fails([*way, "version"])), ())


def _fails(terms: list[str]) -> bool:
    return subprocess.run(terms, check=False, capture_output=True).returncode != 0


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


def test_tool_image_stops_and_restarts_without_a_failed_request(
    tool: str, served: Served, backend: Callable[..., Backend]
) -> None:
    """As an unprivileged user with access to Docker, on a read-only root file system."""
    web = backend("web")
    served.write("shop.yaml", node(), service("web", port(80, web.port)))
    with served.watching(tool) as first:
        becomes(lambda: served.address(tool) != "")
        becomes(lambda: docker("inspect", "--format", "{{.State.Health.Status}}", first) == "healthy")
        address, before = served.address(tool), proxies(served)
    with requested(address, 80, "web: hello") as failures:
        served.write("more.yaml", service("more", port(81, web.port)))
        with served.watching(tool):
            becomes(lambda: len(proxies(served)) == len(before) + 1)
    assert failures == []
    assert before < proxies(served)


def test_compose_runs_it_and_traffic_goes_on_when_that_ends(
    tool: str, served: Served, backend: Callable[..., Backend]
) -> None:
    """With deploy/compose.yaml as it is, but for the directory and the port."""
    compose = composing()
    if not compose:
        pytest.skip("there is no compose: Debian has it as docker-compose")
    web = backend("web")
    served.write("shop.yaml", node(), service("web", port(80, web.port)))
    with ExitStack() as outlasting, served.composed(tool, compose):  # what is entered later outlasts compose
        becomes(lambda: served.address(tool) != "")
        failures = outlasting.enter_context(requested(served.address(tool), 80, "web: hello"))
    assert failures == []
