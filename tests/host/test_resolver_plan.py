"""What makes this host's resolver ask for a stack's zones: files by the resolver that is there, and their removal."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from locallb.dns.zones import Embedded, UpdatedServer, Zone
from locallb.host.resolvers import (
    DNSMASQ_DIRECTORY,
    HOSTS,
    MACOS,
    MACOS_DIRECTORY,
    RESOLVED,
    RESOLVED_DIRECTORY,
    inspected,
    read_names,
    routing_files,
)
from locallb.host.setup_plan import plan_setup, plan_teardown
from locallb.host.setup_steps import PRESENT, ObservedHost, Retained, SetupRecord, StepKind
from locallb.model.identities import ZoneName

ZONE = Zone(ZoneName("test"), Embedded(ip_address("127.0.0.77"), 5300))
LAB = Zone(ZoneName("lab.example"), UpdatedServer(ip_address("::1"), 53))
DROP_IN = f"{RESOLVED_DIRECTORY}/60-locallb-test.conf"
MADE = "# Made by `locallb host setup`; `locallb host teardown` removes it.\n"


def observed(*zones: Zone, **texts: str) -> ObservedHost:
    """See a host that has these paths."""
    existing = {"resolved": RESOLVED, "directory": RESOLVED_DIRECTORY, "dnsmasq": DNSMASQ_DIRECTORY, "drop_in": DROP_IN}
    return ObservedHost({}, (), "", {existing[name]: text for name, text in texts.items()}, zones=zones)


def files(host: ObservedHost) -> dict[str, str]:
    return {
        step.what: step.wanted for step in plan_setup(host, persist=False).steps if step.sort is not StepKind.LEDGER
    }


def test_a_drop_in_with_a_routing_domain_for_systemd_resolved() -> None:
    """Its directory is made where it is missing; done is done; whatever dnsmasq there is besides."""
    text = f"{MADE}[Resolve]\nDNS=127.0.0.77:5300\nDomains=~test\n"
    assert files(observed(ZONE, resolved="x", dnsmasq=PRESENT)) == {RESOLVED_DIRECTORY: PRESENT, DROP_IN: text}
    done = plan_setup(observed(ZONE, resolved="x", directory=PRESENT, drop_in=text), persist=False)
    assert [step.done for step in done.steps if step.sort is StepKind.FILE] == [True]
    (step,) = [
        step for step in plan_setup(observed(ZONE, resolved="x"), persist=False).steps if step.sort is StepKind.FILE
    ]
    assert step.command.endswith(f">{DROP_IN} && systemctl try-restart systemd-resolved")
    assert step.why == "this host's resolver asks 127.0.0.77:5300 for names below test"


def test_a_name_is_routed_by_the_file_of_any_zone_around_it() -> None:
    """Whichever resolver has it."""
    routed = set(routing_files("web.n.c.test"))
    assert {DROP_IN, f"{DNSMASQ_DIRECTORY}/60-locallb-c.test.conf"} <= routed
    assert all(set(files(observed(zone, resolved="x"))) - {RESOLVED_DIRECTORY} <= routed for zone in (ZONE,))


def test_a_line_for_dnsmasq() -> None:
    """With the port behind a hash."""
    assert files(observed(ZONE, LAB, dnsmasq=PRESENT)) == {
        f"{DNSMASQ_DIRECTORY}/60-locallb-test.conf": f"{MADE}server=/test/127.0.0.77#5300\n",
        f"{DNSMASQ_DIRECTORY}/60-locallb-lab.example.conf": f"{MADE}server=/lab.example/::1#53\n",
    }


def test_a_file_for_macos_named_like_the_zone() -> None:
    """With the port in a line of its own; somebody's own file of that name is noted, and comes back."""
    mac, path = {MACOS: "x", DNSMASQ_DIRECTORY: PRESENT}, f"{MACOS_DIRECTORY}/test"
    host = replace(observed(ZONE, LAB), texts=mac)
    text = f"{MADE}nameserver 127.0.0.77\nport 5300\n"
    made = {MACOS_DIRECTORY: PRESENT, path: text, f"{MACOS_DIRECTORY}/lab.example": f"{MADE}nameserver ::1\nport 53\n"}
    assert files(host) == made
    assert path in inspected((ZONE,))
    assert path in routing_files("web.n.c.test")
    theirs = replace(host, zones=(ZONE,), texts={**mac, MACOS_DIRECTORY: PRESENT, path: "nameserver 192.0.2.1\n"})
    (step,) = [step for step in plan_setup(theirs, persist=False).steps if step.sort is StepKind.FILE]
    assert (step.now, step.command) == ("nameserver 192.0.2.1\n", step.command.partition(" && ")[0])
    assert not plan_setup(theirs, persist=False).notes
    record = SetupRecord({(StepKind.FILE, path): Retained(step.now, text)})
    (undo,) = plan_teardown(record, {(StepKind.FILE, path): text}, 0).steps
    assert (undo.wanted, undo.command) == (step.now, f"restore {path}")


@pytest.mark.parametrize(
    ("host", "reported"),
    [
        (
            observed(ZONE),
            "/etc/hosts has the names of now, no wildcards; run `locallb host setup --yes` again",
        ),
        (observed(ZONE), "neither systemd-resolved nor /etc/dnsmasq.d, so nothing routes test to 127.0.0.77:5300"),
        (observed(ZONE, LAB, resolved="x"), "this stack has 127.0.0.77:5300 and [::1]:53: have one server answer"),
    ],
)
def test_resolver_plan_adds_a_note_where_needed(host: ObservedHost, reported: str) -> None:
    """A note, and no failure."""
    (note,) = plan_setup(host, persist=False).notes
    assert reported in note


def test_resolver_plan_is_empty_without_zones() -> None:
    """Whatever resolver the host has."""
    assert files(observed(resolved="x", dnsmasq=PRESENT)) == {}
    assert not plan_setup(observed(), persist=False).notes


def test_teardown_removes_the_file_and_has_it_read() -> None:
    """And leaves one that somebody changed."""
    changes = {
        (StepKind.DIRECTORY, RESOLVED_DIRECTORY): Retained("", PRESENT),
        (StepKind.FILE, DROP_IN): Retained("", "text"),
    }
    now = {(StepKind.DIRECTORY, RESOLVED_DIRECTORY): PRESENT, (StepKind.FILE, DROP_IN): "text"}
    steps = plan_teardown(SetupRecord(changes), now, 0).steps
    assert [step.command for step in steps] == [
        f"rm {DROP_IN} && systemctl try-restart systemd-resolved",
        f"rmdir {RESOLVED_DIRECTORY}",
    ]
    changed = plan_teardown(SetupRecord(changes), {**now, (StepKind.FILE, DROP_IN): "mine"}, 0)
    assert DROP_IN not in [step.what for step in changed.steps]
    assert any("somebody changed it since" in note for note in changed.notes)


NAMES = read_names(["web.test 127.77.0.1 ::1", "*.apps.test 127.77.0.2", "alias.test other.test", "lab.example ::1"])
REMOVING = "sed -i '/^# local-lb: names of test/,/^# local-lb: end of test$/d' /etc/hosts"
BLOCK = "# local-lb: names of test\n127.77.0.1 web.test\n::1 web.test\n# local-lb: end of test\n"


@pytest.mark.parametrize(
    ("present", "command"),
    [
        ("127.0.0.1 localhost\n", "printf "),
        (
            f"# x\n{BLOCK.replace('.1', '.9')}",
            f"{REMOVING} && ",
        ),
        (BLOCK, None),
    ],
)
def test_hosts_has_the_names_of_now_where_nothing_takes_zones(present: str, command: str | None) -> None:
    """Put in, put in place of older ones, or there already; teardown takes them out."""
    host = replace(observed(ZONE), names=NAMES, texts={HOSTS: present})
    (step,) = [step for step in plan_setup(host, persist=False).steps if step.sort is StepKind.HOSTS]
    assert (step.what, step.wanted, step.done) == ("test", BLOCK, command is None)
    if command:
        assert step.command.startswith(command)
    record = SetupRecord({(StepKind.HOSTS, "test"): Retained("", BLOCK)})
    (undo,) = plan_teardown(record, {(StepKind.HOSTS, "test"): BLOCK}, 0).steps
    assert (undo.wanted, undo.command) == (
        "",
        REMOVING,
    )
    assert not [
        step for step in plan_setup(replace(observed(ZONE), texts={}), persist=False).steps if step.what == "test"
    ]
