"""Routes in the network of somebody else's process: read where /proc says them, and otherwise unknown, never none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from locallb.host.netlink import pod_routes_of

pytestmark = pytest.mark.root(only="can make a network and be another user")
NO_OWNER, METRIC = 65534, 4711
ASK = f"""
import codecs, os, sys
from locallb.host.netlink import pod_routes_of
codecs.lookup("ascii"), os.setgroups([]), os.setgid({NO_OWNER}), os.setuid({NO_OWNER})
there = pod_routes_of(int(sys.argv[1]), {METRIC})
print("unknown" if there is None else sorted(map(str, there)))
"""
ROUTED = f"""ip link set lo up && ip address add 10.231.0.1/24 dev lo && \
ip route add 10.231.7.0/24 via 10.231.0.2 metric {METRIC} && echo ready && exec sleep 1000"""


@contextmanager
def process(*terms: str) -> Iterator[int]:
    """Run a program of root's until it is told to end; it says first that it is ready."""
    with subprocess.Popen(terms, stdout=subprocess.PIPE) as made:
        try:
            assert made.stdout
            assert made.stdout.readline() == b"ready\n"
            yield made.pid
        finally:
            made.kill()


def asked_by_nobody(pid: int, options: str = "") -> str:
    """Return what another user is told, with a /proc of these options."""
    root = str(Path(__file__).resolve().parents[2])
    terms = ["sh", "-c", 'mount -t proc -o "$0" proc /proc && exec "$@"', options or "rw", sys.executable, "-c", ASK]
    done = subprocess.run(
        ["unshare", "--mount", *terms, str(pid)], check=False, capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ROUTE = "['10.231.7.0/24 via 10.231.0.2']"


def test_routes_of_another_users_process_are_read_where_allowed() -> None:
    """The tables are readable for all; whose network it is can be told without the right to enter it."""
    with process("unshare", "--net", "sh", "-c", ROUTED) as pid:
        assert asked_by_nobody(pid) == ROUTE
        assert sorted(map(str, pod_routes_of(pid, METRIC) or ())) == ["10.231.7.0/24 via 10.231.0.2"]


def test_a_process_that_is_hidden_says_nothing() -> None:
    """Which isn't that there is no route: the container that changes routes can say."""
    with process("unshare", "--net", "sh", "-c", ROUTED) as pid:
        assert [asked_by_nobody(pid, options) for options in ("hidepid=1", "hidepid=2")] == ["unknown"] * 2


def test_network_of_another_users_process_is_unknown() -> None:
    """As in a pod, where such a process may have the number of the proxy's."""
    with process("sh", "-c", "echo ready && exec sleep 1000") as pid:
        assert asked_by_nobody(pid) == "unknown"


def test_a_process_that_is_not_there_says_nothing() -> None:
    """As in a pod, too."""
    with process("sh", "-c", "echo ready && exec sleep 1000") as pid:
        pass
    assert pod_routes_of(pid, METRIC) is None
