"""That everything is as planned is told of the plan of which it is true, however late anybody listens."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from locallb.cli.watching.board import Board, Relay
from locallb.cli.watching.log import Narrator
from locallb.watch.events import Converged, Failed, LoopEvent
from tests.support.watch_story import planned, snapshot_of, updated

NAMES = tuple(f"s{number}" for number in range(8))
PLANS = {count: planned(snapshot_of(*NAMES[:count]), *NAMES[:count]) for count in range(1, len(NAMES) + 1)}
ENDS = ("converged", "converged", "something else came", "failed")


@given(st.lists(st.tuples(st.sampled_from(sorted(PLANS)), st.sampled_from(ENDS)), max_size=6), st.data())
def test_so_many_services_are_said_to_have_converged_as_their_plan_had(
    checks: list[tuple[int, str]], data: st.DataObject
) -> None:
    """Not as many as there are by the time it is told, of which the others are still to do."""
    story: list[tuple[LoopEvent, int]] = []
    for count, end in checks:
        story += [(PLANS[count], 0), (updated(*NAMES[: count if end == "converged" else 1]), 0)]
        story += [(Converged(), count)] if end == "converged" else [(Failed("no"), 0)] if end == "failed" else []
    relay, board, narrator = Relay(), Board(), Narrator()
    for event, count in story:
        relay.listen(event)
        if data.draw(st.booleans()):
            assert stated(relay, board, narrator) in ([], [count] * bool(count))


@given(st.lists(st.sampled_from(sorted(PLANS)), min_size=1, max_size=6))
def test_the_last_convergence_is_always_reported(counts: list[int]) -> None:
    """Once, whatever of it happened before anybody listened."""
    relay = Relay()
    for count in counts:
        for event in (PLANS[count], updated(*NAMES[:count]), Converged()):
            relay.listen(event)
    assert stated(relay, Board(), Narrator()) == [counts[-1]]


def stated(relay: Relay, board: Board, narrator: Narrator) -> list[int]:
    """Return how many Services are said to have converged, each time that it is said."""
    batch = relay.take(0)
    board.take(batch)
    sentences = [record.sentence for record in narrator.report_to(batch, board.views()) if record.event == "converged"]
    return [int(re.findall(r"\d+", sentence)[0]) for sentence in sentences]
