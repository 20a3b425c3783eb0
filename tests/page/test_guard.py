"""Who is answered by the live page: its own browser tab and programs of this host; no other site and no other name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli.watching.http_server import HttpRequest, answer
from locallb.cli.watching.page import pages_document as pages
from locallb.cli.watching.page import refusal
from locallb.storage.paths import shipped
from tests.support.pages import anchors

HERE = ("host", "127.0.0.1:9478")


def requested(*headers: tuple[str, str], method: str = "GET") -> int:
    """Return the status of a request for the page."""
    page = refusal(HttpRequest(method, "/", headers))
    return page.status if page else 200


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:9478", "127.0.0.1", "127.8.8.8:1", "localhost:9478", "LOCALHOST", "[::1]:9478", "[::1]"],
)
def test_loopback_names_are_answered_at_any_port(host: str) -> None:
    """A forwarded port has another number."""
    assert requested(("host", host)) == 200


@pytest.mark.parametrize(
    "host",
    [
        *("rebound.example:9478", "localhost.example:9478", "127.0.0.1.example", "x.localhost:9478", "192.0.2.1:9478"),
        *(
            "",
            ":9478",
            "::1",
            "::1:9478",
            "[127.0.0.1]:9478",
            "127.0.0.1:9478@rebound.example",
            "0.0.0.0:9478",
            "0",
            "2130706433",
        ),
        *("127.0.0.1:", "127.0.0.1:x", "127.0.0.1, rebound.example", "localhost."),
    ],
)
def test_request_with_another_host_header_is_refused(host: str) -> None:
    """A name that leads here (DNS rebinding) is another one; so is none, and several."""
    assert requested(("host", host)) == 403


def test_a_request_has_one_name() -> None:
    """Without one, or with two, nobody knows which was meant."""
    assert requested() == 403
    assert requested(HERE, ("host", "rebound.example")) == 403
    assert requested(HERE, HERE) == 403


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("origin", "http://127.0.0.1:9478", 200),
        ("origin", "https://127.0.0.1:9478", 403),
        ("origin", "http://127.0.0.1:3000", 403),
        ("origin", "http://localhost:9478", 403),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "none", 200),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "anything", 403),
    ],
)
def test_other_origins_are_refused(header: str, value: str, status: int) -> None:
    """Another port of this host is another origin."""
    assert requested(HERE, (header, value)) == status
    assert requested(HERE, (header, value), method="HEAD") == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "get", "X"])
def test_page_refuses_methods_other_than_get_and_head(method: str) -> None:
    """The page is only read; no preflight is ever granted."""
    page = refusal(HttpRequest(method, "/", (HERE,)))
    assert page
    assert (page.status, page.headers["Allow"]) == (405, "GET, HEAD")
    assert not [name for name in page.headers if name.startswith("Access-Control")]


@given(st.sampled_from([b"GET", b"HEAD", b"POST"]), st.binary(max_size=80), st.binary(max_size=80))
def test_page_answers_only_requests_with_a_loopback_host(method: bytes, host: bytes, rest: bytes) -> None:
    """Whatever else a request says."""
    stated = answer(b"%s / HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n" % (method, host, rest), pages("dev"), refusal).data
    answered = stated.startswith(b"HTTP/1.0 200")
    assert not answered or host.strip().lower().startswith((b"localhost", b"127.", b"["))


@pytest.mark.parametrize("path", ["/", "/page.css", "/page.js", "/lane.js", "/dom.js", "/icon.svg"])
def test_every_answer_lets_nothing_in_from_elsewhere(path: str) -> None:
    """The browser is told so, whatever is asked for; and the page itself names nothing of another place."""
    stated = answer(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode(), pages("<i>dev&"), refusal).data
    head, _, body = stated.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self';" in head
    assert b"frame-ancestors 'none'" in head
    assert b"Cross-Origin-Resource-Policy: same-origin" in head
    assert b"://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"<i>" not in body


def test_unknown_page_path_is_answered_404() -> None:
    """Without a way to anything else."""
    stated = answer(b"GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", pages("dev"), refusal).data
    assert stated.startswith(b"HTTP/1.0 404")


@pytest.mark.parametrize("page", sorted(shipped("docs").rglob("*.md")), ids=lambda page: page.stem)
def test_each_page_of_the_documentation_is_there_with_an_anchor_for_each_heading(page: Path) -> None:
    """So the link of a reason leads to its section; nothing is loaded from elsewhere, and there are no scripts."""
    path = f"/docs/{page.relative_to(shipped('docs'))}"
    stated = answer(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), pages("dev"), refusal).data.decode()
    head, _, body = stated.partition("\r\n\r\n")
    assert "200 OK" in head
    assert set(re.findall(r'<h\d id="([^"]*)">', body)) == anchors(page)
    assert not re.findall(r"<(?:script|img|iframe)|src=", body)
