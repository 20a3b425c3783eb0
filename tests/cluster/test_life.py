"""The life of a Service in a live cluster: made, changed, deleted through a real API server, used by real clients."""

from __future__ import annotations

import pytest

from locallb.kubernetes.status import FINALIZER
from tests.support.backends import ask, refused
from tests.support.cluster_services import FOREIGN, Backends, address, condition, finalizers, ingress, made
from tests.support.control_plane import ControlPlane, Document, Objects
from tests.support.manifests import port, service
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]


def test_the_address_in_the_status_serves(cluster: Objects, play: Stage, backend: Backends) -> None:
    """A Service gets finalizer, address and condition; TCP and UDP answer through the address."""
    cluster.service(service("web", port(8080, 0), port(8080, 0, "UDP")))
    for number in {item["nodePort"] for item in cluster.ports("web")}:
        backend("web", port=number)
    play.up()
    (entry,) = ingress(cluster, "web")
    assert ask(entry["ip"], 8080) == "web: hello"
    assert ask(entry["ip"], 8080, "UDP") == "web: hello"
    assert entry["ipMode"] == "Proxy"
    assert entry["ports"] == [{"port": 8080, "protocol": "TCP"}, {"port": 8080, "protocol": "UDP"}]
    assert finalizers(cluster, "web") == [FINALIZER]
    assert condition(cluster, "web")["status"] == "True"


def test_a_second_run_writes_nothing(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Nothing changed, so nothing is written: the resourceVersion stays."""
    made(cluster, backend, "web")
    play.up()
    before = cluster.read("web")
    done = play.run("up", "--yes", "--expect-no-changes")
    assert done.code == 0, done.out + done.err
    assert cluster.read("web") == before


def test_a_preview_writes_nothing(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Neither finalizer nor status appear before `up`."""
    before = made(cluster, backend, "web")
    done = play.run("preview", "--diff")
    assert done.code == 0, done.err
    assert "ServiceStatus" in done.out
    assert cluster.read("web") == before


def test_the_address_stays_through_changes(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Ports, traffic policy and affinity change; the address doesn't, and every port in the spec serves."""
    made(cluster, backend, "web")
    play.up()
    at = address(cluster, "web")
    first = {**port(8080, 0), **cluster.ports("web")[0]}
    changed = cluster.change("web", {"spec": {"ports": [first, port(9090, 0)], "sessionAffinity": "ClientIP"}})
    backend("two", port=changed["spec"]["ports"][1]["nodePort"])
    play.up()
    assert (address(cluster, "web"), ask(at, 9090)) == (at, "two: hello")
    assert len(ingress(cluster, "web")[0]["ports"]) == 2
    assert ask(at, 8080) == "web: hello"


def test_without_a_ready_endpoint_clients_are_refused_and_the_address_stays(
    cluster: Objects, play: Stage, backend: Backends
) -> None:
    """The port closes, the condition tells why, and it opens again with a ready endpoint."""
    made(cluster, backend, "web")
    cluster.endpoints("web", ready=False)
    play.up()
    at = address(cluster, "web")
    assert refused(at, 8080)
    assert (condition(cluster, "web")["status"], condition(cluster, "web")["reason"]) == ("False", "NoBackends")
    assert "error" not in ingress(cluster, "web")[0]["ports"][0]
    cluster.endpoints("web", ready=True)
    play.up()
    assert ask(at, 8080) == "web: hello"
    assert condition(cluster, "web")["status"] == "True"


def test_a_deleted_service_goes_when_nothing_serves_it_any_more(
    cluster: Objects, play: Stage, backend: Backends
) -> None:
    """The finalizer keeps it until `up` has removed address and proxy; then nothing remains."""
    made(cluster, backend, "web")
    play.up()
    at = address(cluster, "web")
    cluster.delete("web")
    assert cluster.read("web") is not None
    assert ask(at, 8080) == "web: hello"
    play.up()
    assert cluster.read("web") is None
    assert refused(at, 8080)
    assert envoys(play.root) == []


def test_a_service_that_is_no_load_balancer_any_more_is_let_go(
    cluster: Objects, play: Stage, backend: Backends
) -> None:
    """Its type changes: finalizer, address and condition go, the Service stays."""
    made(cluster, backend, "web")
    play.up()
    cluster.change("web", {"spec": {"type": "ClusterIP"}})
    play.up()
    assert finalizers(cluster, "web") == []
    assert ingress(cluster, "web") == []
    assert "conditions" not in (cluster.read("web") or {})["status"]
    assert envoys(play.root) == []


def test_destroy_takes_back_only_what_is_ours(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Entries, conditions and finalizers of others stay through `up` and `destroy`."""
    made(cluster, backend, "web")
    cluster.change("web", {"metadata": {"finalizers": ["example.com/mine"]}})
    theirs = {
        "type": "example.com/Fine",
        "status": "True",
        "reason": "Is",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    play.up()  # a Service that another controller had served before would be left to it
    ours = (cluster.read("web") or {})["status"]
    both = {
        "conditions": [theirs, *ours["conditions"]],
        "loadBalancer": {"ingress": [*ingress(cluster, "web"), FOREIGN]},
    }
    cluster.change_status("web", {"status": both})
    play.up()
    assert [entry["ip"] for entry in ingress(cluster, "web")][1:] == [FOREIGN["ip"]]
    assert finalizers(cluster, "web") == ["example.com/mine", FINALIZER]
    assert play.run("destroy", "--yes").code == 0
    assert ingress(cluster, "web") == [FOREIGN]
    assert finalizers(cluster, "web") == ["example.com/mine"]
    assert (cluster.read("web") or {})["status"]["conditions"] == [theirs]


def test_removed_status_and_finalizer_are_restored_by_up(cluster: Objects, play: Stage, backend: Backends) -> None:
    """A status wiped and a finalizer taken away are back after the next run, with the same address."""
    made(cluster, backend, "web")
    play.up()
    before = ingress(cluster, "web")
    cluster.change_status("web", {"status": {"loadBalancer": None, "conditions": None}})
    cluster.change("web", {"metadata": {"finalizers": None}})
    play.up()
    assert ingress(cluster, "web") == before
    assert finalizers(cluster, "web") == [FINALIZER]
    assert condition(cluster, "web")["status"] == "True"


def test_the_same_name_with_another_uid_is_another_service(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Deleted behind our back and made again: the new one is claimed and told, and it serves."""
    made(cluster, backend, "web")
    play.up()
    cluster.change("web", {"metadata": {"finalizers": None}})
    cluster.delete("web")
    made(cluster, backend, "web", 8081)
    play.up()
    assert ask(address(cluster, "web"), 8081) == "web: hello"
    assert finalizers(cluster, "web") == [FINALIZER]
    assert play.run("destroy", "--yes").code == 0
    assert finalizers(cluster, "web") == []


def test_services_of_another_class_are_never_written(cluster: Objects, play: Stage) -> None:
    """Their resourceVersion stays as it was."""
    before = cluster.service(service("other", port(8080, 0), loadBalancerClass="example.com/other"))
    play.up()
    assert cluster.read("other") == before


def test_mapped_ports_are_reported_by_condition_and_annotation(
    plane: ControlPlane, cluster: Objects, play: Stage, backend: Backends
) -> None:
    """The API keeps both, they change with the ports, and both go with the stack; the annotations of others stay."""
    play.configure(sources=[plane.source], portMapping="loopback")
    made(cluster, backend, "web", 443)
    made(cluster, backend, "two", 443)
    cluster.change("web", {"metadata": {"annotations": {"theirs": "stays"}}})
    play.up()
    number = play.status()["n/web"]["ports"][0]["mapped"]
    assert address(cluster, "web") == "127.0.0.1"
    assert ingress(cluster, "web")[0]["ports"] == [{"port": 443, "protocol": "TCP"}]
    assert ask("127.0.0.1", number) == "web: hello"
    at = f"443/TCP=127.0.0.1:{number}"
    assert condition(cluster, "web", "local-lb.dev/PortMapping")["message"] == at
    assert annotated(cluster, "web") == {"theirs": "stays", "local-lb.dev/mapped-ports": at}
    before = cluster.read("web")
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    assert cluster.read("web") == before
    cluster.change("web", {"metadata": {"annotations": {"local-lb.dev/mapped-ports": "nonsense"}}})
    assert play.run("refresh", "--yes").code == 0
    play.up()
    assert annotated(cluster, "web")["local-lb.dev/mapped-ports"] == at
    assert play.run("destroy", "--yes").code == 0
    assert annotated(cluster, "web") == {"theirs": "stays"}
    assert ingress(cluster, "web") == []


def annotated(cluster: Objects, name: str) -> Document:
    document = cluster.read(name)
    assert document is not None
    return dict(document["metadata"].get("annotations", {}))
