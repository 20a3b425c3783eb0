"""A proxy's directory that was found before is the one that reading it again finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb.model.identities import ClusterName, Home, ObjectKey, Owner, ProxyId, ProxyName, Uid
from locallb.storage import proxy_directories
from locallb.storage.proxy_directories import OWNER, Proxies, find_former

PROXY = ProxyId("0123456789ab")
SHARED = Owner(Home("p", "s", "/p"), ObjectKey(ClusterName(""), "", "shared-1"))
NAME = ProxyName("shared-1")


@pytest.fixture
def proxies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proxies:
    """Have a directory of one proxy, and nothing that was found before."""
    monkeypatch.setattr(proxy_directories, "_FOUND", {})
    made = Proxies(tmp_path)
    made.make(PROXY, SHARED, NAME)
    return made


def test_unchanged_proxy_directory_is_not_read_again(proxies: Proxies, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nothing in it differs."""
    found = find_former(proxies, PROXY)
    assert found == proxies.find(PROXY)
    monkeypatch.setattr(proxy_directories, "_read", None)
    assert find_former(proxies, PROXY) is found


def test_a_directory_that_changes_is_read_again(proxies: Proxies) -> None:
    """Another owner, a damaged file, none, no directory, and a link in its place."""
    changes = (
        lambda: proxies.sign(PROXY, replace(SHARED, uid=Uid("u")), NAME),
        lambda: (proxies.path(PROXY) / OWNER).write_text(json.dumps({"owner": "somebody"})),
        (proxies.path(PROXY) / OWNER).unlink,
        lambda: proxies.sign(PROXY, SHARED, NAME),
        lambda: proxies.path(PROXY).rename(proxies.root / "elsewhere"),
        lambda: proxies.path(PROXY).symlink_to(proxies.root / "elsewhere"),
    )
    for change in changes:
        find_former(proxies, PROXY)
        change()
        assert find_former(proxies, PROXY) == proxies.find(PROXY)
    assert find_former(proxies, PROXY) is None
