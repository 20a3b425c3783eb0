"""What the API says of Ingresses, with pods of real kubelets and real requests: hosts, paths, classes, TLS."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from lightkube.types import PatchType

from locallb.ingress.parsing import CLASS_ANNOTATION
from locallb.model.own_classes import DEFAULT_ANNOTATION
from tests.kubelets.deployments import HOSTNAMES
from tests.kubelets.workloads import Workloads, service_port
from tests.support.certificates import Authority, Pair
from tests.support.client_kinds import SECRET
from tests.support.control_plane import Document
from tests.support.http_traffic import Client
from tests.support.ingress_objects import JsonObject, backend, ingress, path, rule
from tests.support.ingress_rights import CLASS, INGRESS, ingress_rights
from tests.support.manifests import service
from tests.support.stages import Stage
from tests.support.waiting import becomes
from tests.support.watching import Watch

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kubelets,
    pytest.mark.envoy,
    pytest.mark.parametrize("world", ["pods"], indirect=True),
]

APPS = {"web": 2, "api": 1, "wild": 1, "rest": 1}
"""Deployments, and how many pods each has."""
HTTP, HTTPS = 8080, 8443
OURS = "local-lb"


def port_of(name: str) -> JsonObject:
    return backend(name, "tcp-80")


def leading(name: str, *rules: JsonObject, class_name: str | None = OURS, **fields: object) -> JsonObject:
    """Make an Ingress in the namespace of the pods."""
    return ingress(*rules, name=name, namespace="n", class_name=class_name, **fields)  # type: ignore[arg-type]


INGRESSES = (
    leading(
        "paths",
        rule(
            path("/exact", "Exact", port_of("api")),
            path("/exact/", "Exact", port_of("web")),
            path("/foo", "Prefix", port_of("web")),
            path("/aaa/bb", "Prefix", port_of("api")),
            path("/aaa", "Prefix", port_of("wild")),
            path("/aaa/ccc/", "Prefix", port_of("web")),
            path("/ours", "ImplementationSpecific", port_of("api")),
            path("/nobody", "Prefix", port_of("gone")),
            host="paths.test",
        ),
    ),
    leading(
        "hosts",
        rule(path("/", to=port_of("wild")), host="*.hosts.test"),
        rule(path("/", to=port_of("web")), host="one.hosts.test"),
        tls=[{"hosts": ["*.hosts.test"], "secretName": "wild"}, {"hosts": ["one.hosts.test"], "secretName": "one"}],
    ),
    leading("rest", rule(path("/all", to=port_of("api"))), defaultBackend=port_of("rest")),
    leading(
        "old",
        rule(path(to=port_of("web")), host="old.test"),
        class_name=None,
        metadata={"annotations": {CLASS_ANNOTATION: OURS}},
    ),
    leading("others", rule(path(to=port_of("web")), host="others.test"), class_name="others"),
    leading("classless", rule(path(to=port_of("web")), host="classless.test"), class_name=None),
)
TABLE = [
    ("paths.test", "/exact", "api"),
    ("paths.test", "/exact/", "web"),
    ("paths.test", "/exact/more", "rest"),
    ("paths.test", "/Exact", "rest"),
    ("paths.test", "/foo", "web"),
    ("paths.test", "/foo/", "web"),
    ("paths.test", "/foo/bar?query=/aaa", "web"),
    ("paths.test", "/foobar", "rest"),
    ("paths.test", "/aaa", "wild"),
    ("paths.test", "/aaa/bb/x", "api"),
    ("paths.test", "/aaa/bbb", "wild"),
    ("paths.test", "/aaa/ccc", "web"),
    ("paths.test", "/aaa/ccc/", "web"),
    ("paths.test", "/aaa/cccd", "wild"),
    ("paths.test", "/ours/x", "api"),
    ("paths.test", "/nobody", 503),
    ("paths.test", "/all/x", "api"),
    ("paths.test", "/", "rest"),
    ("one.hosts.test", "/", "web"),
    ("ONE.hosts.test:8080", "/", "web"),
    ("two.hosts.test", "/x", "wild"),
    ("hosts.test", "/", "rest"),
    ("a.two.hosts.test", "/", "rest"),
    ("unheard-of.test", "/all", "api"),
    ("unheard-of.test", "/", "rest"),
    ("old.test", "/", "web"),
    ("others.test", "/", "rest"),
    ("classless.test", "/", "rest"),
]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def play(world: Workloads, play: Stage, authority: Authority) -> Iterator[Stage]:
    """Have pods behind Services, Ingresses that lead there, and the rights to serve them."""
    play.configure(
        sources=[world.plane.source], ingress={"class": OURS, "http": HTTP, "https": HTTPS}, **world.settings
    )
    for name, number in APPS.items():
        world.deploy(name, number, containers=[HOSTNAMES])
        made = service(name, service_port(80), selector={"app": name})
        world.service({**made, "spec": {**made["spec"], "type": "NodePort"}})
    for name, subject in (("wild", "DNS:*.hosts.test"), ("one", "DNS:one.hosts.test")):
        world.client.create(SECRET.from_dict(tls_secret(name, authority.sign(subject))), namespace="n")
    with ingress_rights(world.client, ["n"]):
        for each in INGRESSES:
            world.client.create(INGRESS.from_dict(each), namespace="n")
        yield play
        assert play.run("destroy", "--yes").code == 0  # as long as there are the rights to take back what was told
    for name in ("wild", "one"):
        world.client.delete(SECRET, name, namespace="n")


def tls_secret(name: str, pair: Pair) -> Document:
    files = {"tls.crt": pair.chain, "tls.key": pair.key}
    data = {key: base64.b64encode(file.read_bytes()).decode() for key, file in files.items()}
    return {"metadata": {"name": name}, "type": "kubernetes.io/tls", "data": data}


def address(world: Workloads, name: str) -> str:
    """Return the address that an Ingress tells; empty while it has none."""
    status = world.client.get(INGRESS, name, namespace="n").get("status") or {}
    return next((str(each["ip"]) for each in (status.get("loadBalancer") or {}).get("ingress") or ()), "")


def app(place: str, host: str, requested: str = "/", authorities: str = "") -> str | int:
    """Return which Deployment answers, or the status."""
    with closing(Client(place, HTTPS if authorities else HTTP, authorities)) as client:
        answer = client.ask(requested, host)
        return answer.body.split("-")[0] if answer.status == 200 else answer.status


def test_a_table_of_requests(world: Workloads, watch: Watch, authority: Authority) -> None:
    """Hosts, wildcards of one label, paths, default backends, classes, all pods of a Service, certificates by SNI."""
    becomes(lambda: all(address(world, name) for name in ("paths", "hosts", "rest", "old")), watch.reported())
    place = address(world, "paths")
    requested = [("old.test", "/"), ("paths.test", "/exact"), ("two.hosts.test", "/"), ("else.test", "/")]
    becomes(lambda: [app(place, *each) for each in requested] == list(APPS), f"all pods answer\n{watch.reported()}")
    assert [(host, at, app(place, host, at)) for host, at, _ in TABLE] == TABLE
    assert {address(world, name) for name in ("others", "classless")} == {""}
    with closing(Client(place, HTTP)) as client:
        pods = set(world.pods("web"))
        becomes(lambda: {client.ask("/foo", "paths.test").body for _ in range(20)} == pods, "both have a share")
    trusted = str(authority.own.chain)
    by_sni = [app(place, host, authorities=trusted) for host in ("one.hosts.test", "two.hosts.test")]
    assert by_sni == ["web", "wild"]  # each with a certificate for the name, or the client would have gone
    mark = {"metadata": {"annotations": {DEFAULT_ANNOTATION: "true"}}}
    world.client.patch(CLASS, OURS, mark, patch_type=PatchType.MERGE)
    becomes(lambda: app(place, "classless.test") == "web", f"the default class is served\n{watch.reported()}")
    becomes(lambda: address(world, "classless") == place, f"and told\n{watch.reported()}")
