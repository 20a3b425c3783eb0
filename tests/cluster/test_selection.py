"""Which Services of a live cluster a stack serves, and those that share an address."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.backends import Backend, ask, refused
from tests.support.cluster_services import address, condition, finalizers, ingress
from tests.support.control_plane import Objects
from tests.support.manifests import port, service
from tests.support.stages import Stage
from tests.support.watching import answers, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]
KEY = {"local-lb.dev/sharing-key": "edge"}


def test_a_stack_serves_what_it_selects_and_lets_go_of_what_it_selects_no_longer(
    cluster: Objects, play: Stage, backend: Backends
) -> None:
    """By class, labels and namespace; what isn't selected is never written, broken or not."""
    selected = cluster.service(service("web", port(8080, 0), labels={"team": "web"}, loadBalancerClass="kube-router"))
    backend("web", port=selected["spec"]["ports"][0]["nodePort"])
    others = [
        cluster.service(service("plain", port(8080, 0), labels={"team": "web"})),
        cluster.service(service("db", port(8080, 0), labels={"team": "db"}, loadBalancerClass="kube-router")),
        cluster.service(service("bad", port(8080, 0), loadBalancerIP="nowhere", loadBalancerClass="kube-router")),
    ]
    chosen = {"classes": {"default": False, "names": ["kube-router", "default"]}, "selector": {"team": "web"}}
    play.configure(sources=[cluster.plane.source], namespaces=["n"], **chosen)
    play.up()
    assert ask(address(cluster, "web"), 8080) == "web: hello"
    assert [cluster.read(service["metadata"]["name"]) for service in others] == others
    play.configure(sources=[cluster.plane.source], namespaces=["elsewhere"], **chosen)
    play.up()
    assert (ingress(cluster, "web"), finalizers(cluster, "web")) == ([], [])


def test_two_services_share_an_address_until_one_leaves(cluster: Objects, play: Stage, backend: Backends) -> None:
    """Each at its own port, each with a proxy of its own; the one that stays isn't disturbed."""
    for name, number in (("web", 8080), ("mail", 2525)):
        document = cluster.service(service(name, port(number, 0), annotations=KEY))
        backend(name, port=document["spec"]["ports"][0]["nodePort"])
    play.up()
    at = address(cluster, "web")
    assert (address(cluster, "mail"), ask(at, 8080), ask(at, 2525)) == (at, "web: hello", "mail: hello")
    cluster.delete("web")
    play.up()
    assert refused(at, 8080)
    assert ask(at, 2525) == "mail: hello"
    assert play.run("up", "--yes", "--expect-no-changes").code == 0


def test_younger_service_moves_when_ports_collide_at_a_shared_address(
    cluster: Objects, play: Stage, backend: Backends
) -> None:
    """The older one gains a port of the younger, which gets another address; both serve."""
    for name, number in (("web", 8080), ("mail", 2525)):
        document = cluster.service(service(name, port(number, 0), annotations=KEY))
        backend(name, port=document["spec"]["ports"][0]["nodePort"])
        play.up()
        time.sleep(1.1)  # a creationTimestamp knows whole seconds
    at = address(cluster, "web")
    first = {**port(8080, 0), **cluster.ports("web")[0]}
    changed = cluster.change("web", {"spec": {"ports": [first, port(2525, 0)]}})
    backend("web2", port=changed["spec"]["ports"][1]["nodePort"])
    done = play.run("up", "--yes")
    if done.code:  # the younger's listener was still there when the older's was tried
        play.up()
    assert address(cluster, "web") == at
    assert address(cluster, "mail") != at
    eventually(lambda: answers(at, 8080, "web") and answers(at, 2525, "web2"))
    eventually(lambda: answers(address(cluster, "mail"), 2525, "mail"))
    assert condition(cluster, "mail")["status"] == "True"
