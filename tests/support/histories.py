"""Random histories of a stack: what manifests and settings say, one moment after the other.

Not here: who brings them about, and what has to be the same afterwards.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.support.manifests import node, port, service
from tests.support.stages import Stage

NAMES = ("web", "api", "dns", "mail")
PORTS = (53, 80, 443, 8080)
MODES: tuple[tuple[object, ...], ...] = (("per-service", {"mode": "per-service", "spares": 1}), ("shared",))
"""Settings of proxies: between those of one row a stack may change."""
LONGEST = 4
"""Moments of a history."""
_PROCESS = "locallb:index:EnvoyProcess"
_OF_THE_RUN = ("pid", "started", "binary")
"""Outputs of a process that no two runs have in common: the last is written as the engine that started it finds it."""


@dataclass(frozen=True)
class Moment:
    """What a user wants for a while."""

    services: Mapping[str, Mapping[str, object]]
    """Terms of each Service by its name."""
    proxies: object = "per-service"
    nodes: tuple[str, ...] = ("127.0.0.1",)

    def apply(self, stage: Stage) -> None:
        """Write it into manifests and settings."""
        stage.configure(proxies=self.proxies)
        nodes = (node(f"node-{number}", address) for number, address in enumerate(self.nodes))
        stage.write("all.yaml", *nodes, *(_manifest(name, terms) for name, terms in sorted(self.services.items())))


def history(chance: random.Random) -> tuple[Moment, ...]:
    """Draw moments of which each changes a thing or two of the one before."""
    moment = Moment({name: _terms(chance) for name in chance.sample(NAMES, 2)}, chance.choice(chance.choice(MODES)))
    moments = [moment]
    for _ in range(chance.randint(1, LONGEST - 1)):
        for _ in range(chance.randint(1, 2)):
            moment = _changed(moment, chance)
        moments.append(moment)
    return tuple(moments)


def _changed(moment: Moment, chance: random.Random) -> Moment:
    """Add, change, remove or rename a Service, or change what all of them have in common."""
    services, absent = dict(moment.services), sorted({*NAMES} - {*moment.services})
    kind = chance.choice(("add", "change", "change", "remove", "rename", "proxies", "nodes"))
    if kind == "proxies":
        return replace(moment, proxies=chance.choice(next(row for row in MODES if moment.proxies in row)))
    if kind == "nodes":
        return replace(moment, nodes=tuple(f"127.0.0.{number}" for number in range(1, 1 + chance.randint(0, 2))))
    if kind in {"remove", "rename"} and services:
        terms = services.pop(chance.choice(sorted(services)))
        if kind == "rename" and absent:
            services[chance.choice(absent)] = terms
    elif kind == "add" and absent:
        services[chance.choice(absent)] = _terms(chance)
    elif services:
        services[chance.choice(sorted(services))] = _terms(chance)
    return replace(moment, services=services)


def _terms(chance: random.Random) -> Mapping[str, object]:
    """Draw what a Service says."""
    places = chance.sample([(number, kind) for number in PORTS for kind in ("TCP", "TCP", "UDP")], chance.randint(1, 3))
    more = chance.choice(
        (
            {},
            {},
            {"sessionAffinity": "ClientIP"},
            {"loadBalancerSourceRanges": ["127.0.0.0/8"]},
            {"annotations": {"local-lb.dev/sharing-key": "common"}},
        )
    )
    return {"ports": sorted({*places}), "node_port": chance.choice((30000, 30100)), **more}


def _manifest(name: str, terms: Mapping[str, Any]) -> dict[str, Any]:
    ports = (port(number, terms["node_port"] + number % 100, kind) for number, kind in terms["ports"])
    more = {key: value for key, value in terms.items() if key not in {"ports", "node_port"}}
    return service(name, *ports, **more)


FACTS = ("type", "parent", "inputs", "outputs", "dependencies", "propertyDependencies", "delete", "pendingReplacement")


def facts(stage: Stage) -> dict[str, dict[str, object]]:
    """Return what the state says of each resource by its URN, but for what only identifies processes and runs."""
    text = (stage.root / ".state/.pulumi/stacks/local-lb/dev.json").read_text()
    resources = json.loads(text)["checkpoint"]["latest"].get("resources") or []
    for resource in resources:
        if resource["type"] == _PROCESS:
            outputs = resource["outputs"]
            text = text.replace(f"{outputs['pid']}@{outputs['started']}", f"process of {resource['urn']}")
    resources = json.loads(text)["checkpoint"]["latest"].get("resources") or []
    found: dict[str, dict[str, object]] = {}
    for resource in resources:
        if resource["type"] == _PROCESS:
            resource["outputs"] = {key: value for key, value in resource["outputs"].items() if key not in _OF_THE_RUN}
        told = {key: resource[key] for key in FACTS if resource.get(key)}
        told["dependencies"] = sorted(resource.get("dependencies") or ())
        of_inputs = resource.get("propertyDependencies") or {}
        told["propertyDependencies"] = {key: sorted(urns or ()) for key, urns in of_inputs.items()}
        assert resource["urn"] not in found, f"{resource['urn']} is in the state twice"
        found[resource["urn"]] = told
    return found
