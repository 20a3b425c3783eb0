"""Aliases of lo0, as far as they can be tested without a Mac: what is planned, printed, asked and understood."""

from __future__ import annotations

import sys
from ipaddress import ip_address
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb import programs as program
from locallb.config.services import DEFAULT_POOL, parse_range
from locallb.config.settings import Pool
from locallb.host import facts
from locallb.host import macos as ifconfig
from locallb.host.facts import HostError, host_facts
from locallb.host.macos import MAX, adding, alias_notes, parsed, pool_aliases, removing
from locallb.host.setup_plan import plan_setup, plan_teardown
from locallb.host.setup_steps import ObservedHost, Retained, SetupRecord, StepKind
from locallb.model.ranges import AddressRange
from locallb.programs import ProgramError

SAID = """lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> mtu 16384
\toptions=1203<RXCSUM,TXCSUM,TXSTATUS,SW_TIMESTAMP>
\tinet 127.0.0.1 netmask 0xff000000
\tinet6 ::1 prefixlen 128
\tinet6 fe80::1%lo0 prefixlen 64 scopeid 0x1
\tinet 127.77.0.3 netmask 0xffffffff
\tinet 999.77.0.3 netmask 0xffffffff
\tnd6 options=201<PERFORMNUD,DAD>
"""
THREE = ip_address("127.77.0.3")


def pool(text: str) -> Pool:
    given = parse_range(text)
    assert isinstance(given, AddressRange)
    return Pool("own", (given,))


def test_addresses_of_lo0_are_read() -> None:
    """Whatever stands there."""
    assert parsed(SAID) == {ip_address(text) for text in ("127.0.0.1", "::1", "fe80::1", "127.77.0.3")}
    assert parsed("ifconfig: interface lo0 does not exist") == frozenset()


def test_each_address_of_a_pool_is_an_alias_of_its_own() -> None:
    """Those that are there are done; what a step does and undoes is what a person would type."""
    observed = ObservedHost({}, (), "", aliases=tuple(pool_aliases([pool("127.77.0.2-127.77.0.3")], parsed(SAID))))
    steps = [step for step in plan_setup(observed, persist=False).steps if step.sort is StepKind.ALIAS]
    assert [(step.what, step.done, step.command) for step in steps] == [
        ("127.77.0.2", False, "ifconfig lo0 inet alias 127.77.0.2 netmask 255.255.255.255"),
        ("127.77.0.3", True, "ifconfig lo0 inet alias 127.77.0.3 netmask 255.255.255.255"),
    ]
    made = SetupRecord({(StepKind.ALIAS, "127.77.0.2"): Retained("", "lo0")})
    (back,) = plan_teardown(made, {(StepKind.ALIAS, "127.77.0.2"): "lo0"}, 0).steps
    assert (back.wanted, back.command) == ("", "ifconfig lo0 inet -alias 127.77.0.2")


def test_large_pool_gets_a_bounded_number_of_aliases() -> None:
    """A /64 is no list."""
    large = pool("fd00:77::/64")
    assert len(list(pool_aliases([large], ()))) == MAX
    assert f"only the first {MAX} addresses" in " ".join(alias_notes([large]))
    assert len(list(alias_notes([DEFAULT_POOL]))) == 1
    six = ip_address("fd00:77::5")
    assert " ".join(adding(six)) == "ifconfig lo0 inet6 alias fd00:77::5 prefixlen 128"
    assert " ".join(removing(six)) == "ifconfig lo0 inet6 -alias fd00:77::5"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an `ifconfig` first in PATH that says what lo0 has, and keeps what it is told."""
    script = tmp_path / "ifconfig"
    script.write_text(f"#!/bin/sh\n[ $# = 1 ] && cat <<'E' && exit\n{SAID}E\necho \"$@\" >> {tmp_path}/told\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return script


def test_ifconfig_is_read_and_changed(command: Path) -> None:
    """One address at a time, as arguments and by no shell."""
    assert THREE in ifconfig.aliases()
    ifconfig.change(THREE, wanted=True)
    ifconfig.change(THREE, wanted=False)
    reported = (command.parent / "told").read_text().splitlines()
    assert reported == [" ".join(adding(THREE)[1:]), " ".join(removing(THREE)[1:])]


@pytest.mark.parametrize("script", ["echo 'ioctl (SIOCAIFADDR): permission denied' >&2; exit 1", None])
def test_ifconfig_failure_is_reported_in_one_sentence(
    command: Path, script: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It isn't there, or this user may not."""
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setattr(program, "ADMINISTRATION", ())
    command.write_text(f"#!/bin/sh\n{script}\n") if script else command.unlink()
    reported = 'permission denied"; run this as root' if script else "ifconfig isn't installed"
    with pytest.raises(ProgramError, match=reported):
        ifconfig.change(THREE, wanted=True)


def test_on_macos_the_host_is_refused_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program says so, as `pulumi up` runs it; commands say it before they begin."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(facts, "_STATUS", "/nowhere/status")
    with pytest.raises(HostError, match="local-lb doesn't serve on macOS: run it in a Linux machine"):
        host_facts((), ())


def test_linux_needs_no_aliases() -> None:
    """Linux needs none."""
    observed = replace(ObservedHost({}, (), ""), alias_notes=())
    assert not [step for step in plan_setup(observed, persist=True).steps if step.sort is StepKind.ALIAS]
