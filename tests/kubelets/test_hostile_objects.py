"""Objects that mean harm beside a Gateway of many routes and a class of many tenants: no request of others fails.

Each comes and goes, and its own status, event or row says why it isn't served. Not here: what only a parser or a
planner sees (tests/hostile, tests/gateway).
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace

from locallb.gateway.kinds import KINDS
from locallb.model.gateway_objects import GROUP
from tests.kubelets.deployments import SERVED
from tests.kubelets.workloads import Workloads, service_port
from tests.support import gateway_objects as api
from tests.support import unforeseen
from tests.support.client_kinds import EVENT, SECRET, SLICE
from tests.support.cluster_gateways import CRD, address_of, create, resource, status_of, until_gone
from tests.support.conformance_cluster import BINDING, NAME, ROLE, namespaces, prepare
from tests.support.control_plane import Document
from tests.support.http_traffic import Client
from tests.support.ingress_objects import backend, ingress, path, rule
from tests.support.ingress_rights import INGRESS, ingress_rights
from tests.support.manifests import service
from tests.support.stages import Stage
from tests.support.waiting import becomes
from tests.support.watching import Watch, eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kubelets,
    pytest.mark.envoy,
    pytest.mark.parametrize("world", ["pods"], indirect=True),
]

ROUTES, TENANTS = 50, 20
HTTP = 8080
RATE, CLIENTS = 200, 4
"""Requests a second, and the threads that send them."""
OURS = "local-lb"
RULE = {"backendRefs": [{"name": "web", "port": 80}]}


class Attack(NamedTuple):
    """An object that means harm, where it is put, and how to learn what its owner is told of it."""

    name: str
    document: Document
    by_manifest: bool = False


def route(name: str, **fields: Any) -> Document:  # noqa: ANN401 - fields of the API
    """Make an HTTPRoute of the host that has its name."""
    spec = {"parentRefs": [{"name": "web"}], "hostnames": [f"{name}.test"], "rules": [{**RULE, **fields}]}
    return api.api_object("HTTPRoute", name, namespace="n", spec=spec)


def tenant(namespace: str, at: str = "/", kind: str = "Prefix", **annotations: str) -> Document:
    made = rule(path(at, kind, backend("web", 80)), host=f"{namespace}.test")
    metadata = {"annotations": {f"nginx.ingress.kubernetes.io/{key}": value for key, value in annotations.items()}}
    return ingress(made, name=namespace, namespace=namespace, class_name=OURS, metadata=metadata)


def with_header(name: str) -> Document:
    """Make a filter that sets a header."""
    return {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": name, "value": "x"}]}}


def expression(text: str) -> Document:
    return {"path": {"type": "RegularExpression", "value": text}}


def gateway(listener: Document) -> Document:
    """Make a Gateway beside the one of others."""
    return api.gateway(listener, name="bad", metadata={"namespace": "n"}, gatewayClassName=OURS)


def prefix(text: str) -> Document:
    """Make a match of paths that begin so."""
    return {"path": {"type": "PathPrefix", "value": text}}


def balancer(**metadata: object) -> Document:
    """Make a LoadBalancer Service of a manifest."""
    made = service("bad", service_port(80))
    return {**made, "metadata": {**made["metadata"], **metadata}}


LISTENER = {"name": "tls", "port": 8443, "protocol": "HTTPS", "hostname": "tls.test"}
MISTAKES = tuple(unforeseen.ROUTES)[:2]
"""What Envoy refuses and no check of ours knows, as the program makes these mistakes in rendering."""
IN_HEADER = {"headers": [{"name": "a", "type": "RegularExpression", "value": "[a"}]}
MANY = {"matches": [expression(f"/{number}(a|b)*") for number in range(64)], **RULE}
ATTACKS = (
    Attack("range-to-a-class", route("bad", matches=[expression(r"/[a-z_-\d]+")])),
    Attack("unfinished-set", route("bad", matches=[IN_HEADER])),
    Attack(
        "expression-of-an-ingress", tenant("evil", r"/[a-z_-\d]+", "ImplementationSpecific", **{"use-regex": "true"})
    ),
    Attack("header-that-frames", route("bad", filters=[with_header("Transfer-Encoding")])),
    Attack("header-of-the-host", route("bad", filters=[with_header("Host")])),
    Attack("hostname-of-digits", gateway({**LISTENER, "hostname": "1.2.3.4", "protocol": "HTTP"})),
    Attack("broken-secret", gateway({**LISTENER, "tls": {"certificateRefs": [{"name": "broken"}]}})),
    Attack("lone-surrogate", balancer(uid="\ud800"), by_manifest=True),
    Attack("huge-annotation", balancer(annotations={"a": "x" * 2**20}), by_manifest=True),
    *(Attack(f"unforeseen-{mistake}", route("bad", matches=[prefix(f"/{mistake}")])) for mistake in MISTAKES),
    Attack("many-expressions", {**route("bad"), "spec": {**route("bad")["spec"], "rules": [MANY, MANY]}}),
)


class Traffic:
    """Requests to everything that isn't harmful, from threads with kept connections, until it is closed."""

    def __init__(self, places: list[tuple[str, str]]) -> None:
        self.places = places
        self.sent, self.failures = 0, list[str]()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _send(self, number: int) -> None:
        chosen, clients = random.Random(number), {at: Client(at, HTTP) for at, _ in self.places}
        while not self._ended.wait(CLIENTS / RATE):
            at, host = chosen.choice(self.places)
            try:
                answer = clients[at].ask("/hostname", host)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{host}: {error!r}")
                clients[at] = Client(at, HTTP)
            else:
                if answer.status != http.client.OK:
                    self.failures.append(f"{host}: {answer.status} {answer.body}")
            self.sent += 1
        for client in clients.values():
            client.close()

    def go_on(self, count: int) -> None:
        """Wait until so many more requests were sent."""
        until = self.sent + count
        becomes(lambda: self.sent >= until, "requests are sent")

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def ingress_address(world: Workloads, name: str) -> str:
    """Return the address in an Ingress's status; empty while it has none."""
    status = world.client.get(INGRESS, name, namespace=name).get("status") or {}
    return next((str(each["ip"]) for each in (status.get("loadBalancer") or {}).get("ingress") or ()), "")


def is_served(at: str, host: str) -> bool:
    with closing(Client(at, HTTP)) as client:
        return client.ask("/hostname", host).status == http.client.OK


def written(play: Stage, attack: Attack) -> Path:
    """Return the file of a manifest: in one of its own nothing is lost that another object had there a moment ago."""
    return play.root / "files" / f"{attack.name}.json"


def put(world: Workloads, play: Stage, attack: Attack) -> None:
    if attack.by_manifest:
        written(play, attack).write_text(json.dumps(attack.document))
    elif attack.document["kind"] == "Ingress":
        world.client.create(INGRESS.from_dict(attack.document), namespace=attack.document["metadata"]["namespace"])
    else:
        create(world.client, attack.document)


def remove(world: Workloads, play: Stage, attack: Attack) -> None:
    metadata = attack.document["metadata"]
    if attack.by_manifest:
        written(play, attack).unlink()
    elif attack.document["kind"] == "Ingress":
        world.client.delete(INGRESS, metadata["name"], namespace=metadata["namespace"])
    else:
        world.client.delete(resource(attack.document["kind"]), metadata["name"], namespace="n")


@pytest.fixture
def tenants(world: Workloads) -> Iterator[list[str]]:
    """Make namespaces that have a Service of the same pods; the last is the one that means harm."""
    names = [*(f"tenant-{number:02}" for number in range(TENANTS)), "evil"]
    slices = {
        "addressType": "IPv4",
        "endpoints": [{"addresses": [at]} for at in sorted(world.addresses("web")) if ":" not in at],
        "ports": [{"name": "tcp-80", "port": SERVED}],
    }
    for name in names:
        world.client.create(Namespace(metadata=ObjectMeta(name=name)))
        spec = {"ports": [{"name": "tcp-80", "port": 80}]}
        world.service({"metadata": {"name": "web", "namespace": name}, "spec": spec})
        metadata = {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}
        world.client.create(SLICE.from_dict({"metadata": metadata, **slices}), namespace=name)
    yield names
    for name in names:
        world.client.delete(Namespace, name)
    becomes(lambda: not namespaces(world.cluster) & {*names}, "they go")


@pytest.fixture
def objects(world: Workloads) -> Iterator[None]:
    """Have pods, the definitions of Gateway API and the rights to serve Gateways and Ingresses."""
    world.deploy("web", 2)
    made = service("web", service_port(80), selector={"app": "web"})
    world.service({**made, "spec": {**made["spec"], "type": "NodePort"}})
    prepare(world.cluster)
    broken = {"tls.crt": "bm90IGEgY2VydGlmaWNhdGU=", "tls.key": "bm90IGEga2V5"}
    secret = {"metadata": {"name": "broken"}, "type": "kubernetes.io/tls", "data": broken}
    world.client.create(SECRET.from_dict(secret), namespace="n")
    with ingress_rights(world.client, ["n"]):
        yield
    world.client.delete(SECRET, "broken", namespace="n")
    for kind in KINDS.values():
        world.client.delete(CRD, f"{kind.plural}.{GROUP}")
    for kind in KINDS.values():
        until_gone(world.client, kind.plural)
    world.client.delete(BINDING, NAME)
    world.client.delete(ROLE, NAME)


def sentence(world: Workloads, play: Stage, attack: Attack) -> str:
    """Return what the owner of an object is told of it."""
    name, namespace = attack.document["metadata"]["name"], attack.document["metadata"].get("namespace", "n")
    match attack.document["kind"]:
        case "HTTPRoute" | "Gateway" as kind:
            status = status_of(world.client, kind, name)
            holders = [status, *status.get("parents", ()), *status.get("listeners", ())]
            return "".join(
                condition["message"]
                for holder in holders
                for condition in holder.get("conditions", ())
                if condition["status"] == "False" or condition["reason"] == "PartiallyInvalid"
            )
        case "Ingress":
            events = world.client.list(EVENT, namespace=namespace)
            return "".join(item["note"] for item in events if item["type"] == "Warning")
        case _:
            rows = play.run("status", "--json").json
            return "".join(str(row.get("message") or row["reason"]) for row in rows if row["name"] == name)


def test_what_is_harmful_comes_and_goes_beside_requests_of_others(
    world: Workloads, objects: None, tenants: list[str], play: Stage
) -> None:
    """Fifty routes of a Gateway and twenty tenants of an Ingress class answer every request meanwhile."""
    del objects
    (play.root / "files").mkdir()
    play.configure(
        sources=[world.plane.source, {"manifests": "files", "name": "files"}],
        ingress={"class": OURS, "http": HTTP, "annotations": ["nginx"]},
        **world.settings,
    )
    names = [f"r-{number:02}" for number in range(ROUTES)]
    program = [sys.executable, str(Path(unforeseen.__file__))]
    with closing(Watch(play, "--plain", program=program)) as watch:
        create(
            world.client,
            api.gateway(api.listener(port=HTTP), name="web", metadata={"namespace": "n"}, gatewayClassName=OURS),
        )
        for name in names:
            create(world.client, route(name))
        for name in tenants[:TENANTS]:
            world.client.create(INGRESS.from_dict(tenant(name)), namespace=name)
        eventually(lambda: address_of(play), watch)
        becomes(lambda: bool(ingress_address(world, tenants[0])), watch.reported())
        places = [(address_of(play), f"{name}.test") for name in names]
        places += [(ingress_address(world, tenants[0]), f"{name}.test") for name in tenants[:TENANTS]]
        for at, host in places:
            becomes(partial(is_served, at, host), f"{host} answers\n{watch.reported()}")
        with closing(Traffic(places)) as traffic:
            for attack in ATTACKS:
                put(world, play, attack)
                if attack.name != "many-expressions":  # which are served
                    eventually(partial(sentence, world, play, attack), watch)
                traffic.go_on(RATE)
                remove(world, play, attack)
        assert traffic.failures == []
