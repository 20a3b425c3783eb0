"""The law of sources that can't be read, over random histories of a directory."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from locallb.sources import SourceError
from locallb.sources.manifest_files import QUIET
from locallb.sources.manifests import ENDINGS, LIMITS, ParseCache
from locallb.storage import folder_watch
from locallb.storage.folder_watch import FollowedFolder
from locallb.storage.folders import Folder, read_folder
from tests.sources.support import Place, clock_of_readings, names, service

NAMES = ["a", "b", "c", "d"]
CONTENTS = st.none() | st.just("broken") | st.frozensets(st.sampled_from(NAMES), max_size=3)
"""A file that is gone, one that can't be read, or the Services in it."""
STEPS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(["x", "y", "z"]), CONTENTS, min_size=1), st.booleans()),
    min_size=1,
    max_size=8,
)


def change(place: Place, name: str, content: str | frozenset[str] | None) -> None:
    file = place.manifests / f"{name}.yaml"
    if content is None:
        file.unlink(missing_ok=True)
    elif isinstance(content, str):
        file.write_text("a: [1\n")
    else:
        file.write_text("# a file\n" + "".join(f"---\n{service(name)}" for name in sorted(content)))


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_a_service_is_given_up_only_when_every_file_can_be_read(
    steps: list[tuple[dict[str, str | frozenset[str] | None], bool]],
) -> None:
    """While one can't, all that was last read stays; previews in between change nothing of that."""
    with tempfile.TemporaryDirectory() as directory, clock_of_readings():
        place = Place(Path(directory))
        place.manifests.mkdir()
        files: dict[str, str | frozenset[str] | None] = {}
        last: set[str] = set()
        for changes, keep in steps:
            for name, content in changes.items():
                change(place, name, content)
            files |= changes
            broken = sum(content == "broken" for content in files.values())
            fresh = {name for content in files.values() if isinstance(content, frozenset) for name in content}
            expected = fresh | last if broken else fresh
            reading = place.read(keep=keep)
            assert set(names(reading)) == expected
            assert len(reading.stale) == broken
            last = expected if keep else last


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_cached_reading_equals_a_fresh_one_over_any_history(
    steps: list[tuple[dict[str, str | frozenset[str] | None], bool]],
) -> None:
    """Over any history, broken files included: the same reading, and the same copy for bad times."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other, clock_of_readings() as clock:
        places, memory = (Place(Path(one)), Place(Path(other))), ParseCache()
        for place in places:
            place.manifests.mkdir()
        for changes, retry in steps:
            for place in places:
                for name, content in changes.items():
                    change(place, name, content)
            places[0].read(keep=True, memory=memory)
            places[1].read(keep=True)
            clock.now += QUIET  # what files lost counts now
            for _ in range(1 + retry):
                assert places[0].read(keep=True, memory=memory) == places[1].read(keep=True)
            retained = [place.copy() if place.readings.exists() else None for place in places]
            assert retained[0] == retained[1]
            for text in (file.read_text() for place in places for file in place.readings.glob("*.json")):
                assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


ROUTE = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g}\n"
TEXTS = [
    service("a"),
    service("a", 8081),
    service("b"),
    service("b").replace("port: 8080", "port: x"),
    service("a") + "  externalIPs: [10.0.0.9]\n",
    service("a").replace("  name: a", "  name: &name a\n  labels: {app: *name}"),
    service("a") + "  externalIPs: [10.0.0.9]\n  externalIPs: [10.0.0.8]\n",
    service("a") + "status: {loadBalancer: {ingress: [{ip: 127.77.0.9}]}}\n",
    f"{service('a')}---\n{service('b', 8082)}",
    f"{service('a', 8083)}---\n{ROUTE}",
    ROUTE,
    "kind: Deployment\n",
    "",
    "a: [1\n",
]


@given(st.lists(st.dictionaries(st.sampled_from("xyz"), st.sampled_from(TEXTS), min_size=1), min_size=1, max_size=8))
@example([{"z": "kind: Deployment\n"}, {"z": service("a", 8081), "x": "kind: Deployment\n"}])
@settings(max_examples=60, deadline=None)
def test_manifests_read_with_a_cache_equal_a_fresh_read(steps: list[dict[str, str]]) -> None:
    """With duplicate names, aliases, notices, statuses, Gateways, emptied and broken files among them."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other, clock_of_readings() as clock:
        places, memory = (Place(Path(one)), Place(Path(other))), ParseCache()
        for place in places:
            place.manifests.mkdir()
        for changes in [dict.fromkeys("xyz", TEXTS[0]), *steps]:
            for place in places:
                place.write(**changes)
            places[0].read(keep=True, memory=memory)
            places[1].read(keep=True)
            clock.now += QUIET  # what files lost counts now
            assert places[0].read(keep=True, memory=memory) == places[1].read(keep=True)
            assert places[0].copy() == places[1].copy()


@pytest.mark.parametrize("removed", ["b", "c"])
def test_a_reading_that_could_not_be_kept_is_nothing_to_go_by(tmp_path: Path, removed: str) -> None:
    """Files that came or went in it: the next one says what there is, also where only few contents are others."""
    place, memory = Place(tmp_path), ParseCache()
    place.manifests.mkdir()
    place.write(a=service("a"), b=service("b"))
    place.read(keep=True, memory=memory)
    copy = next(place.readings.glob("*.json"))
    aside = copy.rename(tmp_path / "aside")
    copy.mkdir()
    (place.manifests / "b.yaml").unlink() if removed == "b" else place.write(c=service("c"))
    with pytest.raises(SourceError, match="can't be kept"):
        place.read(keep=True, memory=memory)
    copy.rmdir()
    aside.rename(copy)
    (place.manifests / "c.yaml").unlink(missing_ok=True)
    place.write(b=service("b", 8081))
    assert place.read(keep=True, memory=memory) == place.read()


def test_a_file_that_is_only_touched_leaves_a_directory_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its contents are the same, so is the reading; later ones go on looking at nothing but what changed."""
    whole: list[Path] = []

    def noted(directory: Path, *terms: object) -> Folder:
        whole.append(directory)
        return read_folder(directory, *terms)  # type: ignore[arg-type]

    monkeypatch.setattr(folder_watch, "FEW", 0)
    monkeypatch.setattr(folder_watch, "read_folder", noted)
    place, memory = Place(tmp_path), ParseCache(FollowedFolder(ENDINGS, LIMITS))
    assert memory.followed
    place.manifests.mkdir()
    place.write(a=service("a"), b=service("b"))
    before = place.read(keep=True, memory=memory)
    for _ in range(3):
        (place.manifests / "a.yaml").touch()
        assert place.read(keep=True, memory=memory) is before
    assert len(whole) == 1
    memory.followed.close()
