"""Whichever filters a route has, requests of each rule go to the backends that this rule names, and copies as well."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from locallb.model.http_routes import Forward
from tests.support.evaluation import upstream_service
from tests.support.gateway_objects import JsonObject, backend, gateway, hosts, only, route, rule, service

SERVICES = [f"s{number}" for number in range(4)]
_header = {"set": [{"name": "x-a", "value": "b"}]}


def _mirror(name: str) -> JsonObject:
    return {"type": "RequestMirror", "requestMirror": {"backendRef": backend(name)}}


_filters = st.sampled_from(
    [
        {"type": "RequestHeaderModifier", "requestHeaderModifier": _header},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": _header},
        {"type": "URLRewrite", "urlRewrite": {"hostname": "other.t"}},
        {"type": "RequestRedirect", "requestRedirect": {"hostname": "other.t"}},
        {"type": "CORS", "cors": {"allowOrigins": ["https://a.t"]}},
        *map(_mirror, [*SERVICES, "missing"]),
    ]
)
_backends = st.builds(
    lambda name, weight, filters: {**backend(name, weight=weight), "filters": filters},
    st.sampled_from([*SERVICES, "missing"]),
    st.sampled_from([0, 1, 7]),
    st.sampled_from([[], [{"type": "RequestHeaderModifier", "requestHeaderModifier": _header}]]),
)
_rules = st.tuples(st.lists(_filters, max_size=4, unique_by=str), st.lists(_backends, max_size=3))


@given(st.lists(_rules, min_size=1, max_size=4))
def test_requests_of_a_rule_go_to_its_own_backends(rules: list[tuple[list[Any], list[Any]]]) -> None:
    """And an upstream that a route refers to is one that the Gateway has."""
    written = [
        rule(f"/{number}", backends=deepcopy(backends), filters=deepcopy(filters))
        for number, (filters, backends) in enumerate(rules)
    ]
    one = only(gateway(), route(*written), *map(service, SERVICES))
    served = {each.match.path.value: each for routes in hosts(one).values() for each in routes if each.match.path}  # type: ignore[union-attr]
    assert {upstream for each in served.values() for upstream in each.upstreams} == one.targets.keys()
    for number, (filters, backends) in enumerate(rules):
        action = served[f"/{number}"].action
        if isinstance(action, Forward):
            named = [(each["name"], each["weight"]) for each in backends if each["weight"]]
            answering = [(upstream_service(one, target.upstream), target.weight) for target in action.targets]
            assert answering == [(name if name in SERVICES else "500", weight) for name, weight in named]
            copied = [each["requestMirror"]["backendRef"]["name"] for each in filters if "requestMirror" in each]
            mirrors = [upstream_service(one, mirror.upstream) for mirror in action.mirrors]
            assert mirrors == [name for name in copied if name in SERVICES]
