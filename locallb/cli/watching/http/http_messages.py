"""Requests and answers of the small HTTP server: a page, or a stream of updates.

Requests have no body and answers end with their connection, as HTTP/1.0 has it. Not here: sockets (`http_server`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct, field

from locallb.threads.supervised import THREADS, Task


class Stream(Protocol):
    """A response that one client gets in pieces, until it disconnects."""

    def read(self) -> bytes:
        """Return what is new since the last call; empty if nothing is. It must not block."""

    def close(self) -> None:
        """Note that the client has gone."""


class Page(Struct, frozen=True):
    """An answer."""

    text: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers in addition to those of every response."""
    opens: Callable[[], Stream] | None = None
    """Begins the stream that follows after the text, if one does."""


class Request(Struct, frozen=True):
    """The head of a request."""

    method: str
    path: str
    """Without the query."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case, in the order in which they came."""

    def values(self, name: str) -> list[str]:
        """Return all values of a header."""
        return [value for header, value in self.headers if header == name]


Pages = Mapping[str, Callable[[str], Page]]
"""By path: what gives the page for a client with that Accept header."""
Guard = Callable[[Request], Page | None]
"""Gives the refusal of a request; None for one that is answered."""


class Answer(Struct, frozen=True):
    """What a client gets: these bytes, then a stream if there is one."""

    data: bytes
    opens: Callable[[], Stream] | None = None


def answer(head: bytes, pages: Pages, guard: Guard | None = None) -> Answer:
    """Make the answer to a request, of which the head has come."""
    request = _parsed(head)
    if request is None:
        return written(Page(b"this is no request of HTTP\n", status=HTTPStatus.BAD_REQUEST))
    page = (guard(request) if guard else None) or _page(request, pages)
    return written(page, with_body=request.method != "HEAD")


def written(page: Page, *, with_body: bool = True) -> Answer:
    """Write a page as HTTP has it."""
    status = HTTPStatus(page.status)
    headers = {
        "Server": "local-lb",
        "Date": formatdate(usegmt=True),
        "Content-Type": page.kind,
        **({} if page.opens else {"Content-Length": str(len(page.text))}),
        **page.headers,
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.0 {status.value} {status.phrase}\r\n{lines}\r\n".encode()
    return Answer(head + page.text, page.opens) if with_body else Answer(head)


def _parsed(head: bytes) -> Request | None:
    first, _, rest = head.decode("latin-1").partition("\n")
    terms = first.split()
    if len(terms) < 2:  # noqa: PLR2004 - method, target
        return None
    headers = tuple((name.strip().lower(), value.strip()) for name, _, value in map(_parted, rest.split("\n")))
    return Request(terms[0], terms[1].partition("?")[0], headers)


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _page(request: Request, pages: Pages) -> Page:
    if request.method not in {"GET", "HEAD"}:
        return Page(b"there is GET, HEAD\n", status=HTTPStatus.NOT_IMPLEMENTED)
    make = pages.get(request.path)
    if make is None:
        return Page(f"there is {', '.join(pages)}\n".encode(), status=HTTPStatus.NOT_FOUND)
    try:
        return make(next(iter(request.values("accept")), ""))
    except Exception as error:  # noqa: BLE001 - a page that can't be made is no reason to give no other
        sentence = THREADS.escaped(Task.HTTP, f"metrics {request.path}", error)
        return Page(f"{sentence}\n".encode(errors="replace"), status=HTTPStatus.INTERNAL_SERVER_ERROR)
