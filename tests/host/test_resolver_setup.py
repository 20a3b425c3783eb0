"""`locallb host setup` for a stack with zones, in namespaces of its own: the drop-in, its reading, and its removal."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from locallb.dns.zones import Embedded, Zone
from locallb.host import macos as ifconfig
from locallb.host import setup_changes as setup
from locallb.model.identities import ZoneName
from tests.support.host import PRIVATE, Project, project, served
from tests.support.manifests import node, port, service

pytestmark = pytest.mark.slow
DROP_IN = "/etc/systemd/resolved.conf.d/60-locallb-test.conf"
PREPARE = """
mkdir -p /run/systemd; mount -t tmpfs none /run/systemd; mkdir /run/systemd/resolve
echo '# resolved' >/run/systemd/resolve/stub-resolv.conf
mount -t tmpfs none /etc/systemd; mkdir /etc/systemd/system
mount -t tmpfs none /usr/local/bin; printf '#!/bin/sh\\necho "$@" >>/var/lib/restarts\\n' >/usr/local/bin/systemctl
chmod +x /usr/local/bin/systemctl
"""
INSPECT = "find /etc/systemd -printf '%p %y %m\\n' | sort; find /etc/systemd -type f | sort | xargs -r sha256sum"


@pytest.fixture
def stage() -> Iterator[Project]:
    """Return a stack with a zone, on a host where systemd-resolved runs."""
    with project() as made:
        made.configure(dns={"zones": [{"zone": "test", "embedded": "127.0.0.77:5300"}]})
        made.space.shell(PREPARE)
        yield made


def test_resolver_setup_is_printed_applied_and_undone(stage: Project) -> None:
    """Printed first; then done, shown, read by the resolver, and undone byte for byte."""
    before = stage.space.shell(INSPECT)
    printed = stage.locallb("host", "setup")
    assert "Domains=~test" in printed.out
    assert "systemctl try-restart systemd-resolved" in printed.out
    assert stage.space.shell(INSPECT) == before
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    assert stage.locallb("host", "setup", "--yes", PATH=path).code == 0
    assert "DNS=127.0.0.77:5300\nDomains=~test\n" in stage.space.shell(f"cat {DROP_IN}")
    assert stage.space.shell("cat /var/lib/restarts") == "try-restart systemd-resolved\n"
    assert DROP_IN in stage.locallb("host", "status").out
    assert "Nothing to do." in stage.locallb("host", "setup", "--yes", PATH=path).out
    assert stage.locallb("host", "teardown", "--yes", PATH=path).code == 0
    assert stage.space.shell(INSPECT) == before
    assert stage.space.shell("wc -l </var/lib/restarts").strip() == "2"


def test_a_zone_of_the_internet_is_set_up_by_name_only(stage: Project) -> None:
    """Printed, and refused with the option; a local zone beside it needs none."""
    zones = [{"zone": name, "embedded": "127.0.0.77:5300"} for name in ("test", "lb.github.com")]
    stage.configure(dns={"zones": zones})
    before = stage.space.shell(INSPECT)
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    done = stage.locallb("host", "setup", "--yes", PATH=path)
    assert done.code == 1
    assert "Domains=~lb.github.com" in done.out
    assert "error: NotNamed: zone lb.github.com " in done.err
    assert done.err.count("`--allow-zone ") == 1
    assert stage.space.shell(INSPECT) == before
    assert stage.locallb("host", "setup", "--yes", "--allow-zone", "GitHub.com.", PATH=path).code == 0
    assert "Domains=~lb.github.com\n" in stage.space.shell(f"cat {DROP_IN.replace('test', 'lb.github.com')}")
    assert "Nothing to do." in stage.locallb("host", "setup", PATH=path).out
    assert stage.locallb("host", "teardown", "--yes", PATH=path).code == 0


def test_a_resolver_that_cannot_be_restarted_is_reported(stage: Project) -> None:
    """The file is there, and what remains to be done is said."""
    stage.space.shell("printf '#!/bin/sh\\nexit 1\\n' >/usr/local/bin/systemctl")
    done = stage.locallb("host", "setup", "--yes", PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    assert done.code != 0
    unread = f"{DROP_IN} is changed, but systemd-resolved hasn't read it, as systemctl ended with 1: restart it"
    assert unread in done.err


LONELY = """
mkdir {root}/etc; cp -a /etc/. {root}/etc 2>/dev/null || true; mount --bind {root}/etc /etc; rm -rf /etc/dnsmasq.d
mkdir -p /run/systemd; mount -t tmpfs none /run/systemd; printf '127.0.0.1 localhost' >/etc/hosts; chmod 604 /etc/hosts
"""


@pytest.mark.envoy
def test_hosts_is_the_last_resort() -> None:
    """Where no resolver takes zones: the names of now, found by every program; taken out, the file is as it was."""
    with project(LONELY + PRIVATE) as made, served(made.space, "127.0.0.1@30080"):
        made.configure(dns={"zones": [{"zone": "test", "embedded": "127.0.0.77:5300"}]})
        made.write("all.yaml", node(), service("web", port(8080, 30080)))
        inspect = "sha256sum /etc/hosts; stat -c '%a %u %g' /etc/hosts"
        before = made.space.shell(inspect)
        made.up()
        (address,) = made.status()["web"]["addresses"]
        printed = made.locallb("host", "setup")
        assert f"{address} web.n.c.test" in printed.out
        assert "/etc/hosts has the names of now, no wildcards; run `locallb" in printed.err
        assert made.space.shell(inspect) == before
        assert made.locallb("host", "setup", "--yes").code == 0
        assert made.space.shell("getent hosts web.n.c.test").split()[0] == address
        assert "Nothing to do." in made.locallb("host", "setup", "--yes").out
        made.write("more.yaml", service("late", port(8081, 30080)))
        made.up()
        assert made.locallb("host", "setup", "--yes").code == 0
        assert made.space.shell("getent hosts late.n.c.test")
        assert made.locallb("up", "--yes").out.splitlines()[-1] == "Try: http://late.n.c.test:8081/"
        assert made.locallb("host", "teardown", "--yes").code == 0
        assert made.space.shell(inspect) == before


def test_macos_has_none_of_linux_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there is asked of the kernel by netlink: what is known of macOS is its files, and what lo0 has."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ifconfig, "aliases", frozenset)
    monkeypatch.delattr(socket, "AF_NETLINK")
    zone = Zone(ZoneName("test"), Embedded(ip_address("127.0.0.77"), 5300))
    observed = setup.inspect((), 0, (zone,))
    assert observed.routes == ()
    assert setup.present(observed.record).keys() == observed.record.changes.keys()
