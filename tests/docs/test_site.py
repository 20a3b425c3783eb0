"""Links of the built site: which are followed, and which lead nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.site import broken


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("docs/other.html", ""),
        ("docs/other.html#there", ""),
        ("docs/other.html#gone", "no such heading"),
        ("#here", ""),
        ("#gone", "no such heading"),
        ("docs", "no such file"),
        ("full/", ""),
        ("docs/some%20file.yaml#L3", ""),
        ("docs/gone.yaml", "no such file"),
        ("../elsewhere.html", "outside of the site"),
        ("https://example.com/gone", ""),
    ],
)
def test_links_of_a_built_site_are_followed(tmp_path: Path, link: str, problem: str) -> None:
    """To files and headings; a directory without a page of its own is no page."""
    for name in ("docs", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "docs/other.html").write_text('<h2 id="there">There</h2>')
    (tmp_path / "docs/some file.yaml").write_text("")
    (tmp_path / "full/index.html").write_text("")
    (tmp_path / "index.html").write_text(f'<h1 id="here">Here</h1><a href="{link}">x</a>')
    assert list(broken(tmp_path)) == ([f"index.html: {link}: {problem}"] if problem else [])
