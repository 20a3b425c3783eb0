"""The live page's document, style, scripts and icon. They contain no data of clusters, which comes by the stream.

Not here: the content of the stream (`lanes`, `rates`), and access control (`guard`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

from locallb.cli.page.guard import HEADERS
from locallb.cli.watching.http.http_messages import Page, Pages
from locallb.report.safe import html_text

_KINDS = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "lane.js": "text/javascript; charset=utf-8",
}
_ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="8" fill="#0b5cb8"/>
<path d="M6 16h7c4 0 4-7 8-7h5M13 16h13M13 16c4 0 4 7 8 7h5" fill="none" stroke="#fff" stroke-width="2.5"
stroke-linecap="round"/></svg>"""


def pages(stack: str) -> Pages:
    """Return the static pages, without the stream."""
    page = Page(_shell(stack).encode(), "text/html; charset=utf-8", headers=HEADERS)
    icon = Page(_ICON.encode(), "image/svg+xml", headers=HEADERS)
    assets = {f"/{name}": _page(_asset(name, kind)) for name, kind in _KINDS.items()}
    return {"/": _page(page), **assets, "/icon.svg": _page(icon)}


def _page(page: Page) -> Callable[[str], Page]:
    return lambda _accept: page


def _asset(name: str, kind: str) -> Page:
    return Page(files("locallb.cli.page").joinpath(name).read_bytes(), kind, headers=HEADERS)


def _shell(stack: str) -> str:
    return (
        files("locallb.cli.page").joinpath("page.html").read_text(encoding="utf-8").replace("STACK", html_text(stack))
    )
