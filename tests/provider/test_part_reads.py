"""What a look at an Envoy sees of each part, whether it asks by name or for all that there is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from locallb.envoy import fragments
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError
from locallb.model.identities import PartId
from locallb.provider import fragments as part_reads


class RequestedAddress(EnvoyAdmin):
    """An Envoy with two listeners and two clusters for each of some parts; counts what it is asked."""

    def __init__(self, parts: Sequence[PartId]) -> None:
        super().__init__(Path("/nowhere"))
        self.questions: list[str] = []
        self.parts = parts

    def dump(self, resource: str, names: str) -> Sequence[Mapping[str, Any]]:
        """Return those whose whole names match, as Envoy does."""
        self.questions.append(names)
        made = [self._made(resource, part, end) for part in self.parts for end in ("a", "b")]
        named = [(each.get("name") or each["cluster"]["name"], each) for each in made]
        return [each for name, each in named if re.fullmatch(names, name)]

    @staticmethod
    def _made(resource: str, part: PartId, end: str) -> dict[str, Any]:
        tag = {"filter_metadata": {fragments.METADATA: {"part": part, "version": f"v{part}{end}"}}}
        if resource == "dynamic_active_clusters":
            return {"cluster": {"name": f"{part}-{end}", "metadata": tag}}
        listener = {"name": f"127.0.0.1_{part}.{end}", "metadata": tag}
        failed = {"error_state": {"details": "in use"}} if end == "b" else {}
        return {"name": listener["name"], "active_state": {"listener": listener}, **failed}


@pytest.mark.parametrize("number", [1, 5, 80])
def test_all_that_there_is_tells_of_each_part_what_questions_by_name_do(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many parts two questions tell what dozens do."""
    parts = [PartId(f"{each:012x}") for each in range(0, 1600, 16)]
    wanted = [(part, frozenset({f"127.0.0.1_{part}.a", f"127.0.0.1_{part}.b"})) for part in parts[:number]]
    admin = RequestedAddress(parts)
    observed = part_reads._inspect(admin, wanted)
    monkeypatch.setattr(part_reads, "_MAX", 1000)
    by_name = RequestedAddress(parts)
    assert part_reads._inspect(by_name, wanted) == observed
    assert [each.failed for each in observed] == [{f"127.0.0.1_{part}.b": "in use"} for part, _ in wanted]
    assert [{*each.clusters.values()} for each in observed] == [{f"v{part}a", f"v{part}b"} for part, _ in wanted]
    assert (len(admin.questions) == 2) == (number != 5)
    assert len(by_name.questions) >= len(admin.questions)


PARTS = [PartId(f"{number:012x}") for number in range(0, 160, 16)]


def names_of(part: PartId) -> frozenset[str]:
    """Return the names of a part's listeners."""
    return frozenset({f"127.0.0.1_{part}.a", f"127.0.0.1_{part}.b"})


@pytest.fixture
def envoys(monkeypatch: pytest.MonkeyPatch) -> dict[str, RequestedAddress]:
    """Have Envoys that count what they are asked, by the name of their directory."""
    made: dict[str, RequestedAddress] = {}

    def of(directory: Path) -> RequestedAddress:
        return made.setdefault(directory.name, RequestedAddress(PARTS))

    monkeypatch.setattr(part_reads, "EnvoyAdmin", of)
    monkeypatch.setattr(part_reads, "_CHECKS", {})
    return made


def test_joint_look_queries_each_envoy_once_and_equals_single_looks(envoys: dict[str, RequestedAddress]) -> None:
    """By whichever thread comes first; a part that doesn't exist, or of which nothing is wanted, has nothing."""
    wanted = [(Path(name), part, names_of(part)) for name in "ab" for part in (*PARTS, PartId("f" * 12))]
    wanted.append((Path("a"), PARTS[0], frozenset()))
    with part_reads.one_pass(), ThreadPoolExecutor(8) as crew:
        observed = [*crew.map(lambda question: part_reads.reread(*question), wanted)]
    assert [len(envoy.questions) for envoy in envoys.values()] == [2, 2]
    assert observed == [part_reads.read_part(*question) for question in wanted]


def test_result_of_a_joint_look_counts_only_within_it(envoys: dict[str, RequestedAddress]) -> None:
    """Before and after it, and beside another one, an Envoy is queried for each part."""
    question = Path("a"), PARTS[0], names_of(PARTS[0])
    with part_reads.one_pass():
        first = part_reads.reread(*question)
        requested = len(envoys["a"].questions)
        envoys["a"].parts = []
        assert part_reads.reread(*question) == first
        assert len(envoys["a"].questions) == requested
        with part_reads.one_pass():
            assert part_reads.reread(*question).listeners == {}
        assert part_reads.read_part(*question).listeners == {}, "a proof is never older than its question"
    assert part_reads.reread(*question).listeners == {}


def test_an_envoy_that_does_not_answer_is_asked_once_in_one_look(
    envoys: dict[str, RequestedAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that ask are told so, and none of them waits again."""
    requested: list[str] = []

    def refuse(_envoy: RequestedAddress, resource: str, _names: str) -> Sequence[Mapping[str, Any]]:
        requested.append(resource)
        raise EnvoyAdminError("it doesn't answer")

    monkeypatch.setattr(RequestedAddress, "dump", refuse)
    with part_reads.one_pass():
        for part in PARTS:
            with pytest.raises(EnvoyAdminError):
                part_reads.reread(Path("a"), part, names_of(part))
    assert len(requested) == 1
    assert [*envoys] == ["a"]
