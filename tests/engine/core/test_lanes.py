"""Lanes: what may run at a time, what a party that hangs is given, and that nobody else notices."""

from typing import Any, cast

from locallb.engine.core.lanes import DEADLINE, HANGING, LONGEST_PROBE, SLOW, TIMEOUT, Lanes, LateLane, Shape
from locallb.engine.core.operations import Kind, Operation
from locallb.engine.state.resource import ResourceState


def operations(lane: str, number: int) -> list[Operation]:
    nobody = cast("Any", None)
    return [
        Operation(Kind.CREATE, ResourceState(f"{lane}-{one}", "a:b:C", custom=True), nobody, lane)
        for one in range(number)
    ]


def submitted(lanes: Lanes, lane: str, number: int) -> list[Operation]:
    several = operations(lane, number)
    for operation in several:
        lanes.submit(operation)
    return several


def test_a_lane_runs_as_many_as_it_is_wide_and_the_next_at_each_end() -> None:
    """In their order; lanes know nothing of each other."""
    lanes = Lanes(lambda _lane: Shape(width=2))
    first, other = submitted(lanes, "a", 3), submitted(lanes, "b", 1)
    assert lanes.begin(0.0) == [*first[:2], *other]
    assert lanes.begin(0.1) == []
    lanes.ended(first[1])
    assert lanes.begin(0.1) == [first[2]]


def test_a_batch_lane_hands_over_all_that_waits_and_then_what_came_meanwhile() -> None:
    """Once all of the batch have ended."""
    lanes = Lanes(lambda _lane: Shape(width=1, batch=True))
    first = submitted(lanes, "a", 3)
    assert lanes.begin(0.0) == first
    second = submitted(lanes, "a", 2)
    for operation in first:
        assert lanes.begin(0.1) == []
        lanes.ended(operation)
    assert lanes.begin(0.1) == second


def test_an_operation_over_its_deadline_frees_its_place() -> None:
    """And ends whenever it ends."""
    lanes = Lanes(lambda _lane: Shape(width=1))
    first, second = submitted(lanes, "a", 2)
    assert lanes.begin(0.0) == [first]
    assert lanes.next_change() == DEADLINE
    assert lanes.begin(DEADLINE / 2) == []
    assert lanes.begin(DEADLINE) == [second]
    lanes.ended(second)
    lanes.ended(first)
    assert lanes.begin(DEADLINE) == []


def test_a_lane_that_hangs_is_given_one_operation_after_longer_and_longer_times() -> None:
    """Until one ends in time; then it is as wide as before."""
    lanes = Lanes(lambda _lane: Shape(width=HANGING))
    hanging = submitted(lanes, "a", 30)
    assert lanes.begin(0.0) == hanging[:HANGING]
    now, gaps = 0.0, list[float]()
    probes: list[Operation] = []
    for _ in range(12):
        before = now
        while not (begun := lanes.begin(now)):
            now = cast("float", lanes.next_change())
        assert [late.lane for late in lanes.late(now)] == ["a"]
        assert len(begun) == 1, "one probe at a time"
        probes += begun
        gaps.append(now - before)
    assert gaps[1:] == sorted(gaps[1:])
    assert LONGEST_PROBE - 0.1 < gaps[-1] <= LONGEST_PROBE + 0.1
    lanes.ended(probes[-1])
    assert len(lanes.begin(now)) == HANGING
    assert lanes.late(now) == []


def test_slow_ends_are_no_hanging() -> None:
    """A party that needs longer than a deadline for each isn't stalled as long as few are overdue at a time."""
    lanes = Lanes(lambda _lane: Shape(width=1))
    slow = submitted(lanes, "a", 5)
    now = 0.0
    for operation in slow:
        assert lanes.begin(now) == [operation]
        now += DEADLINE
        lanes.begin(now) if operation is slow[-1] else None
        lanes.ended(operation)
        assert lanes.late(now) == []


def test_what_is_withdrawn_never_begins() -> None:
    """And what waits behind it does."""
    lanes = Lanes(lambda _lane: Shape(width=1))
    first, second, third = submitted(lanes, "a", 3)
    assert lanes.begin(0.0) == [first]
    lanes.withdraw(second)
    lanes.ended(first)
    assert lanes.begin(0.1) == [third]


def test_a_lane_may_give_an_operation_longer_than_others() -> None:
    """As one of containers, of which none starts within a second."""
    lanes = Lanes(lambda lane: Shape(width=1, deadline=30.0) if lane == "slow" else Shape(width=1))
    submitted(lanes, "slow", 2)
    quick = submitted(lanes, "quick", 2)
    assert len(lanes.begin(0.0)) == 2
    assert lanes.begin(DEADLINE) == [quick[1]]
    assert len(lanes.begin(30.0)) == 1


def test_what_waits_for_a_party_that_does_not_answer_for_long_is_refused() -> None:
    """Not before its operations are over their deadline for a time; what hangs goes on."""
    lanes = Lanes(lambda _lane: Shape(width=HANGING))
    several = submitted(lanes, "a", HANGING + 2)
    assert lanes.begin(0.0) == several[:HANGING]
    probe = lanes.begin(DEADLINE)
    assert probe == [several[HANGING]]
    assert lanes.refuse_waiting(DEADLINE + TIMEOUT - 0.1) == []
    assert lanes.next_change() is not None
    lanes.begin(DEADLINE + TIMEOUT)
    late = lanes.refuse_waiting(DEADLINE + TIMEOUT)
    assert set(late) <= {several[HANGING + 1]}
    submitted(lanes, "b", 1)
    assert len(lanes.begin(DEADLINE + TIMEOUT)) == 1
    for one in (*several[:HANGING], *probe):
        lanes.ended(one)
    later = submitted(lanes, "a", 1)
    assert lanes.begin(20.0) == later


def test_party_is_late_from_an_operation_that_takes_long_until_it_answers() -> None:
    """Since that one began, with all that waits behind it; a deadline that is longer counts instead."""
    shapes = {"a": Shape(width=1), "patient": Shape(width=1, deadline=2 * SLOW)}
    lanes = Lanes(shapes.__getitem__)
    first, second = submitted(lanes, "a", 2)
    (patient,) = submitted(lanes, "patient", 1)
    assert set(lanes.begin(1.0)) == {first, patient}
    assert lanes.late(SLOW) == []
    late = LateLane("a", 1.0, frozenset({first.urn, second.urn}))
    assert lanes.late(1.0 + SLOW) == [late]
    assert [each.lane for each in lanes.late(1.0 + 2 * SLOW)] == ["a", "patient"]
    lanes.ended(first)
    assert [each.lane for each in lanes.late(1.0 + 2 * SLOW)] == ["patient"]
    lanes.ended(patient)
    assert lanes.late(1.0 + 9 * SLOW) == []
