"""Manual pages, made from the documentation's: one for each command and page, which `man` can show."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from locallb.cli.grammar import COMMANDS

pytestmark = pytest.mark.checkout

CHECKOUT = Path(__file__).resolve().parents[2]
MADE = runpy.run_path(str(CHECKOUT / "man_pages.py"))["man_pages"](CHECKOUT / "docs", "1.2.3")
MACROS = {"TH", "SH", "SS", "PP", "TP", "IP", "RS", "RE", "nf", "fi"}


def test_each_command_and_page_has_one() -> None:
    """`man locallb-up`, `man 7 locallb-configuration`."""
    pages = {path.stem for path in (CHECKOUT / "docs").glob("*.md")} - {"commands"}
    expected = {"man1/locallb.1", *(f"man1/locallb-{name}.1" for name in COMMANDS)}
    assert MADE.keys() == expected | {f"man7/locallb-{name}.7" for name in pages}


@pytest.mark.parametrize("path", MADE)
def test_a_page_has_known_macros_alone_and_says_what_it_is_about(path: str) -> None:
    """No line of text is taken for a request, and no mark of Markdown is left."""
    lines = MADE[path].splitlines()
    macros = {line[1:].split()[0] for line in lines if line.startswith((".", "'"))}
    assert macros <= MACROS
    about = re.fullmatch(rf"{Path(path).stem} \\- [^<]+", lines[2])
    assert about, lines[2]
    text = "\n".join(re.sub(r"^\.nf$.*?^\.fi$", "", MADE[path], flags=re.MULTILINE | re.DOTALL).splitlines()[1:])
    assert not re.search(r"\]\(|\*\*|```|^\|", text, re.MULTILINE)


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
def test_groff_has_nothing_to_say_about_a_page() -> None:
    """Only, of long words, that it can't break a line."""
    command = ["groff", "-K", "utf8", "-man", "-ww", "-z", "-T", "utf8"]
    done = subprocess.run(command, input="".join(MADE.values()), check=True, capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if not re.search("break|adjust", line)] == []
