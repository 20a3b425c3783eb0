"""Which certificate a host gets, as laws: for which names, and when there is a successor."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.certificates.local import (
    DOMAINS,
    RENEWED_DAYS,
    VALID_DAYS,
    certificate,
    certifies,
    certifies_address,
    needed,
    refusal,
)
from locallb.model.identities import Fingerprint
from locallb.model.snapshot import LocalAuthority

_LABELS = st.sampled_from(["a", "b", "shop", "*"])
_HOSTS = st.lists(st.lists(_LABELS, min_size=1, max_size=3).map(lambda labels: ".".join([*labels, "test"])), max_size=8)
_DAYS = st.integers(0, 100_000)


def _covers(name: str, host: str) -> bool:
    """Return whether clients take a name in a certificate for a host: a wildcard for one label, and not below a TLD."""
    is_wide = name.startswith("*.") and "." in name[2:]
    return name == host or (is_wide and host.partition(".")[2] == name[2:])


@given(_HOSTS)
def test_every_host_is_covered_and_no_name_is_superfluous(hosts: list[str]) -> None:
    """In whatever order they come."""
    names = needed(hosts)
    assert all(any(_covers(name, host) for name in names) for host in hosts)
    assert not [name for name in names for other in names if name != other and _covers(other, name)]
    assert names == needed(reversed(hosts)) == needed(names)


@given(st.text(min_size=1), _DAYS)
def test_there_is_a_successor_every_thirty_days_long_before_the_end(name: str, day: int) -> None:
    """In each stretch of thirty days exactly one day begins another one, the same for whoever plans."""
    days = range(day, day + RENEWED_DAYS + 1)
    made = [certificate(LocalAuthority(Fingerprint("ab"), DOMAINS, on), name, ["a.test"]) for on in days]
    changes = [before.digest != after.digest for before, after in pairwise(made)]
    assert sum(changes) == 1
    assert {each.terms for each in made} == {("local", name)}
    assert RENEWED_DAYS * 2 < VALID_DAYS


def test_certificate_changes_only_with_its_authority_or_hosts() -> None:
    """Only those: nothing else of the day."""
    existing = LocalAuthority(Fingerprint("ab"), DOMAINS, 20_000)
    same, other = LocalAuthority(Fingerprint("ab"), (), 20_000), LocalAuthority(Fingerprint("cd"), DOMAINS, 20_000)
    made = certificate(existing, "web", ["a.test"])
    assert made == certificate(same, "web", ["a.test", "a.test"])
    digests = {
        made.digest,
        certificate(other, "web", ["a.test"]).digest,
        certificate(existing, "web", ["b.test"]).digest,
    }
    assert len(digests) == 3


def test_days_of_renewal_are_spread() -> None:
    """A stack of many hosts doesn't get all its successors in one minute."""
    names = [f"gateways/shop/{number}/https" for number in range(300)]
    days = [
        {certificate(LocalAuthority(Fingerprint(""), (), day), name, []).period for name in names}
        for day in range(1, 30)
    ]
    assert [len(periods) for periods in days] == [2] * 29


@pytest.mark.parametrize(
    ("address", "is_certified"),
    [("127.77.0.1", True), ("192.168.0.9", True), ("fd00::9", True), ("192.0.2.5", False), ("2001:db8::5", False)],
)
def test_only_private_addresses_are_certified(address: str, is_certified: bool) -> None:  # noqa: FBT001 - a table
    """One that isn't would make the certificate void for all the names in it."""
    assert certifies_address(ip_address(address)) is is_certified


@pytest.mark.parametrize(
    ("host", "is_certified"),
    [
        ("shop.test", True),
        ("*.shop.test", True),
        ("a.b.internal", True),
        ("localhost", True),
        ("test", True),
        ("printer.home.arpa", True),
        ("shop.example.com", False),
        ("contest", False),
        ("a.mytest", False),
        ("test.com", False),
    ],
)
def test_only_reserved_domains_are_certified(host: str, is_certified: bool) -> None:  # noqa: FBT001 - a table
    """Domains that are reserved, unless the authority was made for others, or for all."""
    assert certifies(LocalAuthority(Fingerprint(""), DOMAINS), host) is is_certified
    assert certifies(LocalAuthority(Fingerprint(""), ()), host)
    assert certifies(LocalAuthority(Fingerprint(""), (host.removeprefix("*."),)), host)
    assert f"`locallb ca create --replace --domain {host.removeprefix('*.')}`" in refusal(LocalAuthority(), host)
