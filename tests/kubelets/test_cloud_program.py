"""The programs of `examples/cloud` as they are, on a cluster of this host with `locallb watch` beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import metadata
from pathlib import Path

import pytest

from tests.kubelets.deployments import Deployments
from tests.kubelets.workloads import Workloads, answer
from tests.support.client_kinds import NAMESPACE
from tests.support.cluster_gateways import CRD
from tests.support.http_traffic import Client
from tests.support.official_cli import cli_environment, needs_cli
from tests.support.pages import CHECKOUT
from tests.support.pulumi_build import kubernetes_plugin
from tests.support.stages import Stage
from tests.support.waiting import becomes
from tests.support.watching import watching

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kubelets,
    pytest.mark.envoy,
    pytest.mark.pulumi,
    needs_cli,
    pytest.mark.skipif(
        not kubernetes_plugin().exists(),
        reason="pulumi-kubernetes' plugin isn't built; `python -m tests.support.pulumi_build --kubernetes` builds it",
    ),
    pytest.mark.parametrize("world", ["nodePorts"], indirect=True),
]
SECONDS = 600
"""For a command, on a machine that has other work."""


@pytest.fixture
def kubeconfig(world: Workloads) -> Iterator[Path]:
    """Return that of the cluster's owner, who installs Gateway API; it goes once the stack has gone."""
    path = world.plane.root / "owner.kubeconfig"
    command = [sys.executable, "-m", "locallb", "gateway", "install-crds", "--yes", "--kubeconfig", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    yield path
    for each in list(world.client.list(CRD)):
        world.client.delete(CRD, str(each["metadata"]["name"]))


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_a_cloud_program_ends_and_serves(world: Workloads, kubeconfig: Path, play: Stage, language: str) -> None:
    """Its wait for an address ends; a second update changes nothing; destroyed, it leaves nothing in the cluster."""
    program = play.root / "program"
    shutil.copytree(CHECKOUT / "examples/cloud" / language, program)
    cluster = {"name": "cloud", "kubeconfig": str(kubeconfig), "loopbackBackends": True, "classes": True}
    play.configure(sources=[{"kubernetes": cluster}])
    run = _commands(play, program, kubeconfig)
    if language == "typescript":
        run("npm", "install", "--no-audit", "--no-fund")
    with watching(play, "--plain") as watch:
        run("pulumi", "stack", "init", "dev")
        run("pulumi", "up", "--yes", "--skip-preview")
        at = run("pulumi", "stack", "output", "address").strip()
        (pod,) = Deployments(world.client, "cloud-shop", "").pods("web")
        assert answer(at) == pod
        (gateway,) = (row for row in play.run("status", "--json").json if row["kind"] == "gateways")
        with closing(Client(gateway["addresses"][0], 80)) as client:
            assert client.ask("/hostname", host="shop.example.com").body == pod, watch.reported()
        run("pulumi", "up", "--yes", "--skip-preview", "--expect-no-changes")
        run("pulumi", "destroy", "--yes", "--skip-preview")
        becomes(lambda: not play.addresses(), watch.reported)
    assert "cloud-shop" not in {each["metadata"]["name"] for each in world.client.list(NAMESPACE)}


def _commands(play: Stage, program: Path, kubeconfig: Path) -> Callable[..., str]:
    """Return what runs commands of the program's user in its directory, and returns what they print."""
    state, plugins = program / ".state", play.root / "pulumi/plugins"
    state.mkdir()
    plugin = plugins / f"resource-kubernetes-v{metadata.version('pulumi_kubernetes')}"
    plugin.mkdir(parents=True)
    (plugin / "pulumi-resource-kubernetes").symlink_to(kubernetes_plugin())
    environment = {
        **os.environ,
        **cli_environment(),
        "PULUMI_HOME": str(plugins.parent),
        "PULUMI_BACKEND_URL": f"file://{state}",
        "KUBECONFIG": str(kubeconfig),
    }
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=program, env=environment, check=False, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
