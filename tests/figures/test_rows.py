"""What flowed between two looks, where one of them saw nothing."""

from __future__ import annotations

from itertools import pairwise

from locallb.model.identities import ClusterName, ObjectKey
from locallb.traffic.figures import Counts, TrafficRow, UpstreamFigures, since

WEB = ObjectKey(ClusterName("c"), "n", "web")


def row(connections: int, *, answers: bool = True) -> TrafficRow:
    """Make a row with so many connections since its proxy began."""
    figures = UpstreamFigures({"a": Counts(connections=connections)}) if answers else UpstreamFigures()
    return TrafficRow(WEB, ("80/TCP",), False, answers, figures)


def test_missed_look_gives_no_rate() -> None:
    """The total of a month isn't shown as what came in the last second."""
    checks = [row(10**6), row(0, answers=False), row(10**6 + 3), row(10**6 + 5)]
    gained = [since([now], [before])[0].figures.total.connections for before, now in pairwise(checks)]
    assert gained == [0, 0, 2]
    assert since([row(7)], [])[0].figures.total.connections == 0
