"""Gateway API of a cluster that is followed, or read once: what is asked for when, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locallb.gateway.kinds import KINDS, kind_of
from locallb.gateway.status_patch import ObservedRouteStatus
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.api.writes import QUOTAS
from locallb.kubernetes.object_parsing import Parsed
from locallb.model.gateway_objects import CONTROLLER
from locallb.model.identities import Home, ObjectKey, ObjectKind, Owner, Uid
from locallb.model.pacing import Pace
from locallb.model.snapshot import Access
from locallb.sources.entries import KubernetesSource
from locallb.sources.kubernetes import informers as discovered_kinds
from locallb.sources.kubernetes import named_objects
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from locallb.sources.kubernetes.reading import read_kubernetes
from locallb.sources.kubernetes.source import Following
from locallb.sources.readings import ReadCache
from locallb.storage.paths import stack_directory
from tests.support.certificates import Pair
from tests.support.fake_api import NAME, Api, follower, served, versioned
from tests.support.gateway_objects import gateway, gateway_class, route
from tests.support.gateway_objects import service as backend_service
from tests.support.waiting import becomes
from tests.watch.following.https_gateways import (
    CLASSES,
    GATEWAYS,
    bundles,
    config_map,
    digests,
    digests_of,
    https,
    secret,
    serve_one,
    trusting,
)

CORE = 3
ALL = len(KINDS) + 1
"""Kinds that are followed where a Gateway of ours is, besides those of every cluster: Namespaces as well."""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Api, Access]]:
    """Serve an API that is asked often for its kinds and Secrets."""
    monkeypatch.setattr(discovered_kinds, "EVERY", 0.1)
    with served(tmp_path) as made:
        yield made


def existing(parsed: Parsed) -> set[str]:
    """Return the kinds of which something is known."""
    return {kind_of(one.object) for one in parsed.gateway_api}


def reported(parsed: Parsed) -> list[str]:
    """Return what is known, in an order of its own."""
    return sorted(map(repr, parsed.gateway_api))


ROUTE = ObjectKey(NAME, "shop", "route", ObjectKind.HTTP_ROUTE)
WHOLE = {"GatewayClass", "Gateway", "HTTPRoute", "Namespace", "Service"}


def line_of_key(pair: Pair) -> str:
    return pair.key.read_text().splitlines()[1]


def test_a_cluster_without_the_group_is_asked_for_it_and_for_nothing_else(api: tuple[Api, Access]) -> None:
    """And Services that aren't load balancers wake nobody."""
    answers, access = api
    answers.services = [versioned(backend_service())]
    followed = follower(access)
    becomes(lambda: answers.count("discovery") > 2)
    assert (answers.count("list"), answers.count("secret")) == (CORE, 0)
    assert set(answers.paths) & {path for path in answers.paths if "gateway" in path} == {
        "/apis/gateway.networking.k8s.io"
    }
    assert followed.parsed().gateway_api == ()
    assert not [one for one in followed.objects() if one["kind"] != "Service"]
    followed.stop()


@pytest.mark.parametrize(
    ("classes", "gateways", "lists"),
    [
        ([], [gateway()], 1),
        ([gateway_class(controller="example.com/other")], [gateway()], 1),
        ([gateway_class()], [], 2),
        ([gateway_class()], [gateway(gatewayClassName="other")], 2),
        ([gateway_class()], [gateway()], ALL),
    ],
)
def test_only_what_gateways_of_ours_need_is_listed(
    api: tuple[Api, Access], classes: list[dict[str, Any]], gateways: list[dict[str, Any]], lists: int
) -> None:
    """Classes everywhere, Gateways where a class is ours, the rest where a Gateway is."""
    answers, access = api
    serve_one(answers)
    answers.others |= {CLASSES: [*map(versioned, classes)], GATEWAYS: [*map(versioned, gateways)]}
    followed = follower(access)
    becomes(lambda: answers.count("watch") == CORE + lists and answers.count("discovery") > 5, lambda: answers.paths)
    assert answers.count("list") == CORE + lists
    assert existing(followed.parsed()) == (WHOLE if lists == ALL else {"GatewayClass"} if lists > 1 else set())
    followed.stop()


def test_crds_that_come_later_are_found(api: tuple[Api, Access]) -> None:
    """One after the other, without anybody's doing; and what goes is known no more."""
    answers, access = api
    answers.services = [versioned(backend_service())]
    wakes: list[int] = []
    followed = FollowedCluster(NAME, access, lambda: wakes.append(1), loopback=True)
    becomes(followed.ready)
    becomes(lambda: answers.count("discovery"))
    serve_one(answers, without="httproutes")
    becomes(lambda: existing(followed.parsed()) == WHOLE - {"HTTPRoute"})
    wakes.clear()
    answers.others["httproutes"] = [versioned(route())]
    becomes(lambda: existing(followed.parsed(followed.parsed().gateway_api)) == WHOLE)
    assert wakes
    answers.others.clear()
    becomes(lambda: followed.parsed().gateway_api == ())
    followed.stop()


def test_a_service_behind_a_gateway_wakes_the_loop(api: tuple[Api, Access]) -> None:
    """A port of it is another one; the same again isn't news."""
    answers, access = api
    serve_one(answers)
    wakes: list[int] = []
    followed = FollowedCluster(NAME, access, lambda: wakes.append(1), loopback=True)
    becomes(lambda: existing(followed.parsed()) == WHOLE and answers.count("watch") == CORE + ALL)
    becomes(lambda: answers.count("discovery") > 5)
    wakes.clear()
    answers.events.append(("MODIFIED", versioned(backend_service(), "2")))
    answers.events.append(("MODIFIED", versioned(backend_service("api", {"port": 9090}), "3")))
    becomes(lambda: wakes)
    becomes(lambda: "9090" in repr(followed.parsed().gateway_api))
    assert len(wakes) == 1
    followed.stop()


def test_only_secrets_that_gateways_name_and_may_are_read_and_only_a_digest_is_kept(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair]
) -> None:
    """Another namespace's needs a grant there. Another certificate becomes known, one that is gone as well."""
    answers, access = api
    serve_one(answers, https(), https("theirs", 444, namespace="other"))
    answers.secrets = {
        "shop/secrets/c": secret(pairs[0]),
        "shop/secrets/d": secret(pairs[0]),
        "other/secrets/theirs": secret(pairs[0]),
    }
    followed = follower(access)
    becomes(lambda: len(digests(followed)) == 1)
    (before,) = digests(followed)
    answers.secrets["shop/secrets/c"] = secret(pairs[1])
    becomes(lambda: digests(followed) not in ([], [before]))
    assert line_of_key(pairs[1]) not in repr((followed.objects(), followed.parsed()))
    del answers.secrets["shop/secrets/c"]
    becomes(lambda: digests(followed) == [])
    assert {path for path in answers.paths if "/secrets/" in path} == {"/api/v1/namespaces/shop/secrets/c"}
    followed.stop()


def test_only_config_maps_that_are_named_are_read_and_only_their_certificates_are_kept(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair]
) -> None:
    """What else stands beside them isn't; other authorities become known, and that there are none any more."""
    answers, access = api
    serve_one(answers)
    answers.others["backendtlspolicies"] = [trusting("ca")]
    answers.secrets = {"shop/configmaps/ca": config_map(f"of ours\n{pairs[0].pem}"), "shop/configmaps/other": {}}
    followed = follower(access)
    becomes(lambda: [one.authorities for one in bundles(followed)] == [pairs[0].pem])
    answers.secrets["shop/configmaps/ca"] = config_map(pairs[1].pem)
    becomes(lambda: [one.authorities for one in bundles(followed)] == [pairs[1].pem])
    answers.secrets["shop/configmaps/ca"] = config_map(pairs[1].pem + pairs[1].key.read_text())
    becomes(lambda: "key belongs into a Secret" in bundles(followed)[0].problem)
    assert line_of_key(pairs[1]) not in repr((followed.objects(), followed.parsed()))
    del answers.secrets["shop/configmaps/ca"]
    becomes(lambda: bundles(followed) == [])
    assert {path for path in answers.paths if "/configmaps/" in path} == {"/api/v1/namespaces/shop/configmaps/ca"}
    followed.stop()


def test_authorities_that_may_not_be_read_are_as_they_were_and_at_first_it_is_reported(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair], tmp_path: Path
) -> None:
    """By `up` and `watch` alike: which right is missing, where the object is named."""
    answers, access = api
    serve_one(answers)
    answers.others["backendtlspolicies"] = [trusting("ca")]
    answers.secrets = {"shop/configmaps/ca": config_map(pairs[0].pem)}
    source = KubernetesSource(NAME, kubeconfig=access.kubeconfig, loopback_backends=True)
    once = read_kubernetes(source, tmp_path, tmp_path, keep=True).reading.parsed
    answers.refused = {"secrets"}
    retry = read_kubernetes(source, tmp_path, tmp_path, keep=True).reading.parsed
    assert pairs[0].pem in repr(once).replace("\\n", "\n")
    assert reported(retry) == reported(once)
    followed = follower(access)
    becomes(lambda: "bind the ClusterRole local-lb-authorities" in repr(bundles(followed)))
    followed.stop()


@pytest.mark.parametrize("refused", [CLASSES, "httproutes", "secrets"])
def test_missing_rights_are_reported_and_services_are_not_stale_for_them(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair], refused: str
) -> None:
    """Once; what was known by then stays."""
    answers, access = api
    serve_one(answers, https())
    answers.secrets = {"shop/secrets/c": secret(pairs[0])}
    followed = follower(access)
    becomes(lambda: existing(followed.parsed()) == {*WHOLE, "Secret"})
    last = followed.parsed().gateway_api
    followed.stop()
    answers.refused, before = {refused}, len(answers.paths)
    retry = follower(access)
    becomes(lambda: existing(retry.parsed(last)) == {*WHOLE, "Secret"} and retry.gateways.notices())

    def requested() -> int:
        return sum(path.endswith(f"/{refused}") for path in answers.paths[before:])

    becomes(requested)
    checked = answers.count("discovery")
    becomes(lambda: answers.count("discovery") > checked + 3)
    assert requested() == 1
    assert retry.stale() == ""
    notices = retry.parsed(last).notices
    if refused == "secrets":
        assert "may not read it" in notices[0]
        assert reported(retry.parsed(last)) == reported(Parsed(gateway_api=last))
    else:
        assert len(notices) == 1
        assert "403" in notices[0]
        assert "deploy/rbac-gateways.yaml" in notices[0]
    retry.stop()


@pytest.mark.parametrize("odd", [(500, b"{}"), (200, b"[1]"), (200, b'{"kind":'), (403, b"{}")])
def test_a_secret_that_cannot_be_read_holds_up_no_other_and_is_reported(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch, odd: tuple[int, bytes]
) -> None:
    """A new one as well as one that was read: others change, it is asked more and more rarely, and is read at last."""
    monkeypatch.setattr(named_objects, "RETRY_DELAY", Pace(first=1e6, longest=1e6))
    answers, access = api
    serve_one(answers, https(), https("a-new", 444), https("last", 445))
    answers.secrets = {f"shop/secrets/{name}": secret(pairs[0]) for name in ("c", "a-new", "last")}
    answers.odd = {"shop/secrets/a-new": odd}
    followed = follower(access)
    becomes(lambda: len(digests(followed)) == 2 and followed.gateways.notices())
    (before, _) = digests(followed)
    (notice,) = followed.parsed().notices
    assert "Secret shop/a-new" in notice
    assert "it can't be read" in repr(followed.parsed()) or "may not read it" in repr(followed.parsed())
    answers.odd["shop/secrets/c"] = odd
    answers.secrets["shop/secrets/last"] = secret(pairs[1])
    becomes(lambda: len({*digests(followed)}) == 2)
    assert before in digests(followed)
    requested = answers.paths.count("/api/v1/namespaces/shop/secrets/a-new")
    discovered = answers.count("discovery")
    becomes(lambda: answers.count("discovery") > discovered + 3)
    assert answers.paths.count("/api/v1/namespaces/shop/secrets/a-new") == requested
    followed.stop()


def test_a_secret_that_can_be_read_again_is_asked_for_soon(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a change of anything else, and its notice goes. Meanwhile what it was at the last look counts."""
    monkeypatch.setattr(named_objects, "RETRY_DELAY", Pace(first=0.1, longest=0.1))
    answers, access = api
    serve_one(answers, https(), https("b", 444))
    answers.secrets = {f"shop/secrets/{name}": secret(pairs[0]) for name in "bc"}
    followed = follower(access)
    becomes(lambda: len(digests(followed)) == 2)
    last = followed.parsed().gateway_api
    followed.stop()
    answers.odd = {"shop/secrets/c": (403, b"{}")}
    retry = FollowedCluster(NAME, access, lambda: None, loopback=True)
    becomes(lambda: retry.ready() and retry.gateways.notices())
    assert sorted(digests_of(retry.parsed(last))) == sorted(digests_of(Parsed(gateway_api=last)))
    monkeypatch.setattr(discovered_kinds, "EVERY", 1e6)
    answers.odd.clear()
    answers.secrets["shop/secrets/c"] = secret(pairs[1])
    becomes(lambda: len({*digests(retry)}) == 2 and not retry.gateways.notices())
    retry.stop()


def test_an_api_that_is_away_is_no_news_of_gateways(api: tuple[Api, Access]) -> None:
    """Where the cluster has none, nothing is told of them, whatever fails."""
    answers, access = api
    followed = follower(access)
    becomes(lambda: answers.count("discovery"))
    answers.refused = {"gateway.networking.k8s.io"}
    before = answers.count("discovery")
    becomes(lambda: answers.count("discovery") > before)
    assert followed.parsed().notices == ()
    answers.listed = answers.watched = (503, b"")
    answers.end_watches()
    becomes(followed.stale)
    assert followed.parsed().notices == ()
    followed.stop()


def test_gateway_api_read_once_equals_what_is_followed(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair], tmp_path: Path
) -> None:
    """With the same requests; of kinds that may not be read, the last good reading counts."""
    answers, access = api
    serve_one(answers, https())
    answers.secrets = {"shop/secrets/c": secret(pairs[0])}
    source = KubernetesSource(NAME, kubeconfig=access.kubeconfig, loopback_backends=True)
    once = read_kubernetes(source, tmp_path, tmp_path, keep=True).reading
    followed = follower(access)
    becomes(lambda: existing(followed.parsed()) == {*WHOLE, "Secret"})
    assert reported(once.parsed) == reported(followed.parsed())
    assert line_of_key(pairs[0]) not in (tmp_path / "demo.json").read_text()
    answers.refused = {"httproutes", GATEWAYS, "secrets", "gateway.networking.k8s.io"}
    retry = read_kubernetes(source, tmp_path, tmp_path, keep=True).reading
    assert reported(retry.parsed) == reported(once.parsed)
    assert retry.stale == ()
    assert "403" in retry.parsed.notices[0]
    followed.stop()


def test_until_it_is_known_what_gateways_need_counts_as_last_read(api: tuple[Api, Access], tmp_path: Path) -> None:
    """Whoever follows a cluster never takes what it hasn't asked for yet for gone, nor forgets it on disk."""
    answers, _ = api
    serve_one(answers)
    home = Home("p", "s", str(tmp_path))
    following = Following(home, lambda _name: None)
    source = KubernetesSource(NAME, kubeconfig="kubeconfig", loopback_backends=True)
    following.read(source, (), everything=True, moved=False)
    answers.refused = {CLASSES}
    following.stop()
    following = Following(home, lambda _name: None)
    first = following.read(source, (), everything=True, moved=False)
    assert existing(first.reading.parsed) == WHOLE
    live = following._live[NAME]
    becomes(live.followed.gateways.notices)
    read = following.read(source, (), everything=True, moved=False)
    assert reported(read.reading.parsed) == reported(first.reading.parsed)
    following.stop()
    retained = ReadCache(stack_directory(home)).load(NAME) or {}
    assert {"Gateway", "HTTPRoute", "GatewayClass"} <= {str(one["kind"]) for some in retained.values() for one in some}


def test_users_change_of_a_route_grants_extra_requests(
    api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Services: one grant, however often it changes at once; its status grants none."""
    answers, access = api
    serve_one(answers)
    brought: list[str] = []
    monkeypatch.setattr(QUOTAS, "bring", lambda _access, party: brought.append(party))
    followed = follower(access)
    becomes(lambda: answers.count("watch") == CORE + ALL)
    status = {**versioned(route(), "2"), "status": {"parents": []}}
    other = versioned(route(hostnames=["shop.test"]), "3")
    answers.other_events["httproutes"] = [("MODIFIED", status), ("MODIFIED", other)]
    becomes(lambda: "shop.test" in repr(followed.parsed().gateway_api))
    assert brought == ["HTTPRoute shop/route route"]
    followed.stop()


def test_foreign_status_change_is_seen_and_passed_to_writers(api: tuple[Api, Access]) -> None:
    """So the next writer need not read the object."""
    answers, access = api
    serve_one(answers)
    wakes: list[int] = []
    followed = FollowedCluster(NAME, access, lambda: wakes.append(1), loopback=True)
    becomes(lambda: answers.count("watch") == CORE + ALL)
    assert dict(followed.parsed().observed_statuses)[ROUTE] == ObservedRouteStatus()
    woken = len(wakes)
    parents = [{"parentRef": {"name": "web"}, "controllerName": CONTROLLER, "conditions": []}]
    after = {**versioned(route(), "2"), "status": {"parents": parents}}
    answers.other_events["httproutes"] = [("MODIFIED", after)]
    becomes(lambda: dict(followed.parsed().observed_statuses)[ROUTE] == ObservedRouteStatus({"parents": parents}))
    assert len(wakes) > woken
    owner = Owner(Home("p", "s", "/r"), ROUTE, Uid("route"))
    assert live_object.is_watched_to_be(access, owner, lambda live: live["metadata"]["resourceVersion"] == "2")
    assert answers.count("object") == 0
    answers.others[CLASSES] = []
    answers.other_events[CLASSES] = [("DELETED", versioned(gateway_class(), "2"))]
    becomes(lambda: not dict(followed.parsed().observed_statuses).keys() & {ROUTE})
    becomes(lambda: RECENT.find(access, "shop", "route", ObjectKind.HTTP_ROUTE) is None)
    followed.stop()


def test_statuses_that_may_be_old_count_as_unknown(api: tuple[Api, Access]) -> None:
    """A loop that can't watch them any more repairs nothing."""
    answers, access = api
    serve_one(answers)
    followed = follower(access)
    becomes(lambda: answers.count("watch") == CORE + ALL)
    assert ROUTE in dict(followed.parsed().observed_statuses)
    answers.refused = {"httproutes"}
    answers.end_watches()
    becomes(followed.gateways.notices)
    assert ROUTE not in dict(followed.parsed().observed_statuses)
    followed.stop()
