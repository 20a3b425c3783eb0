"""Threads that an engine keeps: what they are given is done, whoever else is given something."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.engine.deploy.refreshing import Refresher
from locallb.engine.deploy.threads import Shift, dealt
from tests.engine.balancers import BOTH, declare
from tests.engine.support import Bench


@given(some=st.lists(st.integers()), most=st.integers(1, 9))
def test_items_are_split_in_order_into_equal_chunks(some: list[int], most: int) -> None:
    """So that few threads look at the same things as one for each."""
    hands = dealt(some, most)
    assert [hands[number % most][number // most] for number in range(len(some))] == some
    assert len(hands) == min(len(some), most)
    assert all(len(some) // most <= len(hand) <= -(-len(some) // most) for hand in hands)


def test_neighbours_that_take_long_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """As resources of one cluster, whose API answers slowly: one thread would have them all to itself."""
    together = threading.Barrier(4)

    def look(_self: Refresher, old: int) -> int:
        if 4 <= old < 8:
            together.wait(60)
        return -old

    monkeypatch.setattr(Refresher, "_look", look)
    with ThreadPoolExecutor(4) as crew:
        refresher = cast("Any", Refresher(cast("Any", None), cast("Any", None), crew, 4, counting=False))
        assert [*refresher._seen(range(17))] == [(number, -number) for number in range(17)]
        assert [*refresher._seen([])] == []


def test_a_shift_ends_without_the_threads() -> None:
    """What it began is waited for, and the next shift has the same threads."""
    with ThreadPoolExecutor(1) as crew:
        seen = []
        for _ in range(2):
            shift = Shift(crew)
            shift.submit(lambda: seen.append(threading.get_ident()))
            shift.shutdown()
        assert len(seen) == 2
        assert len(set(seen)) == 1


def test_runs_of_an_engine_share_its_threads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """To start one takes longer than many a look at a resource."""
    engine = bench.engine()
    pools = []
    monkeypatch.setattr(ThreadPoolExecutor, "__init__", lambda *_some, **_more: pools.append("made"))
    for run in (lambda: engine.up(lambda: declare(BOTH)), engine.drifted, engine.refresh, engine.destroy):
        run()
    assert not pools
    assert not engine.resources()
