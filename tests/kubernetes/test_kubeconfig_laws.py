"""What a kubeconfig that is being rewritten says: nothing. Only a whole list of contexts says that one is gone."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from locallb.kubernetes.api import kubeconfig
from locallb.kubernetes.api.kubeconfig import connection
from locallb.kubernetes.api.servers import KubeconfigError, KubeError, NoContextError
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access

NAMES = st.sampled_from(["a", "b", "kind-a", "kind-ab", "1", "yes", "ü"])
KEYS = ("apiVersion", "clusters", "contexts", "current-context", "kind", "preferences", "users")


@st.composite
def kubeconfigs(draw: st.DrawFn) -> tuple[str, str]:
    """Make the text of a kubeconfig, as different tools write it, and the name of a context in it."""
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    shared = draw(st.booleans())
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": names[0],
        "clusters": [{"name": n, "cluster": {"server": "https://127.0.0.1:1"}} for n in names],
        "users": [{"name": n, "user": {"token": "t"}} for n in names],
        "contexts": [
            {"name": n, "context": dict.fromkeys(("cluster", "user"), names[0] if shared else n)} for n in names
        ],
    }
    order = draw(st.permutations(KEYS))
    ordered = {key: document[key] for key in order}
    text = draw(
        st.sampled_from(
            [
                yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True),
                yaml.safe_dump(ordered, sort_keys=True, indent=4),
                yaml.safe_dump(ordered, sort_keys=False, default_flow_style=True),
                json.dumps(ordered, indent=2),
                json.dumps(ordered),
            ]
        )
    )
    return text, draw(st.sampled_from(names))


def stated(data: bytes, context: str) -> type[KubeError] | None:
    """Return what a file with these bytes says of a context; None if it is there."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config"
        path.write_bytes(data)
        try:
            connection(Access(str(path), ContextName(context)))
        except KubeError as error:
            return type(error)
    return None


@given(kubeconfigs(), st.data())
@settings(max_examples=400, deadline=None)
def test_no_beginning_of_a_kubeconfig_says_that_a_context_is_gone(made: tuple[str, str], data: st.DataObject) -> None:
    """Whoever rewrites it in place, in whatever order, and wherever a reader looks meanwhile."""
    text, context = made
    whole = text.encode()
    assert stated(whole, context) is None
    cut = data.draw(st.integers(0, len(whole)) | st.sampled_from(list(_line_ends(whole))))
    assert stated(whole[:cut], context) is not NoContextError


def _line_ends(text: bytes) -> Iterator[int]:
    yield from (at + 1 for at, byte in enumerate(text) if byte == ord("\n"))
    yield 0


@given(kubeconfigs())
@settings(max_examples=60, deadline=None)
def test_context_removed_from_a_complete_kubeconfig_is_gone(made: tuple[str, str]) -> None:
    """Kubectl sorts the fields, so `kind` and others follow the contexts, even if the list is empty."""
    text, context = made
    document = yaml.safe_load(text)
    document["contexts"] = [entry for entry in document["contexts"] if entry["name"] != context] or None
    assert stated(yaml.safe_dump(document).encode(), context) is NoContextError
    assert stated(json.dumps(document).encode(), context) is NoContextError


@pytest.mark.parametrize("text", ["apiVersion: v1\nkind: Config\n", "apiVersion: v1\nkind: Config\npreferences: {}\n"])
def test_context_of_an_emptied_kubeconfig_is_gone_once_writing_has_ended(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After kind deleted the last cluster there is no list, as in a file that is being written."""
    path = tmp_path / "config"
    path.write_text(text)
    access = Access(str(path), ContextName("kind-shop"))
    with pytest.raises(KubeError, match="may be half-written") as caught:
        connection(access)
    assert isinstance(caught.value, KubeconfigError)
    os.utime(path, (0, 0))
    with pytest.raises(KubeError, match="may be half-written"):
        connection(access)  # a time that anybody can set proves nothing
    monkeypatch.setattr(kubeconfig, "EMPTIED", -1.0)
    with pytest.raises(KubeError) as caught:
        connection(access)
    assert isinstance(caught.value, NoContextError)


@pytest.mark.parametrize(
    "text",
    [
        "contexts: []\nkind: Config\ncontexts: [{name: x}]\n",
        "<<: {contexts: [], kind: Config}\n",
        "kind: Config\ncontexts: []\n",
        "{contexts: [], kind: Config",
        "contexts: []\nusers: [\n",
        "kind: List\n",
        "kind: Config\nclusters:\n",
    ],
)
def test_incomplete_kubeconfig_never_proves_that_a_cluster_is_gone(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long ago it was written."""
    monkeypatch.setattr(kubeconfig, "EMPTIED", -1.0)
    assert stated(text.encode(), "here") is KubeconfigError
