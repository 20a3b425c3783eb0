"""Routes that others make while the loop runs, in a network namespace of the test's own."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.host import LOCALLB, Project, project
from tests.support.pod_routes import SERVICE, SLICE, SPACE
from tests.support.waiting import becomes


@pytest.mark.slow
@pytest.mark.envoy
def test_the_loop_serves_pods_as_soon_as_their_route_exists() -> None:
    """Its next full pass would be a minute away; when the route goes, the port closes. The pod itself isn't there."""
    with project() as made:
        made.space.shell(SPACE)
        made.write("web.yaml", SERVICE, SLICE)
        home = {"XDG_STATE_HOME": str(made.root / "s"), "HOME": str(made.root)}
        command = made.space.enter(*LOCALLB, "-C", str(made.root), "watch")
        watch = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **home})
        try:
            becomes(lambda: _stated(made) == "Unreachable")
            made.space.shell("ip route add 10.244.1.0/24 via 172.30.0.2")
            becomes(lambda: _stated(made) == "BackendsDown", lambda: made.locallb("status").out)
            made.space.shell("ip route del 10.244.1.0/24")
            becomes(lambda: _stated(made) == "Unreachable")
        finally:
            watch.terminate()
            watch.wait(60)


def _stated(made: Project) -> str:
    row = made.status().get("web", {})
    return str(row.get("reason") or row.get("state"))
