"""Secrets and ConfigMaps that are named: who may watch them hears of changes at once, and all others as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.model.pacing import Pace
from locallb.model.snapshot import Access
from locallb.sources.kubernetes import named_objects
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from tests.support.certificates import Pair
from tests.support.fake_api import Api, follower, served
from tests.support.waiting import becomes
from tests.watch.following.https_gateways import bundles, config_map, digests, https, secret, serve_one, trusting

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
SECRET, CONFIG_MAP = "shop/secrets/c", "shop/configmaps/ca"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Api, Access]]:
    """Serve an API; whoever isn't told of a Secret doesn't hear of it in the time of a test."""
    monkeypatch.setattr(named_objects, "WATCH_RETRY_DELAY", Pace(first=0.05, longest=0.05))
    monkeypatch.setattr(named_objects, "REFUSED", 0.05)
    with served(tmp_path) as made:
        yield made


def following(answers: Api, access: Access, pair: Pair, names: tuple[str, ...] = ("c",)) -> FollowedCluster:
    """Follow a cluster that has a Secret for each of these, of which its Gateway names all, and one more."""
    serve_one(answers, *(https(name, 443 + number) for number, name in enumerate(names)))
    answers.secrets |= {f"shop/secrets/{name}": secret(pair) for name in (*names, "another")}
    followed = follower(access)
    becomes(lambda: len(digests(followed)) == len(names))
    return followed


def test_secrets_and_config_maps_that_may_be_watched_are_followed_at_once(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair]
) -> None:
    """Changed, gone, there again; also after a watch has ended. Nothing but metadata is watched, of no other object."""
    answers, access = api
    answers.may_watch_names = True
    answers.secrets[CONFIG_MAP] = config_map(pairs[0].pem)
    followed = following(answers, access, pairs[0])
    answers.other_events["backendtlspolicies"] = [("ADDED", trusting("ca"))]
    becomes(lambda: [one.authorities for one in bundles(followed)] == [pairs[0].pem])
    becomes(lambda: dict(answers.names_watched).keys() == {SECRET, CONFIG_MAP})
    (before,) = digests(followed)
    for put in (pairs[1], pairs[0]):
        answers.secrets[SECRET] = secret(put)
        becomes(lambda put=put: digests(followed) == [before] if put is pairs[0] else before not in digests(followed))  # type: ignore[misc]
        answers.end_watches()
    answers.secrets[CONFIG_MAP] = config_map(pairs[1].pem)
    becomes(lambda: [one.authorities for one in bundles(followed)] == [pairs[1].pem])
    del answers.secrets[SECRET]
    becomes(lambda: digests(followed) == [])
    answers.secrets[SECRET] = secret(pairs[1])
    becomes(lambda: len(digests(followed)) == 1)
    assert {form for _, form in answers.names_watched} == {METADATA}
    assert {path for path, _ in answers.names_watched} == {SECRET, CONFIG_MAP}
    followed.stop()


def test_missing_right_to_watch_is_hinted_once_until_it_is_given(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair]
) -> None:
    """It is no trouble: what may be read is served. A right that is taken away is reported again."""
    answers, access = api
    followed = following(answers, access, pairs[0])
    becomes(lambda: followed.parsed().hints)
    (hint,) = followed.parsed().hints
    assert "Secret shop/c" in hint
    assert "local-lb-certificates of deploy/rbac-certificates.yaml" in hint
    assert (followed.parsed().notices, followed.stale()) == ((), "")
    answers.may_watch_names = True
    becomes(lambda: not followed.parsed().hints)
    (before,) = digests(followed)
    answers.secrets[SECRET] = secret(pairs[1])
    becomes(lambda: digests(followed) not in ([], [before]))
    answers.may_watch_names = False
    becomes(lambda: followed.parsed().hints)
    assert len(digests(followed)) == 1
    followed.stop()


def test_no_more_are_followed_than_a_bound_and_none_that_is_named_no_more(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose place is free then. All are served."""
    monkeypatch.setattr(named_objects, "MAX_FOLLOWED", 2)
    answers, access = api
    answers.may_watch_names = True
    followed = following(answers, access, pairs[0], ("a", "b", "c"))
    becomes(lambda: len(answers.names_watched) == 2)
    assert {path for path, _ in answers.names_watched} == {"shop/secrets/a", "shop/secrets/b"}
    changed = dict(answers.others["gateways"][0])
    changed["spec"] = {**changed["spec"], "listeners": changed["spec"]["listeners"][1:]}
    changed["metadata"] = {**changed["metadata"], "resourceVersion": "2"}
    answers.other_events["gateways"] = [("MODIFIED", changed)]
    becomes(lambda: len(digests(followed)) == 2)
    becomes(lambda: [path for path, _ in answers.names_watched][2:] == [SECRET])
    followed.stop()


@pytest.mark.parametrize(
    "line", [b"[1]", b'{"type": "ODD"}', b'{"type": "ADDED", "object": {"kind": "Secret"}}', b"\xff"]
)
def test_invalid_watch_event_ends_that_watch_and_nothing_else(
    api: tuple[Api, Access], pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    """It is tried again; what was read stays."""
    answers, access = api
    monkeypatch.setattr(answers, "odd", {"shop/secrets": (200, line + b"\n")})
    followed = following(answers, access, pairs[0])
    becomes(lambda: len(answers.names_watched) > 2)
    assert len(digests(followed)) == 1
    assert (followed.parsed().notices, followed.parsed().hints) == ((), ())
    followed.stop()
