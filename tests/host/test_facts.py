"""What this host allows, found on the real one: sockets in the way, inotify instances, ports, addresses."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from ipaddress import ip_address, ip_network
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from locallb.config.settings import Pool
from locallb.host import facts, netlink
from locallb.host import limits as descriptors
from locallb.host.facts import HostError, host_facts
from locallb.host.limits import socket_owners
from locallb.host.netlink import RouteError
from locallb.host.sockets import LISTEN, rows
from locallb.model.errors import ClientError
from locallb.model.identities import Protocol
from locallb.model.ranges import AddressRange
from locallb.model.routes import HostRoute
from locallb.model.snapshot import HostFacts, Socket
from tests.support.descriptors import few_files
from tests.support.environment import lent

ME = os.getpid()
MY_NAME = f"{Path('/proc/self/comm').read_text().strip()} ({ME})"
PLACE = "127.90.0.1"


def bound(kind: socket.SocketKind, address: str = PLACE, port: int = 0, *, v6only: bool | None = None) -> socket.socket:
    """Bind a socket; a TCP one listens."""
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    try:
        if v6only is not None:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
        made.bind((address, port))
        if kind is socket.SOCK_STREAM:
            made.listen()
    except OSError:
        made.close()
        raise
    return made


def port_of(bound_socket: socket.socket) -> int:
    return int(bound_socket.getsockname()[1])


def observed(port: int, *our_pids: int) -> list[Socket]:
    """Return the foreign sockets at a port."""
    return [row for row in host_facts((), our_pids).sockets if row.port == port]


KINDS = [(socket.SOCK_STREAM, Protocol.TCP), (socket.SOCK_DGRAM, Protocol.UDP)]


@pytest.mark.parametrize(("kind", "protocol"), KINDS)
@pytest.mark.parametrize("address", [PLACE, "::1"])
def test_a_socket_of_others_is_seen_with_its_process(kind: socket.SocketKind, protocol: Protocol, address: str) -> None:
    """Listening TCP and bound UDP, in both families."""
    with closing(bound(kind, address)) as bound_socket:
        expected = Socket(ip_address(address), port_of(bound_socket), protocol, MY_NAME)
        assert observed(port_of(bound_socket)) == [expected]


def test_our_own_processes_are_not_in_the_way() -> None:
    """The proxies that a plan is made for hold the very ports that it plans."""
    with closing(bound(socket.SOCK_STREAM)) as bound_socket:
        assert observed(port_of(bound_socket), ME) == []
        assert observed(port_of(bound_socket), ME + 1) != []


SLEEP = "import socket, sys, time; s = socket.create_server((sys.argv[1], 0)); print(*s.getsockname(), flush=True)"


@contextmanager
def listener(address: str, *command: str, **environment: str) -> Iterator[int]:
    """Run a process that listens, and give its port."""
    code = f"{SLEEP}; time.sleep(600)"
    line = [*command, sys.executable, "-c", code, address]
    surroundings = {**os.environ, **environment}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=surroundings) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline().split()[1])
        finally:
            process.kill()


def foreign(port: int, *our_pids: int) -> list[tuple[bool, bool]]:
    """Return what the sockets at a port count as: another user's, and the only one at its address."""
    return [(found.foreign, found.alone) for found in observed(port, *our_pids)]


def test_a_proxy_of_another_state_home_counts_as_another_users(tmp_path: Path) -> None:
    """Neither is in this user's ledger; a proxy of this state home is, although it may be another stack's."""
    for name in ("theirs", "ours"):
        (tmp_path / name / "locallb/proxies/0123456789ab").mkdir(parents=True)
    with lent({"XDG_STATE_HOME": str(tmp_path / "ours")}):
        for name, expected in (("theirs", (True, True)), ("ours", (False, False)), ("gone", (False, False))):
            mark = str(tmp_path / name / "locallb/proxies/0123456789ab")
            with listener(PLACE, LOCALLB_PROXY=mark) as port:
                assert foreign(port) == [expected], name
        mark = str(tmp_path / "theirs/locallb/proxies/0123456789ab")
        with closing(bound(socket.SOCK_STREAM)), listener(PLACE, LOCALLB_PROXY=mark) as port:
            assert foreign(port, ME) == [(True, False)], "this stack serves at the address"


@pytest.mark.root(only="can act as another user")
def test_a_socket_of_another_user_is_known_without_rights() -> None:
    """By its number in the kernel's table."""
    drop = ("setpriv", "--reuid=23451", "--regid=23451", "--clear-groups")
    with listener(PLACE, *drop) as port:
        assert foreign(port) == [(True, True)]
    with listener(PLACE) as port:
        assert foreign(port) == [(False, False)]


def test_connections_are_not_in_the_way() -> None:
    """Neither one to a port nor one from it keeps that port from being bound."""
    with closing(bound(socket.SOCK_STREAM)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            assert len(observed(port_of(server))) == 1
            assert observed(int(client.getsockname()[1])) == []


@pytest.mark.parametrize(("kind", "protocol"), KINDS)
def test_a_wildcard_of_both_families_is_seen_in_both(kind: socket.SocketKind, protocol: Protocol) -> None:
    """The kernel lists it once, as IPv6, but it holds the port of every IPv4 address as well."""
    with closing(bound(kind, "::", v6only=False)) as bound_socket:
        places = [Socket(ip_address(text), port_of(bound_socket), protocol, MY_NAME) for text in ("0.0.0.0", "::")]
        assert observed(port_of(bound_socket)) == places


@pytest.mark.parametrize(("kind", "protocol"), KINDS)
def test_a_wildcard_of_ipv6_only_leaves_ipv4_alone(kind: socket.SocketKind, protocol: Protocol) -> None:
    """IPV6_V6ONLY stands in no table; it is found out by trying."""
    with closing(bound(kind, "::", v6only=True)) as bound_socket:
        assert observed(port_of(bound_socket)) == [Socket(ip_address("::"), port_of(bound_socket), protocol, MY_NAME)]


def test_a_mapped_address_is_an_ipv4_address() -> None:
    """A socket of IPv6 may be bound to ::ffff:127.90.0.1."""
    with closing(bound(socket.SOCK_STREAM, f"::ffff:{PLACE}", v6only=False)) as bound_socket:
        assert [str(place.address) for place in observed(port_of(bound_socket))] == [PLACE]


def test_sockets_come_in_a_fixed_order() -> None:
    """Equal hosts give equal plans."""
    with closing(bound(socket.SOCK_STREAM)), closing(bound(socket.SOCK_DGRAM)):
        sockets = host_facts((), ()).sockets
        assert [row.protocol for row in sockets] == sorted(row.protocol for row in sockets)
        assert len(set(sockets)) == len(sockets)


@pytest.fixture
def instances(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Open two inotify instances and tell how many this process has then: earlier tests may have left some."""
    monkeypatch.setattr(descriptors, "_pids", lambda: [ME])
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    before = limit - host_facts((), ()).watches
    libc = ctypes.CDLL(None, use_errno=True)
    opened = [libc.inotify_init1(os.O_CLOEXEC) for _ in range(2)]
    assert min(opened) >= 0
    yield before + len(opened)
    for descriptor in opened:
        os.close(descriptor)


def test_inotify_instances_of_others_are_counted(instances: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this user, whoever started them; not our proxies', which the plan counts itself."""
    monkeypatch.setattr(descriptors, "_pids", lambda: [ME])
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    assert limit - host_facts((), ()).watches == instances
    assert host_facts((), [ME]).watches == limit
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert host_facts((), ()).watches == limit


def test_more_instances_than_allowed_leave_none(instances: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit may have been lowered since."""
    monkeypatch.setattr(descriptors, "_pids", lambda: [ME])
    monkeypatch.setattr(facts, "_number", lambda *_: instances - 1)
    assert host_facts((), ()).watches == 0


def test_processes_that_vanish_count_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the list of processes and a look at each, some end."""
    removed = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    monkeypatch.setattr(descriptors, "_pids", lambda: [removed, ME])
    with closing(bound(socket.SOCK_STREAM)) as bound_socket:
        inode = str(os.fstat(bound_socket.fileno()).st_ino)
        assert socket_owners({inode}, [removed]).holders == {inode: MY_NAME}


def pool(*ranges: tuple[str, str]) -> Pool:
    return Pool("p", tuple(AddressRange(ip_address(first), ip_address(last)) for first, last in ranges))


def here(seen_facts: HostFacts, text: str) -> bool:
    """Return whether an address counts as this host's."""
    assert seen_facts.addresses
    address = ip_address(text)
    return any(
        span.first.version == address.version and int(span.first) <= int(address) <= int(span.last)
        for span in seen_facts.addresses.local
    )


def test_addresses_of_the_loopback_network_are_always_there() -> None:
    """Linux has all of 127.0.0.0/8; the last one is its broadcast address, to which nobody can connect."""
    seen_facts = host_facts((), ())
    assert all(here(seen_facts, text) for text in ("127.0.0.1", "127.77.0.0", "127.255.255.254"))
    assert not any(
        here(seen_facts, text) for text in ("126.255.255.255", "127.255.255.255", "240.0.2.0", "2001:db8::1")
    )


def test_local_ranges_can_be_bound_and_addresses_beside_them_cannot() -> None:
    """Checked with the kernel, without freebind: the ends of every range, and just outside of it."""
    seen_facts = host_facts((), ())
    assert seen_facts.addresses
    ranges = [span for span in seen_facts.addresses.local if span.first.version == 4]
    for span in ranges:
        for address in (span.first, span.last):
            bound(socket.SOCK_DGRAM, str(address)).close()
    for outside in (span.last + 1 for span in ranges):
        if not here(seen_facts, str(outside)) and outside not in seen_facts.addresses.broadcast:
            with pytest.raises(OSError, match="assign"):
                bound(socket.SOCK_DGRAM, str(outside))


def test_a_broadcast_address_is_no_address_even_behind_a_local_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool at the end of a Docker network has one: it can be bound, and no client can connect to it."""
    bridge = [
        HostRoute(ip_network("172.18.255.224/27"), "local", "lo", table=255),
        HostRoute(ip_network("172.18.255.255/32"), "broadcast", "br0", table=255),
    ]
    monkeypatch.setattr(facts, "routes", lambda: tuple(bridge))
    seen_facts = host_facts((), ())
    assert seen_facts.addresses
    assert seen_facts.addresses.broadcast == {ip_address("172.18.255.255")}
    assert here(seen_facts, "172.18.255.254")
    assert not here(seen_facts, "172.18.255.255")


def test_behind_a_local_route_ipv6_needs_freebind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Envoy has it. Who doesn't, as Docker's proxy, can bind the addresses of interfaces only."""
    monkeypatch.setattr(facts, "routes", lambda: (HostRoute(ip_network("::/0"), "local", "lo", table=255),))
    monkeypatch.setattr(facts, "_bindable", lambda: iter([ip_address("fd00::5")]))
    envoy, strict = host_facts((), ()), host_facts((), (), strict=True)
    assert here(envoy, "fd00::6")
    assert here(strict, "fd00::5")
    assert not here(strict, "fd00::6")


def test_the_default_route_is_no_route_to_anywhere_whole_or_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what only rules ask for; routes that say "nobody" are known, as they keep others from counting."""
    node = ip_address("172.18.0.2")
    retained = (
        HostRoute(ip_network("10.244.0.0/24"), "unicast", "br0", node),
        HostRoute(ip_network("10.244.0.0/25"), "blackhole"),
        HostRoute(ip_network("::/0"), "unicast", "eth0"),
        *(
            HostRoute(ip_network(network), "unicast", "tun0")
            for network in ("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "2000::/3")
        ),
    )
    others = (
        HostRoute(ip_network("10.9.0.0/16"), "unicast", "wg0", table=51820),
        HostRoute(ip_network("ff00::/8"), "multicast", "br0", table=255),
    )
    monkeypatch.setattr(facts, "routes", lambda: (*retained, *others))
    seen_facts = host_facts((), ())
    assert set(seen_facts.routes) == set(retained)
    assert seen_facts.routed == (ip_network("10.244.0.0/24"), ip_network("10.9.0.0/16"))


def fail_with(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kernel refuse to list the routes."""

    def refuse(*_: object) -> Iterator[tuple[int, bytes]]:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(netlink, "talk", refuse)


def test_where_routes_may_not_be_read_only_what_needs_no_table_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox: the loopback network, and addresses that are listed by themselves and can be bound."""
    fail_with(errno.EPERM, monkeypatch)
    seen_facts = host_facts([pool(("240.0.2.0", "240.0.2.0"), ("127.0.0.1", "127.0.0.1"), ("::1", "::1"))], ())
    assert here(seen_facts, "127.77.0.5")
    assert not here(seen_facts, "240.0.2.0")
    assert seen_facts.routed is None


def test_a_failure_of_the_moment_says_nothing_about_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Services would lose theirs because memory was short for an instant."""
    fail_with(errno.ENOBUFS, monkeypatch)
    with pytest.raises(RouteError, match="can't be read"):
        host_facts((), ())


def test_a_list_that_changed_while_it_was_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says so; a route that is missing in one answer would take an address from its Service."""
    answers = chain([InterruptedError(errno.EINTR, "changed")], repeat(None))
    real = netlink.talk

    def interrupted(*terms: Any) -> Iterator[tuple[int, bytes]]:  # noqa: ANN401 - passed on
        if problem := next(answers):
            raise problem
        return real(*terms)

    monkeypatch.setattr(netlink, "talk", interrupted)
    assert here(host_facts((), ()), "127.0.0.1")


def test_a_kernel_without_rules_has_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some sandboxes and small kernels are: nothing is led elsewhere then."""
    real = netlink.talk

    def without(kind: int, *terms: Any) -> Iterator[tuple[int, bytes]]:  # noqa: ANN401 - passed on
        if kind == netlink._GET_RULE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return real(kind, *terms)

    monkeypatch.setattr(netlink, "talk", without)
    facts = host_facts((), ())
    assert here(facts, "127.0.0.1")
    assert facts.diversions == ()


START = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
ALL, NONE = "000001ffffffffff", "0000000000000000"


@pytest.mark.parametrize(
    ("user", "effective", "ambient", "answer", "start"),
    [
        (0, ALL, NONE, 0, 0),
        (0, NONE, NONE, 0, START),
        (0, ALL, NONE, 13, START),
        (1000, ALL, NONE, 0, START),
        (1000, ALL, ALL, 0, 0),
        (1000, ALL, ALL, 98, 0),
    ],
)
def test_low_ports_are_ours_where_an_envoy_may_bind_them(  # noqa: PLR0913, PLR0917 - a table
    user: int, effective: str, ambient: str, answer: int, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root hands its capabilities down, others only ambient ones; in a user namespace the kernel may still refuse."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(facts, "_bind_error", lambda *_: answer)
    assert facts._port_start({"CapEff": effective, "CapAmb": ambient}) == start


def test_the_first_port_is_one_that_can_be_bound() -> None:
    """Whoever runs this."""
    first = host_facts((), ()).unprivileged_port_start
    assert first in {0, START}
    if first > 1:
        with pytest.raises(PermissionError):
            bound(socket.SOCK_DGRAM, PLACE, first - 1)


def test_a_host_without_proc_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence."""
    monkeypatch.setattr(facts, "_STATUS", "/nowhere/status")
    with pytest.raises(HostError) as caught:
        host_facts((), ())
    assert str(caught.value) == (
        "/nowhere/status can't be read (No such file or directory): use Linux, with /proc mounted"
    )


def test_a_host_that_lacks_descriptors_is_not_said_to_lack_proc() -> None:
    """What helps is something else."""
    with few_files(0), pytest.raises(HostError) as caught:
        host_facts((), ())
    assert "raise the limit of open files" in str(caught.value)
    assert "/proc mounted" not in str(caught.value)


def test_a_kernel_that_doesnt_tell_has_the_usual_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather too little than too much."""
    monkeypatch.setattr(facts, "_INSTANCES", "/nowhere")
    monkeypatch.setattr(descriptors, "_pids", lambda: [ME])
    assert host_facts((), [ME]).watches == 128


def stated(inspect: Callable[[], object]) -> object:
    """Return what a look tells, or why it tells nothing."""
    try:
        return inspect()
    except ClientError as error:
        return str(error)


@pytest.mark.parametrize("spare", range(4))
@pytest.mark.parametrize("path", [facts._PORT_START, facts._IPV6_ADDRESSES, facts._INSTANCES])
def test_host_facts_without_descriptors_are_reported_and_never_wrong(path: str, spare: int) -> None:
    """Neither low ports nor IPv6 are given up, and no port of ours counts as another's, for lack of descriptors."""
    checks: list[Callable[[], object]] = [
        lambda: facts._number(path, -7),
        lambda: list(facts._bindable()),
        lambda: {row.inode for row in rows(Protocol.TCP, LISTEN)} >= {inode},
        lambda: socket_owners({inode}, {os.getpid()}).ours >= {inode},
        lambda: facts._covers_ipv4(Protocol.TCP, port),
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode, port = str(os.fstat(server.fileno()).st_ino), server.getsockname()[1]
        for inspect in checks:
            usual = inspect()
            with few_files(spare):
                now = stated(inspect)
            assert now == usual or "raise the limit of open files" in str(now)
