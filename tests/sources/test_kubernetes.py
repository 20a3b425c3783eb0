"""A cluster that can't be read: what is wrong with its kubeconfig, what fits, and what there is instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from locallb.model.identities import ClusterName, ContextName
from locallb.sources import SourceError
from locallb.sources.entries import KubernetesSource
from locallb.sources.kubernetes.reading import read_kubernetes
from locallb.sources.readings import ReadCache

LIVE = ClusterName("live")
TWO = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: kind-shop, context: {cluster: c, user: u}}, {name: prod, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
"""
FILE = "repair that file, or name another one by `kubeconfig`"


@pytest.mark.parametrize(
    ("text", "context", "why", "remedy"),
    [
        (None, "", "the kubeconfig {path} can't be read: No such file or directory", FILE),
        ("", "", "{path} is empty; it may be half-written", FILE),
        ("a: [", "", "{path} isn't a kubeconfig: line 2: did not find expected node content", FILE),
        (TWO, "", "{path} has no current context; name one in `context`: it has kind-shop, prod", FILE),
        (TWO, "pord", "{path} has no context pord; it has kind-shop, prod", "name one of these by `context`"),
        (TWO, "prod", "https://127.0.0.1:1 doesn't answer ([Errno 111] Connection refused)", "start it"),
    ],
)
def test_unreadable_cluster_is_reported_with_a_remedy(
    text: str | None, context: str, why: str, remedy: str, tmp_path: Path
) -> None:
    """Everything stops only where it holds something of which nothing is known; otherwise its last reading counts."""
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    source, reported = (
        KubernetesSource(LIVE, "config", ContextName(context)),
        f"source live: the cluster can't be read: {why}",
    )
    unread = f"{reported.format(path=path)}; {remedy}, or correct local-lb:sources"
    with pytest.raises(SourceError) as caught:
        read_kubernetes(source, tmp_path, tmp_path)
    assert str(caught.value) == unread
    nothing = read_kubernetes(source, tmp_path, tmp_path, held=False)
    assert (nothing.reading.stale, nothing.reading.parsed.services, nothing.unready) == ((unread,), (), False)
    ReadCache(tmp_path).keep(LIVE, {"kind-shop": ({"kind": "Service"},)})
    (stale,) = read_kubernetes(source, tmp_path, tmp_path).reading.stale
    so = "so its Services count as last read"
    assert stale == f"{reported.format(path=path)}; {so}: {remedy}, or take it out of local-lb:sources"
