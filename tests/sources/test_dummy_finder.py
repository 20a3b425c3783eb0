"""A finder is one package and one line. Its clusters are found, and read as those of this host if it says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from locallb.config.parsing import parse_settings
from locallb.config.registry import SOURCES
from locallb.model.identities import ClusterName, Home
from locallb.sources.found import find_sources


@pytest.mark.parametrize("here", [False, True])
def test_ranges_of_pods_are_read_where_the_finder_has_clusters_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, here: bool
) -> None:
    """Without a key for routes to pods, whichever finder it is."""
    roles = {role: f"tests.sources.dummy_finder:{role.upper()}" for role in ("entry", "source")}
    monkeypatch.setitem(cast("dict[str, Mapping[str, str]]", SOURCES.places), "dummy", roles)
    settings = parse_settings({"sources": [{"dummy": ["shop"], "here": here}, {"manifests": "m"}]})
    sources, _ = find_sources(Home("local-lb", "dev", str(tmp_path)), settings, keep=False)
    found = {source.cluster: source for source in sources}
    assert found.keys() == {"shop", *(source.cluster for source in settings.sources)}
    shop = found[ClusterName("shop")]
    assert shop.found
    assert (shop.with_pod_ranges() == shop) is here
