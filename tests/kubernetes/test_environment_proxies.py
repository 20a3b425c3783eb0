"""Whether an API is asked through the proxy of the environment, with a proxy that hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.servers import KubeError
from locallb.model.snapshot import Access
from tests.support.certificates import Authority
from tests.support.kubeconfigs import written
from tests.support.seed_api import SeedApi, served_seed
from tests.support.servers import QuietHandler, QuietServer, in_thread

NAME = "api.shop.test"


class _Refusing(QuietHandler):
    """A proxy that takes note of where it shall connect to, and doesn't."""

    requested: list[str]

    def do_CONNECT(self) -> None:
        self.requested.append(self.path)
        self.send_error(403)


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Have the environment name a proxy; returns what it was asked for."""
    requested: list[str] = []
    server = QuietServer(("127.0.0.1", 0), type("Handler", (_Refusing,), {"requested": requested}))
    for word in ("http_proxy", "all_proxy", "no_proxy", "NO_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(word, raising=False)
    with in_thread(server):
        for word in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(word, f"http://127.0.0.1:{server.server_port}")
        yield requested


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[SeedApi, Access]]:
    """Serve an API that is dialled at an address, and called by its name; the address isn't one of the loopback."""
    authority = Authority(tmp_path / "authority")
    pair = authority.sign(f"DNS:{NAME}")
    with served_seed(certificate=(pair.chain, pair.key)) as seed:
        url = f"https://0.0.0.0:{urlsplit(seed.url).port}"
        cluster = {"server": url, "certificate-authority": str(authority.own.chain), "tls-server-name": NAME}
        yield seed, written(tmp_path / "config", cluster=cluster)


@pytest.mark.parametrize(
    "listed",
    [NAME, f".{NAME}", "shop.test", ".shop.test", "*.shop.test", "a.test, .shop.test", f"{NAME}:PORT", "*", "0.0.0.0"],
)
def test_no_proxy_names_a_server_also_where_it_is_dialled_at_an_address(
    api: tuple[SeedApi, Access], requested: list[str], monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    """By requests and by what is followed: the kubeconfig has the name, which the user knows."""
    seed, access = api
    monkeypatch.setenv("NO_PROXY", listed.replace("PORT", str(urlsplit(seed.url).port)))
    assert Cluster(access).slices() == []
    with closing(Feed(access, "Service")) as feed:
        assert feed.list() == ([], "1")
    assert (len(seed.requested), requested) == (2, [])


@pytest.mark.parametrize("listed", ["", "127.0.0.1,localhost", "other.test", "hop.test", "pi.shop.test", f"{NAME}:1"])
def test_server_not_in_no_proxy_is_reached_through_the_proxy(
    api: tuple[SeedApi, Access], requested: list[str], monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    """Nothing reaches it directly."""
    monkeypatch.setenv("NO_PROXY", listed)
    seed, access = api
    with pytest.raises(KubeError):
        Cluster(access).slices()
    with closing(Feed(access, "Service")) as feed, pytest.raises(KubeError):
        feed.list()
    assert seed.requested == []
    assert requested
