"""Routes that others add and remove, heard from a real kernel in a network namespace of the test's own."""

from __future__ import annotations

import errno
import os
import resource
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import NoReturn

import pytest

from locallb.host import netlink
from locallb.host.netlink import RouteError, RouteEvents
from tests.support.host import PYTHON, Namespace
from tests.support.pod_routes import SPACE
from tests.support.waiting import becomes

LISTENER = """
import sys
from locallb.host import netlink
checks = 0
def routes(real=netlink.routes):
    global checks
    checks += 1
    return real()
netlink.routes = routes
def log(line):
    sys.stdout.write(line + "\\n")  # whole: two threads log something
    sys.stdout.flush()
events = netlink.RouteEvents(lambda: log("changed"))
log("ready")
for line in sys.stdin:
    log(f"checks {checks}")
events.stop()
"""


class Heard:
    """What a listener in a namespace says."""

    def __init__(self, space: Namespace) -> None:
        self.space = space
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(space.enter(PYTHON, "-c", LISTENER), stdin=pipe, stdout=pipe, text=True)
        self.lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._read, daemon=True).start()
        assert self.lines.get(timeout=20) == "ready"

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.put(line.strip())

    def changes(self) -> int:
        """Count the changes since the last call; whatever the listener has heard so far is in it."""
        return sum(line == "changed" for line in self._requested())

    def checks(self) -> int:
        """Return how often it has read the routes."""
        return int(self._requested()[-1].split()[1])

    def _requested(self) -> list[str]:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        stated = [self.lines.get(timeout=20)]
        while not stated[-1].startswith("checks"):
            stated.append(self.lines.get(timeout=20))
        return stated


@contextmanager
def listening() -> Iterator[Heard]:
    with tempfile.TemporaryDirectory() as root:
        space = Namespace(Path(root), SPACE)
        heard = Heard(space)
        try:
            yield heard
        finally:
            heard.process.kill()
            heard.process.communicate()
            space.close()


@pytest.mark.parametrize(
    "change",
    [
        "ip route add 10.244.1.0/24 via 172.30.0.2",
        "ip -6 route add fd44:1::/64 via fd30::2",
        "ip route add local 198.51.100.0/24 dev lo",
        "ip address add 192.0.2.7/32 dev d0",
        "ip route del 172.30.0.0/16",
        "ip rule add to 10.244.0.0/16 lookup 52",
        "ip -6 rule add not fwmark 7 lookup 52",
        "ip link set d0 down",
        "ip link del d0",
    ],
)
def test_a_route_more_or_less_is_heard_at_once(change: str) -> None:
    """Whatever made it one."""
    with listening() as heard:
        heard.space.shell(change)
        assert heard.lines.get(timeout=20) == "changed"


def test_link_local_route_changes_report_no_event() -> None:
    """Each container that starts makes a link with link-local addresses."""
    with listening() as heard:
        heard.space.shell("ip route add 10.244.1.0/24 via 172.30.0.2")
        becomes(heard.changes)
        before = heard.checks()
        heard.space.shell("ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up")
        becomes(lambda: heard.checks() > before)
        heard.space.shell("ip address add fe80::77/64 dev v0 nodad")
        retry = heard.checks()
        heard.space.shell("ip address add 127.9.9.9/8 dev lo")
        becomes(lambda: heard.checks() > retry)
        assert heard.changes() == 0


def _flood(heard: Heard, count: int) -> None:
    lines = "".join(f"route add 10.{n >> 8}.{n & 255}.0/24 via 172.30.0.2\n" for n in range(count))
    batch = heard.space.root / "batch"
    batch.write_text(lines)
    heard.space.shell(f"ip -batch {batch}")


def test_a_flood_is_bounded_and_its_end_is_not_missed() -> None:
    """More messages than a socket holds: some are lost (ENOBUFS), what they were about is not."""
    with listening() as heard:
        heard.space.shell("ip route add 10.244.1.0/24 via 172.30.0.2")
        becomes(heard.changes)
        before = heard.checks()
        heard.process.send_signal(19)  # SIGSTOP: the kernel has nowhere to put them
        _flood(heard, 5000)
        heard.process.send_signal(18)
        becomes(heard.changes)
        _settled(heard.checks)
        assert heard.checks() - before < 100
        heard.changes()
        heard.space.shell("ip route add 10.245.0.0/16 via 172.30.0.2")
        becomes(heard.changes)


def _settled(count: Callable[[], int]) -> None:
    """Wait until a number stays the same."""
    observed = [-1]

    def same() -> bool:
        now = count()
        before, observed[0] = observed[0], now
        return before == now

    becomes(same)


def test_as_many_open_files_as_a_thousand_proxies_need_do_not_deafen_it() -> None:
    """Numbers of descriptors from 1024 on, which `select` doesn't take, as after an edit of the configuration."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    others = [os.eventfd(0) for _ in range(1024)]
    checked = Event()
    try:
        events = RouteEvents(checked.set)
        assert events._bell > 1023
        os.eventfd_write(events._bell, 1)
        assert checked.wait(20)
        events.stop()
    finally:
        for descriptor in others:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_routes_that_cannot_be_read_are_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until they can, which is as good as a change; the next time begins again."""
    rests, failures, changed = list[float](), [15], SimpleQueue[int]()

    def routes() -> tuple[()]:
        failures[0] -= 1
        if failures[0] >= 0:
            raise RouteError("the routes of this host can't be read: no memory", errno.ENOMEM)
        return ()

    monkeypatch.setattr(netlink, "routes", routes)
    monkeypatch.setattr(RouteEvents, "_rest", lambda _self, seconds: rests.append(seconds))
    events = RouteEvents(lambda: changed.put(len(rests)))
    try:
        os.eventfd_write(events._bell, 1)
        assert changed.get(timeout=20) == 15
        assert all(rest >= min(0.01 * 2**number, 5.0) for number, rest in enumerate(rests[:15]))
        assert max(rests[:15]) <= 5.0 * 1.25
    finally:
        events.stop()


def test_refused_netlink_socket_reports_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox refuses the socket itself; every full pass looks at the routes all the same."""

    def refuse(*_given: object) -> NoReturn:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "socket", refuse)
    events = RouteEvents(lambda: None)
    events.stop()
    assert events._thread.join(20)
    assert events._link is None


def test_route_events_stop_without_waiting_for_a_message() -> None:
    """And leaves nothing that would keep the process."""
    with listening() as heard:
        out, _ = heard.process.communicate(timeout=20)
        assert heard.process.returncode == 0, out
        with pytest.raises(Empty):
            heard.lines.get_nowait()
