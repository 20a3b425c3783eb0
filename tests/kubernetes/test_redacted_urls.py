"""Passwords and tokens in URLs of a kubeconfig are never shown, whoever quotes the URL."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.kubeconfig import connection
from locallb.kubernetes.api.servers import KubeError, UnreachableError, redacted, redacted_urls
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access

SECRET = "hush-hush"  # noqa: S105 - a word of the test


def dead_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


SHOWN = {
    "https://127.0.0.1:6443": "https://127.0.0.1:6443",
    "https://[::1]:6443/api": "https://[::1]:6443/api",
    "https://host/users/a@b": "https://xxxxx@b",
    f"https://admin:{SECRET}@host:6443/a": "https://xxxxx@host:6443/a",
    f"https://{SECRET}@host": "https://xxxxx@host",
    f"https://admin:{SECRET}@[::1]": "https://xxxxx@[::1]",
    f"https://:{SECRET}@host": "https://xxxxx@host",
    f"https://admin:a@{SECRET}@host": "https://xxxxx@host",
    f"https://admin:a/{SECRET}@host": "https://xxxxx@host",
    f"https://admin:a {SECRET}@host": "https://xxxxx@host",
    f"https://host?access_token={SECRET}": "https://host?xxxxx",
    f"https://host/a?{SECRET}#b": "https://host/a?xxxxx",
    f"https://host/a?b=c@{SECRET}": "https://xxxxx",
    f"admin:1/{SECRET}://a@host": "xxxxx@host",
    f"https://host/a#{SECRET}": "https://host/a",
    f"https://host#{SECRET}?a": "https://host",
    f"https://admin:1/{SECRET}@10.0.0.1:6443": "https://xxxxx@10.0.0.1:6443",
    f"https://admin:2024#{SECRET}@host": "https://xxxxx",
    f"https://admin:a?{SECRET}@host": "https://xxxxx",
    f"admin:{SECRET}@host": "xxxxx@host",
    f"https:/admin:{SECRET}@host": "xxxxx@host",
    "localhost": "localhost",
    "": "",
}


@pytest.mark.parametrize(("url", "shown"), SHOWN.items())
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    """The host stays, by which a person knows it."""
    assert redacted(url) == shown


@given(st.text(min_size=1), st.text(min_size=8))
def test_no_password_that_a_url_may_have_is_shown(user: str, password: str) -> None:
    """In a URL by itself and within a sentence."""
    try:
        url = f"https://{quote(user, safe='')}:{quote(password, safe='')}@127.0.0.1:6443"
    except UnicodeEncodeError:
        assume(condition=False)
    hidden = quote(password, safe="")
    assume(hidden not in f"{quote(user, safe='')} xxxxx 127.0.0.1:6443 https it")
    assert hidden not in redacted(url)
    assert redacted_urls(f"it ({url}), which is {url}.") == f"it ({redacted(url)}), which is {redacted(url)}."


PIECE = st.text("abcdefgh:/?#@ ", min_size=3)


@given(PIECE, PIECE, PIECE)
def test_nothing_that_may_be_a_secret_is_left_of_a_url(credentials: str, query: str, fragment: str) -> None:
    """Whether or not its special characters are escaped; the host and the path stay where they are certain."""
    for behind, marked in ((f"#{fragment}", ""), (f"?{query}#{fragment}", "?xxxxx")):
        certain = not set("?#") & set(credentials) and "@" not in behind
        shown = f"https://xxxxx@HOST/PATH{marked}" if certain else "https://xxxxx"
        assert redacted(f"https://{credentials}@HOST/PATH{behind}") == shown


@given(st.text())
def test_sentences_without_urls_stay_as_they_are(sentence: str) -> None:
    """Nothing else is taken for one."""
    assume("://" not in sentence)
    assert redacted_urls(sentence) == sentence


def test_every_error_of_an_api_is_redacted() -> None:
    """Libraries quote URLs, too."""
    assert SECRET not in str(UnreachableError(f"GET https://a:{SECRET}@host/x?token={SECRET}, which failed"))


CONTEXTS = {
    "a server that is down": {"server": "http://admin:{}@127.0.0.1:{port}"},
    "a token in the query": {"server": "http://127.0.0.1:{port}/?access_token={}"},
    "a proxy that is down": {"server": "http://127.0.0.1:1", "proxy-url": "http://admin:{}@127.0.0.1:{port}"},
    "a proxy of no known scheme": {"server": "http://127.0.0.1:1", "proxy-url": "ftp://admin:{}@127.0.0.1"},
    "a port beyond all": {"server": "https://admin:{}@127.0.0.1:99999999"},
    "a scheme that is misspelt": {"server": "htps://admin:{}@127.0.0.1"},
    "no scheme": {"server": "admin:{}@127.0.0.1"},
    "a slash in the password": {"server": "https://admin:a/{}@127.0.0.1"},
    "a space in the password": {"server": "https://admin:a {}@127.0.0.1"},
}


@pytest.mark.parametrize("cluster", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_whatever_is_wrong_with_a_context_is_told_without_its_secrets(
    tmp_path: Path, cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either client, and by the connection."""
    monkeypatch.setenv("NO_PROXY", "*")
    port = dead_port()
    filled = {key: value.replace("{port}", str(port)).replace("{}", SECRET) for key, value in cluster.items()}
    file = tmp_path / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": filled}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    access = Access(str(file), ContextName("x"))
    for work in (
        lambda: Cluster(access).objects(),
        lambda: Feed(access, "Service").list(),
        lambda: [(_ for _ in ()).throw(KubeError(connection(access).server))],
    ):
        with pytest.raises(KubeError) as caught:
            work()
        assert SECRET not in str(caught.value)
