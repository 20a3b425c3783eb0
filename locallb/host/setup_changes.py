"""Executes the steps of `locallb host setup` and `teardown`, and records the former state before each.

The record is written before a change is made, so that any interruption can be undone. It is owned by root and readable
by all users. Not here: which steps there are.
"""

from __future__ import annotations

import grp
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import MappingProxyType

from locallb import programs, safe_files
from locallb.config.settings import Pool
from locallb.dns.stubs import block_in, with_block
from locallb.dns.zones import Zone
from locallb.host import macos, netlink, setup_plan
from locallb.host.capabilities import is_macos
from locallb.host.macos import DEVICE, alias_notes, pool_aliases
from locallb.host.resolvers import HOSTS, Table, inspected, restarted_by
from locallb.host.setup_steps import PRESENT, ObservedHost, Retained, SetupRecord, SetupStep, StepKind
from locallb.model.errors import ClientError, refusal
from locallb.model.routes import HostRoute, survey
from locallb.planning.pool_routes import is_local, pool_routes
from locallb.programs import Program, ProgramError
from locallb.storage import files

RECORD = Path("/var/lib/locallb/host.json")
_FORMAT = "changes-1"
"""The record's only key; another format will have another."""
_READABLE = 0o644
_DIRECTORY = 0o755
_RESTART = 60
"""Seconds for the restart of a resolver."""
_PROC_SYS = Path("/proc/sys")
_SYSCTLS = (setup_plan.PORT_START, setup_plan.INSTANCES)
_TEXTS = (
    setup_plan.SYSCTL_DIRECTORY,
    setup_plan.UNIT_DIRECTORY,
    setup_plan.WANTS_DIRECTORY,
    setup_plan.SYSCTL_FILE,
    setup_plan.UNIT_FILE,
    setup_plan.UNIT_LINK,
)


class HostSetupError(ClientError):
    """A step can't be carried out, or the record can't be used: one sentence."""


def inspect(
    pools: tuple[Pool, ...], group: int, zones: tuple[Zone, ...] = (), names: Table = MappingProxyType({})
) -> ObservedHost:
    """See what the host is like; no right is needed. Raises ClientError."""
    return ObservedHost(
        sysctls={name: value for name in _SYSCTLS if (value := _sysctl(name)) is not None},
        routes=() if is_macos() else pool_routes(pools, survey(netlink.routes())),
        ledger=_ledger(),
        texts={path: text for path in (*_TEXTS, *inspected(zones)) if (text := _text(Path(path)))},
        group=group,
        ip_command=programs.find("ip"),
        record=SetupRecord() if _record_fault() else read_record(),
        zones=zones,
        names=names,
        aliases=tuple(pool_aliases(pools, macos.aliases())) if is_macos() else (),
        alias_notes=tuple(alias_notes(pools)) if is_macos() else (),
    )


def present(record: SetupRecord) -> Mapping[tuple[StepKind, str], str]:
    """See what is there now for each recorded change. Raises ClientError."""
    existing = () if is_macos() else netlink.routes()
    return {(sort, what): _present(sort, what, existing) for sort, what in record.changes}


def group_of(directory: Path) -> int:
    """Return the group of the shared ledger: that of the user behind `sudo`, or that of the project."""
    given = os.environ.get("SUDO_GID", "")
    return int(given) if given.isdecimal() else directory.stat().st_gid


def group_id(name: str) -> int:
    """Find a group. Raises HostSetupError."""
    with suppress(KeyError):
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    raise HostSetupError(f"there is no group {name!r}: name one that `getent group` lists")


def read_record(path: Path = RECORD) -> SetupRecord:
    """Read what setup changed; empty if it never ran. Raises HostSetupError."""
    try:
        text = files.read(path)
        if text is None:
            return SetupRecord()
        changes = json.loads(text)[_FORMAT]
        return SetupRecord(
            {
                (StepKind(change["sort"]), str(change["what"])): Retained(change["found"], change["made"])
                for change in changes
            }
        )
    except (ValueError, KeyError, TypeError) as error:
        raise HostSetupError(f"{path} isn't a record of ours ({error}): look at it and move it away") from None


def require_record_of_root() -> None:
    """Check that only root wrote what root is to make be there again. Raises HostSetupError."""
    if os.path.lexists(RECORD) and (fault := _record_fault()):
        remedy = fault.remedy or f"`chown root {fault.path}`"
        raise HostSetupError(f"{fault}, so root doesn't do what {RECORD} says: see that it is right, then {remedy}")


def _record_fault() -> safe_files.Distrust | None:
    """Return who else could have written the record, for root, who does what it says."""
    return safe_files.distrust(RECORD, RECORD.parent, frozenset({safe_files.ROOT})) if os.geteuid() == 0 else None


def apply(step: SetupStep) -> None:
    """Record what is found, then make the change. Raises ClientError."""
    changes = dict(read_record().changes)
    key = (step.sort, step.what)
    before = changes[key].found if key in changes else step.now
    changes[key] = Retained(before, step.wanted)
    _write_record(changes)
    _change(step)


def undo(step: SetupStep) -> None:
    """Make what was found be there again, then forget the change. Raises ClientError."""
    if not step.done:
        _change(step)
    changes = dict(read_record().changes)
    changes.pop((step.sort, step.what), None)
    _write_record(changes)


def _change(step: SetupStep) -> None:
    path = Path(step.what)
    try:
        match step.sort:
            case StepKind.SYSCTL:
                (_PROC_SYS / step.what.replace(".", "/")).write_text(f"{step.wanted}\n", encoding="ascii")
            case StepKind.ROUTE:
                (netlink.add_local if step.wanted else netlink.remove_local)(ip_network(step.what))
            case StepKind.ALIAS:
                macos.change(ip_address(step.what), wanted=bool(step.wanted))
            case StepKind.LEDGER:
                _change_ledger(path, step)
            case StepKind.DIRECTORY:
                path.mkdir(_DIRECTORY, parents=True, exist_ok=True) if step.wanted else path.rmdir()
            case StepKind.FILE | StepKind.LINK:
                _change_file(path, step)
            case StepKind.HOSTS:
                files.rewrite(Path(HOSTS), lambda text: with_block(text, step.what, step.wanted))
    except OSError as error:
        raise HostSetupError(f"{step.what} can't be changed: {refusal(error)}") from error


def _change_ledger(path: Path, step: SetupStep) -> None:
    if not step.wanted:
        path.rmdir()
        return
    path.parent.mkdir(_DIRECTORY, parents=True, exist_ok=True)
    path.parent.chmod(_DIRECTORY)
    path.mkdir(exist_ok=True)
    mode, group = step.wanted.split()[1::2]
    # A user who owns its parent could have a link to any directory there.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(descriptor, -1, int(group))
        os.fchmod(descriptor, int(mode, 8))
    finally:
        os.close(descriptor)


def _change_file(path: Path, step: SetupStep) -> None:
    _put_file(path, step)
    if service := restarted_by(step.what):
        try:
            Program(("systemctl", "try-restart", service), _RESTART).output()
        except ProgramError as error:
            raise HostSetupError(
                f"{path} is changed, but {service} hasn't read it, as systemctl {error.why}: restart it"
            ) from None


def _put_file(path: Path, step: SetupStep) -> None:
    safe_files.remove_abandoned_of(path)
    if not step.wanted:
        path.unlink(missing_ok=True)
        return
    if step.sort is StepKind.FILE:
        files.write(path, step.wanted, mode=_READABLE, durable=True)
    else:
        safe_files.put_link(path, step.wanted)


def _present(sort: StepKind, what: str, existing: tuple[HostRoute, ...]) -> str:
    match sort:
        case StepKind.SYSCTL:
            value = _sysctl(what)
            return "" if value is None else str(value)
        case StepKind.ROUTE:
            return "local" if is_local(ip_network(what), existing) else ""
        case StepKind.ALIAS:
            return DEVICE if ip_address(what) in macos.aliases() else ""
        case StepKind.LEDGER:
            return _ledger()
        case StepKind.HOSTS:
            return block_in(_text(Path(HOSTS)), what)
        case _:
            return _text(Path(what))


def _sysctl(name: str) -> int | None:
    try:
        return int((_PROC_SYS / name.replace(".", "/")).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _ledger() -> str:
    try:
        status = Path(setup_plan.LEDGER).stat()
    except OSError:
        return ""
    return setup_plan.describe_ledger(stat.S_IMODE(status.st_mode), status.st_gid)


def _text(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    if path.is_dir():
        return PRESENT
    return files.read(path) or ""


def _write_record(changes: Mapping[tuple[StepKind, str], Retained]) -> None:
    """Write the record, or remove it and its directory when nothing is left to undo."""
    try:
        if not changes:
            files.remove(RECORD)
            with suppress(OSError):  # the ledger is still there
                RECORD.parent.rmdir()
            return
        RECORD.parent.mkdir(_DIRECTORY, parents=True, exist_ok=True)
        RECORD.parent.chmod(_DIRECTORY)
        listed = [
            {"sort": str(sort), "what": what, "found": retained.found, "made": retained.made}
            for (sort, what), retained in changes.items()
        ]
        document = json.dumps({_FORMAT: listed}, indent=1) + "\n"
        files.write(RECORD, document, mode=_READABLE, durable=True)
    except OSError as error:
        raise HostSetupError(f"{RECORD} can't be written: {refusal(error)}") from error
