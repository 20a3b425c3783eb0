"""What holds of every recorded home: what serves stays what it is, and the present version finds nothing to do.

What it says in other words, or pushes to endpoints, a test names step by step; that touches no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tests.support.stages import Stage, envoys
from tests.support.watching import eventually, watching

UNTOUCHED = frozenset({"same", "read", "refresh"})
"""Operations that leave a resource as it is."""
_LISTENING = {("serving", ""), ("degraded", "BackendsDown")}
_NAMES = frozenset({"LoadBalancer", "Proxy", "Stack", "ClusterRoutes"})
"""Components are only names."""


def stays_untouched(
    stage: Stage, more: Callable[[], object] = lambda: None, improved: Collection[str] = frozenset()
) -> None:
    """`preview` and `up` do nothing but what is `improved`; all that serves stays what it is, and so does `more`."""
    before = serving(stage), more()
    previewed = stage.run("preview", "--json")
    assert previewed.code == 0, previewed.err
    assert touched(previewed.json) == set(improved), touched(previewed.json)
    done = stage.run("up", "--yes", "--json")
    assert done.code == 0, done.out + done.err
    assert touched(done.json) == set(improved), touched(done.json)
    assert (serving(stage), more()) == before
    assert {bound(row) for row in stage.status().values() if row["addresses"]} == {True}
    retry = stage.run("up", "--yes", "--json", "--expect-no-changes")
    assert retry.code == 0, retry.out + retry.err


def bound(row: Mapping[str, Any]) -> bool:
    """Return whether every port listens; behind those of a recorded home there needn't be anything that answers."""
    return all((port["state"], port["reason"]) in _LISTENING for port in row["ports"])


def is_followed_untouched(
    stage: Stage, more: Callable[[], object] = lambda: None, improved: Collection[str] = frozenset()
) -> None:
    """`watch` starts on it, becomes ready, and everything lives on."""
    del improved
    before = serving(stage), more()
    with watching(stage) as watch:
        eventually(lambda: "converged" in watch.reported(), watch)
    assert (serving(stage), more()) == before


def touched(report: Mapping[str, Any]) -> set[str]:
    """Return what was done, or would be, but for components."""
    done = [step for step in report["steps"] if step["op"] not in UNTOUCHED]
    kinds = [(step, step["type"].rpartition(":")[2]) for step in done]
    return {f"{step['op']} {kind} {step['name']}" for step, kind in kinds if kind not in _NAMES}


def serving(stage: Stage) -> object:
    """Return what serves: processes as state and host have them, claims of addresses, listeners and upstreams."""
    claims = sorted(path.name for path in (stage.state_home / "ledger").iterdir())
    files = {path: path.read_text() for path in stage.state_home.glob("proxies/*/[lc]ds.json")}
    return stage.pids(), sorted(envoys(stage.root)), claims, files
