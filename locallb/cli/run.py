"""Runs a parsed command line, and renders commands in messages so that they can be pasted.

Only the modules that a command needs are loaded, and a failure is printed as one sentence. Messages of all layers name
commands in one form, as `locallb up` in backticks; only output for people is rendered: with the path, the directory and
the stack of this invocation, or as a target of make.

Not here: the grammar (`grammar`), and the sentences of failures (`failures`).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused, complain, in_thread
from locallb.cli.project import nearest_project
from locallb.engine.state.project import PYTHON, Project
from locallb.host import limits
from locallb.host.capabilities import NO_MACOS, is_macos
from locallb.patterns import pattern

if TYPE_CHECKING:
    from locallb.cli.session import Session


DEFAULT_STACK = "dev"
BY_MAKE = "LOCALLB_BY_MAKE"
"""A variable that the Makefile sets."""
_NAME = "locallb"
_COMMAND = pattern(rf"`(sudo )?{_NAME} ([^`\n]+)`")
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


COMMANDS = {
    "up": "commands.deployments:up",
    "preview": "commands.preview:preview",
    "refresh": "commands.deployments:refresh",
    "destroy": "commands.deployments:destroy",
    "status": "commands.status:status",
    "open": "commands.status:open_address",
    "wait": "commands.scripting:wait",
    "url": "commands.scripting:print_url",
    "curl": "commands.scripting:curl",
    "explain": "commands.explain:explain_live",
    "top": "traffic:top",
    "fault": "overrides:fault",
    "drain": "overrides:drain",
    "logs": "traffic:logs",
    "gc": "commands.leftovers:gc",
    "host": "commands.host:host",
    "state": "commands.stacks:state",
    "watch": "commands.watch:watch",
    "view": "commands.view:view",
    "page": "commands.status:open_page",
    "service": "commands.service:service",
}
"""Commands of an opened stack: module and function."""
WITHOUT_STACK = {
    "ca": "commands.ca:ca",
    "gateway": "commands.gateway:gateway",
    "image": "commands.image:image",
    "plugin": "commands.plugin:plugin",
    "doctor": "commands.doctor:doctor",
    "stack": "commands.stacks:stack",
    "config": "commands.configuration:config",
    "source": "commands.configuration:source",
    "init": "commands.stacks:init",
    "completion": "completion:completion",
    "help": "commands.help:help_about",
}
"""Commands that need none; the doctor also looks where there is no project, or a broken one."""
OFFLINE = {"preview": "commands.preview:offline", "explain": "commands.explain:offline"}
TEARDOWN = "commands.host:teardown"
"""What was done to this host is written down there, and can be undone after the project is gone."""
ANYWHERE = frozenset({"host", "state"})
"""Commands that leave the stack's proxies alone, wherever they live."""
NOWHERE = frozenset({"ca", "gateway", "image", "init", "plugin", "completion", "help"})
"""Commands that choose no project, or one by themselves."""
ON_MACOS = frozenset({*NOWHERE - {"image", "plugin"}, "host", "stack", "config", "source"})
"""Commands that do something on macOS, where nothing is served: it is refused before anything is begun."""
LEADERS = frozenset({"up", "refresh", "destroy"})
"""Commands that change a stack: with leader election they hold its Lease meanwhile."""
SERVING = frozenset({"up", "watch"})
"""Commands that write to clusters which a stack didn't serve before."""
BY_LINES = frozenset({"watch", "logs"})
"""Commands with JSON lines, one per record: they print no document that could be missing."""
OF_ANY_PROGRAM = frozenset({"destroy", "gc", "state"})
"""Commands that need no plan: they do their work in a project with a program in another language, too."""
_ASK_RUNTIME = frozenset({"up", "preview", "refresh", "destroy"})


def run(args: Arguments) -> int:
    """Run the command and return its exit code."""
    out = Out(render=Invocation.of(args).render)
    threading.excepthook = in_thread
    try:
        limits.take_files()
        with ExitStack() as lent:
            code = _run(replace(args, directory=_project(args, out, lent)), out)
    except Exception as error:  # noqa: BLE001 - whatever it is, it becomes a sentence
        code = complain(error, out.error)
    if code and args.json and not out.used:
        print_failure(args.command, code, out.errors, out)
    if out.fault:
        out.error(f"standard output can't be written: {out.fault}")
        return code or Exit.FAILED
    return code


def print_failure(command: str, code: int, errors: Sequence[str], out: Out) -> None:
    """Print the document of a command that has no result."""
    if command not in BY_LINES:
        out.raw(json.dumps({"command": command, "ok": False, "code": int(code), "errors": errors}, indent=2))


def _project(args: Arguments, out: Out, lent: ExitStack) -> Path:
    """Return the directory of the project that is meant, whether one is needed or not. Raises Refused on macOS."""
    if is_macos() and not (args.command in ON_MACOS or args.offline):
        raise Refused(NO_MACOS)
    if args.command in NOWHERE or _alone(args) == TEARDOWN:
        return nearest_project(args.directory)
    from locallb.cli.new_project import chosen  # noqa: PLC0415 - reads YAML

    return chosen(args, out, lent)


def _run(args: Arguments, out: Out) -> int:
    if alone := _alone(args):
        return _load(alone)(args, out)
    command = _load(COMMANDS[args.command])
    from locallb.cli.session import Session  # noqa: PLC0415 - not every command opens a stack

    session = Session.open(args.directory, args.stack)
    _require_python(session.project, args)
    if args.command not in ANYWHERE:
        session.require_home(ending=args.command == "destroy")
    if args.command in _ASK_RUNTIME:
        session.require_runtime(planned=args.command in {"up", "preview"})
    if args.command in SERVING or (args.command, args.action) == ("service", "install"):
        _ask_about_clusters(session, args, out)
    if args.command not in LEADERS or session.election() is None:
        return command(session, args, out)
    from locallb.cli.leading import leading  # noqa: PLC0415 - loads a client of Kubernetes

    with leading(session.settings, session.home):
        return command(session, args, out)


def _require_python(project: Project, args: Arguments) -> None:
    """Refuse a command that needs the plan of a program in another language. Raises Refused."""
    if project.runtime == PYTHON or args.command in OF_ANY_PROGRAM:
        return
    by_pulumi = _BY_PULUMI.get(args.command, "up")
    raise Refused(
        f"the program of {project.root / 'Pulumi.yaml'} is written for the runtime {project.runtime}, and only Pulumi's"
        f" CLI runs it: `pulumi {by_pulumi} --stack {args.stack}`;"
        " `locallb destroy`, `gc` and `state` work for it as well"
    )


_BY_PULUMI = {
    "preview": "preview",
    "refresh": "refresh",
    "status": "stack output",
    "open": "stack output",
    "url": "stack output",
}
"""What has the purpose of a command for programs of every language; `up` for others."""


def _ask_about_clusters(session: Session, args: Arguments, out: Out) -> None:
    """Ask about clusters of the stack that aren't of this host and that it doesn't name. Raises Refused."""
    entries, others = session.clusters_by_current_context()
    if entries:
        from locallb.cli.confirmation import confirm_current  # noqa: PLC0415 - most stacks have none

        confirm_current(
            entries,
            session.project.root,
            out,
            requires=not (args.json or args.yes),
            alone=not (others or session.resources()),
        )


def _alone(args: Arguments) -> str:
    """Return what runs a command that needs no stack; empty for the others."""
    if args.command == "host" and args.action == "teardown":
        return TEARDOWN
    return OFFLINE[args.command] if args.offline else WITHOUT_STACK.get(args.command, "")


def _load(place: str) -> Callable[..., int]:
    module, _, function = place.partition(":")
    loaded: Callable[..., int] = getattr(import_module(f"locallb.cli.{module}"), function)
    return loaded
