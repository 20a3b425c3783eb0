"""Portions of work: laws over whatever there may be to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from locallb.model.identities import ClusterName, ObjectKey
from locallb.watch.updates import FEW, MAX, Work

KINDS = [field.name for field in fields(Work) if not field.kw_only]
MAKES = {"broken", "removed", "changed", "new", "reported"}


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Make work of every kind, up to several portions of each."""
    counts = [draw(st.sampled_from([0, 1, FEW, MAX, MAX + 1, 3 * MAX])) for _ in KINDS]
    names = [
        tuple(ObjectKey(ClusterName("c"), kind, str(number)) for number in range(count))
        for kind, count in zip(KINDS, counts, strict=True)
    ]
    return Work(*names)


@given(works())
def test_work_is_done_once_and_most_urgent_first(work: Work) -> None:
    """Portion by portion nothing is left out, done twice or overtaken by what is less urgent."""
    remaining, done = work, list[ObjectKey]()
    while remaining.keys:
        portion = remaining.first()
        assert 0 < len(portion.keys) <= MAX
        done.extend(portion.keys)
        remaining = remaining.without(portion.keys)
    assert sorted(done) == sorted(work.keys)
    assert _serving(done) == _serving(work.keys)
    assert remaining == Work()


def _serving(keys: Iterable[ObjectKey]) -> list[ObjectKey]:
    return [key for key in keys if key.namespace != "reported"]


@given(works())
def test_few_statuses_join_an_update_and_many_come_after_all_that_serves(
    work: Work,
) -> None:
    """So a route's status costs a new Gateway no update of its own, and a thousand of them delay none or a repair."""
    portion = work.first()
    kinds = [key.namespace for key in portion.keys]
    serving = [kind for kind in kinds if kind in {"removed", "changed", "new"}]
    if work.broken:
        assert "reported" not in kinds
    elif serving:
        along = len(work.reported) if len(serving) + len(work.reported) <= FEW else 0
        assert kinds.count("reported") == along
    elif "reported" in kinds:
        assert kinds == ["reported"] * min(len(work.reported), MAX)
        assert (work.broken, work.removed, work.changed, work.new) == ((), (), (), ())


def test_route_and_its_new_gateway_are_one_update() -> None:
    """With a Service that changes, which goes first."""
    web, route, other = (ObjectKey(ClusterName("c"), "n", name) for name in ("web", "route", "other"))
    assert Work(new=(web,), reported=(route,)).first().keys == (web, route)
    assert Work(changed=(other,), new=(web,), reported=(route,)).first().keys == (other, web, route)


@given(works())
def test_few_others_join_what_breaks_or_changes_all_the_time_so_that_it_delays_none(work: Work) -> None:
    """Where many change or break, the others wait until they are overdue; existing ones go before new ones."""
    kinds = [key.namespace for key in work.first().keys] if work.differing else []
    present = len(work.removed) + len(work.changed)
    if work.broken:
        room = max(0, FEW - len(work.broken))
        assert kinds.count("removed") + kinds.count("changed") == min(present, room)
        assert kinds.count("new") == min(len(work.new), max(0, room - present))
    elif present:
        assert kinds.count("new") == min(len(work.new), max(0, FEW - present))


@given(works(), st.data())
def test_what_is_overdue_goes_with_whatever_is_first(work: Work, data: st.DataObject) -> None:
    """A few at a time, and nothing is left out or done twice for that."""
    drawn = st.lists(st.sampled_from(work.waiting), max_size=FEW, unique=True) if work.waiting else st.just([])
    overdue = tuple(data.draw(drawn))
    remaining, done = replace(work, overdue=overdue), list[ObjectKey]()
    if remaining.keys:
        first = remaining.first().keys
        assert frozenset(overdue) <= frozenset(first)
        assert len(first) >= len(replace(remaining, overdue=()).first().keys)
    while remaining.keys:
        portion = remaining.first()
        assert 0 < len(portion.keys) <= MAX
        done.extend(portion.keys)
        remaining = remaining.without(portion.keys)
    assert sorted(done) == sorted(work.keys)


def test_what_has_waited_longest_is_not_overtaken_by_what_is_overdue_as_well() -> None:
    """More Services than fit an update may change all the time: all of them are overdue again and again."""
    busy = tuple(ObjectKey(ClusterName("c"), "n", f"busy{number}") for number in range(2 * MAX))
    fresh = ObjectKey(ClusterName("c"), "n", "fresh")
    work = Work(changed=busy, new=(fresh,), overdue=(fresh, *busy))
    assert fresh in work.first().keys
    assert fresh not in replace(work, overdue=(*busy, fresh)).first().keys


@given(works())
def test_the_world_is_looked_at_first_where_the_state_may_be_wrong(work: Work) -> None:
    """That is where something is broken, and where nothing was checked yet; the latter in small portions."""
    if not work.keys:
        return
    portion = work.first()
    kinds = {key.namespace for key in portion.keys}
    assert portion.refresh == ("broken" in kinds or kinds == {"unchecked"})
    assert "unchecked" not in kinds or len(portion.keys) <= FEW


@given(works())
def test_spares_and_checks_are_not_urgent(work: Work) -> None:
    """Everything else is. Spares come one by one: new work waits for the start of one, not of all."""
    assert work.urgent == any(getattr(work, kind) for kind in MAKES)
    kinds = [key.namespace for key in work.first().keys] if work.keys else []
    assert "spare" not in kinds or kinds == ["spare"]


@given(st.integers(0, 2 * MAX), st.integers(0, 2 * MAX), st.integers(1, 3))
def test_proxies_and_routes_of_the_stack_go_after_all_services_have_moved(
    removed: int, changed: int, stacks: int
) -> None:
    """In whatever portions."""
    kinds = {"removed": ("c", removed), "changed": ("c", changed), "stack": ("", stacks)}
    keys = {
        kind: tuple(ObjectKey(ClusterName(cluster), kind, str(number)) for number in range(count))
        for kind, (cluster, count) in kinds.items()
    }
    remaining, done = Work(removed=keys["stack"] + keys["removed"], changed=keys["changed"]), list[ObjectKey]()
    while remaining.keys:
        done.extend(remaining.first().keys)
        remaining = remaining.without(done)
    assert tuple(done[-stacks:]) == keys["stack"]
