"""What others change of what is ours in Services: repaired at once, never in a duel."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.model.identities import ClusterName, ObjectKey, ObjectKind
from locallb.watch.failures import CONTESTED, REPAIRS, Disputes

A, B = (ObjectKey(ClusterName("c"), "n", name) for name in "ab")
PORTS = {A: ("ports",)}
HOUR = 3600.0
chances = st.floats(0, 1)


def duel(answers_after: float, chance: float, until: float) -> tuple[list[float], list[tuple[str, ...]]]:
    """Let somebody undo every repair after so many seconds; return the times of our repairs, and what was told."""
    disputes, now, repairs, reported = Disputes(), 0.0, [], []
    while now < until:
        disputes = disputes.observed(now, PORTS, chance)
        if not disputes.due(now):
            at = disputes.check_at(now)
            assert at is not None
            now = at
        assert disputes.due(now) == {A}
        repairs.append(now)
        disputes = disputes.repaired(now, [A]).observed(now, {}, chance)
        reported.append(tuple(disputes.notices()))
        now += answers_after
    return repairs, reported


@given(st.floats(0, 300), chances)
def test_a_duel_ends_in_a_few_repairs_an_hour(answers_after: float, chance: float) -> None:
    """However quickly the other controller answers: the first repair is at once, the others ever further apart."""
    repairs, _ = duel(answers_after, chance, HOUR)
    gaps = [after - before for before, after in pairwise(repairs)]
    assert repairs[0] == 0.0
    assert all(before <= after + 1e-6 for before, after in pairwise(gaps))
    assert len(repairs) <= 10 + HOUR / REPAIRS.longest
    assert all(gap <= REPAIRS.longest * (1 + REPAIRS.spread) + answers_after + 1e-6 for gap in gaps)


@given(chances)
def test_a_duel_is_reported_once(chance: float) -> None:
    """One sentence that stays the same, from the time at which it is plain that somebody answers."""
    _, reported = duel(0.5, chance, HOUR)
    assert [bool(notices) for notices in reported] == [number >= CONTESTED for number in range(len(reported))]
    assert len(set(reported[CONTESTED:])) == 1
    assert reported[-1][0].startswith(
        "c/n/a: another controller changes the ports of this Service back after every repair"
    )


def test_lasting_repair_ends_a_dispute() -> None:
    """Whoever changes it again an hour later is answered at once."""
    disputes = Disputes().observed(0.0, PORTS, 0).repaired(0.0, [A])
    assert disputes.observed(1.0, PORTS, 0).due(1.0) == frozenset()
    later = disputes.observed(REPAIRS.idle, {}, 0)
    assert not later.repairs
    assert later.observed(HOUR, PORTS, 0).due(HOUR) == {A}


def test_difference_that_disappears_is_not_repaired() -> None:
    """It waits, and is gone."""
    waiting = Disputes().observed(0.0, PORTS, 0).repaired(0.0, [A]).observed(1.0, PORTS, 0)
    assert waiting.check_at(1.0) == 1.0 + REPAIRS.first
    right = waiting.observed(1.5, {}, 0)
    assert right.check_at(1.5) is None
    assert right.due(HOUR) == frozenset()


def test_disputed_service_delays_no_other() -> None:
    """Each Service for itself."""
    disputes = (
        Disputes().observed(0.0, PORTS, 0).repaired(0.0, [A]).observed(1.0, {A: ("ports",), B: ("finalizer",)}, 0)
    )
    assert disputes.due(1.0) == {B}
    assert disputes.check_at(1.0) == 1.0 + REPAIRS.first


@given(
    st.lists(
        st.tuples(st.floats(0, 400), st.dictionaries(st.sampled_from([A, B]), st.just(("ports",))), st.booleans()),
        max_size=30,
    ),
    chances,
)
def test_every_difference_has_a_repair_time(
    history: list[tuple[float, dict[ObjectKey, tuple[str, ...]], bool]], chance: float
) -> None:
    """Nothing is forgotten, and nothing waits longer than the longest wait."""
    disputes, now = Disputes(), 0.0
    for gap, differing, repairs in history:
        now += gap
        disputes = disputes.observed(now, differing, chance)
        for key in differing.keys() - disputes.due(now):
            assert now < disputes.repairs[key].not_before <= now + REPAIRS.longest * (1 + REPAIRS.spread)
        assert differing.keys() == disputes.due(now) or disputes.check_at(now) is not None
        disputes = disputes.repaired(now, disputes.due(now)) if repairs else disputes


@pytest.mark.parametrize(
    ("kind", "reported"),
    [
        (ObjectKind.SERVICE, "a class that only one of them serves (spec.loadBalancerClass)"),
        (ObjectKind.GATEWAY, "a class that only one of them serves (spec.gatewayClassName)"),
        (ObjectKind.HTTP_ROUTE, "find that controller"),
    ],
)
def test_the_sentence_names_what_helps_for_the_kind(kind: ObjectKind, reported: str) -> None:
    """A route has no class of its own."""
    (notice,) = Disputes(contested={A._replace(kind=kind): ("ports",)}).notices()
    assert reported in notice
    assert ("class" in notice) == (kind is not ObjectKind.HTTP_ROUTE)


def test_a_dispute_about_what_no_service_has_names_no_service() -> None:
    """A class of a cluster, for example."""
    key = ObjectKey(ClusterName(""), "", "c/ingress-class")
    disputes, now = Disputes(), 0.0
    for _ in range(CONTESTED):
        disputes = disputes.observed(now, {key: ("annotations",)}, 0).repaired(now, [key])
        now += HOUR / 60
    disputes = disputes.observed(now, {key: ("annotations",)}, 0)
    (notice,) = disputes.notices()
    assert notice.startswith(
        "c/ingress-class: another controller changes the annotations of this object back after every repair"
    )
    assert notice.endswith("find that controller")
