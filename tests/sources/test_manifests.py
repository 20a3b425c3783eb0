"""A directory of manifests stands for a cluster, and one that can't be read is never taken for an empty one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from locallb.model.errors import REMEDIES
from locallb.model.identities import ClusterName, ObjectKey
from locallb.sources import SourceError
from locallb.sources.manifests import LARGEST_FILE
from tests.sources.support import Place, key, names, service

BROKEN = "a: [1\n"
WHY = "line 2 can't be read (did not find expected ',' or ']')"
AS_LAST = "so what it had counts as last read; repair it"


def refusal(place: Place, *held: ObjectKey) -> str:
    """Read and give the sentence that stops the run."""
    with pytest.raises(SourceError) as caught:
        place.read(held)
    return str(caught.value)


def test_files_are_read_wherever_they_are(place: Place) -> None:
    """Recursively, YAML and JSON, several documents a file."""
    (place.manifests / "deep/er").mkdir(parents=True)
    (place.manifests / "deep/er/b.yml").write_text(service("b") + "---\n" + service("c"))
    (place.manifests / "d.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "d"}, "spec": {"type": "LoadBalancer",
                    "ports": [{"port": 80}]}})
    )  # fmt: skip
    place.write(a=service("a"))
    reading = place.read()
    assert [str(service.key) for service in reading.parsed.services] == [
        "demo/default/d", "demo/shop/a", "demo/shop/b", "demo/shop/c",
    ]  # fmt: skip
    assert (reading.stale, reading.parsed.notices) == ((), ())


def test_hidden_and_other_files_are_passed_over(place: Place) -> None:
    """What editors and version control leave there."""
    (place.manifests / ".git").mkdir()
    for name in (".git/x.yaml", ".hidden.yaml", "README.md", "x.yaml.bak", "x.yaml~"):
        (place.manifests / name).write_text(BROKEN)
    assert place.read().stale == ()


def test_an_empty_directory_is_an_empty_source(place: Place) -> None:
    """Also after there was something in it."""
    assert place.names() == []
    place.write(a=service("a"))
    assert place.names(keep=True) == ["a"]
    (place.manifests / "a.yaml").unlink()
    assert place.names([key("a")], keep=True) == []


def test_first_file_with_a_name_counts_and_the_second_is_malformed(place: Place) -> None:
    """In the order of files."""
    place.write(a=service("web", 80), b=service("web", 81))
    parsed = place.read().parsed
    assert [str(service.ports[0]) for service in parsed.services] == ["80/TCP"]
    assert [str(malformed.key) for malformed in parsed.malformed] == ["demo/shop/web"]


def test_a_reading_is_kept_only_when_asked(place: Place) -> None:
    """A preview leaves no trace; an update's copy is private and whole."""
    place.write(a=service("a"), other="kind: Secret\napiVersion: v1\ndata: {key: aGlkZGVu}\n")
    place.read()
    assert not place.readings.exists()
    place.read(keep=True)
    retained = place.readings / "demo.json"
    assert stat.S_IMODE(retained.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.readings.stat().st_mode) == 0o700
    assert [path.name for path in place.readings.iterdir()] == ["demo.json"]
    assert "aGlkZGVu" not in retained.read_text()
    assert list(place.copy()) == ["a.yaml"]


def test_managed_fields_are_not_kept(place: Place) -> None:
    """Who manages an object how, and what was last applied."""
    annotation = "  annotations: {kubectl.kubernetes.io/last-applied-configuration: hidden, own: kept}\n"
    place.write(a=service("a").replace("  namespace", annotation + "  managedFields: [hidden]\n  namespace"))
    (read,) = place.read(keep=True).parsed.services
    assert dict(read.annotations) == {"own": "kept"}
    assert "hidden" not in (place.readings / "demo.json").read_text()


def test_a_broken_file_counts_as_last_read(place: Place) -> None:
    """Its Services stay, those of other files go on."""
    place.write(a=service("a", 80), b=service("b"))
    before = place.read(keep=True)
    place.write(a=BROKEN, b=service("b2"), c=service("c"))
    reading = place.read([key("a")], keep=True)
    assert reading.stale == (f"source demo: a.yaml {WHY}, {AS_LAST}",)
    assert names(reading) == ["a", "b", "b2", "c"]
    assert reading.parsed.services[0] == before.parsed.services[0]


def test_vanished_service_is_kept_until_a_broken_file_can_be_read(place: Place) -> None:
    """It may have moved into that file; run after run, until that file is good again."""
    place.write(a=service("a"), b=service("b"))
    place.read(keep=True)
    (place.manifests / "a.yaml").unlink()
    place.write(b=BROKEN)
    for _ in range(3):
        assert place.names(keep=True) == ["a", "b"]
    place.write(b=service("a", 99))
    reading = place.read(keep=True)
    assert (names(reading), reading.stale) == (["a"], ())
    assert place.copy().keys() == {"b.yaml"}


def test_service_moved_out_of_a_broken_file_counts_once(place: Place) -> None:
    """The fresh one counts, not the copy of the broken file."""
    place.write(a=service("a", 80) + "---\n" + service("x"))
    place.read(keep=True)
    place.write(a=BROKEN, b=service("a", 81))
    reading = place.read(keep=True)
    assert [str(service.ports[0]) for service in reading.parsed.services] == ["81/TCP", "8080/TCP"]
    assert reading.parsed.malformed == ()


def test_a_broken_directory_within_counts_as_last_read(place: Place) -> None:
    """With all that is below it."""
    inner = place.manifests / "inner"
    inner.mkdir()
    (inner / "a.yaml").write_text(service("a"))
    place.write(b=service("b"))
    place.read(keep=True)
    shutil.rmtree(inner)
    deep = inner
    for _ in range(70):
        deep.mkdir()
        deep /= "d"
    reading = place.read()
    assert names(reading) == ["a", "b"]
    assert "directories are nested deeper than 64" in reading.stale[0]


def test_a_missing_directory_counts_as_last_read(place: Place) -> None:
    """Its Services stay as they were; nothing is kept again."""
    place.write(a=service("a"))
    place.read(keep=True)
    retained = place.copy()
    shutil.rmtree(place.manifests)
    reading = place.read([key("a")], keep=True)
    assert names(reading) == ["a"]
    assert reading.stale == (
        (
            f"source demo: {place.manifests} can't be read (No such file or directory), "
            "so its Services count as last read; bring it back, or take it out of local-lb:sources"
        ),
    )
    assert place.copy() == retained


@pytest.mark.parametrize("what", ["missing", "a loop"])
def test_a_directory_that_never_was_read_stops_the_run(place: Place, what: str) -> None:
    """There is nothing to go by."""
    place.manifests.rmdir()
    reason = "No such file or directory"
    if what == "a loop":
        place.manifests.symlink_to(place.manifests)
        reason = "Too many levels of symbolic links"
    sentence = f"source demo: {place.manifests} can't be read ({reason}); "
    assert refusal(place) == sentence + "name a directory of manifests, or one such file, in local-lb:sources"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO])
def test_a_directory_that_the_host_does_not_give_is_reported_with_what_helps_and_nothing_else(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Another directory wouldn't; with an earlier reading as without."""
    open_file = os.open

    def refused(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if str(path) == str(place.manifests):
            raise OSError(number, os.strerror(number), path)
        return open_file(path, flags, mode, dir_fd=dir_fd)

    place.write(a=service("a"))
    reported = f"source demo: {place.manifests} can't be read ({os.strerror(number)}; {REMEDIES[number]})"
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        assert refusal(place) == reported
    place.read(keep=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        assert place.read([key("a")]).stale == (f"{reported}, so its Services count as last read",)


def test_a_broken_file_without_a_copy_stops_the_run_where_something_is_held(place: Place) -> None:
    """Otherwise what is held would be given up."""
    place.write(a=BROKEN, b=service("b"))
    remedy = "and there is no earlier reading to go by; repair it and run again"
    assert refusal(place, key("x")) == f"source demo: a.yaml {WHY}, {remedy}"


def test_a_broken_file_without_a_copy_waits_where_nothing_is_held(place: Place) -> None:
    """The other files go on."""
    place.write(a=BROKEN, b=service("b"))
    elsewhere = ObjectKey(ClusterName("other"), "shop", "x")
    reading = place.read([elsewhere], keep=True)
    assert names(reading) == ["b"]
    assert reading.stale == (f"source demo: a.yaml {WHY}, so its Services wait; repair it",)
    assert place.names([key("b")]) == ["b"]


def test_a_copy_that_isnt_ours_stops_the_run_only_where_it_is_needed(place: Place) -> None:
    """It is told how to go on."""
    place.write(a=service("a"))
    place.readings.mkdir(parents=True)
    retained = place.readings / "demo.json"
    for rubbish in ("{", "[]", '{"version": 2, "files": {}}', '{"version": 1, "files": {"a": 5}}', "[" * 100_000):
        retained.write_text(rubbish)
        place.write(a=service("a"))
        assert place.names() == ["a"]
        place.write(a=BROKEN)
        assert refusal(place) == (
            f"source demo: its last reading {retained} can't be used (it isn't ours);"
            " repair the source and remove that file"
        )
    place.write(a=service("a"))
    assert place.names(keep=True) == ["a"]
    assert place.copy().keys() == {"a.yaml"}


def test_a_reading_that_cannot_be_kept_stops_the_run(place: Place) -> None:
    """Otherwise the next broken file would find nothing to go by."""
    place.readings.parent.write_text("in the way")
    with pytest.raises(SourceError, match="source demo: its reading can't be kept: "):
        place.read(keep=True)


@pytest.mark.parametrize("kind", ["dangling", "loop", "pipe", "device", "too large", "not UTF-8", "a socket's name"])
def test_a_file_that_is_none_is_reported(place: Place, kind: str) -> None:
    """Nothing hangs and nothing is read that never ends."""
    odd = place.manifests / "odd.yaml"
    match kind:
        case "dangling":
            odd.symlink_to("nowhere")
            why = " can't be read (No such file or directory)"
        case "loop":
            odd.symlink_to("odd.yaml")
            why = " can't be read (Too many levels of symbolic links)"
        case "pipe":
            os.mkfifo(odd)
            why = " can't be read (it is no regular file)"
        case "device":
            odd.symlink_to("/dev/zero")
            why = " can't be read (it is no regular file)"
        case "too large":
            with odd.open("wb") as file:
                file.truncate(LARGEST_FILE + 1)
            why = " can't be read (it has 33554433 bytes, more than 33554432)"
        case "not UTF-8":
            odd.write_bytes(b"a: 1\n\xff")
            why = " line 2 can't be read (it isn't UTF-8)"
        case _:
            odd = place.manifests / "odd\n\udcff.yaml"
            odd.write_text(BROKEN)
            why = f" {WHY}"
    place.write(web=service("web"))
    reading = place.read()
    assert names(reading) == ["web"]
    shown = "odd\\n\\udcff.yaml" if kind == "a socket's name" else "odd.yaml"
    assert reading.stale == (f"source demo: {shown}{why}, so its Services wait; repair it",)


def test_files_and_directories_without_permission_are_reported(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As unreadable, not as empty. Root may read everything, so the system's answer is played."""
    place.write(a=service("a"), b=service("b"))
    (place.manifests / "c").mkdir()
    real = os.open

    def guarded(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        if path in {"a.yaml", "c"}:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", guarded)
    reading = place.read()
    assert names(reading) == ["b"]
    rights = "run this as the user whose files these are, or set the rights"
    assert reading.stale == (
        f"source demo: a.yaml can't be read (Permission denied; {rights}), so its Services wait; repair it",
        f"source demo: c can't be read (Permission denied; {rights}), so its Services wait; repair it",
    )


def test_links_to_files_are_followed_and_links_to_directories_named(place: Place) -> None:
    """So that no loop and no large tree elsewhere is walked."""
    outside = place.root / "outside"
    outside.mkdir()
    (outside / "x.yaml").write_text(service("x"))
    (outside / "y.yaml").write_text(service("y"))
    (place.manifests / "x.yaml").symlink_to(outside / "x.yaml")
    (place.manifests / "linked").symlink_to(outside)
    (place.manifests / "self").symlink_to(".")
    reading = place.read()
    assert names(reading) == ["x"]
    assert reading.parsed.notices == (
        "demo: linked is a link to a directory and isn't read; put the directory itself there",
        "demo: self is a link to a directory and isn't read; put the directory itself there",
    )


def test_a_directory_named_like_a_file_is_a_directory(place: Place) -> None:
    """Whatever it is called."""
    (place.manifests / "dir.yaml").mkdir()
    (place.manifests / "dir.yaml/a.yaml").write_text(service("a"))
    assert place.names() == ["a"]


def test_the_directory_itself_may_be_a_link(place: Place) -> None:
    """As deployments switch it."""
    place.write(a=service("a"))
    place.manifests.rename(place.root / "v1")
    place.manifests.symlink_to("v1")
    assert place.names() == ["a"]


def test_notices_name_the_file(place: Place) -> None:
    """Keys that stand twice count where the object matters, versions that nobody reads always."""
    place.write(
        a=service("a") + "  type: LoadBalancer\n",
        b="kind: ConfigMap\nkind: ConfigMap\n",
        c=service("c").replace("v1", "v7"),
    )
    assert place.read().parsed.notices == (
        'demo: a.yaml line 11 has the key "type" again and the last one counts; remove one',
        'demo: c.yaml: Service shop/c is left out: apiVersion is "v7"; use v1',
    )


def test_a_file_that_vanishes_while_it_is_read_makes_the_walk_start_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was listed a moment ago may have been renamed."""
    place.write(a=service("a"), b=service("b"))
    real = os.open
    renamed: list[str] = []

    def racing(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        if str(path).endswith("a.yaml") and not renamed:
            renamed.append(path)
            (place.manifests / "a.yaml").rename(place.manifests / "z.yaml")
        return real(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", racing)
    reading = place.read()
    assert (names(reading), reading.stale) == (["a", "b"], ())


def test_a_file_that_keeps_vanishing_is_reported(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk doesn't start again for ever."""
    place.write(a=service("a"), b=service("b"))
    real = os.open

    def racing(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        if path == "a.yaml":
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", racing)
    reading = place.read()
    assert names(reading) == ["b"]
    assert reading.stale == (
        "source demo: a.yaml can't be read (No such file or directory), so its Services wait; repair it",
    )


def test_a_directory_that_is_swapped_meanwhile_is_read_whole(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old or new, never half of each."""
    place.write(a=service("a1"), b=service("b1"))
    new = place.root / "new"
    new.mkdir()
    (new / "b.yaml").write_text(service("b2"))
    real = os.open
    swapped: list[Path] = []

    def racing(path: Path, flags: int, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None and not swapped:
            swapped.append(path)
            place.manifests.rename(place.root / "old")
            new.rename(place.manifests)
        return real(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", racing)
    assert place.names() == ["a1", "b1"]
    assert place.names() == ["b2"]


def test_a_file_that_grows_while_it_is_read_is_read_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor that writes in place shows half a file for a moment."""
    place.write(a=service("a"))
    real = os.read
    grown: list[int] = []

    def racing(descriptor: int, size: int) -> bytes:
        if not grown:
            grown.append(descriptor)
            (place.manifests / "a.yaml").write_text(service("a") + "---\n" + service("b"))
            return b""
        return real(descriptor, size)

    monkeypatch.setattr(os, "read", racing)
    assert place.names() == ["a", "b"]
