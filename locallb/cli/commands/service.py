"""The command `service`: a `watch` of the stack as a service of this user's systemd.

The unit is the one that is shipped, with the paths of this installation and project. `install` writes, enables and
starts it, `remove` undoes that; a file that another program wrote is left alone.

Not here: the protocol between systemd and a running `watch` (`cli.watching.supervision`).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.cli.session import Session
from locallb.programs import Program, ProgramError
from locallb.runtimes.single_instance import holder
from locallb.storage import files, paths

TEMPLATE = "deploy/locallb-watch@.service"
WRITTEN = "# Written by `locallb service install`; `locallb service remove` removes it.\n"
_READABLE = 0o644
_TIMEOUT = 300.0
"""Seconds that systemctl has: a unit counts as started once every source was read."""
_VARIABLES = (
    "PATH",
    "KUBECONFIG",
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
    "LOCALLB_LEDGER",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "CONTAINER_HOST",
    "KIND_EXPERIMENTAL_PROVIDER",
    "PULUMI_BACKEND_URL",
)
"""Variables that decide which files, clusters and programs a `watch` uses, and that a user's systemd doesn't have."""
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID")


class Unit(Struct, frozen=True):
    """The unit of one stack."""

    name: str
    file: Path
    project: Path
    stack: str

    @classmethod
    def of(cls, session: Session) -> Unit:
        """Return the unit of a stack: its project is a part of the name, so that no two have the same."""
        project = session.project.root
        digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:8]
        name = f"locallb-watch-{session.stack}-{digest}.service"
        given = os.environ.get("XDG_CONFIG_HOME", "")
        config = Path(given) if given.startswith("/") else paths.home() / ".config"
        return cls(name, config / "systemd" / "user" / name, project, session.stack)

    def text(self, template: str, command: str, environment: Mapping[str, str]) -> str:
        """Return the unit's text. Raises Refused where a path can't be written there."""
        for value in (str(self.project), command, *environment.values()):
            if not value.isprintable():
                raise Refused(f"{value!r} can't be written into a unit of systemd: rename it")
        replaced = {
            "Description": f"local-lb: stack {self.stack} of {_escaped(str(self.project))}",
            "Documentation": "",
            "WorkingDirectory": _escaped(str(self.project)),
            "ExecStart": f"{_quoted(command)} --stack {self.stack} watch --plain",
        }
        lines = [line for line in template.splitlines() if not line.startswith("#")]
        filled = "\n".join(_filled(lines, replaced, environment)).strip("\n")
        return f"{WRITTEN}{filled}\n"


def _filled(lines: list[str], replaced: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[str]:
    for line in lines:
        key = line.partition("=")[0]
        value = replaced.get(key)
        if value is None:
            yield line
        elif value:
            yield f"{key}={value}"
        if key == "WorkingDirectory":
            yield from (f"Environment={_quoted(f'{name}={text}')}" for name, text in sorted(environment.items()))


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """Write one word of a command line or of an assignment, as systemd.syntax(7) has it."""
    escaped = _escaped(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def service(session: Session, args: Arguments, out: Out) -> int:
    """Install, start, stop, remove or show the service of the stack."""
    unit = Unit.of(session)
    _require_systemd(unit)
    if args.action == "install":
        session.require_stack()
        _install(session, unit)
    elif args.action == "remove":
        _remove(unit)
    elif args.action != "status":
        _require_installed(unit)
        if args.action == "start":
            _require_room(session, unit)
        _systemctl(args.action, unit.name)
    observed = _observe(unit)
    if args.json:
        out.raw(json.dumps(_document(unit, observed), indent=2))
    else:
        for line in _lines(unit, observed, args.action):
            out.line(line)
    return Exit.OK if args.action != "status" or observed["ActiveState"] == "active" else Exit.FAILED


def _require_systemd(unit: Unit) -> None:
    """Raise Refused where this user has no manager of systemd that answers."""
    try:
        ended = Program(("systemctl", "--user", "show-environment"), _TIMEOUT).run()
    except ProgramError as error:
        raise Refused(f"{error}; {_other(unit)}") from None
    if ended.code:
        raise Refused(f"this user's systemd doesn't answer ({ended.last_output or ended.code}); {_other(unit)}")


def _other(unit: Unit) -> str:
    return (
        f"log in to a session with one, or run `locallb watch` of stack {unit.stack} under another supervisor"
        " (`locallb help watch`)"
    )


def _install(session: Session, unit: Unit) -> None:
    _require_ours(unit)
    _require_room(session, unit)
    template = files.read(paths.shipped(TEMPLATE)) or ""
    given = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    text = unit.text(template, _command(), given)
    paths.private_directory(unit.file.parent)
    files.write(unit.file, text, mode=_READABLE)
    _systemctl("daemon-reload")
    _systemctl("enable", unit.name)
    _systemctl("restart", unit.name)  # a former text of the unit, too


def _command() -> str:
    """Return the path of the command of this installation."""
    path = Path(sys.executable).parent / "locallb"
    if not path.is_file():
        raise Refused(
            f"{path} isn't there, so no unit can run it; install local-lb into the environment of that Python"
        )
    if any(character in str(path) for character in "\"'\\$"):
        raise Refused(f"systemd runs no program with the path {path}; install local-lb elsewhere")
    return str(path)


def _require_ours(unit: Unit) -> None:
    existing = files.read(unit.file)
    if existing is not None and not existing.startswith(WRITTEN):
        raise Refused(f"{unit.file} wasn't written by `locallb service install`; move it elsewhere")


def _require_installed(unit: Unit) -> None:
    if files.read(unit.file) is None:
        raise Refused(f"there is no service of stack {unit.stack}; `locallb service install` makes it")


def _require_room(session: Session, unit: Unit) -> None:
    """Raise Refused where another `watch` of the stack runs: the unit's would end again and again."""
    process = holder(session.watch_lock)
    if process and str(process.pid) != _observe(unit)["MainPID"]:
        raise Refused(f"`watch` of stack {session.stack} runs already (pid {process.pid}); end that one first")


def _remove(unit: Unit) -> None:
    _require_installed(unit)
    _require_ours(unit)
    _systemctl("disable", "--now", unit.name)
    files.remove(unit.file)
    _systemctl("daemon-reload")


def _systemctl(*terms: str) -> str:
    """Ask this user's systemd. Raises Refused with what it says."""
    program = Program(("systemctl", "--user", *terms), _TIMEOUT, remedy="`journalctl --user -e` tells more")
    return program.output()


def _observe(unit: Unit) -> Mapping[str, str]:
    """Return the unit's properties, and whether the user's services go on without a session."""
    shown = _systemctl("show", unit.name, *(f"--property={name}" for name in _PROPERTIES))
    pairs = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return {**{name: pairs.get(name, "") for name in _PROPERTIES}, "Linger": _lingers()}


def _lingers() -> str:
    """Return `yes`, `no`, or nothing where it is unknown."""
    terms = ("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
    try:
        ended = Program(terms, _TIMEOUT).run()
    except ProgramError:
        return ""
    return ended.output.decode(errors="replace").strip() if not ended.code else ""


def _document(unit: Unit, observed: Mapping[str, str]) -> dict[str, object]:
    pid = observed["MainPID"]
    return {
        "unit": unit.name,
        "file": str(unit.file),
        "stack": unit.stack,
        "installed": observed["LoadState"] == "loaded",
        "enabled": observed["UnitFileState"] == "enabled",
        "active": observed["ActiveState"] == "active",
        "state": f"{observed['ActiveState']} ({observed['SubState']})",
        "pid": int(pid) if pid.isdecimal() and int(pid) else None,
        "lingers": {"yes": True, "no": False}.get(observed["Linger"]),
    }


def _lines(unit: Unit, observed: Mapping[str, str], action: str) -> Iterator[str]:
    if action == "remove":
        yield f"Removed {unit.name}. What it served goes on; `locallb destroy` removes that."
        return
    if observed["LoadState"] != "loaded":
        yield f"Stack {unit.stack} has no service; `locallb service install` makes it."
        return
    pid = f", pid {observed['MainPID']}" if observed["MainPID"].strip("0") else ""
    yield f"{unit.name}: {observed['ActiveState']} ({observed['SubState']}{pid}), {observed['UnitFileState']}"
    yield f"  file  {unit.file}"
    yield f"  logs  journalctl --user -u {unit.name}"
    if action == "stop":
        yield "What it served goes on; `locallb destroy` removes that."
    if observed["Linger"] == "no":
        yield "It and its proxies end with your last session; `loginctl enable-linger` keeps them without one."
