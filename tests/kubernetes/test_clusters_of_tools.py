"""Kubeconfigs as k3d, minikube, k0s and Rancher Desktop write them: used without a word, and as they are meant."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from locallb.kubernetes.api.kubeconfig import connection
from locallb.model.identities import ClusterName
from locallb.sources.consents import allowed
from locallb.sources.entries import KubernetesSource

_DATA = base64.b64encode(b"x").decode()
_INLINE: dict[str, Any] = {"client-certificate-data": _DATA, "client-key-data": _DATA}
_FILES: dict[str, Any] = {"client-certificate": "client.crt", "client-key": "client.key"}
_AUTHORITY: dict[str, Any] = {"certificate-authority-data": _DATA}
_TIMES: dict[str, Any] = {"name": "cluster_info", "extension": {"provider": "minikube.sigs.k8s.io", "version": "v1"}}
SHAPES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "k3d-shop": ("https://0.0.0.0:6550", _AUTHORITY, _INLINE),
    "minikube": ("https://127.0.0.1:32771", {"certificate-authority": "ca.crt", "extensions": [_TIMES]}, _FILES),
    "Default": ("https://localhost:6443", _AUTHORITY, _INLINE),
    "rancher-desktop": ("https://127.0.0.1:6443", _AUTHORITY, _INLINE),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_current_context_of_a_tool_is_used(name: str, tmp_path: Path) -> None:
    """It is a cluster of this host, so that nothing has to be confirmed; its certificate is checked."""
    server, cluster, user = SHAPES[name]
    for file in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / file).write_text("x")
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, **cluster}}, {"name": "other", "cluster": {}}],
        "users": [{"name": name, "user": user}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}},
            {"name": "other", "context": {"cluster": "other", "user": name}},
        ],
    }
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(yaml.safe_dump(document))
    access = allowed(KubernetesSource(ClusterName("c"), str(kubeconfig)), tmp_path)
    reached = connection(access)
    assert (access.context, reached.server) == (name, server)
    assert not reached.trust.insecure_skip_tls_verify
    assert {Path(file).name for file in reached.files} == (set() if user is _INLINE else {"ca.crt", *_FILES.values()})
