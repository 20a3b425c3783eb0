"""The file of what a watch knows and no plan shows: what can't be written or read of it stops nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from locallb.cli.watching import published as module
from locallb.cli.watching.board import FAILED
from locallb.cli.watching.published import Published, PublishedFile, read_published, summary
from locallb.model.identities import ClusterName, ObjectKey
from locallb.planning.service_rows import Row, State
from locallb.watch.delays import Delay
from locallb.watch.events import Converged, Delayed, Failed, LoopEvent, Stopped, Updated
from locallb.watch.update_failures import UpdateFailure
from tests.support.watch_story import NOON, key, planned, snapshot_of

DELAY = Delay("cluster", "cluster c", 1.0, (ObjectKey(ClusterName("c"), "n", "web"),))


def test_delays_are_read_until_they_end(tmp_path: Path) -> None:
    """By any process, as long as the one that wrote them runs."""
    path = tmp_path / "dev.delays"
    published = PublishedFile(path)
    published.listen(Delayed((DELAY,)))
    assert read_published(path).delays == (DELAY,)
    published.listen(Stopped())
    assert read_published(path) == Published()


def test_a_file_that_cannot_be_written_ends_no_loop(tmp_path: Path) -> None:
    """As on a full disk: here its directory is a file."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "dev.delays"
    PublishedFile(path).listen(Delayed((DELAY,)))
    PublishedFile(path).listen(Stopped())


@pytest.mark.parametrize(
    "spoil",
    [
        Path.mkdir,
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text("{"),
        lambda path: path.write_text("{}"),
        lambda path: path.write_text('{"process":"%s@boot.1"}' % ("9" * 5000)),
        lambda path: path.symlink_to("/dev/zero"),
    ],
    ids=["directory", "no text", "half", "other", "no process", "endless"],
)
def test_a_file_that_cannot_be_read_says_nothing(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    """A status goes on without it."""
    path = tmp_path / "dev.delays"
    spoil(path)
    assert read_published(path) == Published()


def failing(*names: str, retry: float = NOON + 1, why: str = "no room") -> Updated:
    keys = tuple(map(key, names))
    return Updated(keys, 0.1, 0.1, {}, dict.fromkeys(keys, why), retries=dict.fromkeys(keys, retry))


def after(path: Path, *events: LoopEvent) -> Published:
    """Return what is read after these events of a watch."""
    file = PublishedFile(path)
    for event in events:
        file.listen(event)
    return read_published(path)


def test_failed_updates_are_published_until_they_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time of the first failure and of the next attempt."""
    moments = iter(range(100))
    clock = SimpleNamespace(time=lambda: NOON + next(moments), monotonic=time.monotonic)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "PACE", 0.0)
    path = tmp_path / "dev.delays"
    first, again = failing("web", "api"), failing("web", retry=NOON + 30)
    assert [(each.key, each.since, each.retry) for each in after(path, first, again).failures] == [
        (key("api"), NOON, NOON + 1),
        (key("web"), NOON, NOON + 30),
    ]
    done = Updated((key("web"), key("api")), 0.1, 0.1)
    assert after(path, first, done) == Published()
    assert not path.exists()


def test_an_object_that_is_gone_does_not_fail_any_more(tmp_path: Path) -> None:
    """While something of it is left to remove, it does."""
    path, left = tmp_path / "dev.delays", planned(snapshot_of("web"))
    assert [each.key for each in after(path, failing("gone", "web"), left).failures] == [key("web")]
    removing = planned(snapshot_of("web"), "gone")
    assert {each.key for each in after(path, failing("gone", "web"), removing).failures} == {key("gone"), key("web")}


def test_another_attempt_alone_is_not_written_at_once(tmp_path: Path) -> None:
    """A thousand that are tried again and again write nothing each time; another reason is written."""
    path = tmp_path / "dev.delays"
    assert after(path, failing("web"), failing("web", retry=NOON + 9)).failures[0].retry == NOON + 1
    assert after(path, failing("web"), failing("web", why="other")).failures[0].sentence == "other"


def test_a_failure_of_the_whole_is_published_until_something_is_planned(tmp_path: Path) -> None:
    """It counts from its first time while the same is tried in vain."""
    path, plan = tmp_path / "dev.delays", planned(snapshot_of("web"))
    broken = after(path, Failed("it is locked", "engine")).failure
    assert broken
    assert broken.sentence == "it is locked"
    assert after(path, Failed("it is locked"), plan) == Published()
    file = PublishedFile(path)
    file.listen(Failed("it is locked"))
    first = read_published(path).failure
    file.listen(plan)
    file.listen(Failed("it is locked"))
    assert read_published(path).failure == first
    file.listen(plan)
    file.listen(Converged())
    assert not path.exists()


def test_what_an_earlier_version_wrote_is_read(tmp_path: Path) -> None:
    """It had delays only."""
    path = tmp_path / "dev.delays"
    written = after(path, Delayed((DELAY,)))
    path.write_text(path.read_text().partition(',"failures"')[0] + "}")
    assert read_published(path) == written


def test_rows_and_sentences_say_what_fails() -> None:
    """A row that serves is degraded: it may serve something else than planned."""
    failures = tuple(UpdateFailure(key(name), "no room", NOON + n, NOON + 9) for n, name in enumerate(("web", "api")))
    found = Published(delays=(DELAY,), failures=failures)
    table = [Row(key("web"), State.SERVING), Row(key("api"), State.PENDING), Row(key("db"), State.SERVING)]
    assert [(row.state, row.reason, row.message) for row in found.rows(table)] == [
        (State.DEGRADED, FAILED, "demo/shop/web: no room"),
        (State.PENDING, FAILED, "demo/shop/api: no room"),
        (State.SERVING, "", ""),
    ]
    (sentence,) = summary(failures)
    assert sentence.startswith("`watch` has failed to update demo/shop/web and 1 more since ")
    assert sentence.endswith(": no room")
    assert found.fields()[key("web")] == {"failing": {"since": NOON, "retry": NOON + 9}}
    assert found.fields()[DELAY.waiting[0]] == {"waits": [{"party": "cluster c", "since": 1.0}]}
    assert len(found.sentences(lambda _since: "for 2 s")) == 2
