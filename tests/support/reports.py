"""Two sides of a stack, made from Kubernetes objects, and the resources that a plan declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.model.identities import Home
from locallb.model.snapshot import Snapshot
from locallb.model.texts import address_name, owner_fields
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.report.assemble import assembled
from locallb.report.changes import Report, ServiceChange
from locallb.report.deployed import DeployedResource
from locallb.report.sides import planned_side
from locallb.sources.snapshot import holding
from tests.support.objects import parsed

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
