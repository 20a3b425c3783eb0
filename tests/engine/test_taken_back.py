"""A resource that becomes another one and then, before that is finished, is wanted as it was: what serves stays."""

import json
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.engine.graphs import BookKeeper, CrashError, Doom, Graph, Node, Site, declare

WAS: Graph = (Node(0, 0, key=0), Node(1, 0, uses=(0,)))
OTHER: Graph = (Node(0, 0, key=1), Node(1, 0, uses=(0,)))


def started(folder: Path) -> Site:
    """Make a site that has the first graph."""
    site = Site(folder)
    assert site.engine().up(lambda: declare(WAS)).ok
    return site


def test_a_replacement_broken_off_anywhere_and_taken_back_deletes_nothing_that_is_wanted(
    tmp_path: Path,
) -> None:
    """Also where the old thing waits for its deletion already, and its successor is the old thing again."""
    site = started(tmp_path / "start")
    idle = site.state()
    for at in count():
        victim = site.copy(tmp_path / str(at))
        doom = Doom(at)
        with suppress(CrashError):
            victim.engine(doom).up(lambda: declare(OTHER))
        if not doom.dead:
            break
        assert victim.engine().up(lambda: declare(WAS)).ok
        assert set(victim.books.things) == {"n0#0.0", "n1#0.0"}, at
        assert victim.state() == idle, at
        assert victim.engine().up(lambda: declare(WAS), refresh=True).unchanged, at
    assert at > 5


def test_an_old_instance_that_an_earlier_version_left_beside_the_same_thing_is_only_forgotten(tmp_path: Path) -> None:
    """Earlier versions noted both and would delete the thing in their next update."""
    site = started(tmp_path / "p")
    text = json.loads(site.state_path.read_text())
    resources = text["checkpoint"]["latest"]["resources"]
    (thing,) = (one for one in resources if one["urn"].endswith("::n0"))
    resources.append({**thing, "delete": True})
    site.state_path.write_text(json.dumps(text))
    result = site.engine().up(lambda: declare(WAS))
    assert result.ok
    assert set(site.books.things) == {"n0#0.0", "n1#0.0"}
    assert len(site.state()) == len(resources) - 1


def test_an_old_instance_whose_deletion_failed_is_kept_where_its_resource_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that is left between the two says so as well: `pulumi up` would delete what is noted as old."""
    site = started(tmp_path / "p")

    async def fail(_self: object, _request: object) -> None:
        raise RuntimeError("busy")

    with monkeypatch.context() as patch:
        patch.setattr(BookKeeper, "delete", fail)
        assert not site.engine().up(lambda: declare(OTHER)).ok
        assert not site.engine().up(lambda: declare(WAS)).ok
    old = [resource.id for resource in site.engine().resources() if resource.delete]
    assert old == ["n0#1.0"]
    preview = site.engine().preview(lambda: declare(WAS))
    result = site.engine().up(lambda: declare(WAS))
    assert result.ok
    assert preview.changes == result.changes
    assert set(site.books.things) == {"n0#0.0", "n1#0.0"}
