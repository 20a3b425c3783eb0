"""Portions of work: laws over whatever there may be to do."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from locallb.model.identities import ClusterName, ObjectKey
from locallb.watch.work import FEW, MOST, Work

KINDS = [field.name for field in fields(Work)]
MAKES = {"broken", "gone", "changed", "new"}


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Make work of every kind, up to several portions of each."""
    counts = [draw(st.sampled_from([0, 1, FEW, MOST, MOST + 1, 3 * MOST])) for _ in KINDS]
    names = [
        tuple(ObjectKey(ClusterName("c"), kind, str(number)) for number in range(count))
        for kind, count in zip(KINDS, counts, strict=True)
    ]
    return Work(*names)


@given(works())
def test_all_is_done_once_the_most_urgent_first(work: Work) -> None:
    """Portion by portion nothing is left out, done twice or overtaken by what is less urgent."""
    left, done = work, list[ObjectKey]()
    while left.keys:
        portion = left.first()
        assert 0 < len(portion.keys) <= MOST
        done.extend(portion.keys)
        left = left.without(portion.keys)
    assert tuple(done) == work.keys
    assert left == Work()


@given(works())
def test_the_world_is_looked_at_first_where_the_state_may_be_wrong(work: Work) -> None:
    """That is where something is broken, and where nothing was checked yet; the latter in small portions."""
    if not work.keys:
        return
    portion = work.first()
    kinds = {key.namespace for key in portion.keys}
    assert portion.refresh == (kinds in ({"broken"}, {"unchecked"}))
    assert "unchecked" not in kinds or len(portion.keys) <= FEW


@given(works())
def test_spares_and_checks_are_waited_for_by_nobody(work: Work) -> None:
    """Everything else is urgent."""
    assert work.urgent == any(getattr(work, kind) for kind in MAKES)
