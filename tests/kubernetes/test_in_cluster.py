"""A pod without a kubeconfig asks its own cluster, with the token that is in its file now."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from locallb.kubernetes.api import in_cluster
from locallb.kubernetes.api.kubeconfig import connection, kubeconfig_path, resolve, stamp
from locallb.kubernetes.api.servers import KubeError
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access

DEPLOYED = Path(__file__).parents[2] / "deploy/in-cluster.yaml"


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a pod with a service account, and a home without a kubeconfig."""
    for name, text in {"token": "secret", "ca.crt": "certificate", "namespace": "garden\n"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(in_cluster, "ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOST": "10.96.0.1", "PORT": "6443"}.items():
        monkeypatch.setenv(f"KUBERNETES_SERVICE_{name}", value)
    return tmp_path


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")]
)
def test_a_pod_means_its_own_cluster(account: Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str) -> None:
    """Its server, authority and token's file; nothing is written, and the token stands nowhere else."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    before = sorted(account.iterdir())
    access = resolve("", ContextName(""), Path("/project"))
    assert access == Access(str(account / "kubeconfig"), ContextName("in-cluster"))
    way = connection(access)
    assert way.server == server
    assert way.files == (str(account / "ca.crt"), str(account / "token"))
    assert "secret" not in repr(way)
    assert sorted(account.iterdir()) == before


def test_a_token_that_the_kubelet_replaced_is_another_way(account: Path) -> None:
    """Whoever keeps a connection compares the stamp of its files."""
    access = resolve("", ContextName(""), Path("/project"))
    before = stamp(access, connection(access).files)
    assert stamp(access, connection(access).files) == before
    (account / "new").write_text("other")
    (account / "new").rename(account / "token")
    assert stamp(access, connection(access).files) != before


def test_replicas_that_start_together_write_one_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at the moment when the other puts its file in place: both are content, and nothing else is left."""
    documents = yaml.safe_load_all(DEPLOYED.read_text())
    (deployment,) = (one for one in documents if one["kind"] == "Deployment")
    (first,) = deployment["spec"]["template"]["spec"]["initContainers"]
    script = first["args"][0].replace("/configuration", str(tmp_path / "configuration"))
    (tmp_path / "configuration").mkdir()
    (tmp_path / "configuration/Pulumi.dev.yaml").write_text("config: {}\n")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    others = [script]

    def after_another(path: Path, target: Path) -> Path:
        if others:
            exec(others.pop(), {})  # noqa: S102 - as the other replica does
        return put(path, target)

    put = Path.replace
    monkeypatch.setattr(Path, "rename", after_another)
    monkeypatch.setattr(Path, "replace", after_another)
    exec(script, {})  # noqa: S102 - as a pod does
    (written,) = (tmp_path / "data/local-lb/stacks").iterdir()
    assert (written.name, written.read_text(), others) == ("Pulumi.dev.yaml", "config: {}\n", [])


@pytest.mark.parametrize("stated", ["named", "KUBECONFIG", "home", "no token", "no variable"])
def test_a_kubeconfig_comes_first_as_kubectl_has_it(
    account: Path, monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    """And what is no pod has none."""
    own, usual = account / "mine", account / "home/.kube/config"
    if stated == "KUBECONFIG":
        monkeypatch.setenv("KUBECONFIG", str(own))
    elif stated == "home":
        usual.parent.mkdir(parents=True)
        usual.write_text("")
    elif stated == "no token":
        (account / "token").unlink()
    elif stated == "no variable":
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    expected = own if stated in {"named", "KUBECONFIG"} else usual
    assert kubeconfig_path(str(own) if stated == "named" else "", Path("/project")) == expected


@pytest.mark.parametrize(
    ("variable", "file", "expected"), [("shop", "garden", "shop"), ("", "garden\n", "garden"), ("", None, "")]
)
def test_the_namespace_comes_from_the_variable_or_the_pods_files(
    account: Path, monkeypatch: pytest.MonkeyPatch, variable: str, file: str | None, expected: str
) -> None:
    """In this order; outside of pods nobody tells it."""
    (account / "namespace").unlink()
    if file is not None:
        (account / "namespace").write_text(file)
    monkeypatch.setenv("POD_NAMESPACE", variable)
    assert in_cluster.namespace() == expected


@pytest.mark.parametrize("odd", ["../x", "A", "a b", "a" * 64, "-a", "a\n"])
def test_invalid_namespace_is_refused(account: Path, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    """It would become a part of an URL."""
    del account
    monkeypatch.setenv("POD_NAMESPACE", odd)
    with pytest.raises(KubeError, match=r"POD_NAMESPACE is .* take it from metadata\.namespace"):
        in_cluster.namespace()
