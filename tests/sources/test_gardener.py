"""A seed of Gardener and its shoots: which are found, how they are reached, and what counts while one is silent."""

from __future__ import annotations

import base64
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings, SettingsError
from locallb.kubernetes.api.kubeconfig import connection
from locallb.kubernetes.api.servers import KubeError, NoContextError
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey
from locallb.model.pacing import Pace
from locallb.model.routes import PodRoute
from locallb.model.snapshot import Access
from locallb.sources import SourceError
from locallb.sources.entries import GardenerFinder, KubernetesSource, node_routes, parsed_routes, printed_routes
from locallb.sources.found import find_sources
from locallb.sources.gardener import ADMIN, SOURCE, TOKEN, Shoot, find_shoots, parse_shoot, way
from locallb.sources.readings import ReadCache
from locallb.sources.source import Found, source_type
from locallb.storage.paths import stack_directory
from tests.sources.support import files_in
from tests.support.seed_api import CLUSTERS, PODS, RECORDS, SeedApi, cluster, kubeconfig, served_seed
from tests.support.waiting import becomes

SEED = GardenerFinder(ClusterName("seed"), "seed.kubeconfig")
A, B = "shoot--local--a", "shoot--local--b"
SPEC = {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]}
INSIDE = kubeconfig("https://kube-apiserver", {"tokenFile": "/x"})


@pytest.fixture
def seed(tmp_path: Path) -> Iterator[SeedApi]:
    """Serve a seed with one shoot, which has an administrator."""
    with served_seed(tmp_path / "seed.kubeconfig") as api:
        api.put_shoot(A)
        api.put_secret(A, ADMIN, "kubeconfig", kubeconfig("https://api.a.internal", {"token": "admin-a"}))
        yield api


def inspect(root: Path, finder: GardenerFinder = SEED, *, keep: bool = True) -> Found[KubernetesSource]:
    return find_shoots(finder, root, retained(root), keep=keep)


def retained(root: Path) -> Path:
    return root / ".state" / "locallb" / "dev" / "gardener"


def shoot_source(root: Path, name: str, silent: str = "", *routes: str) -> KubernetesSource:
    """Make the source that a shoot is taken as, whose Nodes are reached by these routes."""
    pod_paths, path = tuple(map(PodRoute.parse, routes)), str(retained(root) / f"{name}.kubeconfig")
    return KubernetesSource(
        ClusterName(name), path, ContextName(name), found=True, silent=silent, node_routes=pod_paths
    )


def test_the_seed_comes_first_and_each_shoot_has_a_kubeconfig_for_this_user_only(seed: SeedApi, tmp_path: Path) -> None:
    """Named by its technical ID; the directory is private too."""
    finding = inspect(tmp_path)
    assert finding.sources == (
        KubernetesSource(ClusterName("seed"), "seed.kubeconfig", found=True, node_routes=()),
        shoot_source(tmp_path, A),
    )
    assert (finding.complaints, finding.notices, finding.removed) == ((), (), ())
    path = retained(tmp_path) / f"{A}.kubeconfig"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(retained(tmp_path).stat().st_mode)) == (0o600, 0o700)
    assert connection(Access(str(path), ContextName(A))).server == "https://api.a.internal"
    assert {credential for _, credential in seed.requested} == {"Bearer seed-token"}


def test_found_shoots_contain_no_credentials(seed: SeedApi, tmp_path: Path) -> None:
    """Sources, sentences and files beside the kubeconfigs reach plans, logs and reports."""
    seed.put_secret(A, TOKEN, "token", "asked-for-us")
    seed.put_secret(A, "generic-token-kubeconfig-1", "kubeconfig", INSIDE)
    seed.put_shoot(B)
    seed.put_secret(B, ADMIN, "kubeconfig", kubeconfig("https://b", {"token": "admin-b", "password": "secret-b"}))
    reported = repr(inspect(tmp_path))
    assert not [word for word in ("asked-for-us", "admin-b", "secret-b") if word in reported]
    assert b"secret-b" not in b"".join(files_in(tmp_path / ".state").values())
    assert not [
        name for name, data in files_in(tmp_path / ".state").items() if b"asked" in data and name != f"{A}.kubeconfig"
    ]


def test_a_token_that_was_asked_for_us_goes_before_the_administrators(seed: SeedApi, tmp_path: Path) -> None:
    """With the CA of the generic kubeconfig, by the name that the shoot has outside."""
    seed.put_secret(A, TOKEN)
    seed.put_secret(A, "generic-token-kubeconfig-1", "kubeconfig", INSIDE)
    young = inspect(tmp_path)
    assert young.notices == (f"the shoot {A} isn't up yet",)
    assert len(young.sources) == 1
    seed.put_secret(A, TOKEN, "token", "t1\n")
    assert inspect(tmp_path).sources[1:] == (shoot_source(tmp_path, A),)
    document = yaml.safe_load((retained(tmp_path) / f"{A}.kubeconfig").read_text())
    assert document["users"] == [{"name": A, "user": {"token": "t1"}}]
    assert document["clusters"][0]["cluster"] == {"server": "https://api.a.local.external.local.gardener.cloud"}
    seed.put_secret(A, TOKEN, "token", "t2")
    inspect(tmp_path)
    assert "t2" in (retained(tmp_path) / f"{A}.kubeconfig").read_text()


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("shoot--local--far", {"labels": {"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "aws"}}),
        ("shoot--local--far", {"provider": "aws"}),
        ("kube-system", {}),
    ],
)
def test_shoots_of_other_providers_are_ignored(
    seed: SeedApi, tmp_path: Path, name: str, fields: Mapping[str, Any]
) -> None:
    """Those of other providers, and a seed that hosts itself: their Secrets aren't asked for."""
    seed.put_shoot(name, **fields)
    assert [source.cluster for source in inspect(tmp_path).sources] == ["seed", A]
    assert not [path for path, _ in seed.requested if "secrets" in path and name in path]


BOTH_WAYS = ("10.0.7.2/32 via 172.18.0.3", "fd00:10:1:100::2/128 via fd00:10::3")


def test_nodes_of_shoots_are_reached_by_the_nodes_that_they_are_on(seed: SeedApi, tmp_path: Path) -> None:
    """In both families; bastions, pods that have no address yet and other shoots' are no Nodes of theirs."""
    seed.put_machine(A, "m1", ["10.0.7.2", "fd00:10:1:100::2"], ["172.18.0.3", "fd00:10::3"])
    seed.put_machine(A, "young", ["10.0.7.3"], [])
    seed.put_machine(B, "m1", ["10.0.7.4"], ["172.18.0.4"])
    seed.put_machine(A, "bastion", ["10.0.7.5"], ["172.18.0.3"])
    seed.objects[PODS][-1]["metadata"]["labels"]["app"] = "bastion"
    assert inspect(tmp_path).sources[1:] == (shoot_source(tmp_path, A, "", *BOTH_WAYS),)
    del seed.objects[PODS][0]
    assert inspect(tmp_path).sources[1:] == (shoot_source(tmp_path, A),)


def test_the_ways_to_nodes_stay_while_the_seed_is_silent_and_go_with_the_shoot(seed: SeedApi, tmp_path: Path) -> None:
    """Routes aren't taken away because nobody answers; a shoot of the same name that comes later has its own."""
    seed.put_machine(A, "m1", ["10.0.7.2", "fd00:10:1:100::2"], ["172.18.0.3", "fd00:10::3"])
    inspect(tmp_path)
    seed.refused = 403
    assert inspect(tmp_path).sources[1:] == (shoot_source(tmp_path, A, "", *BOTH_WAYS),)
    seed.refused = 0
    seed.drop_shoot(A)
    seed.objects[PODS] = []
    inspect(tmp_path)
    assert not (retained(tmp_path) / f"{A}.routes").read_text()


API = "api.a.local.external.local.gardener.cloud"


def reached(root: Path) -> tuple[str, str]:
    """Return the server of the shoot A, and the name that is asked of it."""
    way_to = connection(Access(str(retained(root) / f"{A}.kubeconfig"), ContextName(A)))
    return way_to.server, way_to.server_name


def test_an_api_is_dialled_at_the_address_that_the_seed_keeps_for_its_name(seed: SeedApi, tmp_path: Path) -> None:
    """By a token of our own and as administrator; without such a record, as before: this host resolves the name."""
    seed.put_record(B, "api.a.internal", "172.18.255.99")
    inspect(tmp_path)
    assert reached(tmp_path) == ("https://api.a.internal", "")
    seed.put_record(A, "api.a.internal", "172.18.255.225", "172.18.255.226")
    inspect(tmp_path)
    assert reached(tmp_path) == ("https://172.18.255.225", "api.a.internal")
    seed.put_secret(A, TOKEN, "token", "t1")
    seed.put_secret(A, "generic-token-kubeconfig-1", "kubeconfig", INSIDE)
    inspect(tmp_path)
    assert reached(tmp_path) == (f"https://{API}", "")
    seed.put_record(A, API, "fd00:ff::e1")
    inspect(tmp_path)
    assert reached(tmp_path) == ("https://[fd00:ff::e1]", API)
    seed.put_record(A, API, "172.18.255.225")
    inspect(tmp_path)
    assert reached(tmp_path) == ("https://172.18.255.225", API)
    del seed.objects[RECORDS]
    inspect(tmp_path)
    assert reached(tmp_path) == (f"https://{API}", "")


ODD_VALUES: tuple[object, ...] = (None, 7, [], {}, "lb.elsewhere.test", "0.0.0.0", "224.0.0.1", "fe80::1%eth0", "a\nb")


@pytest.mark.parametrize("value", ODD_VALUES)
def test_invalid_value_of_a_dns_record_is_not_used(seed: SeedApi, tmp_path: Path, value: object) -> None:
    """Such as a CNAME, or no address at all."""
    seed.put_record(A, "api.a.internal", value)
    inspect(tmp_path)
    assert reached(tmp_path) == ("https://api.a.internal", "")


def test_a_port_stays_and_only_what_is_encrypted_is_led_elsewhere(seed: SeedApi, tmp_path: Path) -> None:
    """A server without a certificate couldn't show that it is the same one."""
    seed.put_record(A, "api.a.internal", "172.18.255.225")
    seed.put_secret(A, ADMIN, "kubeconfig", kubeconfig("https://api.a.internal:8443", {"token": "t"}))
    inspect(tmp_path)
    assert reached(tmp_path) == ("https://172.18.255.225:8443", "api.a.internal")
    seed.put_secret(A, ADMIN, "kubeconfig", kubeconfig("http://api.a.internal", {"token": "t"}))
    inspect(tmp_path)
    assert reached(tmp_path) == ("http://api.a.internal", "")


def test_a_seed_that_lists_no_pods_is_reported_and_serves(seed: SeedApi, tmp_path: Path) -> None:
    """As with the rights that an earlier version needed."""
    del seed.objects[PODS]
    finding = inspect(tmp_path)
    assert finding.sources[1:] == (shoot_source(tmp_path, A),)
    (reported,) = finding.notices
    assert reported.startswith("the seed seed doesn't let us list pods")


anything = st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner))


@given(anything)
def test_routes_from_arbitrary_pods_are_parsed_as_printed(value: object) -> None:
    """Each leads to one address."""
    whole = {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1%1"}], "hostIPs": [{"ip": "fe80::1%eth0"}]}
    pods: list[dict[str, Any]] = [
        {"metadata": {"namespace": "infra-a"}, "status": {"podIPs": [{"ip": value}, value], "hostIPs": value}},
        {"metadata": value, "status": whole},
        {"metadata": {"namespace": value}, "status": {**whole, "hostIPs": [{"ip": "172.18.0.3"}, value]}},
    ]
    for routes in node_routes(pods).values():
        assert parsed_routes(printed_routes(routes)) == routes
        assert all(route.destination.num_addresses == 1 for route in routes)


def test_names_and_patterns_say_which_are_meant(seed: SeedApi, tmp_path: Path) -> None:
    """A name that leads to none is told; a pattern may match nothing."""
    seed.put_shoot(B)
    named = GardenerFinder(
        ClusterName("seed"), "seed.kubeconfig", shoots=frozenset({"*--a", "*--x", "shoot--local--c"})
    )
    finding = inspect(tmp_path, named)
    assert [source.cluster for source in finding.sources] == ["seed", A]
    assert finding.notices == (
        "the seed seed has no shoot shoot--local--c; make it, or take it out of local-lb:sources",
    )
    assert not [path for path, _ in seed.requested if "secrets" in path and B in path]


@pytest.mark.parametrize(
    ("fields", "silent"),
    [
        ({"hibernated": True, "wanted": True}, "is hibernated"),
        ({"wanted": True}, "is hibernated"),
        ({"hibernated": True}, "is hibernated"),
        ({"deleted": True}, "is being deleted"),
        ({}, ""),
    ],
)
def test_hibernated_or_deleted_shoot_need_not_answer(
    seed: SeedApi, tmp_path: Path, fields: Mapping[str, Any], silent: str
) -> None:
    """Its Services count as last read, without a complaint; nothing of it is gone."""
    seed.put_shoot(A, **fields)
    seed.put_secret(A, ADMIN, "kubeconfig", kubeconfig("http://127.0.0.1:1", {"token": "t"}))
    finding = inspect(tmp_path)
    assert finding.sources[1:] == (shoot_source(tmp_path, A, silent),)
    assert finding.removed == ()
    home = Home("p", "dev", str(tmp_path))
    key = ObjectKey(ClusterName(A), "shop", "web")
    (young,) = source_type("kubernetes").read(finding.sources[1], home, (), keep=True).reading.parsed.notices
    assert young.startswith(f"the cluster {A} " + (silent or "isn't up yet") + ": http://127.0.0.1:1 doesn't answer")
    with pytest.raises(SourceError, match="doesn't answer"):
        source_type("kubernetes").read(finding.sources[1], home, {key}, keep=True)
    metadata = {"namespace": "shop", "name": "web", "uid": "u"}
    web: dict[object, object] = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": SPEC}
    ReadCache(stack_directory(home)).keep(ClusterName(A), {A: (web,)})
    read = source_type("kubernetes").read(finding.sources[1], home, {key}, keep=True).reading
    assert [service.key for service in read.parsed.services] == [key]
    reported = f"the cluster {A} {silent} and doesn't answer, so its Services count as last read"
    assert (bool(read.stale), reported in read.parsed.notices) == (not silent, bool(silent))


def test_hibernated_shoot_is_followed_without_a_complaint(seed: SeedApi, tmp_path: Path) -> None:
    """It is read again as soon as it is awake."""
    home = Home("p", "dev", str(tmp_path))
    with served_seed() as shoot:
        seed.put_secret(A, ADMIN, "kubeconfig", kubeconfig(shoot.url, {"token": "t"}))
        web = {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1"}
        shoot.objects["/api/v1/services"] = [{"metadata": web, "spec": SPEC}]
        followed = source_type("kubernetes").follow(home, lambda _name: None)
        awake = inspect(tmp_path).sources[1]
        existing = {ObjectKey(ClusterName(A), "shop", "web")}
        assert len(followed.read(awake, existing, everything=True, moved=True).reading.parsed.services) == 1
        shoot.refused = 503
        seed.put_shoot(A, wanted=True)
        asleep = inspect(tmp_path).sources[1]
        for _ in range(3):
            read = followed.read(asleep, existing, everything=True, moved=True).reading
            assert (read.stale, len(read.parsed.services)) == ((), 1)
        shoot.refused = 0
        shoot.objects["/api/v1/services"] = []
        seed.put_shoot(A)
        awake = inspect(tmp_path).sources[1]
        becomes(lambda: not followed.read(awake, existing, everything=True, moved=True).reading.parsed.services)
        followed.stop()


def test_a_shoot_that_is_gone_is_waited_for_no_more(seed: SeedApi, tmp_path: Path) -> None:
    """Only once neither its Cluster nor its namespace is there; what was read of it is forgotten."""
    home = Home("p", "dev", str(tmp_path))
    configured = Settings((), (), finders=(SEED,))
    find_sources(home, configured, keep=True)
    ReadCache(stack_directory(home)).keep(ClusterName(A), {A: ({"kind": "Service"},)})
    clusters, seed.objects[CLUSTERS] = seed.objects[CLUSTERS], []
    sources, _ = find_sources(home, configured, keep=True)
    assert [source.cluster for source in sources] == ["seed", A]
    seed.objects[CLUSTERS] = clusters
    seed.drop_shoot(A)
    sources, _ = find_sources(home, configured, keep=True)
    assert [source.cluster for source in sources] == ["seed"]
    assert ReadCache(stack_directory(home)).load(ClusterName(A)) is None
    with pytest.raises(KubeError) as caught:
        connection(Access(str(retained(tmp_path) / f"{A}.kubeconfig"), ContextName(A)))
    assert isinstance(caught.value, NoContextError)


@pytest.mark.parametrize("what", ["refused", "no CRD", "no list"])
def test_a_seed_that_does_not_say_is_not_one_without_shoots(seed: SeedApi, tmp_path: Path, what: str) -> None:
    """Those count that were found last; where none is known, it is an error."""

    def harm() -> None:
        if what == "refused":
            seed.refused = 403
        elif what == "no CRD":
            del seed.objects[CLUSTERS]
        else:
            seed.objects[CLUSTERS] = {"kind": "ClusterList", "metadata": {}, "items": []}

    clusters = seed.objects[CLUSTERS]
    harm()
    with pytest.raises(SourceError, match="source gardener: which shoots there are can't be found out: "):
        inspect(tmp_path)
    seed.objects[CLUSTERS], seed.refused = clusters, 0
    before = inspect(tmp_path).sources
    harm()
    finding = inspect(tmp_path)
    assert (finding.sources, finding.removed) == (before, ())
    (reported,) = finding.complaints
    assert reported.endswith(f"; so those count that were found last: {A}")


@pytest.mark.parametrize("others", [0, 1, 2])
def test_shoots_stay_when_the_kubeconfig_leads_to_another_seed(seed: SeedApi, tmp_path: Path, others: int) -> None:
    """Not even a name is removed; only removing a file says that they are gone."""
    del seed
    inspect(tmp_path)
    before = files_in(retained(tmp_path))
    with served_seed(tmp_path / "seed.kubeconfig", uid="seed-2") as other:
        for name in (A, B)[:others]:
            other.put_shoot(name)
            other.put_secret(name, ADMIN, "kubeconfig", kubeconfig("https://other", {"token": "t"}))
        for _ in range(2):
            finding = inspect(tmp_path)
            assert [source.cluster for source in finding.sources] == ["seed", A]
            assert (finding.removed, files_in(retained(tmp_path))) == ((), before)
            (reported,) = finding.complaints
            assert reported.startswith(
                f"source gardener: {A} ran on another seed than the one that the kubeconfig leads to"
            )
        (retained(tmp_path) / "seed").unlink()
        finding = inspect(tmp_path)
        assert ([source.cluster for source in finding.sources], finding.complaints) == (
            ["seed", A, B][: others + 1],
            (),
        )
        assert finding.removed == (() if others else (ClusterName(A),))


def test_a_preview_reaches_a_shoot_without_writing_how(seed: SeedApi, tmp_path: Path) -> None:
    """As it does with clusters of kind."""
    with served_seed() as shoot:
        seed.put_secret(A, ADMIN, "kubeconfig", kubeconfig(shoot.url, {"token": "t"}))
        (_, finding) = inspect(tmp_path, keep=False).sources
        assert not retained(tmp_path).exists()
        assert connection(Access(finding.kubeconfig, finding.context)).server == shoot.url
        shoot.objects["/api/v1/services"] = [{"metadata": {"namespace": "n", "name": "x", "uid": "u"}, "spec": SPEC}]
        read = source_type("kubernetes").read(finding, Home("p", "dev", str(tmp_path)), (), keep=False).reading
        assert (len(read.parsed.services), read.stale) == (1, ())


QUIET = 12
"""Requests after which two whole looks have passed."""


def test_shoot_changes_are_reported(seed: SeedApi, tmp_path: Path) -> None:
    """So is a credential that was renewed, and a seed that stops answering; where nothing is different, nothing is."""
    reported: list[str] = []
    polls = SOURCE.watch(SEED, tmp_path, reported.append, Pace(first=0.02, longest=0.02, floor=0.02))
    changes: tuple[Callable[[], None], ...] = (
        lambda: None,
        lambda: seed.put_shoot(B),
        lambda: seed.put_shoot(B, wanted=True),
        lambda: seed.put_secret(B, ADMIN, "kubeconfig", kubeconfig("https://b", {"token": "1"})),
        lambda: seed.put_secret(B, ADMIN, "kubeconfig", kubeconfig("https://b", {"token": "2"})),
        lambda: seed.drop_shoot(B),
        lambda: setattr(seed, "refused", 403),
        lambda: setattr(seed, "refused", 0),
    )
    for change in changes:
        before = len(reported)
        change()
        becomes(partial(_more, reported, before), reported.copy)
        becomes(partial(_more, seed.requested, len(seed.requested) + QUIET))
    polls.stop()
    becomes(lambda: "seed shoots" not in [thread.name for thread in threading.enumerate()])
    # a shoot is its namespace and its Cluster, one after the other: at most one more look sees it half
    assert len(changes) <= len(reported) <= len(changes) + 4


def _more(some: list[Any], than: int) -> bool:
    return len(some) > than


ODD: tuple[Any, ...] = (None, True, 7, "x", "../x", [], {}, [None], {"a": {}}, "a" * 300, "a\nb")


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "path",
    [
        ("spec",),
        ("spec", "shoot"),
        ("spec", "shoot", "spec"),
        ("spec", "shoot", "spec", "provider"),
        ("spec", "shoot", "spec", "dns"),
        ("spec", "shoot", "spec", "dns", "domain"),
        ("spec", "shoot", "spec", "hibernation"),
        ("spec", "shoot", "status"),
        ("spec", "shoot", "status", "technicalID"),
        ("spec", "shoot", "metadata"),
        ("metadata", "annotations"),
        ("metadata", "annotations", "generic-token-kubeconfig.secret.gardener.cloud/name"),
        ("metadata", "name"),
    ],
)
def test_a_cluster_is_read_whatever_stands_in_it(path: tuple[str, ...], odd: object) -> None:
    """What it says is fit for paths and URLs, or it is no shoot yet."""
    document = cluster(A)
    part: Any = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = odd
    shoot = parse_shoot(document)
    assert shoot is None or shoot.name == A
    assert shoot is None or not set("/\n@#?: ") & {*shoot.api, *shoot.generic}
    assert shoot is None or (len(shoot.api) <= 253 and len(shoot.generic) <= 253)


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_any_shoot_object_is_read_without_exception(value: object) -> None:
    """Never an exception."""
    assert parse_shoot({"metadata": {"name": A}, "spec": value}) is None


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


GENERIC = {"data": {"kubeconfig": encoded(INSIDE)}}


@pytest.mark.parametrize(
    "secrets",
    [
        {},
        *({ADMIN: {"data": odd}} for odd in ODD),
        *({ADMIN: {"data": {"kubeconfig": odd}}} for odd in ODD),
        *({ADMIN: {"data": {"kubeconfig": encoded(text)}}} for text in ("", "[", "a: *a", "clusters: 5", "\x00")),
        {ADMIN: {"data": {"kubeconfig": encoded(kubeconfig("https://a", {"exec": {"command": "sh"}}))}}},
        {ADMIN: {"data": {"kubeconfig": encoded(kubeconfig("https://a", {"tokenFile": "/etc/passwd"}))}}},
        *({TOKEN: {"data": {"token": odd}}, "g": GENERIC} for odd in ODD),
        *({TOKEN: {"data": {"token": encoded(text)}}, "g": GENERIC} for text in ("", " ", "a\nb", "a b", "\u00e4")),
        {TOKEN: {"data": {"token": encoded("t")}}},
        {TOKEN: {"data": {"token": encoded("t")}}, "g": {"data": {"kubeconfig": encoded("[")}}},
    ],
)
def test_secrets_that_say_nothing_usable_make_no_kubeconfig(secrets: Mapping[str, Any]) -> None:
    """The administrator's isn't taken where a token was asked for and isn't there yet."""
    assert way(Shoot(ClusterName(A), "api.a", "g"), secrets.get).text == ""


def test_only_inline_certificates_and_tokens_are_taken() -> None:
    """Nothing that runs a command here, reads a file, leads elsewhere or trusts everybody."""
    user = {"token": "t", "exec": {"command": "sh"}, "as": "x", "tokenFile": "/etc/passwd"}
    found = way(Shoot(ClusterName(A)), {ADMIN: {"data": {"kubeconfig": encoded(kubeconfig("https://a", user))}}}.get)
    assert set(found.refused) == {"exec", "as", "tokenFile"}
    assert yaml.safe_load(found.text)["users"] == [{"name": A, "user": {"token": "t"}}]
    assert "'t'" not in repr(found)


def test_the_entry_of_a_seed() -> None:
    """All shoots, or those that are named."""
    assert parse_settings({"sources": [{"gardener": {}}]}).finders == (GardenerFinder(ClusterName("seed")),)
    given_all = {"name": "s", "kubeconfig": "k", "context": "c", "shoots": [A, "*--b"]}
    (finder,) = parse_settings({"sources": [{"gardener": given_all}]}).finders
    assert finder == GardenerFinder(ClusterName("s"), "k", ContextName("c"), frozenset({A, "*--b"}))


@pytest.mark.parametrize(
    ("given_entry", "reported"),
    [
        ({"shoots": []}, "gardener.shoots: the list is empty; write `all`, or names such as shoot--local--shop"),
        (
            {"shoots": ["A/b"]},
            'gardener.shoots: "A/b" is no shoot\'s technical ID; write one such as shoot--local--shop',
        ),
        ({"shoots": "some"}, 'gardener.shoots: must be a list, not "some"'),
        ({"name": A}, f"gardener.name: {A} is a name of shoots; call the seed otherwise, such as seed"),
        ({"kubeconfg": "x"}, "gardener.kubeconfg: no such key; did you mean kubeconfig?"),
    ],
)
def test_invalid_gardener_entry_is_reported_with_the_remedy(given_entry: Mapping[str, object], reported: str) -> None:
    """In one sentence."""
    with pytest.raises(SettingsError) as caught:
        parse_settings({"sources": [{"gardener": given_entry}]})
    assert any(sentence.startswith(f"local-lb:sources[0].{reported}") for sentence in caught.value.sentences), (
        caught.value
    )
