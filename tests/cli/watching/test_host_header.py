"""What a Host header says is read by one rule, by which metrics and the live page both decide whom they answer."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli.watching import page, supervision
from locallb.cli.watching.http_server import Host, HttpRequest, host_of, parse_host

ANYBODY, REFUSED, PROGRAMS = (True, True), (False, False), (True, False)
"""Whom metrics and page answer: both; neither; metrics alone, which programs read by any address."""
HOSTS = [
    ("127.0.0.1", ANYBODY),
    ("127.8.8.8:9477", ANYBODY),
    ("[::1]", ANYBODY),
    ("[::1]:9477", ANYBODY),
    ("[0:0:0:0:0:0:0:1]:80", ANYBODY),
    ("localhost", ANYBODY),
    ("LocalHost:80", ANYBODY),
    ("", PROGRAMS),
    ("192.0.2.1:80", PROGRAMS),
    ("[2001:DB8::1]:80", PROGRAMS),
    ("[fe80::1%eth0]", PROGRAMS),
    ("WorkStation:9477", PROGRAMS),
    ("metrics.localhost:9477", PROGRAMS),
    ("Metrics.LOCALHOST", PROGRAMS),
    ("localhost.", REFUSED),
    ("metrics.localhost.", REFUSED),
    ("127.0.0.1.", REFUSED),
    ("workstation.", REFUSED),
    ("rebound.example:9477", REFUSED),
    ("REBOUND.EXAMPLE", REFUSED),
    ("::1", REFUSED),
    ("::1:9477", REFUSED),
    ("[127.0.0.1]", REFUSED),
    ("[::1", REFUSED),
    ("::1]", REFUSED),
    ("[]", REFUSED),
    ("[::1]x", REFUSED),
    ("[::1]:", REFUSED),
    ("127.0.0.1:", REFUSED),
    ("127.0.0.1:x", REFUSED),
    ("127.0.0.1:123456", REFUSED),
    ("127.0.0.1:80:80", REFUSED),
    ("localhost:\u0661", REFUSED),
    ("localhost, rebound", REFUSED),
    ("localhost rebound", REFUSED),
    ("user@localhost", REFUSED),
    ("localhost/", REFUSED),
    ("localhost\n", REFUSED),
    ("l\u00f6calhost", REFUSED),
    (":80", REFUSED),
    (":", REFUSED),
]


def request(*hosts: str) -> HttpRequest:
    """Make a request with these Host headers."""
    return HttpRequest("GET", "/", tuple(("host", host) for host in hosts))


def answered(*hosts: str) -> tuple[bool, bool]:
    return supervision.refusal(request(*hosts)) is None, page.refusal(request(*hosts)) is None


@pytest.mark.parametrize(("host", "by"), HOSTS)
def test_both_decide_by_the_same_reading(host: str, by: tuple[bool, bool]) -> None:
    """What is no host at all is answered by neither; two of them neither, even the same."""
    assert answered(host) == by
    assert answered(host, host) == answered("localhost", host) == answered(host, "localhost") == REFUSED


def test_none_at_all_is_a_program_of_http_1_0() -> None:
    """The page is for browsers, which always say one."""
    assert answered() == PROGRAMS


@given(st.text(max_size=30) | st.from_regex(r"\A\[?[0-9a-fA-F:.%]{0,20}\]?(:[0-9]{0,6})?\Z"))
def test_host_header_is_parsed_to_an_address_or_a_name(text: str) -> None:
    """Read again without its port it is the same."""
    read = parse_host(text)
    assert read == host_of(request(text))
    if read and read.address:
        assert parse_host(f"[{read.address}]" if read.address.version == 6 else str(read.address)) == read
    elif read and read.name:
        assert parse_host(read.name) == Host(read.name) == read
        with pytest.raises(ValueError, match="address"):
            ip_address(read.name)
