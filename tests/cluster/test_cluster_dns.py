"""The stack's zones in the CoreDNS of a real cluster: put there, followed, and taken out so that all is as it was."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from locallb.dns.stubs import ENDS, stub_block, with_block
from locallb.model.identities import OwnerId
from tests.support.bind import ZONE as BIND_ZONE
from tests.support.bind import bind, free_port
from tests.support.client_kinds import CONFIG_MAP
from tests.support.cluster_build import COREDNS, kubernetes
from tests.support.control_plane import ControlPlane, Document, Objects
from tests.support.dns_questions import NXDOMAIN, requested
from tests.support.ingress_rights import IN_NAMESPACE, SUBJECT
from tests.support.manifests import port, service
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
MANIFEST = Path(__file__).resolve().parents[2] / "deploy" / "rbac-cluster-dns.yaml"
ROLE = create_namespaced_resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
SYSTEM = "kube-system"
COREFILE = ".:53 {\n    errors\n    kubernetes cluster.local\n    reload\n}"
IMPORTING = f"{COREFILE}\nimport custom/*.server\n"
SERVER_FAILURE = 2
SERVER = "10.255.255.254:5300"
"""Where nobody is: what CoreDNS is told doesn't depend on it."""
ZONE = {"zone": "lab.example", "rfc2136": {"server": SERVER}}
DNS = {"zones": [ZONE], "template": False, "clusters": "stub"}


class Dns:
    """CoreDNS' configuration, and who changes it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def make(self, name: str, **data: str) -> None:
        """Create a ConfigMap, `_` for a dot."""
        named = {key.replace("_", "."): text for key, text in data.items()}
        self.client.create(CONFIG_MAP.from_dict({"metadata": {"name": name}, "data": named}), namespace=SYSTEM)

    def data(self, name: str = "coredns") -> Document | None:
        return self.client.get(CONFIG_MAP, name, namespace=SYSTEM).get("data")

    def corefile(self) -> str:
        return str((self.data() or {})["Corefile"])

    def write(self, text: str, name: str = "coredns", key: str = "Corefile") -> None:
        patch = {"data": {key: text}}
        self.client.patch(CONFIG_MAP, name, patch, namespace=SYSTEM, patch_type=PatchType.MERGE)


@pytest.fixture
def dns(plane: ControlPlane, cluster: Objects) -> Iterator[Dns]:
    """Have CoreDNS' configuration, and the rights of deploy/ for it."""
    del cluster
    role, binding = yaml.safe_load_all(MANIFEST.read_text())
    with plane.client() as client:
        client.create(ROLE.from_dict(role), namespace=SYSTEM)
        client.create(IN_NAMESPACE.from_dict({**binding, "subjects": [SUBJECT]}), namespace=SYSTEM)
        made = Dns(client)
        made.make("coredns", Corefile=COREFILE)
        try:
            yield made
        finally:
            for name in ("coredns", "coredns-custom"):
                try:
                    client.delete(CONFIG_MAP, name, namespace=SYSTEM)
                except ApiError as error:
                    if error.status.code != 404:
                        raise
            client.delete(IN_NAMESPACE, binding["metadata"]["name"], namespace=SYSTEM)
            client.delete(ROLE, role["metadata"]["name"], namespace=SYSTEM)


@pytest.fixture
def stack(dns: Dns, play: Stage, plane: ControlPlane) -> Stage:
    """Return a stack that tells the cluster of its zone; it ends before the cluster does."""
    del dns
    play.configure(sources=[plane.source], dns=DNS)
    return play


def fails(stack: Stage, *terms: str) -> str:
    """Run a command that fails; return what it says."""
    done = stack.run(*terms)
    assert done.code != 0
    return done.out + done.err


def test_zones_come_change_and_go(stack: Stage, dns: Dns, plane: ControlPlane) -> None:
    """With the least rights; what others write around the block stays, and the end is as the beginning was."""
    stack.up()
    text = dns.corefile()
    assert text.startswith(f"{COREFILE}\n# local-lb: names of local-lb-")
    assert f"lab.example:53 {{\n    errors\n    cache 5\n    forward . {SERVER} {{" in text
    assert stack.run("preview", "--expect-no-changes").code == 0
    stack.configure(sources=[plane.source], dns={**DNS, "zones": [ZONE, {**ZONE, "zone": "more.example"}]})
    dns.write("# before\n" + dns.corefile() + "# after\n")
    stack.up()
    assert "more.example:53 {" in dns.corefile()
    assert stack.run("destroy", "--yes").code == 0
    assert dns.corefile() == f"# before\n{COREFILE}\n# after\n"


def test_stub_zone_removal_restores_a_corefile_without_final_newline(stack: Stage, dns: Dns) -> None:
    """Nothing else was written: the text had no end of line."""
    stack.up()
    assert stack.run("destroy", "--yes").code == 0
    assert dns.data() == {"Corefile": COREFILE}


def test_beside_what_others_import(stack: Stage, dns: Dns) -> None:
    """As in Gardener's shoots: a key of its own, and CoreDNS' own text as it was."""
    dns.make("coredns-custom", other_server="other.example:53 {\n}\n")
    dns.write(IMPORTING)
    stack.up()
    (key,) = (dns.data("coredns-custom") or {}).keys() - {"other.server"}
    assert key.endswith(".server")
    assert dns.corefile() == IMPORTING
    assert stack.run("destroy", "--yes").code == 0
    assert dns.data("coredns-custom") == {"other.server": "other.example:53 {\n}\n"}


def test_foreign_text_between_the_marks_is_reported_and_kept(stack: Stage, dns: Dns) -> None:
    """Neither repaired nor removed; once it is out, everything goes on."""
    stack.up()
    ours = dns.corefile()
    theirs = ours.replace(SERVER, "192.0.2.1")
    dns.write(theirs)
    reported = r"somebody changed the lines between the marks of local-lb-[0-9a-f]{12} in Corefile of"
    assert re.search(reported, fails(stack, "destroy", "--yes"))
    assert stack.run("refresh", "--yes").code == 0
    assert re.search(reported, fails(stack, "up", "--yes"))
    assert dns.corefile() == theirs
    dns.write(COREFILE)
    assert stack.run("refresh", "--yes").code == 0
    stack.up()
    assert dns.corefile() == ours


@pytest.mark.parametrize(
    ("present", "reported"),
    [
        (f"{COREFILE}\nlab.example:53 {{\n}}\n", "the cluster's CoreDNS serves lab.example already; remove that there"),
        (IMPORTING, "which isn't there: `kubectl create configmap coredns-custom -n kube-system`"),
    ],
)
def test_conflicting_corefile_zone_is_reported_and_left_unchanged(
    stack: Stage, dns: Dns, present: str, reported: str
) -> None:
    """Services are served all the same."""
    dns.write(present)
    assert reported in fails(stack, "up", "--yes")
    assert dns.corefile() == present


def test_missing_rights_on_coredns_name_the_manifest_that_grants_them(stack: Stage, dns: Dns) -> None:
    """The file that has them is named."""
    dns.client.delete(IN_NAMESPACE, "local-lb-cluster-dns", namespace=SYSTEM)
    try:
        assert "deploy/rbac-cluster-dns.yaml has the rights for zones in clusters" in fails(stack, "up", "--yes")
    finally:
        _, binding = yaml.safe_load_all(MANIFEST.read_text())
        dns.client.create(IN_NAMESPACE.from_dict({**binding, "subjects": [SUBJECT]}), namespace=SYSTEM)


def test_the_loop_restores_a_removed_stub_zone(stack: Stage, dns: Dns, cluster: Objects) -> None:
    """At its next full pass, requested here by a signal; Services come and go meanwhile."""
    with watching(stack) as watch:
        eventually(lambda: ENDS in dns.corefile(), watch)
        ours = dns.corefile()
        cluster.service(service("web", port(8080, 0)))
        dns.write(COREFILE)
        watch.process.send_signal(signal.SIGHUP)
        eventually(lambda: dns.corefile() == ours, watch)


def test_coredns_asks_the_zones_server_and_goes_on_without_it(tmp_path: Path) -> None:
    """A real one, which reads its text again by itself; what it knew before it knows all the while."""
    try:
        program = kubernetes(COREDNS)
    except FileNotFoundError:
        pytest.skip("CoreDNS isn't built here; `make test-upstream` builds it")
    with bind() as server:
        place = "127.0.0.1", free_port()
        text = f".:{place[1]} {{\n    reload 2s\n    forward . 127.0.0.1:1\n}}\n"
        present = {"data": {"Corefile": text}}
        name, zones = f"foreign.{BIND_ZONE}", ("elsewhere.test 127.0.0.1:1", f"{BIND_ZONE} 127.0.0.1:{server.port}")
        block = stub_block(OwnerId("local-lb-0123456789ab"), zones, present)
        path = tmp_path / "Corefile"
        path.write_text(text)
        process = subprocess.Popen([program, "-conf", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: requested(place, name)[0] == SERVER_FAILURE)
            path.write_text(with_block(path.read_text(), "local-lb-0123456789ab", block))
            eventually(lambda: requested(place, name)[1] == ["192.0.2.1"])
            assert requested(place, f"nobody.{BIND_ZONE}")[0] == NXDOMAIN
            path.write_text(with_block(path.read_text(), "local-lb-0123456789ab", ""))
            eventually(lambda: requested(place, name)[0] == SERVER_FAILURE)
        finally:
            process.terminate()
            process.wait(20)
