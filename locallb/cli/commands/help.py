"""The command `help`: the pages of the documentation, which every installation has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.model.texts import few
from locallb.storage.paths import shipped


def help_about(args: Arguments, out: Out) -> int:
    """Print a page, or which there are."""
    pages = _pages()
    if not args.action:
        out.table(("TOPIC", "ABOUT"), [(topic, _title(page)) for topic, page in pages.items()])
        return Exit.OK
    if args.action not in pages:
        raise Refused(f"there is no page about {args.action!r}; `locallb help` lists them: {few(list(pages))}")
    out.document(pages[args.action].read_text(encoding="utf-8"))
    return Exit.OK


def _pages() -> Mapping[str, Path]:
    return {path.stem: path for path in sorted(shipped("docs").glob("*.md"))}


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return next(line.removeprefix("# ").strip() for line in lines if line.startswith("# "))
