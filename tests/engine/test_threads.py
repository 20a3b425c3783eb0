"""Threads that an engine keeps: what they are given is done, whoever else is given something."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from locallb.engine.deploy.threads import Shift
from tests.engine.balancers import BOTH, declare
from tests.engine.support import Bench


def test_a_shift_ends_without_the_threads() -> None:
    """What it began is waited for, and the next shift has the same threads."""
    with ThreadPoolExecutor(1) as crew:
        observed = []
        for _ in range(2):
            shift = Shift(crew)
            shift.submit(lambda: observed.append(threading.get_ident()))
            shift.shutdown()
        assert len(observed) == 2
        assert len(set(observed)) == 1


def test_runs_of_an_engine_share_its_threads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """To start one takes longer than many a look at a resource."""
    engine = bench.engine()
    pools = []
    monkeypatch.setattr(ThreadPoolExecutor, "__init__", lambda *_some, **_more: pools.append("made"))
    for run in (lambda: engine.up(lambda: declare(BOTH)), engine.drifted, engine.refresh, engine.destroy):
        run()
    assert not pools
    assert not engine.resources()
