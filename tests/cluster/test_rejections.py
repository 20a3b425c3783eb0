"""Services of a live cluster that get nothing, or not everything: what they are told, and that nobody else notices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from locallb.kubernetes.status import FINALIZER
from tests.support.backends import Backend, ask, refused
from tests.support.cluster_services import address, condition, finalizers, ingress, made
from tests.support.control_plane import Document, Objects
from tests.support.manifests import port, service
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]
ADDRESSES = "local-lb.dev/addresses"
BROKEN: dict[str, tuple[Document, str]] = {
    "nonsense": (service("nonsense", port(8080, 0), annotations={ADDRESSES: "many"}), "Malformed"),
    "twice": (service("twice", port(8080, 0), annotations={ADDRESSES: "127.77.0.4,127.77.0.5"}), "Malformed"),
    "ranges": (
        service(
            "ranges",
            port(8080, 0),
            annotations={"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8"},
            loadBalancerSourceRanges=["10.0.0.0/8"],
        ),
        "",
    ),
    "elsewhere": (service("elsewhere", port(8080, 0), loadBalancerIP="192.0.2.9"), "OutOfPool"),
    "word": (service("word", port(8080, 0), loadBalancerIP="somewhere"), "Malformed"),
    "localhost": (service("localhost", port(8080, 0), loadBalancerIP="127.0.0.1"), "Excluded"),
    "six": (service("six", port(8080, 0), annotations={ADDRESSES: "fd00::5"}), "FamilyMismatch"),
    "dual": (
        service("dual", port(8080, 0), ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv4", "IPv6"]),
        "NoPool",
    ),
    "sctp": (service("sctp", port(8080, 0, "SCTP")), "ProtocolNotSupported"),
    "headless": (service("headless", port(8080, 0), allocateLoadBalancerNodePorts=False), "NoBackends"),
}
"""Services that the API server takes, and the reason that each is told; none where only backends lack."""


def test_every_broken_kind_is_reported_and_disturbs_no_other(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Each has a condition and a warning with its own reason; the good one beside them serves as ever."""
    made(cluster, backend, "web")
    for document, _ in BROKEN.values():
        cluster.service(document)
    play.up()
    assert ask(address(cluster, "web"), 8080) == "web: hello"
    for name, (_, reason) in BROKEN.items():
        stated = condition(cluster, name)
        assert (stated["status"], stated["reason"]) == (("False", reason) if reason else ("Unknown", "Waiting")), name
        warnings = [note for kind, _, note in cluster.events(name) if kind == "Warning"]
        assert [note.partition(":")[0] for note in warnings] == [reason] * bool(reason), name
        assert all(f"real/n/{name}" in note for note in warnings)


def test_a_second_run_tells_nothing_again(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Neither the one that is served nor the one that isn't is written again; no event is sent again."""
    made(cluster, backend, "web")
    cluster.service(service("bad", port(8080, 0), loadBalancerIP="192.0.2.9"))
    play.up()
    before = [(cluster.read(name), cluster.events(name)) for name in ("web", "bad")]
    done = play.run("up", "--yes", "--expect-no-changes")
    assert done.code == 0, done.out + done.err
    assert [(cluster.read(name), cluster.events(name)) for name in ("web", "bad")] == before


def test_a_rejected_service_is_not_held_and_says_so_no_more_when_it_is_served(
    cluster: Objects, play: Stage, backend: Backends
) -> None:
    """No finalizer while it gets nothing; repaired it serves, and the condition and the events follow."""
    made(cluster, backend, "web")
    cluster.change("web", {"spec": {"loadBalancerIP": "192.0.2.9"}})
    play.up()
    assert (finalizers(cluster, "web"), ingress(cluster, "web")) == ([], [])
    cluster.change("web", {"spec": {"loadBalancerIP": None}})
    play.up()
    at = address(cluster, "web")
    assert ask(at, 8080) == "web: hello"
    assert (condition(cluster, "web")["status"], finalizers(cluster, "web")) == ("True", [FINALIZER])
    assert [(kind, reason) for kind, reason, _ in cluster.events("web")] == [
        ("Warning", "SyncLoadBalancerFailed"),
        ("Normal", "EnsuredLoadBalancer"),
    ]
    assert cluster.events("web")[-1][2] == f"serves 8080/TCP at {at}"


def test_a_service_that_is_rejected_after_it_served_loses_everything_but_the_reason(
    cluster: Objects, play: Stage, backend: Backends
) -> None:
    """Addresses leave the status, the proxy stops, the finalizer goes, the condition says why."""
    made(cluster, backend, "web")
    play.up()
    at = address(cluster, "web")
    cluster.change("web", {"spec": {"loadBalancerIP": "192.0.2.9"}})
    play.up()
    assert (finalizers(cluster, "web"), ingress(cluster, "web")) == ([], [])
    assert condition(cluster, "web")["reason"] == "OutOfPool"
    assert refused(at, 8080)
    assert envoys(play.root) == []


def test_a_rejected_service_that_left_gets_no_status_any_more(cluster: Objects, play: Stage) -> None:
    """Its type changes, or the stack is destroyed: our condition goes."""
    for name in ("one", "two"):
        cluster.service(service(name, port(8080, 0), loadBalancerIP="192.0.2.9"))
    play.up()
    cluster.change("one", {"spec": {"type": "ClusterIP", "loadBalancerIP": None}})
    play.up()
    assert "conditions" not in (cluster.read("one") or {})["status"]
    assert condition(cluster, "two")["reason"] == "OutOfPool"
    assert play.run("destroy", "--yes").code == 0
    assert "conditions" not in (cluster.read("two") or {})["status"]


def test_a_broken_service_of_another_class_is_never_written(cluster: Objects, play: Stage) -> None:
    """Its resourceVersion stays, and it has no event."""
    document = service("theirs", port(8080, 0), annotations={ADDRESSES: "many"}, loadBalancerClass="example.com/other")
    before = cluster.service(document)
    play.up()
    assert (cluster.read("theirs"), cluster.events("theirs")) == (before, [])


def test_the_end_of_a_service_is_reported(cluster: Objects, play: Stage, backend: Backends) -> None:
    """That it goes, and that nothing of it is left."""
    made(cluster, backend, "web")
    play.up()
    cluster.delete("web")
    play.up()
    reasons = [reason for _, reason, _ in cluster.events("web")]
    assert reasons == ["EnsuredLoadBalancer", "DeletingLoadBalancer", "DeletedLoadBalancer"]


def test_the_lone_excluded_node_is_reported(cluster: Objects, play: Stage, backend: Backends) -> None:
    """As kubeadm labels the only node of a kind cluster: it is used, and an event says so."""
    label = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
    cluster.label_node("node-a", label)
    made(cluster, backend, "web")
    play.up()
    assert ask(address(cluster, "web"), 8080) == "web: hello"
    assert [reason for _, reason, _ in cluster.events("web")] == ["EnsuredLoadBalancer", "ExcludedNodesUsed"]
