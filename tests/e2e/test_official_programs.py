"""Programs with `LoadBalancers`, and what the official CLI does beyond `up`, on the real thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from locallb.engine.state.project import load_config, load_project
from tests.support.backends import Backend, ask
from tests.support.manifests import node, port, service
from tests.support.official_cli import (
    cli_environment,
    content,
    install_plugin,
    make_runnable,
    make_stack,
    needs_cli,
    pulumi,
    update,
)
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.envoy, pytest.mark.pulumi, needs_cli]
PROGRAM = """\
import pulumi

from locallb.program import LoadBalancers

served = LoadBalancers(
    "all",
    sources=[{{"manifests": "manifests", "name": "c"}}],
    pools=[{{"name": "own", "addresses": [{pool!r}]}}],
)
after = pulumi.ResourceOptions(depends_on=served.services["n/web"])
pulumi.ComponentResource("my:index:Last", "last", {{}}, after)
pulumi.export("addresses", served.addresses)
"""


@pytest.fixture
def web(play: Stage, backend: Callable[..., Backend]) -> Stage:
    """Return a stack with a Service that the CLI can run as well, and has made."""
    make_runnable(play.root)
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    make_stack(play)
    return play


def test_both_engines_run_a_program_with_load_balancers(web: Stage) -> None:
    """In turns, from serve() to the component; the process stays, and nothing is left at the end."""
    update(web, "up")
    pid = web.pids()
    (web.root / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
    (web.root / "__main__.py").write_text(PROGRAM.format(pool=f"{web.at(0)}/27"))
    update(web, "up")
    content(web)
    assert web.pids() == pid
    assert ask(web.addresses()["n/web"], 8080) == "web: hello"
    web.up()
    content(web)
    update(web, "destroy")
    assert envoys(web.root) == []


def test_both_engines_read_one_configuration(web: Stage) -> None:
    """Also what the project declares for stacks that lack it; the stack's file stays as it is."""
    file = web.root / "stacks/Pulumi.dev.yaml"
    before = file.read_bytes()
    done = pulumi(web, "config", "--stack", "dev", "--json")
    assert done.code == 0, done.out + done.err
    read = {key: each["value"] for key, each in json.loads(done.out).items()}
    ours = load_config(load_project(web.root), "dev")
    assert ours.keys() == read.keys()
    assert {key: _decoded(text) for key, text in ours.items()} == {key: _decoded(text) for key, text in read.items()}
    assert read["local-lb:runtime"] == "process"
    assert file.read_bytes() == before


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


TYPES = {
    "process": "Proxy$locallb:index:EnvoyProcess",
    "configuration": "Proxy$locallb:index:ProxyConfig",
    "proof": "LoadBalancer$locallb:index:Reachable",
}


@pytest.mark.parametrize("how", ["replaced", "tainted"])
@pytest.mark.parametrize("kind", TYPES)
def test_what_is_replaced_without_need_goes_on_serving(web: Stage, kind: str, how: str) -> None:
    """The new resource took over what the old one was, so deleting the old one deletes nothing."""
    update(web, "up")
    urn = f"urn:pulumi:dev::local-lb::locallb:index:{TYPES[kind]}::c/n/web"
    if how == "replaced":
        update(web, "up", "--replace", urn)
    else:
        done = pulumi(web, "state", "taint", urn, "--yes")
        assert done.code == 0, done.out + done.err
        update(web, "up")
    assert ask(web.addresses()["n/web"], 8080) == "web: hello"
    content(web)


def test_a_provider_of_another_place_deletes_what_a_project_has(web: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by the directory of the program, wherever the plugin is; here the CLI finds it on PATH."""
    project = web.root / "Pulumi.yaml"
    (web.root / "locallb").unlink()
    project.write_text(project.read_text().partition("plugins:")[0])
    monkeypatch.setenv("PATH", f"{install_plugin(web.root / 'pulumi').parent}{os.pathsep}{os.environ['PATH']}")
    update(web, "up")
    assert len(envoys(web.root)) == 1
    update(web, "destroy")
    assert envoys(web.root) == []
    assert not list((web.state_home / "ledger").glob("127.*"))


INLINE = """\
import sys

import pulumi
from pulumi import automation

from locallb.program import LoadBalancers


def program():
    source = {{"manifests": "manifests", "name": "c"}}
    served = LoadBalancers("all", sources=[source], pools=[{{"name": "own", "addresses": [{pool!r}]}}])
    pulumi.export("addresses", served.addresses)


settings = automation.ProjectSettings("inline", "python", backend=automation.ProjectBackend("file://{backend}"))
options = automation.LocalWorkspaceOptions(project_settings=settings)
stack = automation.create_or_select_stack("dev", "inline", program, opts=options)
if sys.argv[1] == "up":
    print(stack.up().outputs["addresses"].value, stack.up().summary.resource_changes.keys())
else:
    stack.destroy()
"""


def test_an_inline_program_serves_and_leaves_nothing(play: Stage, backend: Callable[..., Backend]) -> None:
    """It has no project's directory; the plugin is found on PATH."""
    plugin = install_plugin(play.root / "pulumi")
    place = play.root / "inline"
    place.mkdir()
    for name in ("Pulumi.yaml", "__main__.py"):
        (play.root / name).unlink()
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    play.manifests.rename(place / "manifests")
    script = INLINE.format(pool=f"{play.at(0)}/27", backend=play.root / ".state")
    told = cli_environment()
    environment = {**os.environ, **told, "PATH": f"{plugin.parent}{os.pathsep}{told['PATH']}"}

    def run(terms: str) -> str:
        command = [sys.executable, "-c", script, terms]
        done = subprocess.run(command, cwd=place, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    found = run("up")
    assert "dict_keys(['same'])" in found
    at = found.partition("['")[2].partition("'")[0]
    assert ask(at, 8080) == "web: hello"
    run("destroy")
    assert envoys(play.root) == []
    assert not list((play.state_home / "ledger").glob("127.*"))


def test_a_port_that_cannot_be_served_is_said(web: Stage) -> None:
    """As `locallb up` has it in its table: here as a warning."""
    web.write("api.yaml", service("api", {"name": "odd", "port": 8081, "nodePort": 30081, "protocol": "SCTP"}))
    done = update(web, "up")
    assert "SCTP" in done.out + done.err
