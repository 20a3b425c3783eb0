"""Endpoints and routes that are put before the update that declares them, where all else is as planned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from msgspec.structs import replace

from locallb.config.parsing.settings import parse_settings
from locallb.engine.deploy.events import Result
from locallb.engine.engine import Engine
from locallb.engine.state.errors import StateUnwritable
from locallb.envoy import push, rollout
from locallb.envoy.http.tls import SYSTEM_AUTHORITIES
from locallb.host import inotify
from locallb.model.identities import Home, ObjectKey, ProxyId, Uid
from locallb.model.network.routes import PodRoute
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.model.state_resource import BALANCER
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan, PlannedProxy
from locallb.planning.planned_for_clusters import PlannedRoutes
from locallb.storage import files, paths
from locallb.storage.proxy_directories import Proxies
from locallb.watch.converging import converge, files_ahead
from locallb.watch.converging.converge import Converger
from locallb.watch.converging.files_ahead import write_files_early
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


def test_a_new_pod_reaches_envoy_at_once() -> None:
    """Files of endpoints are as planned then, and all others as they were; nothing is left to be put."""
    directory, after = written(plan_of(*BEFORE)), plan_of(*AFTER)
    assert push.texts(directory) != after.proxies[0].rendered.files
    assert write_files_early(after, [KEY]) == {KEY}
    assert push.texts(directory) == after.proxies[0].rendered.files
    assert write_files_early(after, [KEY]) == frozenset()


OTHERWISE: dict[str, Callable[[PlannedProxy], Plan]] = {
    "listeners are others, too": lambda _: plan_of(*AFTER, port=8081),
    "no pod is left, nor a listener": lambda _: plan_of(),
    "the directory is another's": _others,
    "its container has routes": _with_routes,
}


@pytest.mark.parametrize("why", OTHERWISE)
def test_early_write_leaves_other_differences_to_the_update(why: str) -> None:
    """Not one file is touched."""
    before = plan_of(*BEFORE)
    directory = written(before)
    assert write_files_early(OTHERWISE[why](before.proxies[0]), [KEY]) == frozenset()
    assert push.texts(directory) == before.proxies[0].rendered.files


ROUTES, SECRET = "rds-0123456789ab.json", f"sds-{1:012}.json"


def resources(*names: str, trusting: str = "") -> str:
    """Write clusters, or whatever else has a name, and what one of them trusts."""
    document = {"version_info": "-".join(names), "resources": [{"name": name, "trusts": trusting} for name in names]}
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def with_files(plan: Plan, **texts: str | None) -> Plan:
    """Plan its proxy with other files, or without some."""
    (planned,) = plan.proxies
    names = {
        "clusters": rollout.CLUSTERS,
        "routes": ROUTES,
        "endpoints": "eds-new.json",
        "secrets": SECRET,
    }
    there = {**planned.rendered.files, **{names[name]: text for name, text in texts.items()}}
    kept = {name: text for name, text in there.items() if text is not None}
    return changed(plan, rendered=replace(planned.rendered, files=kept))


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Note which files are written, in which order."""
    noted: list[tuple[str, str]] = []
    really = files.write

    def write(path: Path, text: str, *, mode: int = files.PRIVATE) -> None:
        noted.append((path.name, text))
        really(path, text, mode=mode)

    monkeypatch.setattr(files, "write", write)
    return noted


def test_a_route_that_leads_elsewhere_is_put_in_the_order_that_envoy_needs(put: list[tuple[str, str]]) -> None:
    """Clusters of before and after, the table, then what it leaves: its cluster, and the file of its endpoints."""
    plan = plan_of(*BEFORE)
    before = with_files(plan, clusters=resources("a"), routes=resources("to-a"), endpoints="{}")
    after = with_files(plan, clusters=resources("b"), routes=resources("to-b"))
    directory = written(before)
    put.clear()
    assert write_files_early(after, [KEY]) == {KEY}
    assert [name for name, _ in put] == [rollout.CLUSTERS, ROUTES, rollout.CLUSTERS]
    assert [{each["name"] for each in json.loads(text)["resources"]} for _, text in put] == [
        {"a", "b"},
        {"to-b"},
        {"b"},
    ]
    assert push.texts(directory) == after.proxies[0].rendered.files


BESIDES: dict[str, dict[str, str | None]] = {
    "a table that no listener has yet": {"routes": None},
    "a certificate": {"secrets": "{}"},
    "authorities of the system": {"clusters": resources("a", trusting="before")},
}


@pytest.mark.parametrize("why", BESIDES)
def test_a_route_that_comes_with_something_else_is_left_to_the_update(why: str) -> None:
    """Listeners, certificates and what clusters trust are the update's."""
    plan = plan_of(*BEFORE)
    texts: dict[str, str | None] = {"clusters": resources("a"), "routes": resources("to-a")}
    before = with_files(plan, **{**texts, **BESIDES[why]})
    directory = written(before)
    after = with_files(plan, clusters=resources("b", trusting=SYSTEM_AUTHORITIES), routes=resources("to-b"))
    assert write_files_early(after, [KEY]) == frozenset()
    assert push.texts(directory) == before.proxies[0].rendered.files


def test_a_route_for_which_watches_lack_is_left_to_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Envoy that can't watch what it is told to watch would abort."""
    plan = plan_of(*BEFORE)
    written(with_files(plan, clusters=resources("a"), routes=resources("to-a")))
    after = with_files(plan, clusters=json.dumps({"resources": [{"name": "b", "type": "EDS"}]}))
    after = with_files(after, routes=resources("to-a"))
    monkeypatch.setattr(inotify, "available", lambda _: 0)
    assert write_files_early(after, [KEY]) == frozenset()
    monkeypatch.setattr(inotify, "available", lambda most: most)
    assert write_files_early(after, [KEY]) == {KEY}


def on_several(before: Plan, after: Plan) -> tuple[Plan, Sequence[Path]]:
    """Plan `after` for a second proxy of the same Gateway, too; return where both have what `before` says."""
    (one,) = after.proxies
    other = replace(one, proxy=replace(one.proxy, id=ProxyId("0123456789ab")))
    directory = Proxies(paths.proxies_root()).make(other.proxy.id, other.owner, other.proxy.name).path
    for name, text in before.proxies[0].rendered.files.items():
        files.write(directory / name, text)
    return replace(after, proxies=(one, other)), (written(before), directory)


def test_routes_of_several_proxies_are_put_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose Envoy hangs holds up no other: none begins its next step before all have begun."""
    plan = plan_of(*BEFORE)
    before, after = (with_files(plan, clusters=resources(name), routes=resources("r")) for name in "ab")
    both, directories = on_several(before, after)
    begun, really = Barrier(len(directories), timeout=30), push.roll_out

    def roll_out(directory: Path, steps: Iterable[rollout.Step], mode: int) -> None:
        begun.wait()
        really(directory, steps, mode)

    monkeypatch.setattr(push, "roll_out", roll_out)
    assert write_files_early(both, [KEY]) == {KEY}
    assert [push.texts(directory) for directory in directories] == [after.proxies[0].rendered.files] * 2


def test_stopped_update_finishes_only_the_proxies_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many may take seconds; proxies whose turn has not come stay as they are."""
    plan = plan_of(*BEFORE)
    before, after = (with_files(plan, clusters=resources(name), routes=resources("r")) for name in "ab")
    both, directories = on_several(before, after)
    engine, really = Updates(False), push.roll_out

    def roll_out(directory: Path, steps: Iterable[rollout.Step], mode: int) -> None:
        really(directory, steps, mode)
        engine.cancelled = True

    monkeypatch.setattr(files_ahead, "_AT_ONCE", 1)
    monkeypatch.setattr(push, "roll_out", roll_out)
    monkeypatch.setattr(converge, "declare_some", lambda *_: None)
    converger = Converger(HOME, cast("Engine", engine))
    converger.update(both, converger.wanted(both), Batch((KEY,)))
    there = [push.texts(directory) for directory in directories]
    assert [both.proxies[0].rendered.files, before.proxies[0].rendered.files] == there


def test_other_change_of_one_proxy_does_not_delay_routes_of_another() -> None:
    """That proxy is left to the update."""
    plan = plan_of(*BEFORE)
    before, after = (with_files(plan, clusters=resources(name), routes=resources("r")) for name in "ab")
    both, (mine, others) = on_several(before, after)
    one, other = both.proxies
    certified = replace(other, rendered=replace(other.rendered, files={**other.rendered.files, SECRET: "{}"}))
    assert write_files_early(replace(both, proxies=(one, certified)), [KEY]) == {KEY}
    assert push.texts(mine) == after.proxies[0].rendered.files
    assert push.texts(others) == before.proxies[0].rendered.files


def test_the_watches_of_several_proxies_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone would find enough, and take what the others count on."""
    plan = plan_of(*BEFORE)
    before = with_files(plan, clusters=resources("a"), routes=resources("r"))
    after = with_files(before, clusters=json.dumps({"resources": [{"name": "b", "type": "EDS"}]}))
    both, _ = on_several(before, after)
    for free, put in ((1, frozenset()), (2, {KEY})):
        monkeypatch.setattr(inotify, "available", lambda most, free=free: min(most, free))
        assert write_files_early(both, [KEY]) == put


def _without_descriptors(_: int) -> int:
    raise inotify.InotifyError("too many open files")


@pytest.mark.parametrize("why", ["descriptors", "clusters"])
def test_failed_early_write_fails_no_update(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors are wanting, or somebody removed a file: the update tells, or writes it again."""
    plan = plan_of(*BEFORE)
    without = None if why == "clusters" else resources("a")
    directory = written(with_files(plan, clusters=without, routes=resources("to-a")))
    before = push.texts(directory)
    if why == "descriptors":
        monkeypatch.setattr(inotify, "available", _without_descriptors)
    clusters = None if why == "clusters" else json.dumps({"resources": [{"name": "b", "type": "EDS"}]})
    after = with_files(plan, clusters=clusters, routes=resources("to-b"))
    assert write_files_early(after, [KEY]) == frozenset()
    assert push.texts(directory) == before


def test_no_more_watches_are_tried_for_than_this_process_has_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that is tried for takes one of them for a moment: the update asks for each proxy alone."""
    plan = plan_of(*BEFORE)
    written(with_files(plan, clusters=resources("a"), routes=resources("r")))
    many = json.dumps({"resources": [{"name": f"b{number}", "type": "EDS"} for number in range(1000)]})
    tried: list[int] = []
    monkeypatch.setattr(inotify, "available", tried.append)
    assert write_files_early(with_files(plan, clusters=many, routes=resources("r")), [KEY]) == frozenset()
    assert not tried


def test_only_proxies_of_the_update_get_files_ahead() -> None:
    """And nobody who has no directory yet."""
    assert write_files_early(plan_of(*AFTER), [KEY]) == frozenset()
    directory = written(plan_of(*BEFORE))
    assert write_files_early(plan_of(*AFTER), [KEY._replace(name="other")]) == frozenset()
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
        self.cancelled = False

    def up(self, program: Callable[[], None], *, refresh: bool, scope: object, begin: Callable[[], None]) -> Result:
        """Run it."""
        del scope
        begin()
        program()
        self.refreshed.append(refresh)
        return Result(ok=self.ends.pop(0))

    def known_stamp(self) -> None:
        """Know nothing of the state's file."""

    def is_cancelled(self) -> bool:
        """Go on."""
        return self.cancelled


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

    def up(self, program: Callable[[], None], *, refresh: bool, scope: object, begin: Callable[[], None]) -> Result:
        """Run it, and keep the outcome of the first one."""
        if self.ends:
            return super().up(program, refresh=refresh, scope=scope, begin=begin)
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


def test_changed_service_is_declared_again_after_a_full_disk_broke_off_its_update(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing was put ahead, so the next update finds the world as the state says, and declares it."""
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
