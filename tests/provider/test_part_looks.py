"""What a look at an Envoy sees of each part, whether it asks by name or for all that there is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from locallb.envoy import fragments
from locallb.envoy.admin import EnvoyAdmin
from locallb.model.identities import PartId
from locallb.provider import part_looks


class Asked(EnvoyAdmin):
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
    admin = Asked(parts)
    seen = part_looks._look(admin, wanted)
    monkeypatch.setattr(part_looks, "_MOST", 1000)
    by_name = Asked(parts)
    assert part_looks._look(by_name, wanted) == seen
    assert [each.failed for each in seen] == [{f"127.0.0.1_{part}.b": "in use"} for part, _ in wanted]
    assert [{*each.clusters.values()} for each in seen] == [{f"v{part}a", f"v{part}b"} for part, _ in wanted]
    assert (len(admin.questions) == 2) == (number != 5)
    assert len(by_name.questions) >= len(admin.questions)
