"""Nodes that are pods of another cluster, as a shoot's control plane needs them: where they are, and who says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import PodRouting, SettingsError
from locallb.model.identities import ClusterName, ContextName, Home
from locallb.model.pacing import Pace
from locallb.model.snapshot import HostFacts, Snapshot, Subnet
from locallb.planning.pod_routes import container_routes
from locallb.sources.entries import MachinesFinder
from locallb.sources.found import find_sources
from locallb.sources.kubernetes.nodes import NodePolls
from tests.sources.machines import BOTH, WAYS, A, B, complaints, find, pods, put, settings
from tests.support.seed_api import NAMESPACES, SeedApi, kubeconfig, served_seed
from tests.support.waiting import becomes


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[SeedApi]:
    """Serve the cluster that has a shoot's only Node as a pod."""
    with served_seed(tmp_path / "cloudprovider") as api:
        put(api, A, *BOTH)
        yield api


def test_a_clusters_nodes_are_the_machine_pods_of_its_namespace(runtime: SeedApi, tmp_path: Path) -> None:
    """In both families; nothing else of that cluster is asked for, and nothing at all of the shoot for it."""
    put(runtime, A, ["10.0.7.3"], [], "young")
    put(runtime, A, ["10.0.7.5"], ["172.18.0.3"], "bastion", app="bastion")
    put(runtime, B, ["10.0.7.4"], ["172.18.0.4"])
    assert find(tmp_path) == ({A: WAYS}, [])
    assert runtime.requested == [(pods(A), "Bearer seed-token")]


def test_control_planes_of_one_stack_have_the_ways_of_their_own(runtime: SeedApi, tmp_path: Path) -> None:
    """Also where two shoots' Nodes have one address, and while nobody answers."""
    put(runtime, B, BOTH[0], ["172.18.0.4", "fd00:10::4"])
    found, _ = find(tmp_path, A, B)
    assert found == {A: WAYS, B: ("10.0.7.2/32 via 172.18.0.4", "fd00:10:1:100::2/128 via fd00:10::4")}
    runtime.refused = 403
    retry, stated = find(tmp_path, A, B)
    assert (retry, len(stated)) == (found, 2)
    assert find(tmp_path, B)[0] == {B: found[B]}


def test_the_namespace_may_be_another_one(runtime: SeedApi, tmp_path: Path) -> None:
    """Whatever it is called."""
    runtime.objects[f"{NAMESPACES}/machines/pods"] = runtime.objects.pop(pods(A))
    for pod in runtime.objects[f"{NAMESPACES}/machines/pods"]:
        pod["metadata"]["namespace"] = "machines"
    assert find(tmp_path, namespace="machines") == ({A: WAYS}, [])


def test_routes_go_with_the_pods_and_not_with_a_silent_api(runtime: SeedApi, tmp_path: Path) -> None:
    """A preview writes nothing. A namespace that isn't there says nothing: this may be another cluster."""
    assert find(tmp_path, keep=False) == ({A: WAYS}, [])
    assert not (tmp_path / ".state").exists()
    find(tmp_path)
    present = runtime.objects[pods(A)]
    for status in (401, 403, 404):
        runtime.refused = status
        found, (stated,) = find(tmp_path)
        assert found == {A: WAYS}
        assert stated.startswith(f"source {A}: which pods are its Nodes can't be found out: ")
        assert stated.endswith("; so the 2 ways to them count that were found last")
    runtime.refused = 0
    runtime.objects[pods(A)] = []
    removed = runtime.objects.pop(f"{NAMESPACES}/infra-{A}")
    found, (stated,) = find(tmp_path)
    assert found == {A: WAYS}
    assert f"leads to a cluster without Namespace infra-{A}" in stated
    runtime.objects[f"{NAMESPACES}/infra-{A}"] = removed
    assert find(tmp_path) == ({A: ()}, [])
    runtime.objects[pods(A)] = present
    assert find(tmp_path) == ({A: WAYS}, [])
    runtime.objects[pods(A)] = []
    find(tmp_path)
    runtime.refused = 403
    assert find(tmp_path)[0] == {A: ()}


@pytest.mark.parametrize("contains", ["{", "", "[]", "contexts: []", None])
def test_a_kubeconfig_that_is_of_no_use_stops_nothing(runtime: SeedApi, tmp_path: Path, contains: str | None) -> None:
    """Neither before anything was found, nor later: as while it is replaced."""
    kubeconfig_file = tmp_path / "cloudprovider"
    usable = kubeconfig_file.read_text()

    def spoil() -> None:
        kubeconfig_file.unlink()
        if contains is not None:
            kubeconfig_file.write_text(contains)

    spoil()
    found, (stated,) = find(tmp_path)
    assert (found, stated.endswith("and no way to them is known")) == ({A: ()}, True)
    kubeconfig_file.write_text(usable)
    find(tmp_path)
    spoil()
    assert find(tmp_path)[0] == {A: WAYS}
    del runtime


COMMAND = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "/bin/sh", "args": ["-c", "touch ran"]}
BEYOND: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({}, {"exec": COMMAND}, "exec"),
    ({}, {"tokenFile": "secret"}, "secret"),
    ({"proxy-url": "http://127.0.0.1:1"}, {"token": "t"}, "proxy-url"),
)


@pytest.mark.parametrize(("cluster", "user", "word"), BEYOND)
def test_a_kubeconfig_that_is_named_gives_nothing_but_what_stands_inside(
    runtime: SeedApi, tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], word: str
) -> None:
    """In Gardener it is the shoot's owner's: no command of theirs runs, and no file of ours is sent to their server."""
    (tmp_path / "secret").write_text("of-this-host")
    document = yaml.safe_load(kubeconfig(runtime.url, user))
    document["clusters"][0]["cluster"] |= cluster
    (tmp_path / "cloudprovider").write_text(yaml.safe_dump(document))
    found, (stated,) = find(tmp_path)
    assert found == {A: ()}
    assert f"has {tmp_path / word if word == 'secret' else word}; of it certificates and a token are taken" in stated
    assert (runtime.requested, (tmp_path / "ran").exists()) == ([], False)


def test_this_users_own_kubeconfig_may_name_files(
    runtime: SeedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As everywhere; a pod's own is such a one."""
    (tmp_path / "token").write_text("of-this-user")
    (tmp_path / "mine").write_text(kubeconfig(runtime.url, {"tokenFile": "token"}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "mine"))
    parsed = parse_settings({"sources": [{"kubernetes": {"name": A, "nodes": {}}}]})
    (source,), (stated,) = find_sources(Home("p", "dev", str(tmp_path)), parsed, keep=True)
    assert (tuple(map(str, source.node_routes or ())), complaints(stated)) == (WAYS, ())
    assert {credential for _, credential in runtime.requested} == {"Bearer of-this-user"}


ODD: tuple[tuple[list[str], list[str]], ...] = (
    (["8.8.8.8"], ["172.18.0.3"]),
    (["169.254.169.254"], ["172.18.0.3"]),
    (["127.0.0.1"], ["172.18.0.3"]),
    (["0.0.0.0"], ["172.18.0.3"]),
    (["172.18.0.9"], ["172.18.0.3"]),
    (["10.0.7.2"], ["10.9.9.9"]),
    (["10.0.7.2"], ["8.8.8.8"]),
    (["10.0.7.2"], ["fd00:10::3"]),
    (["10.0.7.2"], ["10.0.7.2"]),
    (["::ffff:10.0.7.2"], ["fd00:10::3"]),
    (["fe80::1"], ["fd00:10::3"]),
)


@pytest.mark.parametrize(("pod_ips", "host_ips"), ODD)
def test_implausible_addresses_of_machine_pods_get_no_route(
    runtime: SeedApi, tmp_path: Path, pod_ips: list[str], host_ips: list[str]
) -> None:
    """No route leads to public addresses, to the proxies' own network, or by a host outside of that."""
    runtime.objects[pods(A)] = []
    put(runtime, A, pod_ips, host_ips)
    configured = replace(settings(), pod_routes=PodRouting.CONTAINER)
    home = Home("p", "dev", str(tmp_path))
    _, (stated,) = find_sources(home, configured, keep=True)
    networks = (Subnet(ip_network("172.18.0.0/24")), Subnet(ip_network("fd00:10::/64")))
    snapshot = Snapshot(home, host=HostFacts(subnets=networks), node_routes=stated.node_routes)
    assert container_routes(snapshot, configured).routes == {}


QUIET = 4
"""Requests after which a whole look has passed."""


def test_machine_changes_are_reported(runtime: SeedApi, tmp_path: Path) -> None:
    """So is a kubeconfig that leads elsewhere, and silence; where nothing is different, nothing is."""
    stated: list[str] = []
    (finder,) = settings().finders
    assert isinstance(finder, MachinesFinder)
    polls = NodePolls(finder, tmp_path, stated.append, Pace(first=0.02, longest=0.02, floor=0.02))
    with served_seed() as other:
        put(other, A, ["10.0.7.9"], ["172.18.0.3"])
        changes: tuple[Callable[[], None], ...] = (
            lambda: None,
            lambda: put(runtime, A, ["10.0.7.3"], ["172.18.0.3"], "m2"),
            lambda: setattr(runtime, "refused", 403),
            lambda: setattr(runtime, "refused", 0),
            lambda: _rewrite(tmp_path / "cloudprovider", other),
        )
        for reported, change in enumerate(changes):
            change()
            becomes(partial(_more, stated, reported), stated.copy)
            requested = other.requested or runtime.requested
            becomes(partial(_more, requested, len(requested) + QUIET))
        polls.stop()
        becomes(lambda: f"{A} nodes" not in [thread.name for thread in threading.enumerate()])
    assert len(stated) == len(changes)


def _rewrite(path: Path, api: SeedApi) -> None:
    path.write_text(kubeconfig(api.url, {"token": "other"}))


def _more(some: list[Any], than: int) -> bool:
    return len(some) > than


def test_machines_entry_defaults_to_gardeners_namespace_and_own_kubeconfig() -> None:
    """The namespace is that of Gardener's shoots; the kubeconfig that of this user, or of this pod."""
    (finder,) = parse_settings({"sources": [{"kubernetes": {"name": A, "nodes": {}}}]}).finders
    assert finder == MachinesFinder(ClusterName(A), f"infra-{A}")
    given = {"kubeconfig": "k", "context": "c", "namespace": "n"}
    parsed = parse_settings({"sources": [{"kubernetes": {"name": A, "nodes": given}}]})
    assert parsed.finders == (MachinesFinder(ClusterName(A), "n", "k", ContextName("c")),)
    assert [source.node_routes for source in parsed.sources] == [()]


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ({"nodes": "x"}, 'nodes: must be a mapping, not "x"'),
        ({"nodes": {"namespaces": "n"}}, "nodes.namespaces: no such key; did you mean namespace?"),
        ({"nodes": {"namespace": "A/b"}}, 'nodes.namespace: "A/b" is not a name; '),
        ({"nodes": {}, "podCIDRs": ["10.0.0.0/16"]}, "podCIDRs: no route leads to pods where Nodes are pods"),
    ],
)
def test_invalid_machines_entry_is_refused_with_a_remedy(given: Mapping[str, object], stated: str) -> None:
    """One sentence with the remedy."""
    with pytest.raises(SettingsError) as caught:
        parse_settings({"sources": [{"kubernetes": {"name": A, **given}}]})
    (sentence,) = caught.value.sentences
    assert sentence.startswith(f"local-lb:sources[0].kubernetes.{stated}")
