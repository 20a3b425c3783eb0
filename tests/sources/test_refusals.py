"""Which objects are found to be refused by Envoy, how long that is remembered, and what it costs.

Envoy's verdict is a function of the texts here; the real one is in `tests/envoy/test_validation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from locallb.envoy.validation import NoVerdictError
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.identities import ClusterName, Home
from locallb.model.snapshot import Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.refused import EnvoyRefusal, RefusedObjects
from locallb.sources import refusals
from locallb.sources.configuration import stack_settings
from locallb.sources.refusals import find_refusals, read_refusals
from locallb.storage.paths import REFUSALS, stack_directory

Verdict = Callable[[str], bool]
CLUSTER = ClusterName("c")
GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: local-lb}
spec: {controllerName: local-lb.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: local-lb
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: shop}
spec: {type: ClusterIP, clusterIP: 10.0.0.7, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: local-lb}
spec: {controller: local-lb.dev/ingress-controller}
"""


def route(name: str, path: str, *, hostnames: Iterable[str] = (), day: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": f"2026-01-{day:02}T00:00:00Z"},
        "spec": {
            "parentRefs": [{"name": "web"}],
            "hostnames": [f"{name}.test", *hostnames],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": path}}],
                    "backendRefs": [{"name": "app", "port": 80}],
                }
            ],
        },
    }


def ingress(name: str, path: str) -> dict[str, Any]:
    backend = {"service": {"name": "app", "port": {"number": 80}}}
    rule = {"host": f"{name}.test", "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"ingressClassName": "local-lb", "rules": [rule]},
    }


class Stack:
    """A stack whose Envoy refuses what a verdict says."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = Home("p", "s", str(root))
        self.verdict: Verdict = lambda text: "/bad" in text
        self.requested, self.silent_at = 0, 0
        """How often it was asked, and the question that gets no answer."""
        self.timeout = list[float]()
        """For how many seconds each time."""
        pools = '[{"name": "a", "addresses": ["127.88.1.0/24"]}]'
        sources = f'[{{"name": "c", "manifests": "{root}"}}]'
        self.settings = stack_settings({"local-lb:pools": pools, "local-lb:sources": sources})
        monkeypatch.setattr(refusals, "why_refused", self._why)

    def _why(self, texts: dict[str, str], _directory: Path, timeout: float) -> str:
        self.requested += 1
        self.timeout.append(timeout)
        if self.requested == self.silent_at:
            raise NoVerdictError("it takes too long")
        return "too long" if self._refuses(texts.values()) else ""

    def _refuses(self, texts: Iterable[str]) -> bool:
        return self.verdict("".join(texts))

    def plan(self, *objects: dict[str, Any]) -> tuple[Snapshot, Plan]:
        parsed = parse_objects(CLUSTER, [*yaml.safe_load_all(GATEWAY), *objects])
        read = Snapshot(self.home, services=parsed.services, gateway_api=parsed.gateway_api)
        return read, make_plan(RefusedObjects().of(read, read_refusals(self.home)), self.settings)

    def find(self, *objects: dict[str, Any], changed: Iterable[str] = ()) -> tuple[EnvoyRefusal, ...]:
        """Search as after an update that failed, of routes `changed` before."""
        read, plan = self.plan(*objects)
        names = {f"c/HTTPRoute/shop/{name}" for name in changed}
        return find_refusals(self.home, self.settings, read, plan, [each.key for each in plan.placements], names)

    def serves(self, hostname: str, *objects: dict[str, Any]) -> bool:
        """Return whether Envoy accepts what is planned now, and that has the hostname."""
        texts = [text for each in self.plan(*objects)[1].proxies for text in each.rendered.files.values()]
        return bool(texts) and not self._refuses(texts) and any(hostname in text for text in texts)


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    return Stack(tmp_path, monkeypatch)


@pytest.mark.parametrize("written", [route, ingress])
def test_an_object_that_is_refused_again_is_left_out_again(stack: Stack, written: Callable[..., Any]) -> None:
    """However often it changes: no other object of its load balancer is refused for it."""
    good = written("good", "/good")
    for path in ("/bad1", "/bad2", "/fine", "/bad3"):
        bad = written("other", path)
        found = stack.find(good, bad)
        assert [refusal.name.rpartition("/")[2] for refusal in found] == ["other"] * ("bad" in path)
        assert stack.serves("good.test", good, bad)


@pytest.mark.parametrize("silent_at", range(1, 8))
def test_nobody_is_blamed_where_envoy_does_not_answer(stack: Stack, silent_at: int) -> None:
    """Whichever question it leaves open; the next search finds who is to blame."""
    stack.silent_at = silent_at
    objects = [route(f"good{number}", f"/good{number}", day=number + 1) for number in range(4)]
    objects.insert(1, route("other", "/bad"))
    first = stack.find(*objects)
    requested = stack.requested
    names = {refusal.name for refusal in (*first, *stack.find(*objects))}
    assert names == {"c/HTTPRoute/shop/other"}
    assert first == () or requested < silent_at
    assert stack.serves("good0.test", *objects)


def test_an_object_with_a_problem_of_its_own_is_left_out_as_well(stack: Stack) -> None:
    """Its requests are answered with an error, so that Envoy gets something of it."""
    good, bad = route("good", "/good"), route("other", "/bad", hostnames=["1.2.3.4"])
    assert [refusal.name for refusal in stack.find(good, bad)] == ["c/HTTPRoute/shop/other"]
    assert stack.serves("good.test", good, bad)


def test_one_that_is_refused_only_with_another_is_served_once_that_is_different(stack: Stack) -> None:
    """While another change elsewhere tries it again, and finds it refused again."""
    stack.verdict = lambda text: "/one" in text and "/two" in text
    one, two = route("one", "/one"), route("two", "/two", day=2)
    assert [refusal.name for refusal in stack.find(one, two)] == ["c/HTTPRoute/shop/two"]
    assert stack.serves("one.test", one, two)
    repaired = route("one", "/other")
    assert stack.serves("/two", repaired, two)


def test_a_gateway_that_is_refused_is_tried_again_after_any_change(stack: Stack) -> None:
    """Where nothing that it is made from is to blame by itself."""
    stack.verdict = lambda _text: True
    assert [refusal.name for refusal in stack.find(route("one", "/one"))] == ["c/Gateway/shop/web"]
    stack.verdict = lambda _text: False
    assert not stack.serves("one.test", route("one", "/one"))
    assert stack.serves("one.test", route("one", "/repaired"))


@pytest.mark.parametrize("module", ["__version__", "installed"])
def test_another_version_tries_everything_again(stack: Stack, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """It may accept what the former refused, or local-lb may write it otherwise."""
    assert stack.find(route("other", "/bad"))
    assert read_refusals(stack.home)
    later = type("Later", (), {"version": "99.0.0"})
    monkeypatch.setattr(refusals, module, "99.0.0" if module == "__version__" else lambda: later)
    assert read_refusals(stack.home) == ()


def test_the_youngest_of_many_is_found_by_few_questions(stack: Stack) -> None:
    """A change made a moment ago is to blame most often."""
    routes = [route(f"r{number}", "/bad" if number == 24 else "/good", day=1 + number) for number in range(25)]
    assert [refusal.name for refusal in stack.find(*routes)] == ["c/HTTPRoute/shop/r24"]
    assert stack.requested <= 4


@pytest.mark.parametrize("bad", [0, 12, 25, 49])
def test_the_one_that_changed_is_found_by_few_questions(stack: Stack, bad: int) -> None:
    """However old it is, and beside another that changed with it by a few more."""
    routes = [route(f"r{number}", "/bad" if number == bad else "/good", day=1 + number // 2) for number in range(50)]
    assert [refusal.name for refusal in stack.find(*routes, changed=[f"r{bad}"])] == [f"c/HTTPRoute/shop/r{bad}"]
    assert stack.requested <= 4
    stack.requested = 0
    (stack_directory(stack.home) / REFUSALS).unlink()
    assert [refusal.name for refusal in stack.find(*routes, changed=[f"r{bad}", "r7"])] == [f"c/HTTPRoute/shop/r{bad}"]
    assert stack.requested <= 7


@pytest.mark.parametrize("bad", [0, 24, 49])
def test_one_that_can_answer_with_an_error_is_found_by_three_questions(stack: Stack, bad: int) -> None:
    """About everything, about it with an error, and about it alone."""
    routes = [route(f"r{number}", "/good", day=1 + number // 2) for number in range(50)]
    elsewhere = {"type": "RequestRedirect", "requestRedirect": {"hostname": "elsewhere.test"}}
    routes[bad]["spec"]["rules"] = [{"filters": [elsewhere]}]
    stack.verdict = lambda text: "elsewhere.test" in text
    (found,) = stack.find(*routes, changed=[f"r{bad}"])
    assert (found.name, found.wholly, found.together) == (f"c/HTTPRoute/shop/r{bad}", False, False)
    assert stack.requested <= 3
    assert stack.serves(f"r{bad}.test", *routes)


def test_others_are_searched_where_none_that_changed_is_to_blame(stack: Stack) -> None:
    """What changed is where the search begins, and no verdict."""
    routes = [route("a", "/bad"), route("b", "/good"), route("c", "/good", day=2)]
    assert [refusal.name for refusal in stack.find(*routes, changed=["b"])] == ["c/HTTPRoute/shop/a"]
    assert stack.serves("b.test", *routes)


def test_a_search_ends_also_where_nothing_is_found(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """No load balancer is validated once its time is over."""
    monkeypatch.setattr(refusals, "_BUDGET", 0.0)
    assert stack.find(route("other", "/bad")) == ()
    assert stack.requested == 0


def test_no_halves_are_asked_of_files_whose_verdict_takes_long(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who changed last is found all the same, within the time that is left; nobody else is blamed."""
    monkeypatch.setattr(refusals, "_LARGE", 1)
    routes = [route(f"r{number}", "/bad" if number == 3 else "/good", day=1 + number) for number in range(20)]
    assert stack.find(*routes) == ()
    assert stack.requested <= 3
    assert [refusal.name for refusal in stack.find(*routes, changed=["r3"])] == ["c/HTTPRoute/shop/r3"]
    assert all(timeout <= refusals._BUDGET for timeout in stack.timeout)


def test_a_service_that_is_refused_is_blamed_however_large(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no parts that could be left out."""
    monkeypatch.setattr(refusals, "_LARGE", 1)
    stack.verdict = lambda _text: True
    ports = [{"port": 9099, "nodePort": 31000, "protocol": "TCP"}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "large", "namespace": "shop", "uid": "large"},
        "spec": {"type": "LoadBalancer", "ports": ports},
    }
    assert "c/shop/large" in {refusal.name for refusal in stack.find(service)}
