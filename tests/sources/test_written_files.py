"""A manifest that is being written loses nothing until it stands still; what it gains counts at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.kubernetes.documents import DocumentError, read_documents
from locallb.model.fields import at
from locallb.model.identities import ClusterName, Home
from locallb.sources import manifests
from locallb.sources.entries import ManifestsSource
from locallb.sources.manifest_files import QUIET, WrittenFiles, loses
from locallb.sources.manifests import ENDINGS, LIMITS, FollowedManifests, ParseCache, read_manifests
from locallb.sources.source import SourceResult
from locallb.storage.folders import read_folder
from tests.sources.support import DEMO, Clock, Place, clock_of_readings, service

NEVER: Callable[[str], bool] = lambda _path: False  # noqa: E731 - a constant


@pytest.fixture
def clock() -> Iterator[Clock]:
    with clock_of_readings() as made:
        yield made


class Followed:
    """A directory that is read again and again."""

    def __init__(self, place: Place, clock: Clock) -> None:
        self.place, self.clock, self.memory = place, clock, ParseCache()

    def names(self) -> list[str]:
        """Return the names of the Services now."""
        return [service.key.name for service in self.read().parsed.services]

    def read(self) -> SourceResult:
        source = ManifestsSource(DEMO, "manifests")
        return read_manifests(source, self.place.root, self.place.readings, keep=True, memory=self.memory)


@pytest.fixture
def followed(place: Place, clock: Clock) -> Followed:
    """Return the directory with two Services in one file, as read once."""
    place.write(a=BOTH)
    made = Followed(place, clock)
    assert made.names() == ["a", "b"]
    clock.now += 10
    return made


BOTH = f"{service('a')}---\n{service('b')}"
HALVES = {
    "nothing": "",
    "a comment": "# by hand\n",
    "the first document": service("a"),
    "the first, and its end": f"{service('a')}---\n",
    "half of the second": BOTH[: BOTH.rindex("spec:")],
    "the second without its ports": BOTH[: BOTH.rindex("  - port")],
    "the second cut where YAML ends": BOTH[: BOTH.rindex("    nodePort")],
    "a text that is no YAML": BOTH[: BOTH.rindex("name: b") + 4],
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES.keys())
def test_half_of_a_file_counts_as_all_of_it_while_it_is_written(followed: Followed, half: str) -> None:
    """However it was cut, and however often it is read meanwhile."""
    file = followed.place.manifests / "a.yaml"
    before = followed.read().parsed.services
    with file.open("r+") as writing:
        writing.truncate()
        for text in (half, BOTH[len(half) :])[: 1 + BOTH.startswith(half)]:
            writing.write(text)
            writing.flush()
            for _ in range(3):
                followed.clock.now += 0.25
                assert followed.read().parsed.services == before
    file.write_text(BOTH)
    assert followed.read().parsed.services == before


def test_what_a_file_lost_counts_once_it_stands_still(followed: Followed) -> None:
    """A second after the last change, which is known in advance."""
    (followed.place.manifests / "a.yaml").write_text(service("a"))
    assert followed.names() == ["a", "b"]
    assert followed.memory.written.due == followed.clock.now + QUIET
    followed.clock.now += QUIET / 2
    (followed.place.manifests / "a.yaml").write_text(service("a", 81))
    assert followed.names() == ["a", "b"]
    followed.clock.now += QUIET * 0.9
    assert followed.names() == ["a", "b"]
    followed.clock.now += QUIET * 0.1
    assert followed.names() == ["a"]
    assert followed.memory.written.due is None


def test_what_a_file_gains_or_changes_counts_at_once(followed: Followed) -> None:
    """Also beside what it loses."""
    (followed.place.manifests / "a.yaml").write_text(service("a", 81) + "---\n" + service("c"))
    services = {found.key.name: found for found in followed.read().parsed.services}
    assert sorted(services) == ["a", "b", "c"]
    assert services["a"].ports[0].port == 81
    with (followed.place.manifests / "a.yaml").open("a") as appended:
        appended.write(f"---\n{service('d')}")
    assert followed.names() == ["a", "b", "c", "d"]


def test_a_file_that_replaces_another_is_whole(followed: Followed) -> None:
    """As `rename` puts it there."""
    (followed.place.manifests / ".a.tmp").write_text(service("a"))
    (followed.place.manifests / ".a.tmp").rename(followed.place.manifests / "a.yaml")
    assert followed.names() == ["a"]


def test_a_file_that_replaces_an_equal_one_is_known(followed: Followed) -> None:
    """What is written into that one later is waited for likewise."""
    (followed.place.manifests / ".a.tmp").write_text(BOTH)
    (followed.place.manifests / ".a.tmp").rename(followed.place.manifests / "a.yaml")
    assert followed.names() == ["a", "b"]
    (followed.place.manifests / "a.yaml").write_text(service("a"))
    assert followed.names() == ["a", "b"]


def test_a_file_that_is_removed_is_gone_at_once(followed: Followed) -> None:
    """It isn't being written."""
    (followed.place.manifests / "a.yaml").unlink()
    assert followed.names() == []


def test_what_moved_to_another_file_is_there_only_once(followed: Followed) -> None:
    """Else the name would stand twice."""
    followed.place.write(b=service("b", 90))
    (followed.place.manifests / "a.yaml").write_text(service("a"))
    parsed = followed.read().parsed
    assert [found.key.name for found in parsed.services] == ["a", "b"]
    assert parsed.malformed == ()


def test_a_full_pass_forgets_nothing_of_it(place: Place, clock: Clock) -> None:
    """It reads everything again, in the midst of a file."""
    del clock
    place.write(a=BOTH)
    source = ManifestsSource(ClusterName("demo"), "manifests")
    home = Home("local-lb", "dev", str(place.root))
    followed = FollowedManifests(home)
    try:
        followed.read(source, (), everything=True, moved=False)
        (place.manifests / "a.yaml").write_text(service("a"))
        read = followed.read(source, (), everything=True, moved=False)
        assert [found.key.name for found in read.reading.parsed.services] == ["a", "b"]
        assert read.retry is not None
    finally:
        followed.stop()


def test_a_single_reading_waits_for_a_file_that_just_lost_something(place: Place) -> None:
    """`up` has nothing but the last good reading; the second half comes while it waits."""
    place.write(a=BOTH)
    assert place.names(keep=True) == ["a", "b"]
    (place.manifests / "a.yaml").write_text(service("a"))
    begun: list[float] = []

    class Writing:
        """A clock that writes the second half when somebody waits."""

        monotonic, time = staticmethod(time.monotonic), staticmethod(time.time)

        @staticmethod
        def sleep(seconds: float) -> None:
            begun.append(seconds)
            (place.manifests / "a.yaml").write_text(BOTH)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "time", Writing)
        assert place.names(keep=True) == ["a", "b"]
    assert len(begun) == 1


def test_a_single_reading_of_a_file_at_rest_waits_for_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it lost is lost."""
    place.write(a=BOTH)
    assert place.names(keep=True) == ["a", "b"]
    (place.manifests / "a.yaml").write_text(service("a"))

    class Later(Clock):
        def sleep(self, seconds: float) -> None:
            raise AssertionError(seconds)

    monkeypatch.setattr(manifests, "time", Later())
    assert place.names(keep=True) == ["a"]


NAMES = st.lists(st.sampled_from("abcde"), unique=True, max_size=5)
SIZE = len(service("a"))


def written(names: list[str]) -> str:
    return "---\n".join(map(service, names))


def names_of(documents: Iterable[object]) -> set[object]:
    return {name for document in documents if (name := at(document, "metadata", "name"))}


@given(
    st.lists(st.tuples(NAMES, st.lists(st.tuples(st.integers(0, 6 * SIZE), st.floats(0, QUIET * 0.99)), max_size=4))),
    NAMES,
)
def test_a_service_of_the_first_and_of_the_last_version_is_never_missing(
    versions: list[tuple[list[str], list[tuple[int, float]]]], last: list[str]
) -> None:
    """Whatever lies between, in pieces of any size, as long as what the file says doesn't stand still."""
    first = ["a", "b", "c"]
    files, now = WrittenFiles(), 0.0
    objects: dict[str, tuple[dict[Any, Any], ...]] = {"f": ()}
    texts = [(written(first), 10.0)]
    for names, cuts in versions:
        texts += [(written(names)[:length], pause) for length, pause in cuts]
    texts.append((written(last), 0.5))
    for number, (text, pause) in enumerate(texts):
        try:
            found = read_documents(text.encode(), is_json=False)
            read = tuple(each.value for each in found if isinstance(each.value, dict))
        except DocumentError:
            now += pause
            continue
        if number and objects["f"] == read:  # pieces that say the same count as one
            continue
        objects = {"f": read}
        counted = files.believe(objects, {"f": (1, 1)}, NEVER, now)["f"]
        assert not number or names_of(counted) >= set(first) & set(last)
        assert names_of(counted) >= names_of(objects["f"])
        now += pause
    now += QUIET
    assert files.believe(objects, {"f": (1, 1)}, NEVER, now)["f"] == objects["f"]
    assert files.due is None


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_more_is_never_a_loss(value: object, more: object) -> None:
    """Neither is the same."""
    assert not loses(value, value)
    assert not loses({"a": value}, {"a": value, "b": more})
    assert not loses([value], [value, more])
    assert loses({"a": value, "b": more}, {"a": value})
    assert loses([value, more], [value])


def test_only_the_directory_decides_which_file_it_is(place: Place) -> None:
    """The inode, which `rename` changes and writing doesn't."""
    place.write(a=BOTH)
    (before,) = read_folder(place.manifests, ENDINGS, LIMITS).files
    (place.manifests / "a.yaml").write_text("a: 1\n")
    (written_in_place,) = read_folder(place.manifests, ENDINGS, LIMITS).files
    (place.manifests / ".b").write_text("a: 1\n")
    (place.manifests / ".b").replace(place.manifests / "a.yaml")
    (replaced,) = read_folder(place.manifests, ENDINGS, LIMITS).files
    assert before.identity == written_in_place.identity != replaced.identity
