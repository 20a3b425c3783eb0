"""The installed tool, with no checkout on its path: a Service serves, its state is told, and nothing of it is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.backends import ask, backends
from tests.support.clusters import cluster, plane
from tests.support.control_plane import ControlPlane, Objects
from tests.support.manifests import node, port, service
from tests.support.stages import envoys, free_prefix
from tests.support.watching import eventually

__all__ = ["cluster", "plane"]
pytestmark = [pytest.mark.checkout, pytest.mark.envoy]


@pytest.fixture
def user() -> Iterator[Path]:
    """Make a home with a short path: sockets lie below it."""
    home = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    (home / "work").mkdir()
    yield home
    assert envoys(home) == []
    shutil.rmtree(home)


def around(user: Path, **more: str) -> Mapping[str, str]:
    """Return the variables of a user who has nothing but a home; no Docker answers."""
    retained = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    docker = f"unix://{user}/nobody.sock"
    return {**retained, "HOME": str(user), "LOCALLB_LEDGER": str(user / "ledger"), "DOCKER_HOST": docker, **more}


def run(tool: Path, user: Path, *terms: str, **more: str) -> str:
    """Run the tool, and return what it prints; it must succeed."""
    done = subprocess.run(
        [str(tool), *terms],
        cwd=user / "work",
        env=around(user, **more),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def own_pool(user: Path) -> None:
    """Have the stack of this user's own project hand out addresses that nobody else does."""
    with (user / ".local/share/local-lb/stacks/Pulumi.dev.yaml").open("a") as stack:
        stack.write(f"  local-lb:pools: [{{name: own, addresses: [{free_prefix()}.0/27]}}]\n")


def loopback_nodes(user: Path) -> None:
    """Have this user's own stack take Nodes on loopback, which only a test's cluster has."""
    path = user / ".local/share/local-lb/stacks/Pulumi.dev.yaml"
    document = yaml.safe_load(path.read_text())
    for source in document["config"]["local-lb:sources"]:
        source["kubernetes"]["loopbackBackends"] = True
    path.write_text(yaml.safe_dump(document))


@pytest.mark.slow
def test_manifests_are_served_without_a_project(tool: Path, user: Path) -> None:
    """By a real Envoy, to a real client; `destroy` leaves neither processes nor files of proxies nor claims."""
    with backends() as make:
        web = service("web", port(8080, make("web").port))
        (user / "work/shop.yaml").write_text(yaml.safe_dump_all([node(), web]))
        run(tool, user, "preview", "--manifests", "shop.yaml")
        own_pool(user)
        run(tool, user, "up", "--yes", "--manifests", "shop.yaml")
        rows = {row["kind"]: row for row in json.loads(run(tool, user, "status", "--json"))}
        assert {kind: row["state"] for kind, row in rows.items()} == {"services": "serving", "localhost": "serving"}
        assert ask(rows["services"]["addresses"][0], 8080) == "web: hello"
        assert len(envoys(user)) == len(rows)
    run(tool, user, "destroy", "--yes")
    assert envoys(user) == []
    assert [*(user / "ledger").iterdir(), *(user / ".local/state/locallb/proxies").iterdir()] == []


@pytest.mark.slow
def test_a_project_of_init_is_served_by_the_tool(tool: Path, user: Path) -> None:
    """With a component of its own, which finds ours beside it."""
    (user / "work/shop.yaml").write_text(yaml.safe_dump_all([node(), service("web", port(8080, 30001))]))
    run(tool, user, "init", "mine", "--manifests", "shop.yaml")
    root = user / "work/mine"
    with (root / "stacks/Pulumi.dev.yaml").open("a") as stack:
        stack.write(f"  local-lb:pools: [{{name: own, addresses: [{free_prefix()}.0/27]}}]\n")
    with (root / "__main__.py").open("a") as program:
        program.write('\nfrom components.hosts import Hosts\n\nHosts("hosts", plan)\n')
    subprocess.run([tool.with_name("python"), "tests/test_stacks.py"], cwd=root, check=True)
    run(tool, user, "-C", "mine", "up", "--yes")
    run(tool, user, "-C", "mine", "up", "--yes", "--expect-no-changes")
    run(tool, user, "-C", "mine", "destroy", "--yes")


@pytest.mark.cluster
def test_watch_alone_serves_the_current_context(tool: Path, user: Path, plane: ControlPlane, cluster: Objects) -> None:
    """A Service that is created gets an address that answers; `destroy` takes back what was written."""
    kubeconfig = str(plane.kubeconfig)
    run(tool, user, "preview", KUBECONFIG=kubeconfig)
    own_pool(user)
    loopback_nodes(user)
    with watching(tool, user, KUBECONFIG=kubeconfig), backends() as make:
        document = cluster.service(service("web", port(8080, 0)))
        make("web", port=document["spec"]["ports"][0]["nodePort"])
        eventually(lambda: ask(address_of(cluster, "web"), 8080) == "web: hello")
    run(tool, user, "destroy", "--yes")
    assert (cluster.read("web") or {})["metadata"].get("finalizers", []) == []
    assert envoys(user) == []


@contextmanager
def watching(tool: Path, user: Path, **more: str) -> Iterator[None]:
    """Have the tool watch what it finds, until the block ends."""
    terms = [str(tool), "watch", "--plain"]
    watch = subprocess.Popen(terms, cwd=user / "work", env=around(user, **more), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        watch.terminate()
        assert watch.wait(60) == 0


def address_of(cluster: Objects, name: str) -> str:
    """Return the address that a Service's status has; IndexError as long as it has none."""
    return str((cluster.read(name) or {})["status"]["loadBalancer"]["ingress"][0]["ip"])


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["configuration", "commands", "watch"])
def test_pages_come_with_it(tool: Path, user: Path, topic: str) -> None:
    """`help` prints them."""
    assert run(tool, user, "help", topic).startswith("# ")
