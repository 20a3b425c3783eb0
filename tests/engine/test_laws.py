"""Laws of the engine, over random graphs: scopes, crashes at every write, convergence."""

from contextlib import suppress
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locallb.engine.core.declared import EVERYTHING, only
from locallb.engine.state.checkpoint import check_resources, check_state
from tests.engine.graphs import CrashError, Doom, Graph, Node, Site, changed, declare, fresh, graphs, roots_of

MODEST = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def changes(draw: st.DrawFn, maximum: int = 6) -> tuple[Graph, Graph]:
    """Draw a graph and what it becomes."""
    before = draw(graphs(maximum))
    return before, draw(changed(before))


def started(place: Path, graph: Graph) -> Site:
    site = Site(fresh(place))
    assert site.engine().up(lambda: declare(graph)).ok
    return site


def ids(graph: Graph) -> set[str]:
    """Return the ids of what the world should have."""
    return {f"n{node.number}#{float(node.key)}" for node in graph}


@MODEST
@given(changes())
def test_an_update_makes_the_world_what_the_program_says(place: Path, change: tuple[Graph, Graph]) -> None:
    """The world holds exactly the declared things, and a further update has nothing to do."""
    before, after = change
    site = started(place, before)
    engine = site.engine()
    preview = engine.preview(lambda: declare(after))
    result = engine.up(lambda: declare(after))
    assert result.ok
    assert preview.changes == result.changes
    assert set(site.books.things) == ids(after)
    retry = engine.up(lambda: declare(after), refresh=True)
    assert retry.ok
    assert retry.unchanged
    assert len(site.state()) == len(ids(after)) + len(roots_of([after])) + 1 + bool(after)


@MODEST
@given(changes())
def test_a_scope_of_everything_is_a_full_update(place: Path, change: tuple[Graph, Graph]) -> None:
    """Naming every root gives the state and the world of a full update."""
    before, after = change
    site = started(place, before)
    twin = site.copy(fresh(place))
    assert site.engine().up(lambda: declare(after), scope=EVERYTHING).ok
    assert twin.engine().up(lambda: declare(after), scope=only(roots_of([before, after]))).ok
    full = {urn: resource for urn, resource in site.state().items() if "providers" not in urn}
    scoped = {urn: resource for urn, resource in twin.state().items() if "providers" not in urn}
    assert scoped == full
    assert twin.books.things == site.books.things


@MODEST
@given(changes())
def test_scoped_updates_one_after_another_end_like_a_full_one(place: Path, change: tuple[Graph, Graph]) -> None:
    """Root by root, dependencies first, then backwards so that what was still used can go."""
    before, after = change
    site = started(place, before)
    twin = site.copy(fresh(place))
    assert site.engine().up(lambda: declare(after)).ok
    roots = roots_of([before, after])
    engine = twin.engine()
    for root in [*roots, *roots[::-1], *roots]:
        result = engine.up(lambda: declare(after), scope=only([root]))
        twin.state()
    assert result.ok
    full = {urn: resource for urn, resource in site.state().items() if "providers" not in urn}
    scoped = {urn: resource for urn, resource in twin.state().items() if "providers" not in urn}
    assert scoped == full
    assert twin.books.things == site.books.things


@MODEST
@given(changes())
def test_a_scoped_update_leaves_everything_else_byte_for_byte(place: Path, change: tuple[Graph, Graph]) -> None:
    """Resources of other roots keep their exact text."""
    before, after = change
    site = started(place, before)
    root = roots_of([before])[0]
    texts = {r.urn: r.text for r in site.engine().resources() if r.custom and r.parent not in {root, ""}}
    site.engine().up(lambda: declare(after), scope=only([root]))
    now = {r.urn: r.text for r in site.engine().resources()}
    assert {urn: now.get(urn) for urn in texts} == texts


def crash_everywhere(place: Path, site: Site, after: Graph, *, destroy: bool = False) -> int:
    """Die at every write of an update (or destroy), and run once more each time; gives the number of writes."""
    idle = site.copy(fresh(place))
    run(idle, after, destroy=destroy)
    for at in count():
        victim = site.copy(fresh(place))
        doom = Doom(at)
        with suppress(CrashError):
            run(victim, after, destroy=destroy, doom=doom)
        if not doom.dead:
            return at
        assert check_state(victim.state_path) == (), at
        assert not list(check_resources(victim.engine().resources())), at
        run(victim, after, destroy=destroy)
        assert victim.state() == idle.state(), at
        assert victim.books.things == idle.books.things, at
        made_since = victim.books.made[len(site.books.made) :]
        assert len(made_since) == len(set(made_since)), at
        assert not list((victim.folder / ".state" / ".pulumi" / "locks").rglob("*.json"))
    raise AssertionError


def run(site: Site, after: Graph, *, destroy: bool, doom: Doom | None = None) -> None:
    engine = site.engine(doom)
    result = engine.destroy() if destroy else engine.up(lambda: declare(after))
    assert result.ok or (doom and doom.dead), result.diagnostics


def test_a_crash_at_any_write_of_each_kind_of_step_is_healed_by_the_next_update(place: Path) -> None:
    """Creation, update, both orders of replacement with dependents, and deletion."""
    before = (
        Node(0, 0, key=0),
        Node(1, 0, uses=(0,), first=True),
        Node(2, 1, uses=(1,), value=0),
        Node(3, 1, waits=(2,)),
    )
    after = (
        Node(0, 0, key=1),
        Node(1, 0, uses=(0,), first=True, key=1),
        Node(2, 1, uses=(1,), value=1),
        Node(4, 2, uses=(2,)),
    )
    site = started(place, before)
    assert crash_everywhere(place, site, after) > 20
    assert crash_everywhere(place, site, (), destroy=True) > 10
    assert crash_everywhere(place, Site(make_folder(place)), before) > 15


def make_folder(place: Path) -> Path:
    folder = fresh(place)
    Site(folder).project()
    return folder


@FEW
@given(changes(maximum=4))
def test_a_crash_at_any_write_is_healed_by_the_next_update(place: Path, change: tuple[Graph, Graph]) -> None:
    """Whatever the graph and the change."""
    before, after = change
    crash_everywhere(place, started(place, before), after)
