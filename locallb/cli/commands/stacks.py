"""The commands `stack` and `init`: which stacks a project has, how one more begins and one goes; and the state of one.

`state check` is whether it can be used, `state restore` the way back, `state adopt` a move to this user and state home.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from locallb.cli.arguments import Arguments
from locallb.cli.confirmation import confirmed, is_of_host
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.cli.new_project import begin, clusters_of, require_ours
from locallb.cli.project import (
    MANIFESTS,
    PROJECT_FILE,
    STACK_SCHEMA,
    WHEEL,
    Sources,
    require_trusted,
    stack_schema,
    stack_text,
)
from locallb.cli.session import Session
from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import Project, check_stack_name, load_project
from locallb.engine.state.urns import STACK_TYPE, is_provider
from locallb.host.capabilities import is_macos
from locallb.model.desired import BALANCER
from locallb.model.errors import ClientError
from locallb.model.texts import clipped, counted
from locallb.runtimes.process_runtime import living
from locallb.runtimes.processes import ProcessError
from locallb.runtimes.single_instance import holder, only_one
from locallb.sources.configuration import all_services_lock
from locallb.sources.source import source_type
from locallb.sources.stack_home import belonging, earlier_names, here, is_elsewhere, refuse_copy, settle
from locallb.storage import files
from locallb.storage.paths import stack_directory


def stack(args: Arguments, out: Out) -> int:
    """Run the subcommand of `stack`."""
    return (list_stacks if args.action == "list" else remove)(args, out)


def list_stacks(args: Arguments, out: Out) -> int:
    """List every stack that has a configuration or a state, also one of an earlier name of the project."""
    project = load_project(args.directory)
    folder = project.state_file("*").parent
    with_state = {path.stem for path in folder.glob("*.json")}
    elsewhere = {path.stem for path in folder.parent.glob("*/*.json")}
    names = {*project.stacks(), *with_state, *(name for name in elsewhere if _earlier(project, name))}
    listed = [_stack(project, name) for name in sorted(names)]
    if args.json:
        out.raw(json.dumps(listed, indent=2))
    elif listed:
        out.table(("STACK", "LOAD BALANCERS", "CONFIGURATION"), [_cells(stack) for stack in listed])
    else:
        out.line("No stacks; `locallb init` makes one.")
    return Exit.OK


def _stack(project: Project, name: str) -> dict[str, Any]:
    path = project.stack_file(name)
    try:
        resources = Session(project, name).resources()
        balancers: int | None = sum(resource.type == BALANCER for resource in resources)
    except EngineError:  # `state check` and the doctor report what is wrong with it
        balancers = None
    return {
        "stack": name,
        "configuration": str(path) if path.exists() else None,
        "load_balancers": balancers,
        "earlier_projects": _earlier(project, name),
    }


def _earlier(project: Project, name: str) -> list[str]:
    return earlier_names(Session(project, name).home, project.state_file(name))


def _cells(stack: dict[str, Any]) -> tuple[str, str, str]:
    balancers = "its state can't be read" if stack["load_balancers"] is None else str(stack["load_balancers"])
    earlier = "".join(f", more as project {name!r}" for name in stack["earlier_projects"])
    return stack["stack"], f"{balancers}{earlier}", stack["configuration"] or "-"


def remove(args: Arguments, out: Out) -> int:
    """Remove everything that is kept of a stack that serves nothing any more; asks first. Raises Refused."""
    check_stack_name(args.stack)
    session = Session.open(args.directory, args.stack)
    session.require_stack()
    session.require_home()
    if process := holder(session.watch_lock):
        raise Refused(f"`watch` of stack {args.stack} runs (pid {process.pid}): end it first")
    _require_unused(session)
    if not args.yes:
        _ask_about(_places(session), args, out)
        if not confirmed(f"Remove all that is kept of stack {args.stack}?", out):
            return Exit.FAILED
    with only_one(session.watch_lock, f"watch of stack {args.stack}"), session.alone(out.warning, timeout=0.0):
        _require_unused(session)  # it may have been deployed meanwhile
        places = _places(session)
        for place in places:
            if _is_directory(place):
                files.remove_tree(place, place.parent)
            else:
                files.remove(place)
    if args.json:
        out.raw(json.dumps({"stack": args.stack, "removed": [str(place) for place in places]}, indent=2))
    else:
        out.line(f"Removed stack {args.stack}: its configuration, its state and their backups.")
    return Exit.OK


def _ask_about(places: Sequence[Path], args: Arguments, out: Out) -> None:
    if args.json:
        raise Refused("--json prints one document and asks nothing; say --yes as well")
    for place in places:
        out.line(f"{place}{'/' if _is_directory(place) else ''}")


def _places(session: Session) -> Sequence[Path]:
    """List the files and directories that a stack has: its configuration and its locks are the last to go."""
    own = [stack_directory(session.home), session.published_file, all_services_lock(session.home)]
    *state, locks, guard = session.store.places
    places = [*own, *state, session.project.stack_file(session.stack), locks, guard]
    return [place for place in places if os.path.lexists(place)]


def _is_directory(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def _require_unused(session: Session) -> None:
    """Refuse to forget a stack of which something is there: nothing would remove that any more. Raises Refused."""
    from locallb.cli.commands.deployments import forgotten  # noqa: PLC0415 - `stack list` needs no engine
    from locallb.cli.commands.service import Unit  # noqa: PLC0415 - likewise

    state = session.store.peek()
    resources = [one for one in state.in_order() if one.type != STACK_TYPE and not is_provider(one.type)]
    balancers = sum(resource.type == BALANCER for resource in resources)
    if resources or state.pending:
        count = max(len(resources), len(state.pending))
        existing = counted(balancers, "load balancer") if balancers else counted(count, "resource")
        raise Refused(f"stack {session.stack} has {existing}: `locallb destroy` removes them, then it can go")
    if remaining := 0 if is_macos() else forgotten(session):
        raise Refused(
            f"{counted(remaining, 'thing')} of stack {session.stack} remained on this host, of which its state knows"
            " nothing: `locallb gc` lists them, `locallb gc --yes` removes them, then the stack can go"
        )
    if (unit := Unit.of(session)).file.exists():
        raise Refused(f"{unit.file} watches stack {session.stack}: `locallb service remove` first")


def init(args: Arguments, out: Out) -> int:
    """Write the configuration of a new stack, and a project where there is none; change nothing that exists."""
    check_stack_name(args.stack)
    directory = args.place or args.directory
    sources = [{key: _observed_from(directory, key, value, args)} for key, value in args.sources]
    sources = sources or [{"manifests": MANIFESTS}]
    settings = parse_settings({"sources": sources})  # a mistake is reported before anything is written
    begins = not (directory / PROJECT_FILE).is_file()
    project = _project(directory, args, sources, begins=begins)
    path = project.stack_file(args.stack)
    try:
        path.parent.mkdir(exist_ok=True)
        files.create(path, stack_text(sources))
        files.write(path.with_name(STACK_SCHEMA), stack_schema(), mode=0o644)
    except FileExistsError:
        raise Refused(f"{path} is there already; edit it, or name another stack with --stack") from None
    if args.json:
        out.raw(json.dumps({"stack": args.stack, "configuration": str(path)}, indent=2))
    else:
        if begins:
            out.line(f"Created project {project.root}; `locallb help tool` says what is in it.")
            out.line(f"For its jobs in CI put local-lb's wheel there, too: {WHEEL}")
        out.line(f"Wrote {path}. Look at it, then: `locallb up`")
    for url in foreign_servers(sources, project.root):
        out.warning(f"{url} isn't an API server of this host: `locallb up` and `locallb watch` serve its Services")
    for missing in _missing(settings, project.root):
        out.warning(f"{missing} isn't there yet; `locallb up` needs manifests in it, or another path in {path}")
    return Exit.OK


def _observed_from(directory: Path, key: str, value: object, args: Arguments) -> object:
    """Return a source's value for a stack in `directory`; paths are given relative to where the command runs."""
    if key != "manifests" or args.place is None or Path(str(value)).is_absolute():
        return value
    return os.path.relpath(Path(str(value)).resolve(), directory.resolve())


def _project(directory: Path, args: Arguments, sources: Sources, *, begins: bool) -> Project:
    """Open the project there, or create one. Raises Refused where something else is there."""
    if begins:
        begin(directory, sources)
    else:
        require_trusted(directory.resolve(), args)
        require_ours(directory)
    return load_project(directory)


def foreign_servers(sources: Sources, root: Path) -> Iterator[str]:
    """Return the API servers that the stack names and that aren't of this host, as far as that is known."""
    for entry in clusters_of(sources):
        from locallb.kubernetes.api.kubeconfig import meaning  # noqa: PLC0415 - loads what reads YAML

        with suppress(ClientError):  # `up` reports it
            if not is_of_host(entry, root):
                yield clipped(meaning(entry.kubeconfig, entry.context, root).server.url)


def _missing(settings: Settings, root: Path) -> Iterator[Path]:
    """List the places of manifests that aren't there."""
    named = (path for source in settings.sources for path in source_type(source.type).contents(source, root))
    return (path for path in named if not path.exists())


def state(session: Session, args: Arguments, out: Out) -> int:
    """Run the subcommand of `state`."""
    actions = {"adopt": adopt, "check": check, "restore": restore}
    return actions[args.action](session, args, out)


def adopt(session: Session, args: Arguments, out: Out) -> int:
    """Move the stack to this user and state home."""
    from locallb.provider.reachable import leave  # noqa: PLC0415 - `stack list` needs no provider

    existing, current = belonging(session.home, session.project.state_file(session.stack)), here(session.home)
    if existing is None:
        out.line(f"Stack {session.stack} isn't deployed: it will belong to {current.user} where `up` runs first.")
        return Exit.OK
    refuse_copy(session.home, existing)
    question = f"End the proxies under {existing.state_home}, so that `up` starts them under {current.state_home}?"
    moves = is_elsewhere(existing, current)
    if moves and not args.yes and not confirmed(question, out):
        return Exit.FAILED
    if moves:
        resources = session.resources()
        try:
            ended = counted(leave(resources, session.home, Path(existing.state_home)), "proxy", "proxies")
        except ProcessError as error:
            remaining = " ".join(str(process.pid) for _, process in living(resources))
            raise Refused(
                f"{error}: the proxies are those of {existing.user}, and {current.user} may not end them; root may, "
                f"with"
                f" `kill {remaining}`, and then run `locallb state adopt` again"
            ) from None
        out.line(f"{ended} ended under {existing.state_home}; `locallb up` starts what is missing.")
    settle(session.home)
    out.line(f"Stack {session.stack} belongs to {current.user}, and its proxies live under {current.state_home}.")
    return Exit.OK


def check(session: Session, args: Arguments, out: Out) -> int:
    """Print every rule that the stack's state breaks; 1 if there is any."""
    path = session.project.state_file(session.stack)
    complaints = session.store.complaints()
    if args.json:
        out.raw(json.dumps({"state": str(path), "complaints": list(complaints)}, indent=2))
    elif complaints:
        for complaint in complaints:
            out.error(complaint)
        out.line("`locallb state restore` goes back to the last good state.")
    else:
        out.line(f"{path} is sound." if path.exists() else f"There is no state at {path}.")
    return 1 if complaints else 0


def restore(session: Session, args: Arguments, out: Out) -> int:
    """Go back to the newest backup that can be used, where the state can't; asks first."""
    store = session.store
    messages: list[str] = []
    if problems := store.unusable():
        if not args.yes:
            for problem in problems:
                out.error(problem)
            if not confirmed("Put it aside and go back to the last good state?", out):
                return Exit.FAILED
        store.restore(messages.append)
    if args.json:
        path = session.project.state_file(session.stack)
        out.raw(json.dumps({"state": str(path), "problems": list(problems), "done": messages}, indent=2))
        return Exit.OK
    for text in messages or ["The state can be used; there is nothing to restore."]:
        out.line(text)
    if messages:
        out.line("Now run `locallb up`: it adopts what was made since.")
    return Exit.OK
