"""The official Pulumi CLI and `locallb` on the same stack, taking over from each other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.backends import Backend, ask
from tests.support.gateway_objects import gateway, gateway_class, listener, route
from tests.support.gateway_objects import service as internal
from tests.support.manifests import node, port, service
from tests.support.official_cli import bring, content, make_runnable, make_stack, needs_cli, pulumi, update
from tests.support.stages import Stage, envoys

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.pulumi,
    needs_cli,
]


@pytest.fixture
def both(play: Stage, backend: Callable[..., Backend]) -> Stage:
    """Return a stack of two Services that the CLI can run as well."""
    make_runnable(play.root)
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    play.write("api.yaml", service("api", port(8080, backend("api").port)))
    return play


def test_the_engines_take_over_from_each_other_in_every_phase(both: Stage) -> None:
    """Made by one, changed by the other, shrunk, harmed, repaired, destroyed; nothing else is made again."""
    make_stack(both)
    update(both, "up")
    content(both)
    at, pids = both.addresses(), both.pids()
    both.write("extra.yaml", service("extra", port(8080, 30000)))
    both.up()
    content(both)
    (both.manifests / "api.yaml").unlink()
    update(both, "up")
    content(both)
    assert (both.addresses()["n/web"], both.pids()["n/web"]) == (at["n/web"], pids["n/web"])
    assert ask(at["n/web"], 8080) == "web: hello"
    update(both, "refresh")
    content(both)
    for by in ("pulumi", "locallb"):
        os.kill(both.pids()["n/web"], signal.SIGKILL)
        bring(both, by)
        assert ask(at["n/web"], 8080) == "web: hello"
        content(both)
    update(both, "destroy")
    assert envoys(both.root) == []


def test_a_mistake_is_one_sentence_in_the_official_cli_as_well(both: Stage) -> None:
    """No traceback of the program and none of the provider."""
    make_stack(both)
    both.configure(pools=[{"name": "p", "addresses": ["127.77.0"]}])
    done = pulumi(both, "up", "--yes", "--skip-preview")
    assert done.code != 0
    assert "127.77.0" in done.out + done.err
    assert "Traceback" not in done.out + done.err
    assert list(Path(both.state_home).glob("proxies/*")) == []


def test_addresses_are_swapped_in_two_updates_of_either(both: Stage) -> None:
    """The first gives them up and reports what it can't give yet; after the second neither has anything to do."""
    make_stack(both)
    pinned(both, web=1, api=2)
    both.up()
    for by, web, api in (("pulumi", 2, 1), ("locallb", 1, 2)):
        pinned(both, web=web, api=api)
        first = bring(both, by)
        assert "InUse" in first.out + first.err
        bring(both, by)
        assert both.addresses() == {"n/web": both.at(web), "n/api": both.at(api)}
        content(both)


def pinned(both: Stage, **numbers: int) -> None:
    """Let each Service ask for an address."""
    for name, number in numbers.items():
        both.write(f"{name}.yaml", node(), service(name, port(8080, 30000), loadBalancerIP=both.at(number)))


def test_a_changed_port_or_route_is_a_line_of_the_official_diff(both: Stage) -> None:
    """In the load balancer's words; what only repeats it, the configuration and its proof, is named and not shown."""
    make_stack(both)
    routed(both, "a.test")
    update(both, "up")
    both.write("web.yaml", node(), service("web", port(8081, 30000)))
    shown = changes(both)
    assert '~ ports    : "8080/TCP" => "8081/TCP"' in "\n".join(shown)
    assert len(shown) <= 11, shown
    both.up()
    routed(both, "a.test", "b.test")
    shown = changes(both)
    assert [line.strip() for line in shown if line.strip().startswith("+")] == ["+ 8080: b.test/* → shop/api:8080"]
    assert len(shown) <= 15, shown


def routed(both: Stage, *hostnames: str) -> None:
    """Write a Gateway and its route."""
    made = gateway(listener(port=8080), addresses=[{"value": both.at(9)}])
    both.write("gateway.yaml", gateway_class(), made, route(hostnames=list(hostnames)), internal())


def changes(both: Stage) -> Sequence[str]:
    """Return the lines of the official diff about resources that change."""
    lines = pulumi(both, "preview", "--diff").out.partition("    ~ locallb:index:")[2].partition("Resources:")[0]
    return [line for line in lines.splitlines() if not line.startswith("@ ")]  # which tells that it takes its time
