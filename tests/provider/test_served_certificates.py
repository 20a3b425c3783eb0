"""Certificates in the directories of proxies: the key for Envoy alone, a successor without a moment between."""

from __future__ import annotations

import json
import os
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from locallb.envoy import http_chains, render
from locallb.model.http_routes import DirectResponse, HttpRoute, Match
from locallb.model.http_serving import ANY, Certificate, Chain, HttpListener, HttpRoutes, Termination, VirtualHost
from locallb.model.identities import ClusterName, Digest, ProxyName
from locallb.model.objects import Discovery
from locallb.model.serving import Proxy
from locallb.model.texts import owner_fields, proxy_owner
from locallb.provider import certificates
from locallb.provider.certificates import CertificateFilesError
from locallb.resources.resource_type import ProviderError
from locallb.storage import paths
from tests.provider.certificates import KIND, inputs, reference, secret
from tests.support.certificates import Authority, Pair
from tests.support.provider import Driver, Wanted

SPARE = ProxyName("spare-1")


def serving(wanted: Wanted, pair: Pair, file: Path) -> tuple[dict[str, Any], Proxy]:
    """Return the inputs of a ProxyConfig that serves HTTPS with the certificate, and what it says."""
    routes = HttpRoutes((VirtualHost((ANY,), (HttpRoute(Match(), DirectResponse(200, "hello")),)),))
    chain = Chain(routes, (), Termination((reference(pair, file),)))
    listener = HttpListener(ip_address(wanted.address), 8080, (chain,))
    proxy = Proxy(ProxyName("x"), wanted.proxy, Discovery.EDS, http=(listener,), may_serve_http=True)
    rendered = render(proxy)
    versions = {"lds": rendered.versions.lds, "cds": rendered.versions.cds}
    return {**wanted.config, "files": dict(rendered.files), "versions": versions}, proxy


def shown(address: str, authority: Authority) -> str:
    """Return the serial number of the certificate that clients see; it must be the authority's."""
    context = ssl.create_default_context(cafile=str(authority.own.chain))
    with (
        socket.create_connection((address, 8080), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="a.test") as client,
    ):
        return str((client.getpeercert() or {})["serialNumber"])


@pytest.mark.envoy
def test_a_successor_is_shown_and_the_key_is_nowhere_else(
    driver: Driver, wanted: Wanted, authority: Authority, tmp_path: Path
) -> None:
    """It is written beside the old one, then referred to, then the old one goes: as an engine replaces it."""
    file, first, second = tmp_path / "secret.json", authority.sign("DNS:a.test"), authority.sign("DNS:a.test")
    secret(first, file)
    certificate = driver.create(KIND, inputs(wanted, first, file))
    config = driver.create("ProxyConfig", serving(wanted, first, file)[0])
    bootstrap = {**wanted.process, "bootstrap": config["bootstrap"]}
    process = driver.create("EnvoyProcess", bootstrap)
    proof = driver.create("Reachable", {**wanted.reachable(process), "versions": config["versions"]})
    before = shown(wanted.address, authority)

    secret(second, file)
    difference = driver.diff(KIND, certificate, inputs(wanted, second, file))
    assert difference.replaces == ["digest"]
    successor = driver.create(KIND, inputs(wanted, second, file))
    changed = driver.update("ProxyConfig", config, serving(wanted, second, file)[0])
    assert changed["files"]["lds.json"] == config["files"]["lds.json"]
    proof = driver.update("Reachable", proof, {**wanted.reachable(process), "versions": changed["versions"]})
    driver.delete(KIND, certificate)

    assert shown(wanted.address, authority) != before
    directory = paths.proxies_root() / wanted.proxy
    assert sorted(path.name for path in directory.glob("tls-*")) == sorted(
        [http_chains.chain_file(reference(second, file)), http_chains.key_file(reference(second, file))]
    )
    assert {path.stat().st_mode & 0o777 for path in directory.glob("tls-*")} == {0o600}
    secrets = [line for pair in (first, second) for line in pair.key.read_text().splitlines()[1:-1]]
    reported = json.dumps([certificate, successor, config, changed, process, proof])
    assert not [line for line in secrets if line in reported]


def test_removed_certificate_file_is_detected(
    driver: Driver, wanted: Wanted, authority: Authority, tmp_path: Path
) -> None:
    """A refresh sees that a file is gone or has something else in it; deleting goes on without it."""
    file, pair = tmp_path / "secret.json", authority.sign("DNS:a.test")
    secret(pair, file)
    certificate = driver.create(KIND, inputs(wanted, pair, file))
    assert driver.read(KIND, certificate) == certificate
    (paths.proxies_root() / wanted.proxy / certificate["chain"]).write_text(authority.own.pem)
    assert driver.read(KIND, certificate) is None
    driver.delete(KIND, certificate)
    driver.delete(KIND, certificate)
    assert not list((paths.proxies_root() / wanted.proxy).glob("tls-*"))


def test_files_stay_where_a_spare_goes_to_another_gateway_with_the_same_secret(
    driver: Driver, wanted: Wanted, authority: Authority, tmp_path: Path
) -> None:
    """They are called the same: a successor's would go with its predecessor. Those of another cluster aren't."""
    file, pair = tmp_path / "secret.json", authority.sign("DNS:a.test")
    secret(pair, file)
    its = {**inputs(wanted, pair, file), "owner": dict(owner_fields(proxy_owner(wanted.owner.home, SPARE)))}
    first = driver.create(KIND, {**its, "serves": "c/gateways/n/first"})
    second = {**its, "serves": "c/gateways/n/second"}
    assert driver.diff(KIND, first, second).replaces == []
    state = driver.update(KIND, first, second)
    assert state["chain"] == first["chain"]
    assert driver.read(KIND, state) == state
    assert driver.diff(KIND, state, {**its, "serves": "d/gateways/n/first"}).replaces == ["serves"]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("gone", "isn't there any more"),
        ("other", "has changed since it was planned"),
        ("mixed", "can't be served: its tls.key isn't the key of its tls.crt; write the two that belong together"),
        ("noise", "can't be served: its tls.crt or tls.key can't be used"),
        ("empty", "it has no tls.key"),
        ("missing", "can't be read"),
        ("pipe", "can't be read: .*secret.json: it is no regular file"),
    ],
)
def test_a_secret_that_cannot_be_served_is_reported(
    damage: str, complaint: str, driver: Driver, wanted: Wanted, tmp_path: Path
) -> None:
    """One sentence with the Secret's name and nothing of what is in it; nothing is left."""
    file, authority = tmp_path / "secret.json", Authority(tmp_path / "authority")
    pair, other = authority.sign("DNS:a.test"), authority.sign("DNS:b.test")
    noise = tmp_path / "noise"
    noise.write_text("PRIVATE")
    served = {"mixed": Pair(pair.chain, other.key), "noise": Pair(pair.chain, noise)}.get(damage, pair)
    secret(other if damage == "other" else served, file)
    document = json.loads(file.read_text())
    if damage == "gone":
        document["metadata"]["name"] = "else"
    if damage == "empty":
        del document["data"]["tls.key"]
    file.write_text(json.dumps(document))
    given = inputs(wanted, served, file)
    if damage in {"missing", "pipe"}:
        file.unlink()
    if damage == "pipe":
        os.mkfifo(file)
    with pytest.raises(ProviderError, match=complaint) as caught:
        driver.create(KIND, given)
    assert "default/web" in str(caught.value)
    assert "PRIVATE" not in str(caught.value)
    assert not (paths.proxies_root() / wanted.proxy).exists()


@pytest.mark.parametrize("intended", [0, 1])
def test_planned_secret_is_served_among_several_of_one_name(
    intended: int, driver: Driver, wanted: Wanted, authority: Authority, tmp_path: Path
) -> None:
    """Wherever it stands in the file, in lists too."""
    file, pairs = tmp_path / "secret.json", [authority.sign("DNS:a.test"), authority.sign("DNS:b.test")]
    documents = []
    for pair in pairs:
        secret(pair, file)
        documents.append(json.loads(file.read_text()))
    inner = {"kind": "List", "apiVersion": "v1", "items": [{**documents[0], "data": {}}, *documents]}
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [inner]}))
    certificate = driver.create(KIND, inputs(wanted, pairs[intended], file))
    assert (paths.proxies_root() / wanted.proxy / certificate["chain"]).read_text() == pairs[intended].chain.read_text()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let this process write no larger files, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("chain", [b"x" * 100, b"x" * 10_000], ids=["key", "chain"])
@pytest.mark.parametrize("before", [None, (b"old chain", b"old key")], ids=["none", "a pair"])
def test_certificate_that_does_not_fit_on_the_disk_leaves_the_former_pair(
    tmp_path: Path, chain: bytes, before: tuple[bytes, bytes] | None
) -> None:
    """Whichever of the two files it is; without a former pair there is none, and nothing half done."""
    certificate = Certificate(ClusterName("c"), "default", "web", Digest("0" * 64), "")
    if before:
        certificates.write(tmp_path, certificate, *before, shared=False)
    key = b"x" * (10_100 - len(chain))
    with largest_file(4096), pytest.raises(CertificateFilesError, match="File too large; raise the limit"):
        certificates.write(tmp_path, certificate, chain, key, shared=False)
    assert certificates.read_certificate_file(tmp_path, certificate) == before
    assert len(list(tmp_path.iterdir())) == (2 if before else 0)
    certificates.write(tmp_path, certificate, chain, key, shared=False)
    assert certificates.read_certificate_file(tmp_path, certificate) == (chain, key)
