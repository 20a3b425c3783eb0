"""What requests and watches show an API, and which servers they believe: certificates, tokens, passwords, proxies."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.kubeconfig import EXEC_VERSIONS
from locallb.kubernetes.api.servers import KubeconfigError, KubeError
from locallb.model.snapshot import Access
from tests.support.certificates import Authority, Pair
from tests.support.kubeconfigs import written
from tests.support.odd_api import odd_page
from tests.support.servers import QuietHandler, QuietServer, answer_json, in_thread


@dataclass
class Api:
    """An API with no objects."""

    port: int = 0
    valid: str = ""
    """The only credential that isn't refused; empty: none is."""
    credentials: list[str] = field(default_factory=list)
    """What came with each request."""
    shown: list[str] = field(default_factory=list)
    """The name in the client certificate of each request."""


@contextmanager
def serving(pair: Pair | None = None, clients: Authority | None = None) -> Iterator[Api]:
    """Serve it, by TLS with this certificate; `clients` signs the certificates that clients must show."""
    api = Api()

    class Handler(QuietHandler):
        """Answers lists."""

        def do_GET(self) -> None:
            api.credentials.append(self.headers.get("Authorization", ""))
            if clients:
                assert isinstance(self.connection, ssl.SSLSocket)
                certificate: Any = self.connection.getpeercert()
                api.shown += [value for ((_, value),) in certificate["subject"]]
            is_valid = api.valid in {"", api.credentials[-1]}
            answer_json(self, 200 if is_valid else 401, odd_page("") if is_valid else b"{}")

    server = QuietServer(("127.0.0.1", 0), Handler)
    if pair:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.chain, pair.key)
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients.own.chain)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with in_thread(server):
        api.port = server.server_port
        yield api


def ask(access: Access) -> None:
    """Read a list by a request and by a feed."""
    assert Cluster(access).slices() == []
    with closing(Feed(access, "Service")) as feed:
        assert feed.list() == ([], "1")


def data(path: Path) -> str:
    """Return a file as a kubeconfig has it inline."""
    return base64.b64encode(path.read_bytes()).decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("IP:127.0.0.1")


@pytest.mark.parametrize("given", ["inline", "files", "inline on macOS"])
def test_client_certificate_is_shown(
    tmp_path: Path, authority: Authority, pair: Pair, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inline or by files, also where the kernel has no files in memory."""
    if given == "inline on macOS":
        monkeypatch.delattr(os, "memfd_create")
    mine = authority.sign("DNS:me")
    user = {"client-certificate": str(mine.chain), "client-key": str(mine.key)}
    trust = {"certificate-authority": str(authority.own.chain)}
    if given != "files":
        user = {"client-certificate-data": data(mine.chain), "client-key-data": data(mine.key)}
        trust = {"certificate-authority-data": data(authority.own.chain)}
    with serving(pair, authority) as api:
        ask(written(tmp_path / "config", cluster={"server": f"https://127.0.0.1:{api.port}", **trust}, user=user))
        assert api.shown == ["signed", "signed"]
        bare = written(tmp_path / "bare", cluster={"server": f"https://127.0.0.1:{api.port}", **trust}, user={})
        with pytest.raises(KubeError, match="doesn't answer"):
            Cluster(bare).slices()


def test_client_key_with_a_password_is_refused_and_nobody_is_asked(tmp_path: Path, authority: Authority) -> None:
    """Python would ask the terminal, which a loop has not."""
    mine = authority.sign("DNS:me")
    locked = ("openssl", "pkcs8", "-topk8", "-in", str(mine.key), "-out", str(tmp_path / "key"), "-passout", "pass:x")
    subprocess.run(locked, check=True)
    access = written(tmp_path / "config", user={"client-certificate": str(mine.chain), "client-key": "key"})
    for use in (lambda: Cluster(access), lambda: Feed(access, "Service")):
        with pytest.raises(KubeconfigError, match="can't be used: its client-key has a password; write it without one"):
            use()


@pytest.mark.parametrize("user", [{}, {"insecure-skip-tls-verify": True}, {"certificate-authority": "ca.crt"}])
def test_unknown_server_is_refused_whatever_the_users_section_says(
    tmp_path: Path, authority: Authority, pair: Pair, user: dict[str, Any]
) -> None:
    """Only the cluster's section decides; the token isn't sent."""
    (tmp_path / "ca.crt").write_text(authority.own.pem)
    with serving(pair) as api:
        server = {"server": f"https://127.0.0.1:{api.port}"}
        access = written(tmp_path / "config", cluster=server, user={"token": "t", **user})
        with pytest.raises(KubeError, match="certificate"):
            Cluster(access).slices()
    assert api.credentials == []


def test_unknown_server_is_asked_where_the_kubeconfig_has_it_unverified(tmp_path: Path, pair: Pair) -> None:
    """As its user wants it."""
    with serving(pair) as api:
        cluster = {"server": f"https://127.0.0.1:{api.port}", "insecure-skip-tls-verify": True}
        ask(written(tmp_path / "config", cluster=cluster))


def test_authorities_of_the_environment_are_trusted_where_the_kubeconfig_names_none(
    tmp_path: Path, authority: Authority, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the server is of this host or not, as for kubectl."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.own.chain))
    with serving(pair) as api:
        ask(written(tmp_path / "config", cluster={"server": f"https://127.0.0.1:{api.port}"}))


def test_data_of_an_authority_goes_before_its_file(tmp_path: Path, authority: Authority, pair: Pair) -> None:
    """As kubectl has it."""
    other = Authority(tmp_path / "other")
    both = {"certificate-authority": str(other.own.chain), "certificate-authority-data": data(authority.own.chain)}
    with serving(pair) as api:
        ask(written(tmp_path / "config", cluster={"server": f"https://127.0.0.1:{api.port}", **both}))


@pytest.mark.parametrize(
    ("user", "sent"),
    [
        ({}, ""),
        ({"token": "t"}, "Bearer t"),
        ({"tokenFile": "token"}, "Bearer from-file"),
        ({"token": "t", "tokenFile": "token"}, "Bearer from-file"),
        ({"tokenFile": "token", "exec": {"apiVersion": EXEC_VERSIONS[0], "command": "false"}}, "Bearer from-file"),
        ({"username": "me", "password": "hush"}, f"Basic {base64.b64encode(b'me:hush').decode()}"),
        ({"username": "me"}, ""),
    ],
)
def test_credential_is_sent_with_each_request(tmp_path: Path, user: dict[str, Any], sent: str) -> None:
    """The same by requests and by feeds."""
    (tmp_path / "token").write_text("from-file\n")
    with serving() as api:
        ask(written(tmp_path / "config", cluster={"server": f"http://127.0.0.1:{api.port}"}, user=user))
    assert api.credentials == [sent, sent]


def test_replaced_token_file_is_read_again(tmp_path: Path) -> None:
    """By what was connected before; one that was removed, or is being written, is one sentence without the token."""
    token = tmp_path / "token"
    token.write_text("old")
    with serving() as api:
        server = f"http://127.0.0.1:{api.port}"
        access = written(tmp_path / "config", cluster={"server": server}, user={"tokenFile": "token"})
        with closing(Feed(access, "Service")) as feed:
            feed.list()
            api.valid = "Bearer new"
            with pytest.raises(KubeError, match=r"doesn't give its Services \(401"):
                feed.list()
            token.write_text("new")
            feed.list()
            assert api.credentials == ["Bearer old", "Bearer old", "Bearer new"]
            token.write_text("sec\nret")
            with pytest.raises(KubeconfigError, match="has no token in one line; write one there") as caught:
                feed.list()
            assert "ret" not in str(caught.value).removeprefix(str(tmp_path))
            token.unlink()
            with pytest.raises(KubeconfigError, match=r"token, which the kubeconfig .* names, can't be read: No such"):
                feed.list()


@pytest.mark.parametrize("by_environment", [True, False])
def test_socks_proxy_without_its_library_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_environment: bool
) -> None:
    """Of the kubeconfig or of the environment: no traceback."""
    cluster = {"server": "https://api.shop.test:6443"}
    if by_environment:
        monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    else:
        cluster["proxy-url"] = "socks5://127.0.0.1:1080"
    access = written(tmp_path / "config", cluster=cluster)
    for use in (lambda: Cluster(access), lambda: Feed(access, "Service")):
        with pytest.raises(KubeconfigError, match="can't be used: a SOCKS proxy needs the package socksio; install it"):
            use()


def test_proxy_of_the_kubeconfig_is_asked(tmp_path: Path) -> None:
    """A request for another host comes to it."""
    with serving() as proxy:
        cluster = {"server": "http://api.shop.test:6443", "proxy-url": f"http://127.0.0.1:{proxy.port}"}
        ask(written(tmp_path / "config", cluster=cluster))
    assert proxy.credentials == ["Bearer t", "Bearer t"]
