"""What the usual tools print is read as it is: Services of every kind, mixed with everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locallb.kubernetes.documents import read_documents
from locallb.model.objects import Service
from locallb.planning.backends import upstreams
from locallb.planning.endpoints import BackendIndex, eligible
from locallb.sources.entries import ManifestsSource
from locallb.sources.manifests import read_manifests
from locallb.sources.source import SourceResult
from tests.sources.support import DATA, DEMO

EXPECTED = {
    "kubectl": {
        "shop/bare": "9000/TCP 0",
        "shop/echo": "http 8080/TCP 30211, echo-udp 8080/UDP 31999",
    },
    "helm": {
        "data/db-postgresql": "tcp-postgresql 5432/TCP 0",
        "ingress/edge-ingress-nginx-controller": "http 80/TCP 32080, https 443/TCP 32443, 5353-udp 5353/UDP 32053",
        "monitoring/mon-grafana": "http-web 80/TCP 0",
        "monitoring/mon-kube-prometheus-stack-prometheus": "http-web 9090/TCP 30090, reloader-web 8080/TCP 0",
    },
    "kustomize": {
        "edge/dns": "dns 53/UDP 31053, dns-tcp 53/TCP 31053",
        "edge/signalling": "s1ap 36412/SCTP 0",
    },
}


def read(tool: str, readings: Path, *, keep: bool = False) -> SourceResult:
    return read_manifests(ManifestsSource(DEMO, tool), DATA, readings, keep=keep)


def written(service: Service) -> str:
    return ", ".join(f"{port.name} {port} {port.node_port}".strip() for port in service.ports)


@pytest.mark.parametrize("tool", EXPECTED)
def test_the_services_of_type_load_balancer_are_found(tool: str, tmp_path: Path) -> None:
    """All of them, and nothing else, without a word of complaint."""
    reading = read(tool, tmp_path)
    found = {f"{service.key.namespace}/{service.key.name}": written(service) for service in reading.parsed.services}
    assert found == EXPECTED[tool]
    assert (reading.parsed.malformed, reading.parsed.notices, reading.stale) == ((), (), ())


@pytest.mark.parametrize("tool", EXPECTED)
def test_no_secret_lands_in_the_last_good_reading(tool: str, tmp_path: Path) -> None:
    """Only the kinds that are read."""
    read(tool, tmp_path, keep=True)
    retained = json.loads((tmp_path / "demo.json").read_text())
    kinds = {item["kind"] for listed in retained["files"].values() for item in listed}
    assert kinds <= {"Service", "Node", "EndpointSlice", "Namespace", "TlsSecretReference", "Ingress", "IngressClass"}


@pytest.mark.parametrize("tool", EXPECTED)
def test_a_last_good_reading_says_the_same_as_the_files(tool: str, tmp_path: Path) -> None:
    """So that a directory that is gone for a while changes nothing."""
    reading = read(tool, tmp_path, keep=True)
    removed = read_manifests(ManifestsSource(DEMO, f"gone/{tool}"), DATA, tmp_path)
    assert removed.parsed == reading.parsed


def test_json_says_the_same_as_yaml(tmp_path: Path) -> None:
    """`kubectl get -o json` and `-o yaml`."""
    (document,) = read_documents((DATA / "kubectl/all.yaml").read_bytes(), is_json=False)
    (tmp_path / "json").mkdir()
    (tmp_path / "json/all.json").write_text(json.dumps(document.value, indent=4))
    reading = read_manifests(ManifestsSource(DEMO, "json"), tmp_path, tmp_path)
    assert reading == read("kubectl", tmp_path)


def test_a_dump_of_a_kind_cluster_has_its_backends(tmp_path: Path) -> None:
    """The worker with the ready pod, in the family that has one."""
    parsed = read("kubectl", tmp_path).parsed
    nodes, notices = eligible(parsed.nodes)
    assert ([node.name for node in nodes], notices) == (["kind-worker", "kind-worker2"], {})
    echo = next(service for service in parsed.services if service.key.name == "echo")
    entries = upstreams(echo, BackendIndex.of(nodes, parsed.slices))
    assert [
        (str(port_backends.port), port_backends.family, [str(b) for b in port_backends.backends])
        for port_backends in entries
    ] == [
        ("8080/TCP", "IPv4", ["172.18.0.3:30211"]),
        ("8080/TCP", "IPv6", []),
        ("8080/UDP", "IPv4", ["172.18.0.3:31999"]),
        ("8080/UDP", "IPv6", []),
    ]
    assert [str(entry.address) for entry in echo.ingress] == ["172.18.255.224"]


def test_service_fields_of_real_charts_are_understood(tmp_path: Path) -> None:
    """Source ranges by either way, an address, both families."""
    requested = {service.key.name: service for tool in EXPECTED for service in read(tool, tmp_path).parsed.services}
    assert [str(network) for network in requested["db-postgresql"].source_ranges] == ["10.0.0.0/8", "127.0.0.0/8"]
    assert [str(address) for address in requested["db-postgresql"].requested] == ["127.77.0.9"]
    assert [str(network) for network in requested["mon-grafana"].source_ranges] == ["127.0.0.0/8", "fd00::/8"]
    assert [str(address) for address in requested["dns"].requested] == ["127.77.0.10", "fd00:77::a"]
    assert requested["dns"].families == ("IPv6", "IPv4")
