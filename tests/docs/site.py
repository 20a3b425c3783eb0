"""Follows every link of the documentation as a built site: `python -m tests.docs.site build/site`, part of `make docs`.

A link leads to a file of the site, and there to what has that name; links to other sites aren't followed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LEADING = ("href", "src", "srcset", "data-src")


class _Page(HTMLParser):
    """The links and the names of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where a tag leads, and what it is called."""
        for key, value in attrs:
            if value and key in _LEADING:
                self.links.append(value)
            elif value and (key == "id" or (tag, key) == ("a", "name")):
                self.names.add(value)


@cache
def _page(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken(site: Path) -> Iterator[str]:
    """Return the links that lead nowhere, each with its page."""
    site = site.resolve()
    for path in sorted(site.rglob("*.html")):
        if path.name != "404.html":  # its links are relative to the root of a server
            for link in dict.fromkeys(_page(path).links):
                if why := _problem(site, path, link):
                    yield f"{path.relative_to(site)}: {link}: {why}"


def _problem(site: Path, page: Path, link: str) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = Path(os.path.normpath(page.parent / unquote(parts.path))) if parts.path else page
    if not target.is_relative_to(site):
        return "outside of the site"
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such file"
    name = unquote(parts.fragment)
    named = not name or target.suffix != ".html" or name in _page(target).names
    return "" if named else "no such heading"


if __name__ == "__main__":
    found = list(broken(Path(sys.argv[1])))
    sys.exit("\n".join(found) if found else 0)
