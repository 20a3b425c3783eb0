"""What a connection trusts is read once for the same inputs, and again for others: counted; and whom it asks for."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from locallb.kubernetes.api import connected
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.connected import TlsContexts
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.kubeconfig import connection
from locallb.kubernetes.api.servers import KubeError
from locallb.model.snapshot import Access
from tests.support.certificates import Authority
from tests.support.kubeconfigs import written
from tests.support.seed_api import SeedApi, served_seed


@dataclass
class Made:
    """Contexts, with a clock, and how many were made."""

    now: float = 0.0
    count: int = 0
    contexts: TlsContexts = field(init=False)

    def __post_init__(self) -> None:
        self.contexts = TlsContexts(lambda: self.now)

    def make(self, *_args: object, **_terms: object) -> ssl.SSLContext:
        """Make one, in the place of the client's."""
        self.count += 1
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def of(self, access: Access) -> ssl.SSLContext:
        return self.contexts.of(connection(access))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    counting = Made()
    monkeypatch.setattr(connected, "load", counting.make)
    return counting


def test_a_cluster_that_is_asked_again_and_again_has_its_authorities_read_once(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its kubeconfig names none and all of the system's count, and while that is rewritten."""
    monkeypatch.setattr(connected, "TLS", made.contexts)
    for _ in range(20):
        access = written(tmp_path / "config")
        for kind in ("Service", "Node"):
            Feed(access, kind).close()
    assert made.count == 1


CHANGES: dict[str, dict[str, Any]] = {
    "an authority": {"cluster": {"certificate-authority-data": "eA=="}},
    "an authority's file": {"cluster": {"certificate-authority": "ca"}},
    "no check": {"cluster": {"insecure-skip-tls-verify": True}},
    "a certificate": {"user": {"client-certificate-data": "eA==", "client-key-data": "eA=="}},
    "a certificate's files": {"user": {"client-certificate": "crt", "client-key": "key"}},
}


@pytest.mark.parametrize("what", CHANGES)
def test_tls_contexts_are_cached_by_their_inputs(tmp_path: Path, made: Made, what: str) -> None:
    """What is trusted and what is shown; both are kept."""
    for file in ("ca", "crt", "key"):
        (tmp_path / file).write_text(file)
    plain, other = written(tmp_path / "plain"), written(tmp_path / "other", **CHANGES[what])
    assert made.of(plain) is not made.of(other)
    assert made.of(plain) is made.of(plain)
    assert made.of(other) is made.of(other)
    assert made.count == 2


@pytest.mark.parametrize("name", ["ca", "crt", "key"])
def test_a_file_that_is_renewed_is_read_again(tmp_path: Path, made: Made, name: str) -> None:
    """Under the same name."""
    for file in ("ca", "crt", "key"):
        (tmp_path / file).write_text(file)
    files = {"client-certificate": "crt", "client-key": "key"}
    access = written(tmp_path / "config", cluster={"certificate-authority": "ca"}, user=files)
    first = made.of(access)
    (tmp_path / "new").write_text("other")
    (tmp_path / "new").replace(tmp_path / name)
    assert made.of(access) is not first


def test_the_systems_authorities_are_read_again_after_a_while(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells of those that were added; another file that the environment names counts at once."""
    access = written(tmp_path / "config")
    first = made.of(access)
    made.now = 599.0
    assert made.of(access) is first
    made.now = 601.0
    assert made.of(access) is not first
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "other"))
    before = made.count
    made.of(access)
    assert made.count == before + 1


def test_tls_contexts_without_requests_are_forgotten(tmp_path: Path, made: Made) -> None:
    """Credentials that are renewed every minute would pile up otherwise."""
    for number in range(100):
        made.of(written(tmp_path / "config", cluster={"certificate-authority-data": str(number)}))
    assert len(made.contexts._made) == 16


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[SeedApi, Authority]]:
    """Serve an API at an address that its certificate doesn't have, with a Service."""
    authority = Authority(tmp_path / "authority")
    pair = authority.sign("DNS:api.shop.test")
    with served_seed(certificate=(pair.chain, pair.key)) as seed:
        yield seed, authority


@pytest.mark.parametrize("name", ["api.shop.test", "API.shop.test"])
def test_a_server_is_asked_for_by_the_name_that_its_certificate_has(
    api: tuple[SeedApi, Authority], tmp_path: Path, name: str
) -> None:
    """By requests and by what is followed; the URL may have an address that nobody resolved."""
    seed, authority = api
    access = written(tmp_path / "config", cluster=_cluster(seed, authority, name))
    assert Cluster(access).slices() == []
    feed_of_services = Feed(access, "Service")
    assert feed_of_services.list() == ([], "1")
    feed_of_services.close()
    assert seed.called == {"api.shop.test"}


@pytest.mark.parametrize("name", ["", "other.shop.test"])
def test_a_certificate_for_another_name_is_refused(api: tuple[SeedApi, Authority], tmp_path: Path, name: str) -> None:
    """As is one that hasn't the URL's address, where no name is given; nothing is sent."""
    seed, authority = api
    access = written(tmp_path / "config", cluster=_cluster(seed, authority, name))
    with pytest.raises(KubeError, match="certificate"):
        Cluster(access).slices()
    with pytest.raises(KubeError, match="certificate"):
        Feed(access, "Service").list()
    assert seed.requested == []


def _cluster(seed: SeedApi, authority: Authority, name: str) -> dict[str, Any]:
    named = {"tls-server-name": name} if name else {}
    return {"server": seed.url, "certificate-authority": str(authority.own.chain), **named}
