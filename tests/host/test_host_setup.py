"""`locallb host` for real, in namespaces of its own: what it prints, what --yes does, and that teardown undoes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.host import DEVICE, LOCALLB, Project, project

pytestmark = pytest.mark.slow
POOLS = [{"name": "outer", "addresses": ["172.18.255.224/27", "fd00:ff::e0/123"]}]
SYSCTL = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
INSPECT = (
    "ip -4 route show table all; ip -6 route show table all; ip -o address;"
    " sysctl -a 2>/dev/null | grep -E 'ip_unpriv'; cat /proc/sys/fs/inotify/max_user_instances;"
    " find /var/lib /etc/sysctl.d /etc/systemd/system -printf '%p %y %m %u %g %l\\n' | sort;"
    " find /var/lib /etc/sysctl.d /etc/systemd/system -type f | sort | xargs -r sha256sum"
)
"""Everything that setup may change, as bytes."""


@pytest.fixture
def stage() -> Iterator[Project]:
    """Return a stack whose pools lie outside 127.0.0.0/8."""
    with project() as made:
        made.configure(pools=POOLS)
        yield made


def test_without_apply_it_says_what_and_why_and_changes_nothing(stage: Project) -> None:
    """Each command that a person could type is there."""
    before = stage.space.shell(INSPECT)
    done = stage.locallb("host", "setup", "--persist")
    assert done.code == 0, done.err
    for terms in (
        "sysctl -w net.ipv4.ip_unprivileged_port_start=0",
        "sysctl -w fs.inotify.max_user_instances=8192",
        "ip route add local 172.18.255.224/27 dev lo",
        "ip route add local fd00:ff::e0/123 dev lo",
        "/var/lib/locallb/ledger",
        "/etc/sysctl.d/60-locallb.conf",
        "Nothing was changed",
    ):
        assert terms in done.out
    assert stage.space.shell(INSPECT) == before


@pytest.mark.parametrize("persist", [(), ("--persist",)])
def test_apply_does_exactly_that_and_teardown_leaves_the_host_as_before(stage: Project, persist: tuple[str]) -> None:
    """Compared byte for byte: routes, addresses, sysctls, files with their modes and owners."""
    before = stage.space.shell(INSPECT)
    done = stage.locallb("host", "setup", "--yes", *persist)
    assert done.code == 0, done.err
    assert stage.space.shell(f"cat {SYSCTL} /proc/sys/fs/inotify/max_user_instances").split() == ["0", "8192"]
    routes = stage.space.shell("ip -4 route show table local; ip -6 route show table local")
    assert "local 172.18.255.224/27 dev lo proto 77" in routes
    assert "local fd00:ff::e0/123 dev lo proto 77" in routes
    assert stage.space.shell("stat -c %a /var/lib/locallb/ledger").strip() == "3775"
    if persist:
        stage.space.shell("test -L /etc/systemd/system/multi-user.target.wants/locallb-routes.service")
        unit = stage.space.shell("cat /etc/systemd/system/multi-user.target.wants/locallb-routes.service")
        assert "route replace local fd00:ff::e0/123 dev lo" in unit
    assert "Nothing to do." in stage.locallb("host", "setup", "--yes", *persist).out
    assert {row.split()[0] for row in stage.locallb("host", "status").out.splitlines()[1:5]} == {"done"}
    assert stage.locallb("host", "teardown").code == 0
    torn = stage.locallb("host", "teardown", "--yes")
    assert torn.code == 0, torn.err
    assert stage.space.shell(INSPECT) == before


def test_persisted_unit_and_sysctl_file_restore_the_setup(stage: Project) -> None:
    """The kernel's setting and the routes were removed, as by a reboot."""
    assert stage.locallb("host", "setup", "--yes", "--persist").code == 0
    routes = "ip -4 route show table local; ip -6 route show table local"
    after = stage.space.shell(routes)
    stage.space.shell(
        f"ip route del local 172.18.255.224/27 dev lo; ip route del local fd00:ff::e0/123 dev lo; echo 1024 >{SYSCTL}"
    )
    stage.space.shell("sysctl -p /etc/sysctl.d/60-locallb.conf")
    unit = stage.space.shell("cat /etc/systemd/system/locallb-routes.service").splitlines()
    starts = [line.removeprefix("ExecStart=") for line in unit if line.startswith("ExecStart=")]
    assert len(starts) == 2
    stage.space.shell("; ".join(starts))
    assert stage.space.shell(routes) == after
    assert stage.space.shell(f"cat {SYSCTL}").strip() == "0"
    stage.space.shell("; ".join(starts))


def test_teardown_restores_the_original_after_two_setups(stage: Project) -> None:
    """Also when a reboot undid some of it in between, and when a pool was added."""
    before = stage.space.shell(INSPECT)
    assert stage.locallb("host", "setup", "--yes").code == 0
    stage.space.shell(f"ip route del local 172.18.255.224/27 dev lo; echo 1024 >{SYSCTL}")
    stage.configure(pools=[*POOLS, {"name": "more", "addresses": ["172.18.200.0/28"]}])
    assert stage.locallb("host", "setup", "--yes").code == 0
    assert "172.18.200.0/28" in stage.space.shell("ip route show table local")
    assert stage.locallb("host", "teardown", "--yes").code == 0
    assert stage.space.shell(INSPECT) == before


def test_teardown_keeps_and_reports_later_changes(stage: Project) -> None:
    """Teardown restores only what setup made."""
    assert stage.locallb("host", "setup", "--yes").code == 0
    stage.space.shell(f"echo 80 >{SYSCTL}")
    torn = stage.locallb("host", "teardown", "--yes")
    assert torn.code == 0
    assert "stays 80" in torn.err
    assert stage.space.shell(f"cat {SYSCTL}").strip() == "80"


def test_a_ledger_with_claims_stays(stage: Project) -> None:
    """Addresses of living stacks are never forgotten by a teardown."""
    assert stage.locallb("host", "setup", "--yes").code == 0
    stage.space.shell("echo {} >'/var/lib/locallb/ledger/172.18.255.225~0123456789abcdef.json'")
    torn = stage.locallb("host", "teardown", "--yes")
    assert "1 addresses are claimed" in torn.err
    stage.space.shell("test -d /var/lib/locallb/ledger")


@pytest.mark.parametrize(
    ("network", "addresses", "reason", "terms"),
    [
        ("ip address add fd00:ff::1/64 dev d0 nodad", ["fd00:ff::e0/123"], "PoolOnLink", ["fd00:ff::/64"]),
        ("ip address add 172.18.255.225/28 dev d0", ["172.18.255.224/27"], "PoolOverlaps", ["172.18.255.225 on d0"]),
        ("ip route add 172.18.0.0/16 dev wg0", ["172.18.255.224/27"], "PoolOverlaps", ["VPN", "wg0"]),
        ("ip address add 10.9.9.1/30 dev d0; ip route add 172.16.0.0/12 via 10.9.9.2", ["172.18.255.224/27"],
         "PoolOverlaps", ["10.9.9.2"]),
        ("ip route add 172.18.255.0/24 dev docker7", ["172.18.0.0/16"], "PoolOverlaps", ["Docker", "docker7"]),
    ],
)  # fmt: skip
def test_overlaps_are_reported_before_anything_is_made(
    stage: Project, network: str, addresses: list[str], reason: str, terms: list[str]
) -> None:
    """On-link IPv6 prefixes, own addresses, VPNs, routers and Docker networks; nothing at all is applied."""
    for device in ("d0", "wg0", "docker7"):
        stage.space.shell(DEVICE.format(device=device))
    stage.space.shell(network)
    stage.configure(pools=[{"name": "outer", "addresses": addresses}])
    before = stage.space.shell(INSPECT)
    done = stage.locallb("host", "setup", "--yes")
    assert done.code == 1
    assert reason in done.err
    assert all(word in done.err for word in terms), done.err
    assert stage.space.shell(INSPECT) == before


def test_a_pool_within_a_docker_network_is_possible_and_reported(stage: Project) -> None:
    """Gardener's layout: IPv4 neighbours ask for each address, and the host answers for the pool."""
    stage.space.shell(DEVICE.format(device="br-kind") + "; ip address add 172.18.0.1/16 dev br-kind")
    done = stage.locallb("host", "setup", "--yes")
    assert done.code == 0, done.err
    assert "br-kind" in done.err
    assert "hand out" in done.err


def test_apply_without_rights_is_one_sentence(stage: Project) -> None:
    """Nobody is asked for a password."""
    done = stage.locallb("host", "setup", "--yes", user=4321)
    assert done.code == 1
    assert "as root" in done.err
    assert "Traceback" not in done.err


def test_a_damaged_record_is_reported_and_stops_everything(stage: Project) -> None:
    """What was found first would be lost otherwise."""
    stage.space.shell("mkdir /var/lib/locallb; echo '{' >/var/lib/locallb/host.json")
    done = stage.locallb("host", "setup", "--yes")
    assert done.code == 1
    assert "/var/lib/locallb/host.json" in done.err


OWNER, CALLER = 65533, 65532


@pytest.fixture
def theirs(stage: Project) -> Project:
    """Return the same stack in another user's hands, with a public pool."""
    stage.configure(pools=[{"name": "outer", "addresses": ["1.1.1.1/32"]}])
    stage.space.shell(f"chown -R {OWNER}:{OWNER} '{stage.root}'; chmod 755 '{stage.root}'")
    return stage


@pytest.mark.root(only="can act as two other users")
def test_setup_by_sudo_in_a_directory_of_another_user_is_refused(theirs: Project) -> None:
    """With the owner's name, and how to name it on purpose; for the user who called sudo alone it is no other's."""
    before = theirs.space.shell(INSPECT)
    for terms in (("host", "setup"), ("host", "setup", "--yes"), ("host", "status")):
        done = theirs.space.run(
            "env", "-C", str(theirs.root), *LOCALLB, *terms, SUDO_UID=str(CALLER), SUDO_GID=str(CALLER)
        )
        assert (done.code, done.out) == (1, "")
        assert f"belongs to user {OWNER}" in done.err
        assert "name it on purpose: `" in done.err
        assert f"-C {theirs.root}" in done.err
    assert theirs.space.shell(INSPECT) == before


@pytest.mark.root(only="can act as two other users")
def test_setup_for_another_user_is_done_once_everything_is_named(theirs: Project) -> None:
    """The project by -C, its owner, each public network: what lacks is printed, and nothing is done."""
    before = theirs.space.shell(INSPECT)
    terms = ("-C", str(theirs.root), "host", "setup", "--yes")
    options = {
        f"--on-behalf-of {OWNER}": ("--on-behalf-of", str(OWNER)),
        "--allow-network 1.1.1.1/32": ("--allow-network", "1.1.1.1/32"),
    }
    for missing in options:
        given = [word for name, pair in options.items() if name != missing for word in pair]
        done = theirs.locallb(*terms, *given, SUDO_UID=str(CALLER), SUDO_GID=str(CALLER))
        assert done.code == 1, f"{missing}\n{done.out}{done.err}"
        assert "ip route add local 1.1.1.1/32 dev lo" in done.out
        assert [name for name in options if f"`{name}`" in done.err] == [missing]
    assert theirs.space.shell(INSPECT) == before
    done = theirs.locallb(
        *terms, *(word for pair in options.values() for word in pair), SUDO_UID=str(CALLER), SUDO_GID=str(CALLER)
    )
    assert done.code == 0, done.err
    assert "local 1.1.1.1 dev lo" in theirs.space.shell("ip -4 route show table local")
    own = theirs.locallb("host", "setup", SUDO_UID=str(OWNER), SUDO_GID=str(OWNER))
    assert "--on-behalf-of" not in own.err
    assert theirs.locallb("host", "teardown", "--yes").code == 0
    assert theirs.space.shell(INSPECT) == before


@pytest.mark.root(only="can give directories away")
def test_a_record_that_another_user_can_write_is_not_followed_by_root(stage: Project) -> None:
    """It says what root writes where: whoever has its directory, as an image's user may, would decide that."""
    assert stage.locallb("host", "setup", "--yes").code == 0
    stage.space.shell(f"chown {OWNER} /var/lib/locallb")
    for terms in (("host", "teardown"), ("host", "teardown", "--yes")):
        done = stage.locallb(*terms)
        assert done.code == 1
        assert (
            f"/var/lib/locallb belongs to user {OWNER}, so root doesn't do what /var/lib/locallb/host.json" in done.err
        )
        assert "`chown root /var/lib/locallb`" in done.err
    assert stage.space.shell(f"cat {SYSCTL}").strip() == "0"
    assert "Nothing to do." in stage.locallb("host", "setup", "--yes").out
    stage.space.shell("chown root /var/lib/locallb")
    assert stage.locallb("host", "teardown", "--yes").code == 0


@pytest.mark.root(only="can give directories away")
def test_a_link_in_place_of_the_ledger_gives_no_other_directory_away(stage: Project) -> None:
    """Whoever owns the directory around it could have any."""
    stage.space.shell(
        f"mkdir -p /var/lib/locallb /var/lib/secret; chown {OWNER} /var/lib/locallb; chmod 700 /var/lib/secret"
    )
    stage.space.shell("ln -s ../secret /var/lib/locallb/ledger", user=OWNER)
    done = stage.locallb("host", "setup", "--yes")
    assert done.code == 1
    assert "/var/lib/locallb/ledger can't be changed" in done.err
    assert stage.space.shell("stat -c '%a %g' /var/lib/secret").split() == ["700", "0"]
