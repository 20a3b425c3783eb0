"""Manifests at the edges: single files, homes, files that say nothing, bombs; what is passed over is told."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
import yaml

from locallb.config.settings import Settings
from locallb.model.identities import Home
from locallb.model.snapshot import Contents, HostFacts
from locallb.sources import SourceError
from locallb.sources.entries import ManifestsSource
from locallb.sources.held import HeldByState
from locallb.sources.manifest_files import MAX_ALIASED_IN_ALL
from locallb.sources.manifests import read_manifests
from locallb.sources.snapshot import MAX_SENTENCES, assemble
from locallb.sources.source import SourceRead
from tests.sources.support import DEMO, Place, key, names, service


@pytest.mark.parametrize("name", ["all.yaml", "all.json", "all"])
def test_a_single_file_is_a_source(place: Place, name: str) -> None:
    """Whatever its name; JSON is YAML."""
    (place.root / name).write_text(json.dumps(yaml.safe_load(service("a"))))
    reading = read_manifests(ManifestsSource(DEMO, name), place.root, place.readings)
    assert (names(reading), reading.parsed.notices, reading.stale) == (["a"], (), ())
    assert reading.contents == Contents(DEMO, {"Service of type LoadBalancer": 1}, 1)


def test_a_single_file_that_is_a_pipe_is_reported(place: Place) -> None:
    """Nothing waits for it."""
    os.mkfifo(place.root / "pipe")
    reading = read_manifests(ManifestsSource(DEMO, "pipe"), place.root, place.readings)
    assert reading.stale == (
        "source demo: pipe can't be read (it is no regular file), so its Services wait; repair it",
    )


def test_the_home_may_be_a_tilde(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell; a home that there is not is told under the name that was given."""
    monkeypatch.setenv("HOME", str(place.root))
    place.write(a=service("a"))
    assert names(read_manifests(ManifestsSource(DEMO, "~/manifests"), Path("/elsewhere"), place.readings)) == ["a"]
    with pytest.raises(SourceError, match="/elsewhere/~nobody-here/x can't be read"):
        read_manifests(ManifestsSource(DEMO, "~nobody-here/x"), Path("/elsewhere"), place.readings)


def test_a_file_that_was_emptied_counts_as_last_read(place: Place) -> None:
    """`kubectl get > FILE` empties it seconds before it writes; one that was always empty is none of that."""
    place.write(a=service("a"), b=service("b"), placeholder="")
    assert place.read(keep=True).stale == ()
    place.write(a="")
    reading = place.read([key("a")], keep=True)
    assert names(reading) == ["a", "b"]
    what = "is empty (remove it, if nothing shall be in it), so what it had counts as last read; repair it"
    assert reading.stale == (f"source demo: a.yaml {what}",)
    place.write(a="# nothing\n")
    assert place.names([key("a")], keep=True) == ["b"]
    place.write(a="")
    assert place.read([key("a")], keep=True).stale == ()


def test_an_empty_file_in_the_place_of_what_was_read_gives_up_nothing(place: Place) -> None:
    """The source's own file, and one where a directory was."""
    place.write(a=service("a"))
    place.read(keep=True)
    shutil.rmtree(place.manifests)
    place.manifests.touch()
    assert place.names([key("a")], keep=True) == ["a"]
    place.manifests.write_text("# nothing\n")
    assert place.names([key("a")], keep=True) == []


def test_skipped_documents_are_reported(place: Place) -> None:
    """A text, a list, a kind that nobody knows; many of them as a number. Other tools' files are counted only."""
    place.write(text="just words\n", list="- a\n- b\n", kind=service("a").replace("Service", "service"))
    place.write(values="replicas: 2\n", odd="- a\n---\n" * 30)
    reading = place.read()
    reported = list(reading.parsed.notices)
    assert reported[:2] == [
        'demo: kind.yaml: service shop/a is left out: kind is "service"; write Service',
        "demo: list.yaml has a list of 2 items where an object should be; it is passed over",
    ]
    assert reported[-2:] == [
        "demo: odd.yaml: and 10 more like these",
        "demo: text.yaml has a text where an object should be; it is passed over",
    ]
    assert len(reported) == 24
    assert reading.contents == Contents(DEMO, {"service": 1, "without a kind": 1}, 5)


def test_an_empty_directory_is_reported(place: Place) -> None:
    """It may be the wrong one."""
    assert place.read().parsed.notices == ("demo: the directory manifests has no file that ends in .yaml, .yml, .json",)


def _laughs(levels: int) -> str:
    """Make a document whose aliases stand for ten times more at each level."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    return "\n".join([*lines, *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels))])


@pytest.mark.parametrize(
    ("in_spec", "text", "files"),
    [
        (False, "---\n".join(f"{service(f's{n}')}\n{_laughs(4)}\n" for n in range(60)), 1),
        (True, f"x: &x {'y' * 100_000}\nspec: {{a: [{', '.join(['*x'] * 1000)}]}}\n", 1),
        (True, f"x: &x {'y' * 100_000}\nspec: {{a: [{', '.join(['*x'] * 10)}]}}\n", 40),
        (True, f"spec: {{a: {{b: &a [{'x, ' * 50}x], {', '.join(f'k{n}: *a' for n in range(15_000))}}}}}\n", 1),
    ],
    ids=["many documents", "long texts", "many files", "many keys"],
)
def test_yaml_alias_bombs_use_bounded_memory(place: Place, text: str, files: int, in_spec: bool) -> None:  # noqa: FBT001
    """However the aliases are spread over documents and files; a good file beside them is read."""
    head = "apiVersion: v1\nkind: Service\n" if in_spec else ""
    for number in range(files):
        place.write(**{f"bomb{number}": head + text})
    place.write(good=service("good"))
    tracemalloc.start()
    reading = place.read(keep=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "good" in names(reading)
    assert all("stand for more than" in sentence for sentence in reading.stale)
    assert reading.stale
    assert (place.readings / "demo.json").stat().st_size < 2 * (MAX_ALIASED_IN_ALL + files * len(text))
    assert peak < 150 * 2**20


def test_unknown_fields_of_services_are_ignored(place: Place) -> None:
    """Fields beside those that are read mean nothing, whoever wrote them."""
    place.write(a=f"{service('a')}\nx: {{y: secret}}\n")
    assert place.names(keep=True) == ["a"]
    assert "secret" not in (place.readings / "demo.json").read_text()


def test_many_mistakes_are_reported_as_examples_and_a_count(place: Place) -> None:
    """The rest is a number, of what is passed over as of what can't be read."""
    for number in range(MAX_SENTENCES + 7):
        (place.manifests / f"link{number}").symlink_to(place.root)
        (place.manifests / f"{number}.yaml").write_text("[")
    read = SourceRead(place.read())
    reading = assemble(Home("p", "dev", "/p"), Settings((), ()), HeldByState(), (), [read, read], HostFacts())
    for sentences in (reading.complaints, reading.notices):
        assert len(sentences) == 2 * (MAX_SENTENCES + 1)
        assert sentences[MAX_SENTENCES] == "and 7 more like these"
