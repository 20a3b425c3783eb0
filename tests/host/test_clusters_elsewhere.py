"""A kubeconfig whose current context is a cluster of another machine: it is used only once a user says so.

The machines are network namespaces of the test: this host, and one beside it with an API server. Ten Services there are
served by another controller.
"""

from __future__ import annotations

import copy
import json
import os
import pty
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct

from tests.support.fake_api import Api, balancer, node, served
from tests.support.host import LOCALLB, Done, Namespace, Project, project
from tests.support.network_spaces import inside
from tests.support.waiting import becomes

pytestmark = [pytest.mark.slow, pytest.mark.envoy, pytest.mark.root(only="can open sockets in another namespace")]
HOST, OTHER = "198.51.100.1", "198.51.100.2"
BESIDE = f"""\
ip link set lo up
ip link add v1 type veth peer name v0 netns {{pid}}
ip address add {OTHER}/24 dev v1 && ip link set v1 up
"""
LINK = f"ip address add {HOST}/24 dev v0 && ip link set v0 up"
BRIDGE = f"""\
ip link add br0 type bridge && ip link set v0 master br0 up
ip address add {HOST}/24 dev br0 && ip link set br0 up
"""
CONTEXT = "here"
IMPLICIT = [{"kubernetes": {"name": "demo"}}]
NAMED = [{"kubernetes": {"name": "demo", "context": CONTEXT}}]


def of_another_controller(number: int) -> dict[str, Any]:
    """Write a Service as a cloud's controller leaves it."""
    service = balancer(f"cloud-{number}")
    service["metadata"]["finalizers"] = ["service.kubernetes.io/load-balancer-cleanup"]
    service["status"] = {"loadBalancer": {"ingress": [{"ip": f"203.0.113.{number}", "ipMode": "VIP"}]}}
    return service


class Machines(Struct):
    """This host with a project, and the API server of another machine."""

    play: Project
    api: Api
    kubeconfig: Path
    away: Path
    """A directory without a project."""

    @property
    def writes(self) -> list[object]:
        """All that was written there, dry or not."""
        return [*self.api.patched, *self.api.reported]

    def run(self, *terms: str) -> Done:
        """Run a command in the project, without a terminal."""
        return self.play.locallb(*terms, KUBECONFIG=str(self.kubeconfig), **self.homes)

    def tool(self, *terms: str) -> Done:
        """Run a command where there is no project."""
        home: dict[str, Any] = {"HOME": str(self.play.root), "KUBECONFIG": str(self.kubeconfig), **self.homes}
        return self.play.space.run("sh", "-c", 'cd "$0" && exec "$@"', str(self.away), *LOCALLB, *terms, **home)

    @property
    def homes(self) -> dict[str, Any]:
        """The variables of a user without Docker."""
        root = self.play.root
        paths = {"XDG_DATA_HOME": "data", "XDG_STATE_HOME": "s", "LOCALLB_LEDGER": "s/ledger"}
        return {**{name: str(root / path) for name, path in paths.items()}, "DOCKER_HOST": f"unix://{root}/none.sock"}


@contextmanager
def machines(link: str = LINK, address: str = OTHER) -> Iterator[Machines]:
    """Make both; the kubeconfig's current context leads to `address`."""
    with project() as play, tempfile.TemporaryDirectory() as root:
        other = Namespace(Path(root), BESIDE.replace("{pid}", str(play.space.pid)), sibling=play.space)
        try:
            play.space.shell(link)
            with inside(other):
                serving = served(play.root, address)
                api, access = serving.__enter__()
            try:
                api.nodes = [node("n")]
                api.services = [of_another_controller(number) for number in range(1, 11)]
                yield Machines(play, api, Path(access.kubeconfig), Path(root))
            finally:
                serving.__exit__(None, None, None)
        finally:
            other.close()


def test_without_a_yes_nothing_is_sent_there() -> None:
    """Whatever the command; each says in a sentence which cluster it is and how it is confirmed, or knows no stack."""
    with machines() as made:
        made.play.configure(sources=IMPLICIT)
        for terms in ("up --yes", "watch --plain", "up --json --yes"):
            done = made.run(*terms.split())
            assert done.code == 1
            assert f"leads to http://{OTHER}:" in done.err
            assert f"`context: {CONTEXT}`" in done.err
        for terms in ("status", "preview", "refresh --yes", "gc --yes", "destroy --yes", "doctor"):
            made.run(*terms.split())
        for terms in ("up --yes", "watch --plain", "preview"):
            done = made.tool(*terms.split())
            assert done.code == 1
            assert f"--context {CONTEXT} --yes` serves it" in done.err
        for terms in ("status", "init --stack next", "doctor", "gc --yes"):
            made.tool(*terms.split())
        assert made.tool("gateway", "install-crds", "--yes").code == 1
        assert not (made.play.root / "data").exists()
        assert made.api.paths == []
        assert made.writes == []


def test_other_sources_are_served_all_the_same() -> None:
    """The cluster that nobody confirmed is reported, and the run doesn't end well."""
    with machines() as made:
        manifest = {"apiVersion": "v1", "kind": "Service", **balancer("web")}
        made.play.write("all.yaml", manifest, {"apiVersion": "v1", "kind": "Node", **node("n")})
        made.play.configure(sources=[*IMPLICIT, {"manifests": "manifests", "name": "files"}])
        done = made.run("up", "--yes")
        assert done.code == 1
        assert "which isn't of this host" in done.err
        assert [row["cluster"] for row in made.run("status", "--json").json] == ["files"]
        assert made.api.paths == []


@pytest.mark.parametrize("how", ["named in the stack", "named with --yes", "confirmed"])
def test_with_a_yes_services_of_the_other_controller_stay_as_they_are(how: str) -> None:
    """Each is shown with the reason; a Service without an address is served, so the yes counts."""
    with machines() as made:
        cloud = copy.deepcopy(made.api.services)
        made.api.services.append(balancer("ours"))
        if how == "named with --yes":
            run = made.tool
            done = run("up", "--yes", "--context", CONTEXT)
        else:
            run = made.run
            made.play.configure(sources=NAMED if how == "named in the stack" else IMPLICIT)
            if how == "confirmed":
                assert answered(made, "yes", "up").count("[y/N]") == 2
            done = run("up", "--yes")
        assert done.code == 0, done.err
        states = {row["name"]: (row["state"], row["reason"]) for row in run("status", "--json").json}
        assert made.api.services[:-1] == cloud
        assert {name for _, name, _ in made.api.patched} == {"ours"}
        assert {each["regarding"]["name"] for each in made.api.reported} <= {"ours"}
        assert states.pop("ours")[0] != "rejected"
        if how == "named with --yes":  # a project that is made by itself has names below localhost
            assert states.pop("localhost")[0] == "serving"
        assert set(states.values()) == {("rejected", "ServedByAnother")}
        assert len(states) == len(cloud)
        made.api.patched.clear()
        run("destroy", "--yes")
        assert {name for _, name, _ in made.api.patched} == {"ours"}


def test_a_no_changes_nothing_and_is_asked_again() -> None:
    """The question names the server, and how many Services it is about."""
    with machines() as made:
        made.api.services.append(balancer("new"))
        made.play.configure(sources=IMPLICIT)
        for _ in range(2):
            shown = answered(made, "no", "up")
            assert f"http://{OTHER}:" in shown
            assert "11 Services of type LoadBalancer" in shown
            assert "10 of them have an address" in shown
        assert made.writes == []


def answered(made: Machines, answer: str, *terms: str) -> str:
    """Run a command on a terminal where the user gives this answer to every question; return what is shown."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, **made.homes, "KUBECONFIG": str(made.kubeconfig), "TERM": "dumb"}
    command = made.play.space.enter(*LOCALLB, "-C", str(made.play.root), *terms)
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    ) as run:
        os.write(ours, f"{answer}\n".encode() * 3)
        assert run.stdout
        shown = run.stdout.read().decode()
    os.close(ours)
    os.close(theirs)
    return shown


def test_a_preview_of_a_named_cluster_shows_what_a_yes_would_do_and_is_none() -> None:
    """Nothing is kept of it: the next command asks again."""
    with machines() as made:
        made.api.services.append(balancer("ours"))
        done = made.tool("preview", "--context", CONTEXT)
        assert done.code == 0, done.err
        assert "demo" not in done.out
        assert "ours" in done.out
        assert made.writes == []
        assert not (made.play.root / "data").exists()
        assert made.tool("up", "--context", CONTEXT).code == 1
        assert made.writes == []


def test_a_network_of_this_hosts_own_needs_no_yes() -> None:
    """A bridge with nothing but virtual ends, as container engines make it; with a card in it, it does."""
    with machines(BRIDGE) as made:
        made.play.configure(sources=IMPLICIT)
        assert made.run("up", "--yes").code == 0
        assert made.api.paths
        made.play.space.shell("ip link add v5 type vxlan id 5 remote 198.51.100.9 dstport 4789 dev v0 || exit 77")
        made.play.space.shell("ip link set v5 master br0")
        made.run("destroy", "--yes")
        observed = len(made.api.paths)
        assert made.run("up", "--yes").code == 1
        assert len(made.api.paths) == observed


def test_what_an_earlier_version_served_is_served_on() -> None:
    """It asked nobody; its last good reading has the context. From then on, only this server counts."""
    with machines() as made:
        made.play.configure(sources=NAMED)
        made.api.services.append(balancer("ours"))
        assert made.run("up", "--yes").code == 0
        assert not (made.play.root / ".state/locallb/dev/clusters").exists()
        made.play.configure(sources=IMPLICIT)
        assert made.run("up", "--yes", "--expect-no-changes").code == 0
        (remembered,) = json.loads((made.play.root / ".state/locallb/dev/clusters").read_text())["clusters"]["demo"]
        assert remembered["server"].startswith(f"http://{OTHER}:")
        document = yaml.safe_load(made.kubeconfig.read_text())
        document["clusters"][0]["cluster"]["server"] = f"http://{OTHER}:1"
        made.kubeconfig.write_text(yaml.safe_dump(document))
        done = made.run("up", "--yes")
        assert done.code == 1
        assert "its Services count as last read" in done.err


def test_watch_doesnt_follow_a_context_that_moves_to_another_machine() -> None:
    """`kubectl config use-context`, in another terminal: the cluster before counts as last read."""
    with (
        machines() as made,
        tempfile.TemporaryDirectory() as root,
        inside(made.play.space),
        served(Path(root)) as (local, access),
    ):
        local.nodes, local.services = [node("n")], [balancer("ours")]
        documents = [yaml.safe_load(path.read_text()) for path in (Path(access.kubeconfig), made.kubeconfig)]
        config = Path(root) / "both"
        both = merged(*documents)
        config.write_text(yaml.safe_dump(both))
        made.play.configure(sources=IMPLICIT)
        environment = {**os.environ, **made.homes, "KUBECONFIG": str(config), "PYTHONDONTWRITEBYTECODE": "1"}
        command = made.play.space.enter(*LOCALLB, "-C", str(made.play.root), "watch", "--plain")
        log = Path(root) / "log"
        with log.open("wb") as output:
            watch = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            becomes(lambda: any(name == "ours" for _, name, _ in local.patched), log.read_text)
            config.write_text(yaml.safe_dump({**both, "current-context": "elsewhere"}))
            becomes(lambda: "which isn't of this host" in log.read_text(), log.read_text)
            local.services.append(balancer("later"))
            config.write_text(yaml.safe_dump(both))
            becomes(lambda: any(name == "later" for _, name, _ in local.patched), log.read_text)
        finally:
            watch.terminate()
            watch.wait()
        assert made.api.paths == []


def merged(local: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a kubeconfig with the contexts `here` and `elsewhere`, the first current."""
    names = ("here", "elsewhere")
    return {
        "current-context": names[0],
        "clusters": [{**each["clusters"][0], "name": name} for each, name in zip((local, other), names, strict=True)],
        "users": local["users"],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}} for name in names],
    }
