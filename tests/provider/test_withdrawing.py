"""A Service is let go only with its cluster's word, or with the proof that there is no such cluster any more."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from locallb.kubernetes.api import live_object
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, Owner, Uid
from locallb.model.snapshot import Access
from locallb.resources.resource_type import ProviderError

OWNER = Owner(Home("p", "s", "/x"), ObjectKey(ClusterName("c"), "ns", "svc"), Uid("uid"))
WHOLE = yaml.safe_dump(
    {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
)


def withdraw(path: Path) -> None:
    """Let go of a Service of the cluster that the context `here` leads to."""
    live_object.withdraw(Access(str(path), ContextName("here")), OWNER, lambda _found: {"metadata": {}})


@pytest.mark.parametrize(
    "text", [None, "", "{", WHOLE, WHOLE[: WHOLE.index("contexts")], WHOLE[: WHOLE.index("name: here")]]
)
def test_service_is_not_withdrawn_while_its_cluster_cannot_be_asked(text: str | None, tmp_path: Path) -> None:
    """No file, half a file, or a silent API: the error says what would prove the cluster gone."""
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(
        ProviderError, match=r"can't remove local-lb's finalizer from c/ns/svc: .*delete-context here --kubeconfig"
    ):
        withdraw(path)


@pytest.mark.parametrize("text", [WHOLE.replace("here", "other"), "contexts: []\nkind: Config\n"])
def test_a_cluster_that_is_gone_has_nothing_of_ours(text: str, tmp_path: Path) -> None:
    """Its kubeconfig is whole and doesn't have it."""
    (tmp_path / "config").write_text(text)
    withdraw(tmp_path / "config")
