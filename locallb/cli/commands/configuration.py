"""The commands `config` and `source`: keys of a stack's file, and its list of sources, shown and changed.

Nothing is written that `up` would refuse, and nothing else of the file changes. Not here: the edit of its text
(`stack_file`), and which keys and values there are (`config.parsing`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from locallb.cli.arguments import Arguments
from locallb.cli.commands.stacks import foreign_servers
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.cli.new_project import named, require_existing
from locallb.cli.project import PROGRAM_FILE, PROJECT_FILE, Sources, is_standard
from locallb.cli.session import Session
from locallb.cli.stack_file import REMOVED, NotEditable, edited, with_items
from locallb.cli.stack_sources import ListedSource, listed_sources, sources_of, with_sources
from locallb.cli.targets import selected
from locallb.config.parsing import KEYS
from locallb.config.settings import SettingsError
from locallb.config.values import NAMESPACE, Mistakes
from locallb.engine.state.project import PYTHON, load_config, namespaced, parsed
from locallb.model.fields import objects_of
from locallb.model.texts import few
from locallb.runtimes.single_instance import holder
from locallb.sources import program_arguments
from locallb.sources.configuration import configuration_of, stack_settings
from locallb.storage import files, paths

_SOURCES = "sources"
_PREFIX = f"{NAMESPACE}:"


def config(args: Arguments, out: Out) -> int:
    """Run the subcommand of `config`."""
    stack = _Stack(Session.open(args.directory, args.stack))
    given = args.assignments[::2] if args.action == "set" else args.keys
    keys = [key.removeprefix(_PREFIX) for key in given]
    _refuse_unknown(keys)
    if args.action in {"set", "unset"}:
        values = map(_value, args.assignments[1::2]) if args.action == "set" else [REMOVED] * len(keys)
        return _change(stack, dict(zip(keys, values, strict=True)), args, out)
    existing = {one["key"]: one for one in stack.values()}
    if missing := [key for key in keys if key not in existing]:
        raise Refused(
            f"{_PREFIX}{missing[0]} isn't set in stack {args.stack}; `locallb help configuration` has the defaults"
        )
    shown = [existing[key] for key in keys or existing]
    if args.json:
        out.raw(json.dumps({**stack.document, "keys": shown}, indent=2))
    elif args.action == "get":
        for one in shown:
            out.line(_text(one["value"]))
    elif shown:
        out.table(("KEY", "VALUE", "FROM"), [(one["key"], _text(one["value"]), one["from"]) for one in shown])
    else:
        out.line(f"Stack {args.stack} sets no keys; `locallb config set KEY VALUE` does.")
    return Exit.OK


def _change(stack: _Stack, values: Mapping[str, object], args: Arguments, out: Out) -> int:
    """Set keys, or remove them."""
    before: dict[str, object] = {}

    def changed(text: str) -> str:
        before.update(stack.own(text))
        if missing := [key for key, value in values.items() if value is REMOVED and key not in before]:
            raise Refused(
                f"{stack.path} doesn't have {_PREFIX}{missing[0]}; `locallb config list` says which keys are set"
            )
        for key, value in values.items():
            text = edited(text, stack.place(text, key), value)
            while value is REMOVED and key in stack.own(text):  # by the other spelling
                text = edited(text, stack.place(text, key), value)
        return text

    stack.rewrite(changed)
    keys = [
        {"key": key, "before": before.get(key), "value": None if value is REMOVED else value}
        for key, value in values.items()
    ]
    if args.json:
        out.raw(json.dumps({**stack.document, "keys": keys}, indent=2))
        return Exit.OK
    for one in keys:
        out.line(f"{one['key']}: {_text(one['before'])} → {_text(one['value'])}")
    _print_effect(stack, out)
    return Exit.OK


def _print_effect(stack: _Stack, out: Out) -> None:
    """Print which file was written, and how it takes effect."""
    process = holder(stack.session.watch_lock)
    by = f"the `watch` that runs (pid {process.pid}) applies it" if process else "`locallb up` applies it"
    out.line(f"Wrote {stack.path}; {by}.")


class _Stack(Struct, frozen=True):
    """A stack's file, as a user has written it."""

    session: Session

    @property
    def path(self) -> Path:
        return self.session.project.stack_file(self.session.stack)

    @property
    def document(self) -> Mapping[str, object]:
        """The beginning of every document: which stack and file."""
        return {"stack": self.session.stack, "configuration": str(self.path)}

    def values(self) -> list[dict[str, Any]]:
        """Return every key that has a value, with the file that gives it. Raises EngineError, SettingsError."""
        project = self.session.project
        flat = load_config(project, self.session.stack)
        own = self.own(files.read(self.path) or "")
        return [
            {"key": key, "value": value, "from": str(self.path if key in own else project.root / PROJECT_FILE)}
            for key, value in configuration_of(flat).items()
        ]

    def own(self, text: str) -> Mapping[str, object]:
        """Return the keys of local-lb that the file itself has. Raises YAMLError, ValueError."""
        written = {self._full(name): value for name, value in _section(text).items()}
        return {key.removeprefix(_PREFIX): value for key, value in written.items() if key.startswith(_PREFIX)}

    def place(self, text: str, key: str) -> tuple[str, str]:
        """Return where a key is in the file: as it is written there, otherwise with its namespace.

        Of both spellings that counts which comes last.
        """
        full = f"{_PREFIX}{key}"
        return "config", next((name for name in reversed(_section(text)) if self._full(name) == full), full)

    def _full(self, key: str) -> str:
        return namespaced(key, self.session.project.name)

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Replace the file's text by one that `up` takes.

        Raises EngineError, SettingsError, FilesError or Refused, and the file is as it was.
        """
        project, stack = self.session.project, self.session.stack
        if not os.path.lexists(self.path):
            load_config(project, stack)  # says which stacks there are
        self._require_read()

        def checked(text: str) -> str:
            try:
                changed = change(text)
            except (NotEditable, yaml.YAMLError, ValueError) as error:
                flat = load_config(project, stack)  # says what is wrong with the file
                if isinstance(error, ValueError):
                    stack_settings(flat, self.session.home)
                raise
            stack_settings(load_config(project, stack, changed.encode(errors="surrogateescape")), self.session.home)
            return changed

        with files.locked(self.path.parent):
            files.rewrite(self.path, checked)

    def _require_read(self) -> None:
        """Refuse to change a file of which the program reads nothing. Raises Refused, SourceError."""
        project = self.session.project
        has_own = not is_standard(project.main / PROGRAM_FILE) and program_arguments.read(self.session.home)
        if has_own or project.runtime != PYTHON:
            raise Refused(f"the program in {project.main} gives the configuration itself: change its arguments there")


def _section(text: str) -> dict[str, object]:
    """Return what a stack's file has below `config`; nothing of a file that has something else there."""
    content = parsed(text.encode(errors="surrogateescape"))
    section = content.get("config") if isinstance(content, dict) else None
    return section if isinstance(section, dict) else {}


def _refuse_unknown(keys: Sequence[str]) -> None:
    """Refuse unknown keys, as `up` does. Raises SettingsError."""
    mistakes = Mistakes()
    mistakes.unknown("", dict.fromkeys(keys), KEYS)
    if mistakes.sentences:
        raise SettingsError(tuple(mistakes.sentences))


def _value(text: str) -> object:
    """Read a value as a stack's file has it; what is no YAML is a text, such as `[::1]:9477`."""
    try:
        return parsed(text.encode(errors="surrogateescape"))
    except (yaml.YAMLError, ValueError):
        return text


def _text(value: object) -> str:
    """Write a value for people and scripts: a text as it is, all else as JSON."""
    if value is None:
        return "(not set)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def source(args: Arguments, out: Out) -> int:
    """Run the subcommand of `source`."""
    stack = _Stack(Session.open(args.directory, args.stack))
    return {"list": _list, "add": _add, "remove": _remove}[args.action](stack, args, out)


def _list(stack: _Stack, args: Arguments, out: Out) -> int:
    listed = [*listed_sources(_sources(stack))]
    if args.json:
        out.raw(json.dumps({**stack.document, "sources": _documents(listed)}, indent=2))
    elif listed:
        out.table(("NAME", "SOURCE", "OF"), [(one.name, one.type, one.place) for one in listed])
    else:
        out.line(f"Stack {args.stack} has no sources; `locallb source add` adds one.")
    return Exit.OK


def _sources(stack: _Stack) -> Sources:
    """Return the entries. Raises EngineError, SettingsError."""
    return objects_of(next((one["value"] for one in stack.values() if one["key"] == _SOURCES), ()))


def _require_own(stack: _Stack, text: str) -> None:
    """Refuse to change a list of sources that the project's file has for all stacks. Raises Refused."""
    if _SOURCES not in stack.own(text) and _sources(stack):
        raise Refused(
            f"the sources of stack {stack.session.stack} are those of {stack.session.project.root / PROJECT_FILE}:"
            " change them there, or give the stack its own with `locallb config set sources`"
        )


def _documents(listed: Sequence[ListedSource]) -> list[dict[str, str]]:
    return [{"name": one.name, "type": one.type, "place": one.place} for one in listed]


def _add(stack: _Stack, args: Arguments, out: Out) -> int:
    """Add sources behind the existing ones."""
    require_existing(named(args.sources), stack.session.project.root)
    added = [
        {key: _observed_from(stack, value)} if key == "manifests" else entry
        for (key, value), entry in zip(args.sources, named(args.sources), strict=True)
    ]
    before = [*listed_sources(_sources(stack))]

    def changed(text: str) -> str:
        _require_own(stack, text)
        return with_sources(text, added, stack.place(text, _SOURCES))

    stack.rewrite(changed)
    after = [*listed_sources(_sources(stack))]
    existing = {(one.name, one.type, one.place) for one in before}
    new = [one for one in after if (one.name, one.type, one.place) not in existing]
    if args.json:
        out.raw(json.dumps({**stack.document, "sources": _documents(after), "added": _documents(new)}, indent=2))
    elif new:
        out.line(f"Added {few([one.name for one in new])}.")
        _print_effect(stack, out)
    else:
        out.line(f"Stack {args.stack} has that already.")
    for url in foreign_servers(added, stack.session.project.root):
        out.warning(f"{url} isn't an API server of this host: `locallb up` and `locallb watch` serve its Services")
    return Exit.OK


def _observed_from(stack: _Stack, value: object) -> str:
    """Return a path as the stack's file has it: a relative one is relative to the project, in one's own absolute."""
    given, root = Path(str(value)), stack.session.project.root
    if given.is_absolute() or root == paths.data_home():
        return str(given.resolve())
    return os.path.relpath(given.resolve(), root)


def _remove(stack: _Stack, args: Arguments, out: Out) -> int:
    """Remove sources by their names."""
    removed: list[ListedSource] = []

    def changed(text: str) -> str:
        _require_own(stack, text)
        place = stack.place(text, _SOURCES)
        sources = sources_of(text, place)  # as they are now that nobody else changes the file
        listed = [*listed_sources(sources)]
        names = selected(args.names, [one.name for one in listed], "source")
        removed.extend(one for one in listed if one.name in names)
        changes: dict[int, object] = {}
        for number in {one.number for one in removed}:
            rest = [one.name for one in listed if one.number == number and one not in removed]
            changes[number] = {**sources[number], "kind": rest} if rest else REMOVED
        return with_items(text, place, changes)

    stack.rewrite(changed)
    if args.json:
        remaining = _documents([*listed_sources(_sources(stack))])
        out.raw(json.dumps({**stack.document, "sources": remaining, "removed": _documents(removed)}, indent=2))
    else:
        out.line(f"Removed {few([one.name for one in removed])}.")
        _print_effect(stack, out)
    return Exit.OK
