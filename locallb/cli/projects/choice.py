"""Which project a command is about: the one around here, or this user's own where there is none."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import yaml

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Refused
from locallb.cli.projects.place import PROGRAM_FILE, PROJECT_FILE, is_project, is_trusted, nearest_project
from locallb.cli.projects.trust import require_trusted
from locallb.guarded import reader
from locallb.guarded.nesting import load_yaml
from locallb.storage import paths

MAKING = frozenset({"up", "preview", "watch"})
"""Commands that begin this user's own project."""
SEARCHING = "doctor"
"""The command that looks at what isn't there yet, too; every other one needs a project."""
BY_SUDO = "host"
"""Command about this host: root runs it on behalf of the user that called `sudo`."""
_OF_OURS = ("local-lb", "locallb")
_LARGEST = 1 << 20
"""Bytes of a project's file or program."""


def chosen(args: Arguments, out: Out, lent: ExitStack) -> Path:
    """Return the project's directory; what is only for this run is removed with `lent`.

    Raises Refused where it is another Pulumi project, or there is none to use.
    """
    directory = nearest_project(args.directory)
    if is_project(directory):
        if not args.offline:  # previews of two sides read data, and run nothing
            require_trusted(directory, args)
        require_ours(directory)
        if args.sources and args.command in MAKING:
            raise Refused(
                f"{directory} is a project, whose stacks name their sources: edit those of stack {args.stack}, or run"
                " this elsewhere"
            )
        return directory
    if args.offline or args.directory != Path():
        return directory
    from locallb.cli.projects.own import prepare, require_own  # noqa: PLC0415 - most have a project

    if args.command in MAKING:
        own = prepare(args, out, lent)
    elif args.command != SEARCHING:
        own = require_own(by_sudo=args.command == BY_SUDO)
    else:
        own = paths.data_home()
        return own if is_trusted(own) or not own.exists() else directory
    require_trusted(own, args)
    return own


def require_ours(directory: Path) -> None:
    """Raise Refused for another Pulumi project: ours names local-lb, in the project's file or in the program."""
    path = directory / PROJECT_FILE
    texts = [_text(path), _text(directory / PROGRAM_FILE)]
    if not any(word in text for text in texts for word in _OF_OURS) and _is_project(texts[0]):
        raise Refused(
            f"{path} is another Pulumi project's, and stays as it is; change to another directory, or name a project of"
            " local-lb with -C"
        )


def _is_project(text: str) -> bool:
    """Return whether it is a project's file; a broken one is reported by the command that needs it."""
    try:
        document = load_yaml(text, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"name", "runtime"} <= document.keys()


def _text(path: Path) -> str:
    try:
        return reader.read(path, _LARGEST).decode(errors="replace")
    except OSError:
        return ""
