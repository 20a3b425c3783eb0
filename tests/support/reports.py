"""Two sides of a stack, made from Kubernetes objects, also hostile ones, and what a plan declares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Snapshot
from locallb.model.texts import address_name, owner_fields
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.report.changes import Report, RequestChange, SampleRequests, ServiceChange
from locallb.report.deployed import DeployedResource
from locallb.report.policies import assembled
from locallb.report.sides import Side, planned_side
from locallb.sources.snapshot import holding
from tests.support.objects import node, parsed, service

HOME = Home("local-lb", "dev", "/srv/project")


def settings(**more: object) -> Settings:
    """Make a stack's settings; `more` are keys of its configuration."""
    return parse_settings({"sources": [{"manifests": "m", "name": "demo"}], **more})


def snapshot(*objects: object) -> Snapshot:
    """Make the snapshot of some objects of one cluster."""
    read = parsed(*objects)
    return Snapshot(HOME, read.services, read.malformed, read.nodes, read.slices)


def compared(
    old: Sequence[object], new: Sequence[object], now: Settings | None = None, was: Settings | None = None
) -> Report:
    """Compare two lists of objects, as if the old ones were deployed."""
    now = now or settings()
    first = snapshot(*old)
    plan = make_plan(first, was or now)
    second = holding(snapshot(*new), plan)
    sides = (planned_side("old", first, plan), planned_side("new", second, make_plan(second, now)))
    return assembled(sides, second, now, old_settings=was)


def only(report: Report) -> ServiceChange:
    (service,) = report.services
    return service


def declared(plan: Plan) -> Iterator[DeployedResource]:
    """Return the resources that a plan declares, with the inputs that the components give them."""
    proxies = {planned.proxy.name: planned for planned in plan.proxies}
    for placement in plan.placements:
        key, planned = str(placement.key), proxies[placement.proxy]
        owner = owner_fields(placement.owner)
        shown = {"addresses": [str(a) for a in placement.addresses], "ports": [str(p) for p in placement.ports]}
        yield DeployedResource("locallb:index:LoadBalancer", key, {**shown, "uid": owner["uid"], "digest": "0"})
        for address in placement.addresses:
            inputs = {"address": str(address), "owner": owner}
            yield DeployedResource("locallb:index:LoopbackAddress", address_name(placement.key, address), inputs)
        proxy = {"proxy": planned.proxy.id, "name": planned.proxy.name, "owner": owner}
        files = {"files": dict(planned.rendered.files), "versions": {"lds": "", "cds": ""}}
        yield DeployedResource("locallb:index:ProxyConfig", key, {**proxy, **files})
        version = {"bootstrap": "", "version": planned.run.envoy}
        yield DeployedResource(
            "locallb:index:EnvoyProcess", key, {"proxy": planned.proxy.id, "owner": owner, **version}
        )


def inputs_of(plan: Plan) -> Mapping[str, list[DeployedResource]]:
    """Sort what a plan declares by Service."""
    found: dict[str, list[DeployedResource]] = {}
    for resource in declared(plan):
        owner = resource.inputs.get("owner")
        key = f"{owner['cluster']}/{owner['namespace']}/{owner['name']}" if isinstance(owner, dict) else resource.name
        found.setdefault(key, []).append(resource)
    return found


SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs/preview-report.schema.json").read_text(encoding="utf-8")
)
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</style></script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onload='alert(1)",
    "]]><!-- -->",
    "a | b | c\n| d |",
    "`code` **bold** _it_ ~~gone~~",
    "[link](https://evil.example) ![i](//evil.example/x.png)",
    "https://evil.example www.evil.example",
    "@everyone #1 GH-1 !5 %3",
    "</details></summary><h1>x",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "\x9b31m\x08\x08\r\x00\x7f",
    "\u202eesrever\u2066\u2069\u200b\ufeff",
    "Z\u0335\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309" * 5,
    "很长的名字 ünïcödé 🦊 ﷽",
    "x" * 5000,
    "\ud800 lone",
    "{{ template }} ${{ github.token }} $(id) `id`",
    "\\[x\\] \\| &lt;b&gt; &#60;i&#62;",
]


def hostile_report() -> Report:
    """Make a report that has each text as a name, a namespace, a sentence, a label and a pool."""
    good = snapshot(node("worker", "127.0.0.1"), service("web"))
    side = planned_side("new", good, make_plan(good, settings()))
    web = next(iter(side.balancers.values()))
    balancers, rejections = dict(side.balancers), {}
    for number, text in enumerate(HOSTILE):
        key = ObjectKey(ClusterName(text), text, text)
        bad = replace(web, key=key, ports=tuple(replace(p, problem="NoBackends", message=text) for p in web.ports))
        balancers[key] = bad
        rejections[ObjectKey(ClusterName("c"), text, str(number))] = (Problem(Reason.IN_USE, f"{text} {text}"),)
    new = Side(HOSTILE[0], balancers, rejections, tuple(HOSTILE))
    report = assembled((Side(HOSTILE[6]), new), Snapshot(HOME), settings())
    requests = SampleRequests(len(HOSTILE), tuple(RequestChange(text, text, text) for text in HOSTILE))
    return replace(report, stack=HOSTILE[0], settings=tuple(HOSTILE), complaints=tuple(HOSTILE), requests=requests)
