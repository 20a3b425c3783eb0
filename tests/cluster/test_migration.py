"""Services that another controller served, or still serves: as cloud-provider-kind and Gardener leave them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from locallb.kubernetes.status import FINALIZER
from tests.support.backends import Backend, ask
from tests.support.cluster_services import address, condition, finalizers, ingress, made
from tests.support.control_plane import Document, Objects
from tests.support.manifests import port, service
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]
KIND = {"ip": "172.18.0.9", "ipMode": "Proxy", "ports": [{"port": 8080, "protocol": "TCP"}]}
"""An entry of cloud-provider-kind: the container's address on Docker's network."""


def served_by_another(cluster: Objects, backend: Backends, entry: Document) -> None:
    """Make a Service as another controller of upstream's framework leaves it: finalizer and status."""
    made(cluster, backend, "web")
    cluster.change("web", {"metadata": {"finalizers": [FINALIZER]}})
    cluster.change_status("web", {"status": {"loadBalancer": {"ingress": [entry]}}})


def test_a_service_of_another_controller_waits_for_take_over(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Nothing is written to it, and the reason is shown; `takeOver` replaces its address, also when that returns."""
    served_by_another(cluster, backend, KIND)
    before = cluster.read("web")
    done = play.up()
    assert cluster.read("web") == before
    assert cluster.events("web") == []
    assert "its status has 172.18.0.9, which isn't ours" in done.out + done.err
    assert "local-lb:takeOver" in done.out + done.err
    play.configure(sources=[cluster.plane.source], takeOver=True)
    play.up()
    at = address(cluster, "web")
    assert ask(at, 8080) == "web: hello"
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    cluster.change_status("web", {"status": {"loadBalancer": {"ingress": [KIND]}}})
    play.up()
    assert address(cluster, "web") == at
    assert ask(at, 8080) == "web: hello"
    assert finalizers(cluster, "web") == [FINALIZER]


def test_an_address_that_another_controller_adds_later_stays_beside_ours(
    cluster: Objects, play: Stage, backend: Backends
) -> None:
    """The Service is ours from then on, also after the state was lost; the other one is reported by an event."""
    made(cluster, backend, "web")
    play.up()
    ours = ingress(cluster, "web")
    cluster.change_status("web", {"status": {"loadBalancer": {"ingress": [*ours, KIND]}}})
    done = play.up()
    assert ingress(cluster, "web") == [*ours, KIND]
    assert "its status lists 172.18.0.9, which is not ours" in done.out + done.err
    assert "OtherController" in [reason for _, reason, _ in cluster.events("web")]
    for lost in (play.root / ".state/.pulumi", play.state_home / "ledger"):
        shutil.rmtree(lost)
    play.up()
    assert ask(str(ours[0]["ip"]), 8080) == "web: hello"
    assert ingress(cluster, "web") == [*ours, KIND]


def address_of_ours(cluster: Objects) -> str:
    """Return the address in the first entry."""
    return str(ingress(cluster, "web")[0]["ip"])


def test_an_address_of_the_same_pool_is_kept(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Gardener's controller gave it, with a finalizer of the same name: the Service's users notice nothing."""
    served_by_another(cluster, backend, {"ip": play.at(13), "ipMode": "Proxy"})
    play.up()
    (entry,) = ingress(cluster, "web")
    assert (entry["ip"], len(entry["ports"])) == (play.at(13), 1)
    assert ask(play.at(13), 8080) == "web: hello"
    assert condition(cluster, "web")["status"] == "True"


def test_a_controller_that_ends_late_does_no_harm(cluster: Objects, play: Stage, backend: Backends) -> None:
    """It empties the status and takes the finalizer, which it takes for its own: both are back after the next run."""
    served_by_another(cluster, backend, KIND)
    play.configure(sources=[cluster.plane.source], takeOver=True)
    play.up()
    at = address_of_ours(cluster)
    cluster.change("web", {"metadata": {"finalizers": None}})
    cluster.change_status("web", {"status": {"loadBalancer": None}})
    play.up()
    assert (address(cluster, "web"), finalizers(cluster, "web")) == (at, [FINALIZER])


def test_a_service_of_both_is_distinguished_by_its_class(cluster: Objects, play: Stage, backend: Backends) -> None:
    """With the default class off, what the other one serves is never written; what has our class is ours."""
    served_by_another(cluster, backend, KIND)
    before = cluster.read("web")
    document = cluster.service(service("mine", port(8081, 0), loadBalancerClass="local-lb.dev/local"))
    backend("mine", port=document["spec"]["ports"][0]["nodePort"])
    play.configure(sources=[cluster.plane.source], classes={"default": False, "names": ["local-lb.dev/local"]})
    play.up()
    assert cluster.read("web") == before
    assert ask(address(cluster, "mine"), 8081) == "mine: hello"


def test_gc_lets_go_of_services_that_a_lost_state_left(cluster: Objects, play: Stage, backend: Backends) -> None:
    """The state is gone and the Service waits to be deleted; one that is only there is left to `up`."""
    made(cluster, backend, "web")
    made(cluster, backend, "stays", 8081)
    foreign = cluster.service(service("foreign", port(8082, 0), loadBalancerClass="example.com/other"))
    cluster.change("foreign", {"metadata": {"finalizers": [FINALIZER]}})
    play.up()
    shutil.rmtree(play.root / ".state/.pulumi")
    cluster.delete("web")
    cluster.delete("foreign")
    listed = {(leftover["sort"], leftover["what"]) for leftover in json.loads(play.run("gc", "--json").out)}
    assert {item for item in listed if item[0] == "finalizer"} == {("finalizer", "real/n/web")}
    assert cluster.read("web") is not None
    assert play.run("gc", "--yes").code == 0
    assert cluster.read("web") is None
    assert finalizers(cluster, foreign["metadata"]["name"]) == [FINALIZER]
    assert envoys(play.root) == []
    play.up()
    assert ask(address(cluster, "stays"), 8081) == "stays: hello"
    cluster.change("foreign", {"metadata": {"finalizers": None}})
