"""Escaping of text from clusters for where it is shown: Markdown, HTML, a terminal.

Names and annotations come from anyone who may open a pull request. Control characters and the ones that turn or
hide text are written out, long texts are cut, and every character that a format would act on becomes a reference.
"""

from __future__ import annotations

import html
import re

from locallb.model.formatting import printable

LONGEST_NAME = 120
LONGEST_SENTENCE = 600
"""Characters of a name and of a sentence that are shown."""
_MARKDOWN = re.compile(r"[^A-Za-z0-9 ,.;:/()=-]")
_CALLS = re.compile(r"&#(?:33|35|36|37|38|64|94|126);")
"""Signs with which GitHub and GitLab begin mentions, issues, labels and the like, as references."""
_NUMBERED = re.compile(r"(?i:\bgh(?=-\d))|\b[A-Z][A-Z0-9]+(?=-\d)")
"""What GitHub links without any sign: issues by GH-1 and trackers' keys."""
_HASH = re.compile(r"\b[0-9a-f]{7,40}\b")
"""What it takes for a commit. The digest of an image has 64 digits, and is copied as it is."""
_BREAK = "&#8203;"
"""A space of no width, which keeps what stands around it from being one word."""
_COMMAND = "##["
"""What begins a command to the runner of a CI job anywhere in a line."""
_MANY_MARKS = re.compile(r"(?<=[\u0300-\u036f]{4})[\u0300-\u036f]+")
"""Accents beyond the fourth on one letter: they would pile up over the lines above."""


def visible(text: str, longest: int = LONGEST_SENTENCE) -> str:
    """Write out characters that are invisible or change how others look, and cut what is too long."""
    idle = _MANY_MARKS.sub("…", printable(text[: longest + 1])).replace(_COMMAND, "# # [")
    return idle if len(text) <= longest and len(idle) <= 2 * longest else f"{idle[: longest - 1]}…"


def html_text(text: object, longest: int = LONGEST_SENTENCE) -> str:
    """Make text for HTML, in an element or a quoted attribute."""
    return html.escape(visible(str(text), longest), quote=True)


def markdown_code(text: object) -> str:
    """Make a name for Markdown: nothing in it is Markdown, HTML, a mention, a link or the end of a table's cell."""
    return f"<code>{_references(visible(str(text), LONGEST_NAME))}</code>"


def markdown_text(text: object) -> str:
    """Make a sentence for Markdown."""
    return _references(visible(str(text)))


def _references(text: str) -> str:
    """Write every character that Markdown may act on as a reference, and break what would become a link."""
    apart = _HASH.sub(lambda match: re.sub("(.{6})(?=.)", "\\1\u200b", match[0]), text)
    apart = _NUMBERED.sub(lambda match: f"{match[0]}\u200b", apart)
    safe = _MARKDOWN.sub(lambda match: match[0] if match[0].isalpha() else f"&#{ord(match[0])};", apart)
    safe = safe.replace("://", f":{_BREAK}//").replace("www.", f"www{_BREAK}.").replace("--", "-&#45;")
    return _CALLS.sub(lambda match: match[0] + _BREAK, safe)
