"""The commands `wait`, `url` and `curl` of scripts, with real Envoys and a real curl."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locallb.cli.failures import Exit
from tests.e2e.https_gateways import PORT, https, served
from tests.support.environment import lent
from tests.support.gateway_clients import answering
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage

pytestmark = pytest.mark.envoy
HTTP = 8080


def http_service(name: str, backend_port: int) -> dict[str, Any]:
    """Return a Service whose port speaks HTTP."""
    return service(name, {**port(HTTP, backend_port), "name": "http"})


@pytest.fixture
def web() -> Iterator[Stage]:
    """Return a stack with a Service that answers HTTP, deployed."""
    with stage() as made, answering("web") as backend_port:
        made.write("s.yaml", node(), http_service("web", backend_port))
        made.up()
        yield made


def test_wait_returns_once_a_service_serves(web: Stage) -> None:
    """Whatever goal it has; what isn't there, and what has no name, is reported with a code of its own."""
    address = web.addresses()["n/web"]
    assert web.run("wait", "web").out == f"c/n/web serving {address}\n"
    assert web.run("wait", "n/web", "web", "--for", "address").code == Exit.OK
    assert web.run("wait", "n/w*").out == f"c/n/web serving {address}\n"
    assert web.run("wait", "x*", "--timeout", "1s").code == Exit.TIMEOUT
    done = web.run("wait", "web", "none", "--timeout", "1s")
    assert done.code == Exit.TIMEOUT
    assert "there is no load balancer 'none'; this was still so after 1 s" in done.err
    done = web.run("wait", "web", "--for", "name", "--timeout", "1s", "--json")
    assert (done.code, done.json["reached"], done.json["services"][0]["state"]) == (Exit.TIMEOUT, False, "serving")


def test_wait_waits_for_what_comes_later(web: Stage) -> None:
    """A Service that is only written then, and one that is planned but not deployed yet."""
    command = [str(Path(sys.executable).parent / "locallb"), "-C", str(web.root), "wait", "late", "--timeout", "60s"]
    with answering("late") as backend_port, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        web.write("late.yaml", http_service("late", backend_port))
        assert web.run("wait", "late", "--for", "address", "--timeout", "1s").code == Exit.TIMEOUT
        web.write("idle.yaml", service("idle", {"name": "http", "port": HTTP}))  # which no backend is known of
        assert web.run("wait", "idle", "--for", "address", "--timeout", "1s").code == Exit.TIMEOUT
        (web.manifests / "idle.yaml").unlink()
        web.up()
        out, _ = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (0, f"c/n/late serving {web.addresses()['n/late']}\n")


def test_url_prints_one_url(web: Stage) -> None:
    """Alone on its line, for `$(...)`."""
    done = web.run("url", "web")
    assert (done.code, done.out, done.err) == (0, f"http://{web.addresses()['n/web']}:{HTTP}/\n", "")


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_curl_asks_a_service(web: Stage) -> None:
    """By its address, at a path with a query; curl's own options and code are passed on."""
    assert web.spawn("curl", "web/a/b?c=[1]", "--", "-sS").out.startswith("web /a/b?c=[1]")
    assert web.spawn("curl", "n/web", "--", "--silent", "--head", "--fail").code != Exit.OK
    assert "there is no load balancer 'none'" in web.spawn("curl", "none/a").err
    with lent({"http_proxy": "http://127.0.0.1:1"}):
        assert web.spawn("curl", "c/n/web/x", "--", "-sS").out.startswith("web /x")


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_curl_asks_a_gateway_by_its_host_and_with_the_own_authority(play: Stage) -> None:
    """Without a resolver that knows the name, and without a store that has the authority."""
    with answering("one") as one, lent({"XDG_DATA_HOME": str(play.root / "d")}):
        listeners = https("one", hostname="a.test"), https("all", hostname="*.b.test")
        address = served(play, *listeners, backend_port=one, hostnames=("a.test", "x.b.test"))
        assert play.spawn("curl", "gateways/shop/web/y", "--", "-sS").out.startswith("one /y")
        assert play.spawn("curl", "web/y", "--host", "x.b.test", "--", "-sS").out.startswith("one /y")
        command = play.run("curl", "web", "--json").json["command"]
    assert command[4:6] == ["--resolve", f"a.test:{PORT}:{address}"]
    assert command[-1] == f"https://a.test:{PORT}/"
