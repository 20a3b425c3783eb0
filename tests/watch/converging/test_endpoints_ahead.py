"""Endpoints that are put before the update that declares them: only those, only where all else is as planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from locallb.config.parsing.settings import parse_settings
from locallb.engine.deploy.events import Result
from locallb.engine.engine import Engine
from locallb.engine.state.errors import StateUnwritable
from locallb.envoy import push
from locallb.model.identities import Home, ObjectKey, Uid
from locallb.model.network.routes import PodRoute
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.model.state_resource import BALANCER
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan, PlannedProxy
from locallb.planning.planned_for_clusters import PlannedRoutes
from locallb.storage import files, paths
from locallb.storage.proxy_directories import Proxies
from locallb.watch.converging import converge
from locallb.watch.converging.converge import Converger
from locallb.watch.converging.endpoints_ahead import put_ahead
from locallb.watch.converging.work import Batch
from tests.planning.objects import DEMO, endpoint, endpoints, node, parsed, service

HOME = Home("p", "s", "/p")
KEY = ObjectKey(DEMO, "shop", "web")
SETTINGS = parse_settings(
    {
        "sources": [{"manifests": "m", "name": "demo"}],
        "pools": [{"name": "p", "addresses": ["127.77.0.0/28"]}],
        "backends": "pods",
    }
)
BEFORE, AFTER = ("10.0.0.7",), ("10.0.0.7", "10.0.0.8")


def plan_of(*pods: str, port: int = 8080) -> Plan:
    """Plan a Service with these pods."""
    ports = [{"port": port, "nodePort": 30080, "targetPort": 9376}]
    read = parsed(service(ports=ports), node(), endpoints(*map(endpoint, pods)))
    return make_plan(
        Snapshot(HOME, services=read.services, nodes=read.nodes, slices=read.slices, host=HostFacts(watches=9)),
        SETTINGS,
    )


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def written(plan: Plan) -> Path:
    """Write what a plan's only proxy is told."""
    (planned,) = plan.proxies
    directory = Proxies(paths.proxies_root()).make(planned.proxy.id, planned.owner, planned.proxy.name).path
    for name, text in planned.rendered.files.items():
        files.write(directory / name, text)
    return directory


def changed(plan: Plan, **fields: Any) -> Plan:  # noqa: ANN401 - whatever a proxy has
    """Plan its proxy otherwise."""
    (planned,) = plan.proxies
    return replace(plan, proxies=(replace(planned, **fields),))


def _others(planned: PlannedProxy) -> Plan:
    owner = replace(planned.owner, uid=Uid("another"))
    return changed(plan_of(*AFTER), owner=owner)


def _with_routes(planned: PlannedProxy) -> Plan:
    del planned
    return changed(plan_of(*AFTER), routes=(mock.Mock(spec=PodRoute),))


def test_a_pod_that_comes_is_told_at_once() -> None:
    """Files of endpoints are as planned then, and all others as they were; nothing is left to be put."""
    directory, after = written(plan_of(*BEFORE)), plan_of(*AFTER)
    assert push.texts(directory) != after.proxies[0].rendered.files
    assert put_ahead(after, [KEY]) == {KEY}
    assert push.texts(directory) == after.proxies[0].rendered.files
    assert put_ahead(after, [KEY]) == frozenset()


OTHERWISE: dict[str, Callable[[PlannedProxy], Plan]] = {
    "listeners are others, too": lambda _: plan_of(*AFTER, port=8081),
    "no pod is left, nor a listener": lambda _: plan_of(),
    "the directory is another's": _others,
    "its container has routes": _with_routes,
}


@pytest.mark.parametrize("why", OTHERWISE)
def test_whatever_else_is_different_is_left_to_the_update(why: str) -> None:
    """Not one file is touched."""
    before = plan_of(*BEFORE)
    directory = written(before)
    assert put_ahead(OTHERWISE[why](before.proxies[0]), [KEY]) == frozenset()
    assert push.texts(directory) == before.proxies[0].rendered.files


def test_only_those_of_the_update_are_told() -> None:
    """And nobody who has no directory yet."""
    assert put_ahead(plan_of(*AFTER), [KEY]) == frozenset()
    directory = written(plan_of(*BEFORE))
    assert put_ahead(plan_of(*AFTER), [KEY._replace(name="other")]) == frozenset()
    assert push.texts(directory) == plan_of(*BEFORE).proxies[0].rendered.files


def test_routes_to_pods_that_are_part_of_an_update_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod of a new Node can't be reached before; once they are there, and are as planned, nothing waits for them."""
    directory = written(plan_of(*BEFORE))
    monkeypatch.setattr(converge, "declare_some", lambda *_: None)
    routes = PlannedRoutes(DEMO, HOME, ())
    plan = replace(plan_of(*AFTER), routes=(routes,))
    converger = Converger(HOME, cast("Engine", Updates(True, True)))
    for keys, there in (((KEY, routes.key), plan_of(*BEFORE)), ((KEY,), plan)):
        converger.update(plan, converger.wanted(plan), Batch(keys))
        assert push.texts(directory) == there.proxies[0].rendered.files


class Updates:
    """Runs the program of each update, which ends as the next of some, and notes which look at the world first."""

    readings = 0

    def __init__(self, *ends: bool) -> None:
        self.ends, self.refreshed = list(ends), list[bool]()

    def up(self, program: Callable[[], None], *, refresh: bool, scope: object) -> Result:
        """Run it."""
        del scope
        program()
        self.refreshed.append(refresh)
        return Result(ok=self.ends.pop(0))

    def known_stamp(self) -> None:
        """Know nothing of the state's file."""


def test_an_update_that_fails_after_that_is_repeated_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state still has the endpoints of before: by it alone, going back to them would change nothing."""
    written(plan_of(*BEFORE))
    monkeypatch.setattr(converge, "declare_some", lambda *_: None)
    engine = Updates(False, True, True)
    converger = Converger(HOME, cast("Engine", engine))
    for pods in (AFTER, BEFORE, AFTER):
        plan = plan_of(*pods)
        converger.update(plan, converger.wanted(plan), Batch((KEY,)))
    assert engine.refreshed == [False, True, False]


class Stack(Updates):
    """Says of the load balancer what one writing has, as it can't be written again after the first update."""

    def __init__(self, digest: str) -> None:
        super().__init__(True)
        self.digest, self.broken_off = digest, 0

    def up(self, program: Callable[[], None], *, refresh: bool, scope: object) -> Result:
        """Run it, and keep the outcome of the first one."""
        if self.ends:
            return super().up(program, refresh=refresh, scope=scope)
        program()
        self.broken_off += 1
        raise StateUnwritable("no space left on device")

    def known_stamp(self) -> Any:  # noqa: ANN401 - as an engine's
        """Know all of the state's file."""
        return 1

    def resources(self) -> list[object]:
        """Return what the state says."""
        return [SimpleNamespace(type=BALANCER, name=str(KEY), inputs={"digest": self.digest})]

    def unfinished(self) -> frozenset[str]:
        """Find no operation that was broken off."""
        return frozenset()

    def drifted(self, *, scope: object) -> frozenset[str]:
        """Look, and find all as the state says."""
        del scope
        return frozenset()


def _full(*_: object, **__: object) -> None:
    raise files.FilesError("no space left on device")


def test_what_differs_is_declared_where_a_look_would_do_for_what_is_as_planned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One on a full disk breaks off with nothing put ahead: the next one finds the world as the state, and goes on."""
    (tmp_path / ".state" / "locallb" / "s").mkdir(parents=True)
    monkeypatch.setattr(converge, "declare_some", lambda *_: None)
    before, after = plan_of(*BEFORE), plan_of(*AFTER)
    written(before)
    converger = Converger(Home("p", "s", str(tmp_path)), cast("Engine", None))
    engine = Stack(converger.wanted(before)[KEY])
    converger.engine = cast("Engine", engine)
    converger.learn()
    converger.update(before, converger.wanted(before), Batch((KEY,), refresh=True))
    with monkeypatch.context() as disk:
        disk.setattr(files, "write", _full)
        with pytest.raises(StateUnwritable):
            converger.update(after, converger.wanted(after), Batch((KEY,)))
    converger.learn()
    with pytest.raises(StateUnwritable):
        converger.update(after, converger.wanted(after), Batch((KEY,)))
    assert engine.broken_off == 2
