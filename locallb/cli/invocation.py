"""How the user called us, so that a command in a message can be pasted as it is.

Messages of all layers name commands in one form, as `locallb up` in backticks; only what is printed for people is
rendered: with the path, the directory and the stack that were used, or as a target of make.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from msgspec import Struct

from locallb.cli.arguments import Arguments

DEFAULT_STACK = "dev"
BY_MAKE = "LOCALLB_BY_MAKE"
"""A variable that the Makefile sets."""
_NAME = "locallb"
_COMMAND = re.compile(rf"`(sudo )?{_NAME} ([^`\n]+)`")
_TARGETS = {
    "up": "up",
    "up --yes": "up",
    "destroy": "down",
    "destroy --yes": "down",
    "watch": "watch",
    "preview": "preview",
    "status": "status",
    "doctor": "doctor",
}
"""Targets of the Makefile for commands."""


class Invocation(Struct, frozen=True):
    """What stood before and around the command."""

    program: str = _NAME
    """What finds the program from here."""
    path: str = _NAME
    """What finds it for root, too."""
    directory: str = ""
    """As given by -C; empty if it wasn't."""
    stack: str = DEFAULT_STACK
    by_make: bool = False

    @classmethod
    def of(cls, args: Arguments) -> Invocation:
        """Return how this process was called."""
        path = _path(sys.argv[0])
        program = _NAME if path != _NAME and _same(shutil.which(_NAME), path) else path
        given = str(args.directory) if args.named else ""
        return cls(program, path, given, args.stack, bool(os.environ.get(BY_MAKE)))

    def render(self, text: str) -> str:
        """Write every command in `text` as it can be pasted."""
        return _COMMAND.sub(lambda match: f"`{self._command(match[1] or '', match[2])}`", text)

    def _command(self, sudo: str, terms: str) -> str:
        if self.by_make and terms in _TARGETS and not sudo:
            before = ["make", "-C", self.directory] if self.directory else ["make"]
            stack = [f"STACK={self.stack}"] if self.stack != DEFAULT_STACK else []
            return shlex.join([*before, _TARGETS[terms], *stack])
        where = ["-C", self.directory] if self.directory else []
        stack = ["--stack", self.stack] if self.stack != DEFAULT_STACK else []
        program = shlex.join([self.path if sudo else self.program, *where, *stack])
        return f"{sudo}{program} {terms}"


def _path(argument: str) -> str:
    """Return the shortest path from here to the program; its bare name where it was called in another way."""
    path = Path(argument)
    if path.name != _NAME or not path.is_file():
        return _NAME
    try:
        near = os.path.relpath(path)
    except OSError:  # nowhere
        return str(path)
    return near if not near.startswith("../../..") else str(path.absolute())


def _same(path: str | None, other: str) -> bool:
    try:
        return path is not None and Path(path).samefile(other)
    except OSError:
        return False
