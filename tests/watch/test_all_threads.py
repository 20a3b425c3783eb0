"""Every thread that `watch` keeps: something nobody expected ends its work; it is told, counted, and goes on."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from locallb import threads as supervised
from locallb.cli.watching import page as live
from locallb.cli.watching import program_runs
from locallb.cli.watching import supervision as signals_module
from locallb.cli.watching.board import Relay
from locallb.cli.watching.health import HealthWatch
from locallb.cli.watching.http_server import HttpServer, Page
from locallb.cli.watching.log import plain
from locallb.cli.watching.metrics import Metrics
from locallb.cli.watching.program_runs import ProgramRuns
from locallb.cli.watching.reporting import EventReporter, Lines
from locallb.cli.watching.supervision import Signals
from locallb.config.settings import Timing
from locallb.host.netlink import RouteEvents
from locallb.kubernetes.api.election import Election
from locallb.kubernetes.lease import Candidate
from locallb.model.identities import ClusterName
from locallb.model.pacing import Pace
from locallb.runtimes.docker.engine_api import ContainerEvents
from locallb.runtimes.process_runtime import Exits
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from locallb.sources.kubernetes.informers import FollowedKinds
from locallb.storage.folder_watch import FileWatch, FolderWatch
from locallb.threads import THREADS, Escape, SupervisedThread, Task, do_once
from locallb.watch.events import Converged, LoopEvent, Stopped
from locallb.watch.hangs import HangWatch
from tests.support.fake_api import served
from tests.support.waiting import becomes
from tests.support.watch_story import planned, snapshot_of


class UnexpectedError(BaseException):
    """What nobody expects."""


@dataclass
class Trap:
    """Raises once in the place of something, wherever it is called; goes on as it did afterwards."""

    monkeypatch: pytest.MonkeyPatch
    sprung: int = 0
    retry: int = 0
    """How often it was called after that."""
    armed: bool = True

    def set(self, owner: Any, name: str) -> None:  # noqa: ANN401 - any class or module
        """Put it in the place of `owner.name`."""
        self.monkeypatch.setattr(owner, name, self.before(getattr(owner, name)))

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def trapped(*args: Any, **terms: Any) -> Any:  # noqa: ANN401 - anything
            if self.armed:
                self.armed = False
                self.sprung += 1
                raise UnexpectedError("on purpose")
            self.retry += 1
            return real(*args, **terms)

        return trapped


@dataclass
class Case:
    """What is needed to run a thread, and what to do at the end."""

    trap: Trap
    directory: Path
    stack: ExitStack
    reported: list[Escape] = field(default_factory=list)


def a_follower(case: Case) -> None:
    """One of three; the source counts as old meanwhile."""
    _, access = case.stack.enter_context(served(case.directory))
    case.trap.set(FollowedKinds, "_replace")
    stale, exists = list[str](), threading.Event()

    def changed() -> None:
        exists.wait()
        stale.append(followed.stale())

    followed = FollowedCluster(ClusterName("demo"), access, changed, loopback=True)
    exists.set()
    case.stack.callback(followed.stop)
    becomes(lambda: followed.ready() and not followed.stale())
    assert any("broke off" in sentence for sentence in stale)


def a_folder(case: Case) -> None:
    """Count its source as old meanwhile, and look when it is watched again."""
    case.trap.set(FolderWatch, "_watch")
    failures: list[str] = []
    watch = FolderWatch(case.directory, lambda: failures.append(THREADS.failure("demo")), "demo")
    case.stack.callback(watch.stop)
    becomes(lambda: len(failures) > 1 and not failures[-1])
    assert "broke off" in failures[0]


def files(case: Case) -> None:
    """Tell a change then that nobody was told of."""
    path, changed = case.directory / "file", list[Path]()

    watch = FileWatch([path], case.trap.before(changed.append))
    case.stack.callback(watch.stop)
    path.write_text("x")
    becomes(lambda: changed == [path])


def containers(case: Case) -> None:
    """Whoever listens is told that nobody knows what happened meanwhile."""
    case.trap.set(ContainerEvents, "_take")
    case.trap.monkeypatch.setenv("DOCKER_HOST", f"unix://{case.directory}/nothing.sock")
    presence: list[str] = []
    events = ContainerEvents("l", (), lambda _name: None, presence.append)
    case.stack.callback(events.stop)
    becomes(lambda: presence and case.trap.retry)


def exits(case: Case) -> None:
    """Tell an end afterwards that was not told, for the kernel keeps it."""
    ended: list[str] = []
    followed = Exits(case.trap.before(ended.append))
    case.stack.callback(followed.stop)
    pids = [os.posix_spawn("/bin/sleep", ["sleep", seconds], {}) for seconds in ("0.3", "0.6")]
    followed.follow({_process(pid): str(pid) for pid in pids})
    becomes(lambda: ended == [str(pid) for pid in pids])
    for pid in pids:
        os.waitpid(pid, 0)


def routes(case: Case) -> None:
    """Tell then what was heard when it broke off."""
    changed: list[str] = []
    events = RouteEvents(case.trap.before(lambda: changed.append("routes")))
    case.stack.callback(events.stop)
    assert events._link
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as other:
        other.sendto(b"anything", (events._link.getsockname()[0], 0))
        becomes(lambda: changed)


def _process(pid: int) -> Any:  # noqa: ANN401 - a Process
    from locallb.runtimes.processes import _stat  # noqa: PLC0415 - only here

    observed = _stat(pid)
    assert observed
    return observed.process


def election(case: Case) -> None:
    class Leases:
        def lease(self, namespace: str, name: str) -> dict[str, Any] | None:
            del namespace, name
            return None

        def write_lease(self, namespace: str, body: Any, *, fresh: bool) -> dict[str, Any]:  # noqa: ANN401 - JSON
            del namespace, fresh
            return {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}

    case.trap.set(Leases, "lease")
    candidate = Election(Leases(), ("n", "l"), Candidate("me", Timing(3, 2, 0.01)))
    candidate.start()
    case.stack.callback(candidate.stop)
    becomes(candidate.leads)


def http(case: Case) -> None:
    import http.client  # noqa: PLC0415 - only here

    case.trap.set(HttpServer, "_accept")
    server = HttpServer(ip_address("127.0.0.1"), 0, {"/": lambda _accept: Page(b"ok")})
    server.start()
    case.stack.callback(server.stop)
    connection = http.client.HTTPConnection(server.place, timeout=20)
    case.stack.callback(connection.close)
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"ok"


def teller(case: Case) -> None:
    """Tell what comes next, and the last word as well."""
    relay, written = Relay(), io.BytesIO()
    case.trap.set(Lines, "show")
    case.trap.armed = False
    out: Any = written
    reporting = EventReporter(relay, Lines(out, plain), dict, lambda _error: None)
    reporting.start()
    case.trap.armed = True
    relay.listen(Converged())
    becomes(lambda: case.reported)
    relay.listen(planned(snapshot_of("web")))
    relay.listen(Stopped())
    assert reporting.join(20)
    assert b"stopped" in written.getvalue()


def health(case: Case) -> None:
    requested: list[str] = []
    reading = HealthWatch(case.trap.before(lambda proxy: requested.append(proxy.name)), lambda: None)
    reading.start()
    case.stack.callback(reading.stop)
    reading.listen(planned(snapshot_of("web")))
    becomes(lambda: case.reported)
    reading._turn_at = 0.0
    reading.listen(planned(snapshot_of("web", "api")))
    becomes(lambda: requested)


def hangs(case: Case) -> None:
    """Proxies are asked on, each in its turn."""
    case.trap.set(HangWatch, "_ask")
    asking = HangWatch(lambda _name: None)
    case.stack.callback(asking.stop)
    asking.follow({"web": case.directory})
    becomes(lambda: case.trap.retry)


def page(case: Case) -> None:
    """Ask for figures again while somebody looks."""
    requested: list[object] = []

    def nothing_flows(plan: object) -> tuple[()]:
        requested.append(plan)
        return ()

    case.trap.monkeypatch.setattr(live, "traffic", case.trap.before(nothing_flows))
    shown = live.LivePage("127.0.0.1:0", "dev", lambda: "")
    shown.open()
    case.stack.callback(shown.close)
    case.stack.callback(shown._feed.open().close)
    becomes(lambda: requested)


def signals(case: Case) -> None:
    remaining: list[int] = []
    case.trap.monkeypatch.setattr(signals_module, "TIMEOUT", 0.01)
    caught = Signals(lambda: None, lambda: None, on_terminal=False)

    def leave(code: int) -> None:
        remaining.append(code)
        assert caught._timer
        caught._timer.stop()

    case.trap.monkeypatch.setattr(os, "_exit", leave)
    case.trap.set(Signals, "leave")
    caught._stop_requested(15, None)
    becomes(lambda: remaining)
    for descriptor in (caught.news, caught._bell):
        os.close(descriptor)


def program(case: Case) -> None:
    case.trap.set(program_runs, "is_standard")
    case.trap.monkeypatch.setattr(program_runs, "INSPECT", 0.01)
    path, told = case.directory / "__main__.py", list[LoopEvent]()
    path.write_text("x = 1\n")
    runs = ProgramRuns(["false"], case.directory, told.append, lambda: True)
    runs.start()
    case.stack.callback(runs.stop)
    becomes(lambda: case.trap.sprung)
    path.write_text("x = 22\n")
    becomes(lambda: told)


CASES: dict[Task, Callable[[Case], None]] = {
    Task.FOLLOWER: a_follower,
    Task.FOLDER: a_folder,
    Task.FILES: files,
    Task.CONTAINERS: containers,
    Task.EXITS: exits,
    Task.ROUTES: routes,
    Task.ELECTION: election,
    Task.HTTP: http,
    Task.TELLER: teller,
    Task.HANGS: hangs,
    Task.PROGRAM: program,
    Task.HEALTH: health,
    Task.PAGE: page,
    Task.SIGNALS: signals,
}
ELSEWHERE = {
    Task.LOOP: "tests/watch/test_loop_goes_on.py",
    Task.OPENING: "whoever asks for its result gets the error",
    Task.STAMP: "likewise",
    Task.PLUGIN: "it is done once; below",
    Task.RESOLVER: "likewise",
    Task.EVENT: "likewise",
}


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Return what a case needs, with whoever is told of what escapes."""
    with ExitStack() as stack:
        made = Case(Trap(monkeypatch), tmp_path, stack)
        THREADS.listen(made.reported.append)
        stack.callback(THREADS.listen, None)
        yield made


def test_every_task_has_a_case() -> None:
    """A thread that comes later needs one too."""
    assert CASES.keys() | ELSEWHERE.keys() == set(Task)


ONLY_ROOT = {Task.ROUTES: [pytest.mark.root(only="can send to others by netlink")]}


@pytest.mark.parametrize("task", [pytest.param(task, marks=ONLY_ROOT.get(task, ()), id=str(task)) for task in CASES])
def test_a_thread_that_breaks_off_is_reported_counted_and_goes_on(case: Case, task: Task) -> None:
    """Whatever it is for."""
    before = THREADS.counts()[task]
    CASES[task](case)
    assert case.trap.sprung == 1
    assert [escape.task for escape in case.reported] == [task], [escape.sentence for escape in case.reported]
    assert "(UnexpectedError: on purpose at " in case.reported[0].sentence
    assert THREADS.counts()[task] == before + 1
    becomes(lambda: not THREADS.failure())


def test_escaped_error_of_a_single_task_is_reported_and_counted(case: Case) -> None:
    """The next request starts it again."""

    def work() -> None:
        raise UnexpectedError

    do_once(Task.PLUGIN, "exec plugin", work)
    becomes(lambda: case.reported)
    assert case.reported[0].task is Task.PLUGIN


def test_readiness_and_metrics_know_of_a_thread_in_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not ready until it works again; counted by what it is for."""
    monkeypatch.setattr(supervised, "RETRY_DELAY", Pace(first=3600, longest=3600))
    metrics = Metrics(dict)
    for event in (planned(snapshot_of("web")), Converged()):
        metrics.listen(event)
    assert not metrics.unready()

    def work() -> None:
        raise UnexpectedError

    before = THREADS.counts()[Task.EXITS]
    thread = SupervisedThread(Task.EXITS, "exits", work, pace=supervised.RETRY_DELAY)
    thread.start()
    becomes(metrics.unready)
    assert "the thread exits broke off" in metrics.unready()
    text = metrics.text("")[0].decode()
    assert f'locallb_thread_failures_total{{thread="exits"}} {before + 1.0}' in text
    assert "locallb_ready 0.0" in text
    thread.stop()
    assert not metrics.unready()
