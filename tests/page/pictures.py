"""Takes the pictures of the live page that the documentation has: `python -m tests.page.pictures`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from locallb.cli.watching.page import PageReporter
from tests.support.browser import Tab, running
from tests.support.page_scenes import calm, trouble
from tests.support.waiting import becomes

DOCS = Path(__file__).resolve().parents[2] / "docs"
DESKTOP, PHONE = (1280, 800), (390, 844)
OPEN = ("ArrowDown", "Enter")
PICTURES: dict[
    str, tuple[Callable[[], AbstractContextManager[PageReporter]], tuple[int, int], str, tuple[str, ...], int]
] = {
    "page.png": (calm, DESKTOP, "light", (), 12),
    "page-detail.png": (calm, DESKTOP, "light", ("/", *"shop/web", "Enter", "Enter"), 1),
    "page-trouble.png": (trouble, DESKTOP, "dark", (), 1),
    "page-phone.png": (trouble, PHONE, "light", (), 1),
}
"""What is shown, how large, how lit, after which keys, and after how many seconds of traffic."""
READY = "document.querySelectorAll('#lanes > li').length > 3 && document.getElementById('facts').children.length > 0"


def take(tab: Tab, keys: tuple[str, ...], seconds: int) -> bytes:
    becomes(lambda: tab.evaluate(READY))
    tab.press(*keys)
    time.sleep(seconds + 0.5)
    return tab.png()


def main() -> None:
    directory = Path(sys.argv[1]) if sys.argv[1:] else DOCS
    with running() as browser:
        for name, (scene, (width, height), light, keys, seconds) in PICTURES.items():
            with scene() as page:
                tab = browser.visit(page.url, width, height, {"prefers-color-scheme": light})
                (directory / name).write_bytes(take(tab, keys, seconds))


if __name__ == "__main__":
    main()
