"""Manual pages, made from the pages in docs/ while a wheel is built, by bare Python.

`locallb.1` and a page for each command are the parts of docs/commands.md, `locallb-PAGE.7` the other pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

COMMANDS = "commands"
_SECTION = re.compile(r"^## `(\w+)`\n", re.MULTILINE)
_INLINE = re.compile(r"(`+)(?P<code>.+?)\1|\*\*(?P<bold>.+?)\*\*|(?<![\w*])\*(?P<italic>[^*\s][^*]*)\*(?![\w*])")
_LINK = re.compile(r"!?\[([^]]*)\]\((?:[^()\s]|\([^()]*\))*\)")
_CELL = re.compile(r"(?<!\\)\|")
_COMMENT = re.compile(r"\A<!--.*?-->\n", re.DOTALL)
_ITEM = re.compile(r"(?:-|\d+\.) ")


def man_pages(docs: Path, version: str) -> Mapping[str, str]:
    """Return the pages by their paths below `share/man`."""
    pages = {path.stem: _COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sorted(docs.glob("*.md"))}
    front, *parts = _SECTION.split(pages.pop(COMMANDS))
    commands = dict(zip(parts[::2], parts[1::2], strict=True))
    made = {"man1/locallb.1": _page("locallb", 1, "commands of local-lb", front.partition("\n")[2], version)}
    for name, text in commands.items():
        about = re.search(rf"^\| `{name}\b.*? \| (.*) \|$", front, re.MULTILINE)
        made[f"man1/locallb-{name}.1"] = _page(f"locallb-{name}", 1, _brief(about[1]) if about else name, text, version)
    for name, text in pages.items():
        title, _, body = text.partition("\n")
        made[f"man7/locallb-{name}.7"] = _page(f"locallb-{name}", 7, title.removeprefix("# "), body, version)
    return made


def _brief(text: str) -> str:
    """Return the first part of a sentence."""
    return re.split(r"[.;:] ", _LINK.sub(r"\1", text))[0]


def _page(name: str, section: int, about: str, text: str, version: str) -> str:
    """Return a page: its name and subject, and what a page in Markdown says."""
    usage = f"\\fB{name.replace('-', ' ', 1)}\\fR [OPTIONS] \\&..." if section == 1 else ""
    lines = [
        f'.TH "{name.upper()}" {section} "" "local-lb {version}" "local-lb"',
        ".SH NAME",
        f"{name} \\- {_plain(about)}",
        *([".SH SYNOPSIS", usage] if usage else []),
        ".SH DESCRIPTION",
        *_blocks(text.splitlines()),
        *([".SH SEE ALSO", "\\fBlocallb\\fR(1), \\fBlocallb-configuration\\fR(7)"] if name != "locallb" else []),
    ]
    return "\n".join(lines) + "\n"


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """Write headings, code, tables, lists and paragraphs as macros of man."""
    number = 0
    while number < len(lines):
        line, begin = lines[number], number
        number += 1
        if line.startswith("```"):
            while number < len(lines) and not lines[number].startswith("```"):
                number += 1
            yield from (".PP", ".RS 4", ".nf", *map(_verbatim, lines[begin + 1 : number]), ".fi", ".RE")
            number += 1
        elif line.startswith("#"):
            level, _, title = line.partition(" ")
            yield f".{'SH' if level in {'#', '##'} else 'SS'} {_plain(title)}"
        elif line.startswith("|"):
            while number < len(lines) and lines[number].startswith("|"):
                number += 1
            yield from _table(lines[begin:number])
        elif line.strip() and not line.startswith("<!--"):
            while number < len(lines) and _continues(lines[number]):
                number += 1
            is_item = bool(_ITEM.match(line))
            mark = "\\(bu" if line.startswith("-") else line.partition(" ")[0]
            yield f'.IP "{mark}" 4' if is_item else ".PP"
            text = " ".join(part.strip() for part in lines[begin:number])
            yield _text(_ITEM.sub("", text, count=1) if is_item else text)


def _continues(line: str) -> bool:
    """Return whether a line goes on with the paragraph before it."""
    return bool(line.strip()) and not line.startswith(("```", "#", "|", "<!--")) and not _ITEM.match(line)


def _table(lines: Sequence[str]) -> Iterator[str]:
    """Write a table: the first cell of a row, and below it the others, with their headings where there are several."""
    head, _, *rows = ([cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]] for line in lines)
    for first, *others in rows:
        yield from (".TP", _text(first) or "\\&")
        pairs = [(title, cell) for title, cell in zip(head[1:], others, strict=True) if cell]
        yield _text("; ".join(f"{title}: {cell}" if len(others) > 1 else cell for title, cell in pairs)) or "\\&"


def _text(text: str) -> str:
    """Write running text, whose first character is no request."""
    written = _styled(_LINK.sub(r"\1", text))
    return f"\\&{written}" if written.startswith((".", "'")) else written


def _styled(text: str) -> str:
    made, end = "", 0
    for match in _INLINE.finditer(text):
        made += _escaped(text[end : match.start()])
        if match["code"]:
            made += f"\\fB{_hyphens(_escaped(match['code']))}\\fR"
        else:
            plain = (match["bold"] or match["italic"]).replace("`", "")
            made += f"\\f{'B' if match['bold'] else 'I'}{_escaped(plain)}\\fR"
        end = match.end()
    return made + _escaped(text[end:])


def _plain(text: str) -> str:
    """Write a text without styles, as headings have it."""
    return _escaped(_LINK.sub(r"\1", text).replace("`", "").replace("**", ""))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e")


def _hyphens(text: str) -> str:
    """Write hyphens as those that can be pasted."""
    return text.replace("-", "\\-")


def _verbatim(line: str) -> str:
    escaped = _hyphens(_escaped(line))
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
