"""A cluster that is too old for `ipMode`, where ports are mapped: it is named, and nothing is written twice for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.object_parsing import Parsed
from locallb.kubernetes.status import MAPPED, PORT_MAPPING, ObservedStatus
from locallb.model.identities import ContextName, Home, ObjectKey, Owner, Uid
from locallb.model.reasons import Condition, Ingress, IngressPort
from locallb.model.snapshot import Access
from locallb.outputs.status import ServiceStatus
from locallb.provider.claims import ServiceClaim
from locallb.resources.properties import ServiceClaimInputs, ServiceStatusInputs
from locallb.sources.entries import KubernetesSource
from locallb.sources.snapshot import mode_notices, read_snapshot
from locallb.sources.snapshot_cache import SnapshotCache
from locallb.sources.source import SourceRead, SourceResult
from locallb.sources.workspace import EVERYTHING
from tests.support.fake_api import NAME, Api, balancer, served

WEB = ObjectKey(NAME, "n", "web")
ENTRY = Ingress("127.0.0.1", "Proxy", (IngressPort(80, "TCP"),))
PLACE = "80/TCP=127.0.0.1:18080"
_SENTENCE = (
    "demo: its API doesn't keep ipMode, as before Kubernetes 1.30, so kube-proxy takes what its Nodes send to their own"
    " 127.0.0.1 at ports of these Services; upgrade the cluster, or remove local-lb:portMapping"
)
TOLD = (_SENTENCE,)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Api, Access]]:
    """Serve a cluster with one Service of ours."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with served(tmp_path) as (answers, access):
        answers.services.append(balancer("web"))
        yield answers, access
        RECENT.forget(access)


def settings(access: Access, *, mapped: bool = True) -> Settings:
    return Settings(
        (KubernetesSource(NAME, kubeconfig=access.kubeconfig, loopback_backends=True),), (), port_mapping=mapped
    )


@pytest.mark.parametrize(("unkept", "reported"), [({"ipMode"}, TOLD), (set(), ())], ids=["1.29", "1.30"])
def test_cluster_that_drops_ip_mode_is_named_and_not_written_again(
    api: tuple[Api, Access], tmp_path: Path, unkept: set[str], reported: tuple[str, ...]
) -> None:
    """By a single read and by following; what was published counts as wanted in every look."""
    answers, access = api
    answers.unkept, home = unkept, Home("p", "s", str(tmp_path))
    owner = Owner(home, WEB, Uid("web"))
    assert read_snapshot(home, settings(access), (), keep=False).notices == ()
    ServiceClaim(tmp_path).create(ServiceClaimInputs(access, owner))
    status, condition = ServiceStatus(tmp_path), Condition(PORT_MAPPING, "True", MAPPED, PLACE)
    published = ServiceStatusInputs(access=access, owner=owner, ingress=(ENTRY,), conditions=(condition,), alone=False)
    _, state = status.create(published)
    written = len(answers.patched)
    for _ in range(3):
        RECENT.forget(access)
        assert status.read(state) == state
        state = status.update(state, published)
    assert len(answers.patched) == written
    assert read_snapshot(home, settings(access), (), keep=False).notices == reported
    assert read_snapshot(home, settings(access, mapped=False), (), keep=False).notices == ()
    cache = SnapshotCache(home, settings(access), tuple, lambda _name: None)
    try:
        assert cache.read(EVERYTHING).notices == reported
        assert cache.read(EVERYTHING).notices == reported
    finally:
        cache.stop()


OURS = ObservedStatus(claimed=True, ingress=(replace(ENTRY, mode=""),), mapped=PLACE)
CASES = {
    "ours, without a mode": (OURS, TOLD),
    "ours at ::1": (replace(OURS, ingress=(ENTRY, replace(ENTRY, ip="::1", mode=""))), TOLD),
    "ours, with its mode": (replace(OURS, ingress=(ENTRY,)), ()),
    "somebody else's entry beside ours": (replace(OURS, ingress=(ENTRY, replace(ENTRY, ip="10.0.0.1", mode=""))), ()),
    "never told of ports": (replace(OURS, mapped=""), ()),
    "not claimed": (replace(OURS, claimed=False), ()),
    "withdrawn": (replace(OURS, ingress=()), ()),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [1, 3])
def test_only_what_we_have_written_ourselves_tells_of_an_api(name: str, count: int) -> None:
    """Once for a cluster, however many Services it has; manifests that were exported from one tell nothing."""
    stated, reported = CASES[name]
    parsed = Parsed(observed_statuses=tuple((ObjectKey(NAME, "n", f"web-{number}"), stated) for number in range(count)))
    read = SourceResult(parsed)
    live = SourceRead(read, access={NAME: Access("/k", ContextName("c"))})
    mapped = Settings((), (), port_mapping=True)
    assert mode_notices(mapped, [live]).reading.parsed.notices == reported
    assert mode_notices(mapped, [SourceRead(read)]).reading.parsed.notices == ()
    assert mode_notices(replace(mapped, port_mapping=False), [live]).reading.parsed.notices == ()
