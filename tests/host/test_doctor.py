"""The doctor's findings as a table: what was seen, and the level, the words and the remedy that follow."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace

from locallb.config.settings import Pool
from locallb.host.doctor import FindingLevel as Level
from locallb.host.doctor import ObservedLock, ObservedName, ObservedProxy, examine, free_addresses, headroom
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner, Protocol
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem, Reason
from locallb.model.routes import HostAddresses, survey
from locallb.model.routes import HostRoute as Route
from locallb.model.snapshot import Claim, HostFacts, Socket
from locallb.planning.pool_routes import PoolRoute, pool_routes
from tests.support.inspections import GOOD, PLENTY, POOL

FAR = PoolRoute("far", ip_network("10.0.0.0/24"))


def test_a_healthy_host_has_nothing_to_do() -> None:
    """Every finding is fine, and none has a remedy."""
    findings = examine(GOOD)
    assert {finding.level for finding in findings} == {Level.OK}
    assert not any(finding.remedy for finding in findings)
    assert {"Python", "Envoy", "Docker", "rights", "headroom", "pools", "ports", "sources", "proxies", "state",
            "ledger"} == {finding.topic for finding in findings}  # fmt: skip


def listener(port: int, process: str = "", address: str = "0.0.0.0") -> HostFacts:
    return HostFacts(sockets=(Socket(ip_address(address), port, Protocol.TCP, process),))


@pytest.mark.parametrize(
    ("changes", "level", "topic", "terms", "remedy"),
    [
        ({"python": (3, 10)}, Level.PROBLEM, "Python", "3.10", "3.11"),
        ({"envoy": "", "envoy_problem": "no Envoy: install it"}, Level.PROBLEM, "Envoy", "no Envoy", "install it"),
        ({"local_name": "a.b.localhost"}, Level.NOTE, "names", "other programs don't", "nss-myhostname"),
        ({"local_name": "a.b.localhost", "knows_local_names": True}, Level.OK, "names", "every program", ""),
        ({"wsl": True}, Level.NOTE, "WSL2", "reaches ports of its 127.0.0.1 and no other", "portMapping: loopback"),
        ({"wsl": True, "mapped": True}, Level.NOTE, "WSL2", "runs in Windows", ""),
        ({"docker": "usable"}, Level.NOTE, "Docker", "answers", ""),
        ({"docker_elsewhere": "at tcp://h:2375"}, Level.NOTE, "Docker", "is at tcp://h:2375, and isn't looked at", ""),
        ({"docker_context_problem": "there is no context: name one"}, Level.NOTE, "Docker", "there is no", "name one"),
        ({"podman": (("/p", "usable"),)}, Level.NOTE, "Podman", "Podman at /p answers", ""),
        ({"podman": (("/p", "closed"),)}, Level.NOTE, "Podman", "Podman at /p runs, but not for this user", ""),
        ({"image": "r/envoy:1", "lacks_image": True}, Level.NOTE, "image", "r/envoy:1 isn't there", "`locallb image`"),
        ({"image": "r/envoy:1"}, Level.OK, "image", "r/envoy:1 is there", ""),
        ({"docker": "closed"}, Level.NOTE, "Docker", "not for this user", ""),
        ({"host": HostFacts(unprivileged_port_start=1024)}, Level.WARNING, "rights", "22, 53, 80, 443", "host setup"),
        ({"host": HostFacts(unprivileged_port_start=100)}, Level.WARNING, "rights", "not 22, 53, 80", "host setup"),
        ({"limits": replace(PLENTY, watches=3)}, Level.WARNING, "headroom", "room for 1 more proxy", "host setup"),
        ({"limits": replace(PLENTY, watches=1)}, Level.PROBLEM, "headroom", "room for 0 more proxies", "host setup"),
        ({"limits": replace(PLENTY, addresses=0)}, Level.PROBLEM, "headroom", "addresses", "local-lb:pools"),
        ({"limits": replace(PLENTY, memory=64 << 20)}, Level.WARNING, "headroom", "64 MiB", "memory"),
        ({"limits": replace(PLENTY, tasks=24)}, Level.WARNING, "headroom", "room for 3 more proxies", "ulimit -u"),
        ({"limits": replace(PLENTY, files=256)}, Level.WARNING, "headroom", "128 connections", "ulimit -H -n"),
        ({"disk_free": 5 << 20}, Level.PROBLEM, "disk", "5 MiB", "XDG_STATE_HOME"),
        ({"routes": (FAR,)}, Level.PROBLEM, "pools", "10.0.0.0/24", "host setup"),
        (
            {"routes": (replace(FAR, problem=Problem(Reason.POOL_ON_LINK, "on link")),)},
            Level.PROBLEM, "pools", "on link", "local-lb:pools",
        ),
        ({"routes": (replace(FAR, local=True, note="mind"),)}, Level.NOTE, "pools", "mind", ""),
        ({"host": listener(22, "sshd (7)")}, Level.WARNING, "ports", "sshd (7) listens on every address at 22", "sshd"),
        ({"host": listener(53)}, Level.WARNING, "ports", "a process of another user", "address of its own"),
        ({"host": listener(3000, "node (8)")}, Level.NOTE, "ports", "3000/TCP by node (8)", ""),
        ({"configuration_problems": ("bad key",)}, Level.PROBLEM, "stack", "bad key", "correct"),
        ({"source_problems": ("gone",)}, Level.PROBLEM, "sources", "gone", "repair"),
        ({"proxies": (ObservedProxy("a", alive=False),)}, Level.PROBLEM, "proxies", "is gone: a", "locallb up"),
        (
            {"proxies": (ObservedProxy("a", alive=True, answers=False),)},
            Level.PROBLEM, "proxies", "doesn't answer: a", "locallb up",
        ),
        (
            {"proxies": (ObservedProxy("a", alive=True, version="1.39.0"),)},
            Level.PROBLEM, "proxies", "another Envoy than 1.40.0: a", "locallb up",
        ),
        (
            {"proxies": (ObservedProxy("a", alive=True, config_intact=False),)},
            Level.PROBLEM, "proxies", "changed: a", "locallb up",
        ),
        (
            {"proxies": tuple(ObservedProxy(str(n), alive=False) for n in range(9))},
            Level.PROBLEM, "proxies", "0, 1, 2, 3, 4 and 4 more", "locallb up",
        ),
        ({"state_problems": ("cut short",)}, Level.PROBLEM, "state", "cut short", "state restore"),
        ({"locks": (ObservedLock("me@h (pid 1)", "/l.json", removed=True),)}, Level.NOTE, "lock", "next run removes",
        ""),
        ({"locks": (ObservedLock("me@h (pid 1)", "/l", removed=False),)}, Level.WARNING, "lock", "pid 1", "delete /l"),
        ({"ledger_problems": ("damaged",)}, Level.PROBLEM, "ledger", "damaged", ""),
        ({"leftovers": ("address x",)}, Level.WARNING, "ledger", "address x", "locallb gc"),
        ({"ledger_keepers": (4711,)}, Level.WARNING, "ledger", "process 4711 keeps the lock", "ps -fp 4711"),
        ({"unclaimed": ("127.77.0.5",)}, Level.PROBLEM, "ledger", "claim of 127.77.0.5 is gone", "locallb up"),
        ({"shared_ledger": "closed"}, Level.WARNING, "ledger", "may not write", "--group"),
    ],
)  # fmt: skip
def test_each_trouble_has_its_finding(
    changes: dict[str, object], level: Level, topic: str, terms: str, remedy: str
) -> None:
    """With its level, its words and what to do about it."""
    findings = examine(replace(GOOD, **changes))  # the table's own fields
    found = [finding for finding in findings if finding.topic == topic and finding.level is level]
    assert any(terms in finding.text and remedy in finding.remedy for finding in found), findings


def test_the_smallest_budget_is_the_one_that_is_reported() -> None:
    """Each in turn."""
    reported = {
        name: headroom(replace(PLENTY, **{name: 10})).limited_by for name in ("watches", "memory", "tasks", "addresses")
    }
    assert reported == {
        "watches": "inotify instances",
        "memory": "memory",
        "tasks": "processes",
        "addresses": "addresses",
    }


def test_free_addresses_are_those_that_a_service_could_get() -> None:
    """Not the claimed ones, those listened on, those that are never given or that this host doesn't have."""
    owner = Owner(Home("p", "s", "/r"), ObjectKey(ClusterName("c"), "n", "s"))
    claims = [Claim(ip_address("127.77.0.5"), owner)]
    assert free_addresses([POOL], HostFacts(), claims) == 31
    assert free_addresses([POOL], listener(80, address="127.77.0.9"), claims) == 30
    far = Pool("far", (AddressRange(ip_address("10.0.0.0"), ip_address("10.0.3.255")),))
    loopback = HostAddresses(local=(AddressRange(ip_address("127.0.0.0"), ip_address("127.255.255.255")),))
    assert free_addresses([POOL, far], HostFacts(addresses=loopback), ()) == 32


ROUTES = (
    Route(ip_network("127.0.0.0/8"), "local", "lo", table=255),
    Route(ip_network("::1/128"), "local", "lo", table=255),
    Route(ip_network("0.0.0.0/0"), "unicast", "eth0", ip_address("192.0.2.1")),
    Route(ip_network("192.0.2.0/24"), "unicast", "eth0"),
    Route(ip_network("192.0.2.2/32"), "local", "eth0", table=255),
    Route(ip_network("10.0.0.0/8"), "unicast", "tun0"),
    Route(ip_network("172.18.0.0/16"), "unicast", "br-12"),
    Route(ip_network("fd00:1::/64"), "unicast", "eth0"),
    Route(ip_network("fe80::/64"), "unicast", "eth0"),
    Route(ip_network("192.168.7.0/24"), "local", "lo", table=255, protocol=77),
    Route(ip_network("192.168.8.0/25"), "local", "lo", table=255),
    Route(ip_network("192.168.8.128/25"), "local", "lo", table=255),
)


@pytest.mark.parametrize(
    ("addresses", "local", "reason", "note"),
    [
        ("127.77.0.0-127.77.0.31", None, None, ""),
        ("203.0.113.0-203.0.113.7", False, None, ""),
        ("192.168.7.8-192.168.7.15", True, None, ""),
        ("192.168.8.0-192.168.8.255", True, None, ""),
        ("192.168.8.128-192.168.9.127", False, None, ""),
        ("172.18.255.224-172.18.255.255", False, None, "br-12"),
        ("172.18.0.0-172.18.255.255", False, Reason.POOL_OVERLAPS, ""),
        ("10.1.2.0-10.1.2.15", False, Reason.POOL_OVERLAPS, ""),
        ("192.0.2.0-192.0.2.7", False, Reason.POOL_OVERLAPS, ""),
        ("192.0.2.128-192.0.2.143", False, None, "192.0.2.0/24"),
        ("fd00:1::10-fd00:1::1f", False, Reason.POOL_ON_LINK, ""),
        ("fd00:2::10-fd00:2::1f", False, None, ""),
    ],
)
def test_a_pool_is_held_against_the_routes(
    addresses: str,
    local: bool | None,  # noqa: FBT001 - a table
    reason: Reason | None,
    note: str,
) -> None:
    """Local already, possible, possible with a warning, or refused with the reason."""
    first, last = map(ip_address, addresses.split("-"))
    routes = pool_routes([Pool("p", (AddressRange(first, last),))], survey(ROUTES))
    if local is None:
        assert routes == ()
        return
    assert all(route.local for route in routes) is local
    assert next((route.problem.reason for route in routes if route.problem), None) is reason
    assert note in routes[0].note
    assert bool(routes[0].note) is bool(note)


@pytest.mark.parametrize(
    ("present", "here", "level", "reported"),
    [
        ({"127.77.0.1"}, {"127.77.0.1"}, Level.OK, "this host's resolver knows a.test: 127.77.0.1"),
        (
            {"127.77.0.1"},
            set(),
            Level.WARNING,
            "doesn't know a.test, which 127.0.0.77:5300 knows: it doesn't ask there",
        ),
        ({"127.77.0.1"}, {"192.0.2.1"}, Level.WARNING, "this host's resolver says 192.0.2.1 for a.test, which"),
        (set(), set(), Level.WARNING, "127.0.0.77:5300 answers, and doesn't know a.test"),
        (None, set(), Level.WARNING, "127.0.0.77:5300 doesn't answer for a.test"),
    ],
)
def test_where_a_question_for_a_name_ends(
    present: set[str] | None, here: set[str], level: Level, reported: str
) -> None:
    """At the server, or before it."""
    observed = ObservedName(
        "a.test", "127.0.0.77:5300", None if present is None else frozenset(present), frozenset(here)
    )
    (finding,) = [each for each in examine(replace(GOOD, names=(observed,))) if each.topic == "names"]
    assert finding.level is level
    assert reported in finding.text
    assert bool(finding.remedy) == (level is not Level.OK)
