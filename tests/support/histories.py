"""Random histories of a stack: what manifests and settings say, one moment after the other.

Not here: who brings them about, and what has to be the same afterwards.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support import gateway_clients, ingress_objects
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, route, rule
from tests.support.manifests import node, port, service
from tests.support.stages import CHECKOUT, Stage

NAMES = ("web", "api", "dns", "mail")
PORTS = (53, 80, 443, 8080)
MODES: tuple[tuple[object, ...], ...] = (("per-service", {"mode": "per-service", "spares": 1}), ("shared",))
"""Settings of proxies: between those of one row a stack may change."""
HOSTS = ("a.test", "b.test", "*.c.test")
"""Of Gateways and Ingresses."""
CHANGES = 3
"""Moments after the first one of a history."""
_PROCESS = "locallb:index:EnvoyProcess"
_OF_THE_RUN = {
    _PROCESS: ("pid", "started", "binary"),  # the last is written as the engine that started it finds it
    "locallb:index:LocalCertificate": ("serial", "expires"),
}
"""Outputs that no two runs have in common, by type."""


PROGRAM = """\
from locallb.program import LoadBalancers

LoadBalancers("all", **{arguments!r})
"""


@dataclass(frozen=True)
class Moment:
    """What a user wants for a while."""

    services: Mapping[str, Mapping[str, object]]
    """Terms of each Service by its name."""
    proxies: object = "per-service"
    nodes: tuple[str, ...] = ("127.0.0.1",)
    gateway: tuple[str, ...] = ()
    """Hosts of a Gateway's route; without any there is no Gateway."""
    ingress: tuple[str, ...] = ()
    """Hosts of an Ingress; the same."""
    certificates: str = "secrets"
    names: bool = False
    """Whether the stack has a zone, with a name server of its own."""
    component: bool = False
    """Whether the program has `LoadBalancers` with arguments, and not `serve()`."""

    def apply(self, stage: Stage) -> None:
        """Write it into manifests, settings and the program."""
        settings: dict[str, Any] = {"proxies": self.proxies, "certificates": self.certificates}
        if self.names:
            settings["dns"] = {"zones": [{"zone": "test", "embedded": f"{stage.at(40)}:5300"}]}
        if self.component:
            source, pool = {"manifests": "manifests", "name": "c"}, f"{stage.at(0)}/27"
            settings |= {"sources": [source], "pools": [{"name": "default", "addresses": [pool]}]}
            settings["ingress"] = {"class_": "local"}
            (stage.root / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
            (stage.root / "__main__.py").write_text(PROGRAM.format(arguments=settings))
        else:
            stage.configure(**settings, ingress={"class": "local"})
            shutil.copy(CHECKOUT / "__main__.py", stage.root)
        nodes = (node(f"node-{number}", address) for number, address in enumerate(self.nodes))
        served = (_manifest(name, terms) for name, terms in sorted(self.services.items()))
        stage.write("all.yaml", *nodes, *served, *self._routed(stage))

    def _routed(self, stage: Stage) -> Iterator[dict[str, Any]]:
        """Make the Gateway and the Ingress with what they lead to."""
        yield gateway_clients.service("one", 30200)
        if self.gateway:
            terms: dict[str, Any] = {"tls": {"mode": "Terminate"}} | _hostname(self.gateway[0])
            listeners = (listener(port=8080), listener("https", 8443, "HTTPS", **terms))
            yield gateway_class()
            yield gateway(*listeners, addresses=[{"value": stage.at(9)}])
            yield route(rule("/", backends=[backend("one")]), hostnames=list(self.gateway))
        if self.ingress:
            path = ingress_objects.path("/", to="one")
            yield ingress_objects.ingress(*(ingress_objects.rule(path, host=host) for host in self.ingress))


def _hostname(host: str) -> dict[str, str]:
    return {} if host.startswith("*") else {"hostname": host}


@dataclass(frozen=True)
class Turn:
    """How a moment is brought about."""

    by: str
    """The engine."""
    killed: str = ""
    """The engine that was killed in the middle of it before; empty for none."""
    after: float = 0.0
    """Seconds that that one had, as a share of those it may take."""
    crashed: int | None = None
    """The number of the proxy that was killed before."""


def turns(chance: random.Random, engines: Sequence[str], count: int) -> tuple[Turn, ...]:
    """Draw how moments are brought about: by either engine, of which some are killed, as are proxies."""
    return tuple(
        Turn(
            chance.choice(engines),
            chance.choice(("", "", *engines)),
            chance.random(),
            chance.choice((None, None, chance.randrange(4))),
        )
        for _ in range(count)
    )


def history(chance: random.Random) -> tuple[Moment, ...]:
    """Draw moments of which each changes a thing or two of the one before."""
    moment = Moment(
        {name: _terms(chance) for name in chance.sample(NAMES, 2)},
        chance.choice(chance.choice(MODES)),
        gateway=chance.choice(((), (), HOSTS[:1])),
        ingress=chance.choice(((), (), HOSTS[1:])),
        certificates=chance.choice(("secrets", "local")),
        names=chance.random() < 1 / 3,
        component=chance.random() < 1 / 3,
    )
    moments = [moment]
    for _ in range(CHANGES):
        for _ in range(chance.randint(1, 2)):
            moment = _changed(moment, chance)
        moments.append(moment)
    return tuple(moments)


def _changed(moment: Moment, chance: random.Random) -> Moment:
    """Change the Services, the Gateway, the Ingress, or what all have in common."""
    kind = chance.choice(("services", "services", "gateway", "ingress", "stack"))
    if kind == "services":
        return _with_other_services(moment, chance)
    if kind == "gateway":
        return replace(moment, gateway=tuple(chance.sample(HOSTS, chance.randint(0, 2))))
    if kind == "ingress":
        return replace(moment, ingress=tuple(chance.sample(HOSTS, chance.randint(0, 2))))
    changes: Mapping[str, object] = {
        "proxies": chance.choice(next(row for row in MODES if moment.proxies in row)),
        "nodes": tuple(f"127.0.0.{number}" for number in range(1, 1 + chance.randint(0, 2))),
        "certificates": chance.choice(("secrets", "local")),
        "names": not moment.names,
        "component": not moment.component,
    }
    changed = chance.choice(sorted(changes))
    return replace(moment, **{changed: changes[changed]})  # type: ignore[arg-type]


def _with_other_services(moment: Moment, chance: random.Random) -> Moment:
    """Add, change, remove or rename a Service."""
    services, absent = dict(moment.services), sorted({*NAMES} - {*moment.services})
    kind = chance.choice(("add", "change", "change", "remove", "rename"))
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
        for key in _OF_THE_RUN.get(resource["type"], ()):
            resource["outputs"].pop(key, None)
        told = {key: resource[key] for key in FACTS if resource.get(key)}
        told["dependencies"] = sorted(resource.get("dependencies") or ())
        of_inputs = resource.get("propertyDependencies") or {}
        told["propertyDependencies"] = {key: sorted(urns or ()) for key, urns in of_inputs.items()}
        assert resource["urn"] not in found, f"{resource['urn']} is in the state twice"
        found[resource["urn"]] = told
    return found
