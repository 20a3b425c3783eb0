"""The command `help`: the pages of the documentation, which every installation has, and the options of commands."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.cli.grammar import make_parser
from locallb.model.reasons import PAGE
from locallb.model.texts import any_of
from locallb.programs import ProgramError, become
from locallb.storage.paths import shipped

_REASON, _NEXT = re.compile(r"^### (\w+)\n", re.MULTILINE), "\n## "
_COLOURS = ("LESS", "FRX")
"""A variable and its value with which `less` shows colours, and ends where all of it is on the screen."""


def help_about(args: Arguments, out: Out) -> int:
    """Show a page, what it has about a reason, or the options of a command; or list the pages. Raises Refused."""
    existing, parser = pages(), make_parser()
    if not args.topic:
        out.table(("TOPIC", "ABOUT"), [(topic, _title(page)) for topic, page in existing.items()])
        out.line("`locallb help TOPIC` shows one of them, `locallb help COMMAND` the options of a command.")
        return Exit.OK
    first, *others = args.topic
    commands, sections = subcommands(parser), reasons()
    if first not in commands and not others:
        lacking = f"there is no page about {first!r}, and no such command; `locallb help` lists pages"
        first = _chosen(first, {*existing, *commands, *sections}, f"{lacking}, `locallb --help` commands")
    if first not in existing.keys() | sections.keys() or others:
        out.document(_options(parser, (first, *others)))
        return Exit.OK
    text = sections.get(first) or existing[first].read_text(encoding="utf-8")
    if not out.redraws:
        out.document(text)
        return Exit.OK
    more = f"\n`locallb {first} --help` lists the options of the command." if first in commands else ""
    _show(text + out.render(more), out)
    return Exit.OK


def _chosen(word: str, names: Collection[str], lacking: str) -> str:
    """Return the one of `names` that is called or begins so. Raises Refused."""
    found = [word] if word in names else sorted(name for name in names if name.startswith(word))
    if not found:
        raise Refused(lacking)
    if len(found) > 1:
        raise Refused(f"{word!r} may be {any_of(found)}: write more of it")
    return found[0]


def subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of the commands, or of the actions of a command."""
    positionals = parser._get_positional_actions()  # noqa: SLF001 - as completion does
    return next((action.choices for action in positionals if isinstance(action.choices, dict)), {})


def _options(parser: argparse.ArgumentParser, terms: Sequence[str]) -> str:
    """Return the help of a command. Raises Refused."""
    command = "locallb"
    for term in terms:
        choices = subcommands(parser)
        name = _chosen(term, choices, f"`{command}` has no {term!r}; `{command} --help` lists what it has")
        command, parser = f"{command} {name}", choices[name]
    return parser.format_help()


def _show(text: str, out: Out) -> None:
    """Render a page for the terminal, in the user's pager where one is named."""
    from rich.markdown import Markdown  # noqa: PLC0415 - only on a terminal

    with out.console.capture() as rendered:
        out.console.print(Markdown(text, hyperlinks=False), soft_wrap=False)
    try:
        if pager := shlex.split(os.environ.get("PAGER", "")):
            os.environ.setdefault(*_COLOURS)
            become(tuple(pager), rendered.get().encode())
    except (ProgramError, ValueError) as error:
        out.warning(f"PAGER can't be used: {error}")
    out.document(rendered.get())


def pages() -> Mapping[str, Path]:
    """Return the pages by their names."""
    return {path.stem: path for path in sorted(shipped("docs").glob("*.md"))}


def reasons() -> Mapping[str, str]:
    """Return what the documentation has about each reason, by its code."""
    parts = _REASON.split(pages()[PAGE].read_text(encoding="utf-8"))[1:]
    return {
        code: f"# {code}\n{text.partition(_NEXT)[0].strip()}\n"
        for code, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return next(line.removeprefix("# ").strip() for line in lines if line.startswith("# "))
