"""Several processes on one stack: one leads by a Lease, the others wait; who was paused past it changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml
from lightkube.generic_resource import create_namespaced_resource

from locallb.config.settings import Timing
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.election import Election
from locallb.kubernetes.api.writes import FENCE, Fence, NotLeaderError
from locallb.kubernetes.lease import Candidate
from locallb.ledger.ledger import Ledger
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, ObjectKind, Owner, Uid
from locallb.model.snapshot import Access
from tests.support.backends import Backend, ask, refused
from tests.support.client_kinds import LEASE
from tests.support.cluster_services import address, ingress, made
from tests.support.control_plane import ControlPlane, Objects
from tests.support.manifests import port, service
from tests.support.provider import Driver
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]
QUICK = {"leaseDuration": 6, "renewDeadline": 4, "retryPeriod": 0.5}
PLACE = ("n", "local-lb")


@pytest.fixture(autouse=True)
def rights(plane: ControlPlane, cluster: Objects) -> Iterator[None]:
    """Give local-lb what deploy/rbac-leader-election.yaml gives it, in the namespace n; no Lease stays."""
    text = (Path(__file__).resolve().parents[2] / "deploy/rbac-leader-election.yaml").read_text()
    role, binding = yaml.safe_load_all(text)
    kinds = {
        kind: create_namespaced_resource("rbac.authorization.k8s.io", "v1", kind, f"{kind.lower()}s")
        for kind in ("Role", "RoleBinding")
    }
    binding["subjects"] = [{"kind": "User", "name": "local-lb", "apiGroup": "rbac.authorization.k8s.io"}]
    for document in (role, binding):
        document["metadata"]["namespace"] = "n"
        cluster.client.create(kinds[document["kind"]].from_dict(document), namespace="n")
    yield
    for kind in kinds.values():
        cluster.client.delete(kind, "local-lb", namespace="n")
    for lease in cluster.client.list(LEASE, namespace="n"):
        cluster.client.delete(LEASE, lease["metadata"]["name"], namespace="n")
    del plane


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def candidate(plane: ControlPlane, name: str, clock: Clock, least: Callable[[], int] = lambda: 0) -> Election:
    """Make one that steps only when it is told to."""
    cluster = Cluster(Access(str(plane.kubeconfig), ContextName(plane.name)))
    return Election(cluster, PLACE, Candidate(name, Timing()), least=least, clock=clock)


def fence_of(election: Election, clock: Clock) -> Fence:
    """Ask this candidate, as its own process would."""
    fence = Fence(clock)
    fence.put(election.term)
    return fence


def test_only_one_candidate_leads_and_terms_increase(plane: ControlPlane) -> None:
    """The second leads when the first has been silent for a whole lease, or gave up; the first sees it and waits."""
    clock = Clock()
    one, two = candidate(plane, "one", clock), candidate(plane, "two", clock)
    for _ in range(3):
        one.step()
        two.step()
        clock.now += 2
    assert (one.leads(), two.leads(), two.holder) == (True, False, "one")
    clock.now += 16
    assert not one.leads()
    two.step()
    assert (two.leads(), two.term().number) == (True, 1)  # type: ignore[union-attr]  # it leads
    one.step()
    assert (one.leads(), one.holder) == (False, "two")
    two.stop()
    one.step()
    assert (one.leads(), one.term().number) == (True, 2)  # type: ignore[union-attr]  # it leads


def test_a_deposed_leader_writes_neither_ledger_nor_service(
    plane: ControlPlane, cluster: Objects, tmp_path: Path
) -> None:
    """Paused past its lease, then awake: a later leader's claims, releases and statuses stay as they are."""
    clock = Clock()
    home, ledgers = Home("shop", "dev", str(tmp_path)), tmp_path / "ledger"
    key = ObjectKey(ClusterName("real"), "n", "web")
    web, at = Owner(home, key, Uid("u1")), ip_address("127.77.0.9")
    old = candidate(plane, "old", clock)
    new = candidate(plane, "new", clock, least=lambda: Ledger(ledgers).term(home) + 1)
    old.step()
    asleep = Clock()
    asleep.now = clock.now  # the old leader's clock stands still: it never learns how late it is
    olds, news = Ledger(ledgers, fence_of(old, asleep)), Ledger(ledgers, fence_of(new, clock))
    olds.claim(at, web)
    new.step()
    clock.now += 16
    new.step()
    news.release(at, web)
    with pytest.raises(NotLeaderError, match="a later leader of shop/dev"):
        olds.claim(at, web)
    news.claim(at + 1, web)
    with pytest.raises(NotLeaderError):
        olds.release(at + 1, web)
    assert [claim.address for claim in news.claims()] == [at + 1]
    assert news.problems() == ()
    live = cluster.service(service("web", port(8080, 0)))
    access = {"kubeconfig": str(plane.kubeconfig), "context": plane.name}
    owner = {"project": "shop", "stack": "dev", "root": str(tmp_path), "cluster": "real", "namespace": "n"}
    claim = {"access": access, "owner": {**owner, "name": "web", "uid": live["metadata"]["uid"]}}
    FENCE.put(old.term)
    try:
        with pytest.raises(NotLeaderError, match="lost leadership"):
            Driver(tmp_path).create("ServiceClaim", claim)
    finally:
        FENCE.put(None)
    assert cluster.read("web") == live


def test_a_write_between_reading_and_writing_ends_the_term(
    plane: ControlPlane, cluster: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader falls asleep after it was asked for its term, just before the patch: the new leader's write wins."""
    live = cluster.service(service("web", port(8080, 0)))
    access = {"kubeconfig": str(plane.kubeconfig), "context": plane.name}
    owner = {"project": "shop", "stack": "dev", "root": str(tmp_path), "cluster": "real", "namespace": "n"}
    claim = {"access": access, "owner": {**owner, "name": "web", "uid": live["metadata"]["uid"]}}
    clock = Clock()
    election = candidate(plane, "old", clock)
    election.step()
    patch = Cluster.patch_status

    def asleep(self: Cluster, namespace: str, name: str, body: Mapping[str, object], kind: ObjectKind) -> object:
        clock.now += 60
        cluster.change("web", {"metadata": {"annotations": {"example.com/by": "the new leader"}}})
        return patch(self, namespace, name, body, kind)

    monkeypatch.setattr(Cluster, "patch_status", asleep)
    monkeypatch.setattr(FENCE, "_clock", clock)
    FENCE.put(election.term)
    try:
        with pytest.raises(NotLeaderError):
            Driver(tmp_path).create("ServiceClaim", claim)
    finally:
        FENCE.put(None)
    assert "finalizers" not in (cluster.read("web") or {})["metadata"]


@pytest.fixture
def elected(plane: ControlPlane, play: Stage) -> Stage:
    election = {"enabled": True, "namespace": "n", **QUICK}
    play.configure(sources=[plane.source], leaderElection=election)
    return play


def test_an_update_leads_while_it_runs(cluster: Objects, elected: Stage, backend: Backends) -> None:
    """`up` takes the Lease, serves, and gives it up; while somebody else leads it changes nothing and says so."""
    made(cluster, backend, "web")
    elected.up()
    at = address(cluster, "web")
    lease = dict(cluster.client.get(LEASE, "local-lb", namespace="n"))
    assert lease["spec"].get("holderIdentity", "") == ""
    assert [row["leader"] for row in elected.run("status", "--json").json] == [""]
    assert "Leader: nobody holds the Lease" in elected.run("status").out
    other = Election(
        Cluster(Access(str(cluster.plane.kubeconfig), ContextName("real"))),
        PLACE,
        Candidate("other", Timing(retry_period=0.3)),
        least=lambda: 50,
    )
    other.start()
    while not other.leads():
        time.sleep(0.05)
    cluster.change("web", {"spec": {"type": "ClusterIP"}})
    done = elected.run("up", "--yes")
    reported = elected.run("status").out
    other.stop()
    assert "Leader: other" in reported
    assert done.code == 1
    assert "the Lease of this stack can't be had: other leads" in done.err
    assert ask(at, 8080) == "web: hello"
    elected.up()
    assert refused(at, 8080)


def test_orders_of_a_command_are_carried_out_by_the_leader(cluster: Objects, elected: Stage, backend: Backends) -> None:
    """The command only says so, and takes the Lease from nobody."""
    made(cluster, backend, "web")
    elected.up()
    at = address(cluster, "web")
    done = elected.run("drain", "web")
    assert (done.code, "if none is running, run `locallb" in done.err) == (0, True)
    assert ask(at, 8080) == "web: hello"
    with watching(elected) as watch:
        eventually(lambda: refused(at, 8080), watch)
        assert elected.run("drain", "--undo").code == 0
        eventually(lambda: ask(at, 8080) == "web: hello", watch)


@pytest.mark.slow
def test_second_watch_takes_over_from_a_paused_leader(cluster: Objects, elected: Stage, backend: Backends) -> None:
    """The leader is paused past its lease: the other goes on; awake again, the first undoes nothing and stands by."""
    made(cluster, backend, "web")
    watchers = [watcher(elected), watcher(elected)]
    try:
        await_(lambda: bool(ingress(cluster, "web")))
        at = address(cluster, "web")
        first = next(process for process in watchers if str(process.pid) == holder(cluster).split("_")[1])
        locks = elected.root / ".state" / ".pulumi" / "locks"
        await_(lambda: not list(locks.rglob("*.json")))  # paused in an update it would hold up everybody
        os.kill(first.pid, signal.SIGSTOP)
        await_(lambda: holder(cluster).split("_")[1] != str(first.pid))
        cluster.change("web", {"metadata": {"annotations": {"local-lb.dev/addresses": elected.at(30)}}})
        await_(lambda: ingress(cluster, "web")[0]["ip"] == elected.at(30) if ingress(cluster, "web") else False)
        await_(lambda: refused(at, 8080))
        os.kill(first.pid, signal.SIGCONT)
        version = (cluster.read("web") or {})["metadata"]["resourceVersion"]
        time.sleep(2.0)  # whatever the first one still had to do, it would have done by now
        assert (cluster.read("web") or {})["metadata"]["resourceVersion"] == version
        assert ask(elected.at(30), 8080) == "web: hello"
        second = next(process for process in watchers if process is not first)
        second.terminate()
        second.wait(20)
        cluster.change("web", {"metadata": {"annotations": {"local-lb.dev/addresses": elected.at(29)}}})
        await_(lambda: ingress(cluster, "web")[0]["ip"] == elected.at(29) if ingress(cluster, "web") else False)
        assert ask(elected.at(29), 8080) == "web: hello"
    finally:
        for process in watchers:
            os.kill(process.pid, signal.SIGCONT) if process.poll() is None else None
            process.terminate()
            process.wait(20)


def watcher(stage: Stage) -> subprocess.Popen[bytes]:
    """Run `locallb watch`."""
    command = [str(Path(sys.executable).parent / "locallb"), "-C", str(stage.root), "watch"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def holder(cluster: Objects) -> str:
    return str(dict(cluster.client.get(LEASE, "local-lb", namespace="n"))["spec"]["holderIdentity"])


def await_(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
