"""New parts of shared proxies wait for each other during their update, and for nobody after it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from locallb.ledger.ledger import Ledger
from locallb.model.identities import ProxyId
from locallb.provider import fragments as part_reads
from locallb.provider import fragments as proxy_fragments
from locallb.provider.fragments import gathering
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies

ONE, OTHER = ProxyId("0" * 12), ProxyId("1" * 12)


def expected(proxy: ProxyId) -> tuple[int, int, int]:
    """Return how many claims, changes and proofs are waited for."""
    directory, ledger = Proxies.ours().path(proxy), Ledger(paths.ledger_directory())
    changes, checks = proxy_fragments.queue_proxy_fragment(directory), part_reads.checks(directory)
    return ledger.queue._expected, changes._expected, checks._expected


def test_each_proxy_expects_its_own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger expects all claims; after an update that broke off nobody is waited for."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALLB_LEDGER", str(tmp_path / "ledger"))
    with suppress(OSError), gathering([ONE, OTHER, ONE], 4):
        assert (expected(ONE), expected(OTHER)) == ((4, 2, 2), (4, 1, 1))
        raise OSError
    assert (expected(ONE), expected(OTHER)) == ((0, 0, 0), (0, 0, 0))
