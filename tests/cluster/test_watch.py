"""`locallb watch` on a real API server: events come true by themselves, and an API that is away harms nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.support.backends import Backend, ask, refused
from tests.support.cluster_services import FOREIGN, address, condition, finalizers, ingress, made
from tests.support.control_plane import ControlPlane, Objects
from tests.support.manifests import port, service
from tests.support.stages import Stage
from tests.support.watching import Watch, answers, eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]


@pytest.fixture
def watch(play: Stage) -> Iterator[Watch]:
    with watching(play) as running:
        yield running


def test_a_service_serves_changes_and_goes_by_itself(cluster: Objects, watch: Watch, backend: Backends) -> None:
    """Created, a port more, no ready endpoint, deleted: nobody runs a command."""
    made(cluster, backend, "web")
    eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
    at = address(cluster, "web")
    eventually(lambda: condition(cluster, "web")["status"] == "True", watch)
    first = cluster.ports("web")[0]
    cluster.change("web", {"spec": {"ports": [first, port(8081, 0)]}})
    backend("more", port=cluster.ports("web")[1]["nodePort"])
    eventually(lambda: answers(at, 8081, "more"), watch)
    cluster.endpoints("web", ready=False)
    eventually(lambda: refused(at, 8080), watch)
    assert address(cluster, "web") == at
    cluster.endpoints("web", ready=True)
    eventually(lambda: answers(at, 8080, "web"), watch)
    cluster.delete("web")
    eventually(lambda: cluster.read("web") is None and refused(at, 8080), watch)


def test_an_idle_loop_writes_nothing(cluster: Objects, watch: Watch, backend: Backends) -> None:
    """Its own patches lead to nothing: the resourceVersion stays once all is told."""
    made(cluster, backend, "web")
    made(cluster, backend, "other")
    eventually(lambda: condition(cluster, "web")["status"] == "True", watch)
    eventually(lambda: condition(cluster, "other")["status"] == "True", watch)
    before = cluster.read("web"), cluster.read("other")
    cluster.node("node-b", "127.0.0.3")  # something that the loop must look at
    cluster.service(service("unrelated", port(80, 0), loadBalancerClass="someone.else/lb"))
    eventually(lambda: cluster.read("unrelated"), watch)
    made(cluster, backend, "last")
    eventually(lambda: condition(cluster, "last")["status"] == "True", watch)
    assert (cluster.read("web"), cluster.read("other")) == before


def test_removed_status_address_is_restored_by_watch(cluster: Objects, watch: Watch, backend: Backends) -> None:
    """An address that somebody takes out of the status comes back."""
    made(cluster, backend, "web")
    eventually(lambda: condition(cluster, "web")["status"] == "True", watch)
    at = address(cluster, "web")
    cluster.change_status("web", {"status": {"loadBalancer": {"ingress": None}}})
    eventually(lambda: [entry["ip"] for entry in ingress(cluster, "web")] == [at], watch)


def test_an_api_that_is_away_harms_nothing_and_all_converges_when_it_is_back(
    plane: ControlPlane, cluster: Objects, watch: Watch, backend: Backends
) -> None:
    """Stopped in the midst of changes: what serves goes on, the loop says so, and goes on by itself."""
    made(cluster, backend, "web")
    eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
    at = address(cluster, "web")
    cluster.service(service("late", port(8080, 0)))
    try:
        plane.stop_api()
        eventually(lambda: "real" in watch.reported() and "error" in watch.reported(), watch)
        assert ask(at, 8080) == "web: hello"
    finally:
        plane.start_api()
    backend("late", port=cluster.ports("late")[0]["nodePort"])
    eventually(lambda: answers(address(cluster, "late"), 8080, "late"), watch)
    made(cluster, backend, "new")
    eventually(lambda: answers(address(cluster, "new"), 8080, "new"), watch)
    assert address(cluster, "web") == at
    cluster.delete("late")
    eventually(lambda: cluster.read("late") is None, watch)


def test_a_service_that_leaves_the_type_is_let_go(cluster: Objects, watch: Watch, backend: Backends) -> None:
    """No finalizer, no entry, no listener of ours remains."""
    made(cluster, backend, "web")
    eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
    at = address(cluster, "web")
    cluster.change("web", {"spec": {"type": "ClusterIP"}})
    eventually(lambda: refused(at, 8080) and not finalizers(cluster, "web") and not ingress(cluster, "web"), watch)


def _strip_finalizer(cluster: Objects) -> None:
    cluster.change("web", {"metadata": {"finalizers": None}})


def _change_entry(cluster: Objects, **fields: object) -> None:
    (entry,) = ingress(cluster, "web")
    cluster.change_status("web", {"status": {"loadBalancer": {"ingress": [{**entry, **fields}]}}})


def _change_condition(cluster: Objects) -> None:
    reported = {**condition(cluster, "web"), "status": "False", "reason": "SomebodySays"}
    cluster.change_status("web", {"status": {"conditions": [reported]}})


TAMPERINGS: Mapping[str, Callable[[Objects], None]] = {
    "finalizer": _strip_finalizer,
    "ports": lambda cluster: _change_entry(cluster, ports=[{"port": 1, "protocol": "TCP"}]),
    "ipMode": lambda cluster: _change_entry(cluster, ipMode="VIP"),
    "condition": _change_condition,
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_changed_finalizer_ports_and_condition_are_restored_by_watch(
    cluster: Objects, watch: Watch, backend: Backends, what: str
) -> None:
    """The finalizer, the ports and the ipMode of an entry, the condition: as it was published, and not again."""
    made(cluster, backend, "web")
    eventually(lambda: condition(cluster, "web")["status"] == "True", watch)
    before = ingress(cluster, "web"), condition(cluster, "web")["reason"], finalizers(cluster, "web")
    TAMPERINGS[what](cluster)
    eventually(
        lambda: (ingress(cluster, "web"), condition(cluster, "web")["reason"], finalizers(cluster, "web")) == before,
        watch,
    )


def test_beside_an_entry_of_another_owner_an_idle_loop_writes_nothing(
    cluster: Objects, watch: Watch, backend: Backends
) -> None:
    """It may stand there for ever, also in front of ours."""
    made(cluster, backend, "web")
    eventually(lambda: condition(cluster, "web")["status"] == "True", watch)
    both = [FOREIGN, *ingress(cluster, "web")]
    cluster.change_status("web", {"status": {"loadBalancer": {"ingress": both}}})
    made(cluster, backend, "last")
    eventually(lambda: condition(cluster, "last")["status"] == "True", watch)
    before = cluster.read("web")
    made(cluster, backend, "later")
    eventually(lambda: condition(cluster, "later")["status"] == "True", watch)
    assert cluster.read("web") == before
    assert ingress(cluster, "web") == both
