"""This user's own project, for commands where there is none: `$XDG_DATA_HOME/local-lb`, made when it is first needed.

It has what the Pulumi CLI needs as well. Its programs are written again where another installation wrote them; the
files of its stacks are the user's from then on.
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import yaml

from locallb.cli.arguments import Arguments
from locallb.cli.confirmation import confirm_new, is_of_host
from locallb.cli.console import Out
from locallb.cli.failures import Refused
from locallb.cli.projects.first_sources import (
    clusters_of,
    default_sources,
    described,
    named,
    require_existing,
)
from locallb.cli.projects.layout import Sources, program_files, stack_text, with_sources
from locallb.cli.projects.place import PROJECT_FILE, fault
from locallb.config.parsing.settings import parse_settings
from locallb.engine.state.project import check_stack_name
from locallb.model.fields import objects_of
from locallb.storage import files, paths
from locallb.storage.scratch import scratch

PREVIEW = "preview"
RUNTIME_VARIABLE = "LOCALLB_RUNTIME"
"""Variable with the runtime of new stacks: `docker` inside a container, which ends its processes with itself."""


def require_own(*, by_sudo: bool = False) -> Path:
    """Return the existing project; with `by_sudo` also that of the user who called sudo. Raises Refused."""
    root = paths.data_home()
    if by_sudo and not (root / PROJECT_FILE).exists():
        root = next((theirs for theirs in _callers_projects() if (theirs / PROJECT_FILE).exists()), root)
    if not (root / PROJECT_FILE).exists():
        raise Refused(
            f"there is no project here and none in {root}: `locallb watch` or `locallb up` makes that one; or change to"
            " the directory of a project, or name it with -C"
        )
    _require_ours(root)
    return root


def _callers_projects() -> Iterator[Path]:
    """Return the default location of the project of the user who called `sudo`; nothing without `sudo`."""
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isdecimal():
        with suppress(KeyError):
            yield Path(pwd.getpwuid(int(caller)).pw_dir) / paths.DATA / paths.PROJECT


def _require_ours(root: Path) -> None:
    if found := fault(root):
        raise Refused(f"{found}: {found.remedy or 'remove it'}, or set XDG_DATA_HOME to a directory of your own")


def prepare(args: Arguments, out: Out, lent: ExitStack) -> Path:
    """Return the project with a configuration of the stack; print in five lines what is created.

    A preview of a cluster that isn't of this host gets a project that is removed with `lent`: a stack that names such a
    cluster is the user's consent to write there.

    Raises:
        Refused: if what to serve isn't clear.
        PlaceError: if it can't be made.

    """
    check_stack_name(args.stack)
    root = paths.data_home()
    is_new = not (root / PROJECT_FILE).exists()
    if root.exists():
        _require_ours(root)
    stack = root / "stacks" / f"Pulumi.{args.stack}.yaml"
    former = files.read(stack)
    sources, text = _wanted(former, named(args.sources), stack, args.command)
    elsewhere = [entry for entry in clusters_of(sources) if not is_of_host(entry, root)]
    if args.command == PREVIEW and args.sources and elsewhere:
        root = lent.enter_context(scratch("the project of a preview"))
        stack = root / "stacks" / stack.name
        out.warning(f"{described(sources)}, not of this host: nothing of this preview is kept")
    elif not (args.sources and args.yes):
        for entry in elsewhere:
            confirm_new(entry, root, args.command, out, requires=not args.json)
    for directory in (root, root / "stacks", root / ".state", root / "provider"):
        paths.private_directory(directory)
    environment = sys.prefix if sys.prefix != sys.base_prefix else ""
    _write(root, program_files(environment, environment))
    if sources:
        _write(stack.parent, {stack.name: text})
    if is_new and root == paths.data_home() and not args.json:
        for line in _explanation(root, stack, sources):
            out.line(line)
    elif former is not None and sources and not args.json:
        out.line(f"Added to what stack {args.stack} serves: {described(sources)}; all of it is in {_near(stack)}.")
    return root


def _wanted(former: str | None, given: Sources, stack: Path, command: str) -> tuple[Sources, str]:
    """Return the sources that a stack begins with, or that its file gets, and the file's text. Raises Refused."""
    if former is not None:
        has = _sources_of(former)
        every_kind = {"kind": "all"} in has
        lacking = [source for source in given if source not in has and not ("kind" in source and every_kind)]
        return lacking, _extended(former, lacking, stack, command)
    runtime = os.environ.get(RUNTIME_VARIABLE, "")
    wanted = given or default_sources()
    parse_settings(
        {"sources": wanted, **({"runtime": runtime} if runtime else {})}
    )  # a mistake is reported before anything is written
    require_existing(wanted, paths.data_home())
    return wanted, stack_text(wanted, runtime)


def _extended(text: str, added: Sources, stack: Path, command: str) -> str:
    """Return a stack's file with more sources, else as it is. Raises Refused where a preview or its form forbids it."""
    if not added:
        return text
    former = _sources_of(text)
    changed = with_sources(text, added)
    if any("kind" in source for source in former) and any("kind" in source for source in added):
        changed = ""  # a stack has one source of kind
    if command == PREVIEW or not changed:
        adding = "; `locallb up` with these options adds them, or" if changed else ";"
        raise Refused(
            f"{stack} names other sources: {described(former)}{adding} write there what to serve, or name another"
            " stack with --stack"
        )
    parse_settings({"sources": [*former, *added]})  # a mistake is reported before anything is written
    require_existing(added, paths.data_home())
    return changed


def _sources_of(text: str) -> Sources:
    """Return what a stack's file names; nothing where it can't be understood."""
    try:
        sources = yaml.safe_load(text)["config"]["local-lb:sources"]
    except (yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError):
        return ()
    return objects_of(sources)


def _write(root: Path, texts: Mapping[str, str]) -> None:
    """Write the files with changed text. Raises FilesError."""
    for name, text in texts.items():
        if files.read(root / name) != text:
            files.write(root / name, text)


def _explanation(root: Path, stack: Path, sources: Sources) -> Iterator[str]:
    yield f"There is no project here, so local-lb begins one of your own in {_near(root)}."
    yield f"  serves  {described(sources)}, as {stack.relative_to(root)} there says"
    yield "  gives   each Service of type LoadBalancer an address of this host, by an Envoy of its own"
    claims = _near(paths.ledger_directory())
    yield f"  keeps   proxies in {_near(paths.proxies_root())}, claims of addresses in {claims}"
    authority = f"{_near(root / 'ca')}, the authority of other projects and browsers"
    yield f"  undo    `locallb destroy`, then remove {_near(root)}, but keep {authority}"


def _near(path: Path) -> str:
    """Write a path as a shell has it: shorter below this user's home, where that can be pasted."""
    try:
        below = str(path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
    return f"~/{below}" if shlex.quote(below) == below else str(path)
