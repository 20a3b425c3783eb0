"""Who gets metrics and health: programs of this host, by whatever they call it; no browser led here by another site."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli.watching.http_server import HttpRequest
from locallb.cli.watching.supervision import refusal


def requested(*hosts: str) -> int:
    """Return the status of a request under these names."""
    page = refusal(HttpRequest("GET", "/metrics", tuple(("host", host) for host in hosts)))
    return page.status if page else 200


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:9477", "127.0.0.1", "[::1]:9477", "[::1]", "192.0.2.1:80", "localhost:9477", "LOCALHOST"),
        *("workstation:9477", "metrics.localhost:9477", ""),
    ],
)
def test_programs_may_call_it_as_they_do(host: str) -> None:
    """By an address, which nobody can rebind, or by a name that only this host gives."""
    assert requested(host) == 200


def test_request_without_host_header_is_accepted() -> None:
    """As HTTP/1.0 allows."""
    assert requested() == 200


@pytest.mark.parametrize(
    "host",
    [
        *("rebound.example:9477", "localhost.example", "127.0.0.1.example:9477", "rebound.example.", "localhost."),
        *("127.0.0.1:9477@rebound.example", "rebound.example:", "metrics.localhost.example", "127.0.0.1, a.example"),
    ],
)
def test_names_that_any_site_could_give_are_refused(host: str) -> None:
    """Whatever they begin with."""
    assert requested(host) == 403
    assert requested("127.0.0.1", host) == 403


@given(st.text(max_size=50))
def test_any_text_is_taken_or_refused(host: str) -> None:
    """And nothing is raised."""
    assert requested(host) in {200, 403}
