"""The picture of a session can be drawn anew, and the one in the documentation shows the same commands."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = re.compile(r"<text[^>]*>(.*?)</text>")
URL = re.compile(r"https?://[^ ]*")


def terms(picture: Path) -> str:
    drawn = picture.read_text(encoding="utf-8")
    return html.unescape(" ".join(TEXT.findall(drawn))).replace("\xa0", " ")


def commands(text: str) -> list[str]:
    """Return what a user types there, but for addresses."""
    return re.findall(r"\$ +(locallb \w+|curl|sed)", URL.sub("", text))


@pytest.mark.envoy
def test_the_session_is_what_the_commands_print(tmp_path: Path) -> None:
    """From the first `up` to the changed port; nothing is loaded from elsewhere."""
    drawn = tmp_path / "session.svg"
    subprocess.run([sys.executable, "examples/shop/session.py", str(drawn)], cwd=ROOT, check=True, timeout=120)
    retained = ROOT / "docs" / "session.svg"
    assert commands(terms(drawn)) == commands(terms(retained)) != []
    for picture in (drawn, retained):
        assert "19 created" in terms(picture)
        assert "9000/TCP → 9001/TCP" in terms(picture)
        assert "url(" not in picture.read_text().replace("url(#", "")
