"""The package `locallb` in programs of every language: added, served, changed and destroyed by the real CLI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import certifi
import pulumi
import pytest
from pulumi import automation

from locallb import __version__
from tests.support.backends import Backend, ask
from tests.support.certificates import Authority
from tests.support.git_server import publish, serving
from tests.support.manifests import node, port, service
from tests.support.official_cli import cli_environment, install_plugin, needs_cli
from tests.support.pages import CHECKOUT
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.envoy, pytest.mark.pulumi, needs_cli]


@dataclass(frozen=True)
class Program:
    """The directory of a program with the manifests of two Services, and a home of the CLI with our plugin."""

    stage: Stage
    directory: Path
    plugin: Path

    @property
    def arguments(self) -> dict[str, Any]:
        """What it gives to `LoadBalancers`."""
        return {
            "sources": [{"manifests": "manifests", "name": "c"}],
            "pools": [{"name": "own", "addresses": [f"{self.stage.at(0)}/27"]}],
        }

    @property
    def environment(self) -> dict[str, str]:
        """What the CLI is told; pip builds with what there is."""
        return {**cli_environment(), "PULUMI_HOME": str(self.stage.root / "pulumi"), "PIP_NO_BUILD_ISOLATION": "0"}

    def pulumi(self, *terms: str, fails: bool = False) -> str:
        """Run the CLI there; return what it prints."""
        told = {**os.environ, **self.environment}
        command = ["pulumi", *terms, "--non-interactive", "--color", "never"]
        done = subprocess.run(command, cwd=self.directory, env=told, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def write(self, runtime: object, **more: object) -> None:
        project = {"name": "everywhere", "runtime": runtime, "backend": {"url": "file://./.state"}, **more}
        (self.directory / "Pulumi.yaml").write_text(json.dumps(project))  # which is YAML without aliases

    def addresses(self) -> dict[str, list[str]]:
        """Return the addresses that the stack exports."""
        return dict(json.loads(self.pulumi("stack", "output", "--json").partition("\n}")[0] + "\n}")["addresses"])

    def lives(self) -> None:
        """Make its stack, update it, and check all that follows."""
        self.pulumi("stack", "init", "dev")
        self.pulumi("up", "--yes", "--skip-preview")
        self.serves()

    def serves(self) -> None:
        """Check that it serves, that a second update changes nothing, and that nothing is left at the end."""
        assert ask(self.addresses()["n/web"][0], 8080) == "web: hello"
        self.pulumi("up", "--yes", "--skip-preview", "--expect-no-changes")
        self.pulumi("destroy", "--yes", "--skip-preview")
        self.left_nothing()

    def left_nothing(self) -> None:
        """Check that neither a process nor a claim is left."""
        assert envoys(self.stage.root) == []
        assert not list((self.stage.state_home / "ledger").glob("127.*"))


@pytest.fixture
def program(play: Stage, backend: Callable[..., Backend]) -> Program:
    """Return the directory of a program yet to be written."""
    plugin = install_plugin(play.root / "pulumi")
    directory = play.root / "program"
    (directory / ".state").mkdir(parents=True)
    for name in ("Pulumi.yaml", "__main__.py"):
        (play.root / name).unlink()
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    play.manifests.rename(directory / "manifests")
    return Program(play, directory, plugin)


def in_yaml(**resources: object) -> dict[str, object]:
    """Return what a program in YAML says: resources, and the addresses of one named `served`."""
    return {"resources": resources, "outputs": {"addresses": "${served.addresses}"}}


def test_a_program_in_yaml(program: Program) -> None:
    """With the plugin of the installation, which the CLI lists."""
    assert __version__ in program.pulumi("plugin", "ls")
    served = {"type": "locallb:LoadBalancers", "properties": program.arguments}
    program.write("yaml", **in_yaml(served=served))
    program.lives()


def test_a_program_has_several_components(program: Program, backend: Callable[..., Backend]) -> None:
    """They never choose one address, and one that is removed leaves the other's alone."""
    other = program.directory / "other"
    other.mkdir()
    (other / "web.yaml").write_text(json.dumps(service("web", port(8080, backend("more").port))))
    (other / "node.yaml").write_text(json.dumps(node()))
    properties = {**program.arguments, "pools": [{"name": "own", "addresses": [f"{program.stage.at(0)}/31"]}]}
    served = {"type": "locallb:LoadBalancers", "properties": properties}
    more = {**served, "properties": {**properties, "sources": [{"manifests": "other", "name": "d"}]}}
    program.write("yaml", resources={"served": served, "more": more}, outputs={"addresses": "${more.addresses}"})
    program.pulumi("stack", "init", "dev")
    program.pulumi("up", "--yes", "--skip-preview")
    at = program.addresses()["n/web"][0]
    assert ask(at, 8080) == "more: hello"
    both = {program.stage.at(0), program.stage.at(1)}
    claims = (program.stage.state_home / "ledger").glob("127.*")
    assert {path.name.partition("~")[0] for path in claims} == both
    program.pulumi("up", "--yes", "--skip-preview", "--expect-no-changes")
    program.write("yaml", **in_yaml(served=served))
    program.pulumi("up", "--yes", "--skip-preview")
    assert {*program.addresses()["n/web"]} == both - {at}
    program.serves()


def test_components_of_one_cluster_are_refused(program: Program) -> None:
    """One of them has it: the other one's are told, and nothing of that one is made."""
    served = {"type": "locallb:LoadBalancers", "properties": program.arguments}
    program.write("yaml", **in_yaml(served=served, more={**served, "options": {"dependsOn": ["${served}"]}}))
    program.pulumi("stack", "init", "dev")
    told = program.pulumi("up", "--yes", "--skip-preview", fails=True)
    assert "both have the source c: leave it to one of them" in told
    program.pulumi("destroy", "--yes", "--skip-preview")
    program.left_nothing()


def test_the_automation_api_runs_a_program_in_yaml(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a local program; `locallb destroy` ends what it made."""
    program.write("yaml", **in_yaml(served={"type": "locallb:LoadBalancers", "properties": program.arguments}))
    for name, value in program.environment.items():
        monkeypatch.setenv(name, value)
    stack = automation.create_or_select_stack("dev", work_dir=str(program.directory))
    assert ask(stack.up().outputs["addresses"].value["n/web"][0], 8080) == "web: hello"
    assert dict(stack.up().summary.resource_changes or {}).keys() == {"same"}
    command = [sys.executable, "-m", "locallb", "-C", str(program.directory), "destroy", "--yes"]
    subprocess.run(command, check=True, capture_output=True)
    program.left_nothing()


def test_the_template_in_yaml(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `pulumi new` makes of it serves, and leaves nothing."""
    shutil.rmtree(program.directory)
    program.directory.mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{program.stage.root}")  # of a user who is logged in somewhere
    pool = f"pool={program.stage.at(0)}/27"
    program.pulumi("new", str(CHECKOUT / "examples/yaml"), "--yes", "--name=new", "--stack=dev", "--config", pool)
    program.pulumi("up", "--yes", "--skip-preview")
    (url,) = json.loads(program.pulumi("stack", "output", "--json").partition("\n}")[0] + "\n}")["urls"]["shop/web"]
    assert url.startswith(f"http://{program.stage.prefix}.")
    program.pulumi("destroy", "--yes", "--skip-preview")
    program.left_nothing()


TYPESCRIPT = """\
import * as locallb from "@pulumi/locallb";

const served = new locallb.LoadBalancers("all", {arguments});
export const addresses = served.addresses;
export const first: unknown = served.addresses.apply(each => each["n/web"][0]);
"""


@pytest.mark.skipif(not shutil.which("npm"), reason="no Node.js here")
def test_a_program_in_typescript(program: Program) -> None:
    """With the package that is added from the executable's path, and checked by its compiler."""
    program.write("nodejs")
    needed = {"@pulumi/pulumi": "^3", "@types/node": "^20", "typescript": "^5"}
    package = {"name": "everywhere", "main": "index.ts", "dependencies": needed}
    (program.directory / "package.json").write_text(json.dumps(package))
    (program.directory / "index.ts").write_text(TYPESCRIPT.replace("{arguments}", json.dumps(program.arguments)))
    program.pulumi("install")
    program.pulumi("package", "add", str(program.plugin))
    program.lives()


@pytest.mark.skipif(not shutil.which("npm"), reason="no Node.js here")
def test_the_cloud_program_in_typescript_is_typed(tmp_path: Path) -> None:
    """With the types of pulumi-kubernetes; the one in Python has none to check but pulumi's."""
    shutil.copytree(CHECKOUT / "examples/cloud/typescript", tmp_path / "program")
    for command in (("npm", "install", "--no-audit", "--no-fund"), ("npx", "tsc")):
        done = subprocess.run(command, cwd=tmp_path / "program", check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


PYTHON = """\
import pulumi
import pulumi_locallb as locallb
from pulumi.output import UNKNOWN

arguments = {arguments}
if pulumi.runtime.is_dry_run() and pulumi.Config().get_bool("later"):
    arguments["sources"] = pulumi.Output.from_input(UNKNOWN)
if pulumi.Config().get_bool("hidden"):
    arguments["sources"] = pulumi.Output.secret(arguments["sources"])
served = locallb.LoadBalancers("all", **arguments)
pulumi.export("addresses", served.addresses)
"""


def in_python(program: Program) -> None:
    """Write it in Python, with an environment that has Pulumi's SDK."""
    environment = program.directory / "venv"
    venv.create(environment)
    place = sysconfig.get_path("purelib", "venv", {"base": str(environment)})
    Path(place, "borrowed.pth").write_text(f"{Path(pulumi.__file__).parents[1]}\n")
    program.write({"name": "python", "options": {"toolchain": "pip", "virtualenv": "venv"}})
    (program.directory / "__main__.py").write_text(PYTHON.replace("{arguments}", repr(program.arguments)))


def test_a_program_in_python(program: Program) -> None:
    """By the package generated for it; what isn't known yet is no deletion, and a secret is refused."""
    in_python(program)
    program.pulumi("package", "add", str(program.plugin))
    program.pulumi("stack", "init", "dev")
    program.pulumi("config", "set", "later", "true")
    assert "what it will serve can't be shown" in program.pulumi("up", "--yes")
    told = program.pulumi("preview")
    assert "what the last one's arguments serve" in told
    assert "delete" not in told
    program.pulumi("config", "set", "hidden", "true")
    told = program.pulumi("preview", fails=True)
    assert "an argument is a secret" in told
    assert "locallb/package" not in told
    program.pulumi("config", "rm", "hidden")
    program.serves()


def test_resources_refuse_secrets(program: Program) -> None:
    """The state would have them in plain text, as our resources know no secrets."""
    owner = dict.fromkeys(("project", "stack", "root", "cluster", "namespace", "name", "uid"), "x")
    properties = {"address": {"fn::secret": program.stage.at(40)}, "owner": owner, "sharing": ""}
    program.write("yaml", resources={"one": {"type": "locallb:LoopbackAddress", "properties": properties}})
    program.pulumi("stack", "init", "dev")
    told = program.pulumi("up", "--yes", "--skip-preview", fails=True)
    assert "property address" in told
    assert "is a secret" in told
    program.left_nothing()


@pytest.mark.checkout
@pytest.mark.root(only="can listen at HTTPS's own port")
def test_a_package_of_a_git_repository(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its tag, without an installation: the CLI clones it and installs what it needs beside it."""
    shutil.rmtree(program.stage.root / "pulumi")
    source, authority = program.stage.root / "source", Authority(program.stage.root / "authority")
    shutil.copytree(CHECKOUT / "locallb", source / "locallb", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "requirements.txt"):
        shutil.copy(CHECKOUT / name, source / name)
    publish(source, program.stage.root / "repositories/ours/local-lb.git", f"v{__version__}")
    roots = program.stage.root / "roots.pem"
    roots.write_text(authority.own.pem + Path(certifi.where()).read_text())
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    in_python(program)
    at = program.stage.at(30)
    with serving(program.stage.root / "repositories", at, authority.sign(f"IP:{at}")):
        program.pulumi("package", "add", f"https://{at}/ours/local-lb.git/locallb/provider@{__version__}")
    program.lives()
