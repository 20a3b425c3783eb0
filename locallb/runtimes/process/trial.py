"""A trial run of a new Envoy that no client reaches, before it replaces one that serves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from locallb.envoy import ADMIN_SOCKET, ARGUMENTS, logs, push, rollout
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError
from locallb.envoy.binary import EnvoyBinary
from locallb.envoy.trial_config import idle, trial_files
from locallb.host import inotify
from locallb.model.system_errors import refusal
from locallb.programs import program
from locallb.programs.program import Program, ProgramError
from locallb.runtimes.process import processes
from locallb.storage import files, paths

TIMEOUT = 10.0
"""Seconds that each step may take; 0.1 are usual."""
PLACE = "trial"
"""The directory, in the proxy's own, where it runs meanwhile."""
_OWN = {ADMIN_SOCKET, logs.NAME, logs.PREVIOUS, "status"}
"""Files of an Envoy that runs in a directory."""
_STEADY = 0.1
"""Seconds that it must go on once it has its listeners: those are its workers' a moment later."""
_PAUSE = 0.01
_TERMS = 300
_ATTENDED = """\
exec 3<&0
ulimit -f 2048
{ "$@" </dev/null >>"$0" 2>&1; echo "$?" >status; } 3<&- &
{ read -r _; kill -9 0; } <&3 3<&- &
read -r _ <&3
kill -9 0
"""
"""The shell waits for the end of its standard input, which comes even if we are killed, and takes the program along. So
does another one, should the first be killed; what runs in the background has another standard input by itself."""


def why_unfit(binary: EnvoyBinary, directory: Path) -> str:
    """Return why a program can't run as the proxy in `directory`, by its own last words; empty where it can."""
    return _why_invalid(binary, directory) or _why_not_live(binary, directory)


def _why_invalid(binary: EnvoyBinary, directory: Path) -> str:
    try:
        ended = Program((*_command(binary), "--mode", "validate"), TIMEOUT, directory=directory, environment={}).run()
    except ProgramError as error:
        return f"it {error.why}"
    return (ended.last_output or _status(ended.code)) if ended.code else ""


def _why_not_live(binary: EnvoyBinary, directory: Path) -> str:
    """Run it with the full configuration of the proxy, but without listeners for clients, next to the serving Envoy."""
    texts = _texts(directory)
    if not texts:  # not even an idle one would have enough
        return ""
    place = directory / PLACE
    files.remove_tree(place, directory)  # of a run that was killed
    try:
        _furnish(place, texts)
        with program.alongside(("/bin/sh", "-c", _ATTENDED, logs.NAME, *_command(binary)), place):
            return _why_silent(place)
    finally:
        files.remove_tree(place, directory)


def _texts(directory: Path) -> Mapping[str, str]:
    """Return Envoy's files for the trial: fewer or none if inotify lacks watches for a second copy."""
    texts = push.texts(directory)
    needed = rollout.all_watches(texts)
    available = inotify.available(needed)
    return trial_files(texts) if available == needed else idle(texts) if available >= rollout.OWN_WATCHES else {}


def _furnish(place: Path, texts: Mapping[str, str]) -> None:
    """Make its directory: files of its own, and links to the certificates that those name."""
    paths.private_directory(place)
    for name, content in texts.items():
        files.write(place / name, content)
    try:
        for path in place.parent.iterdir():
            if path.name not in {*texts, *_OWN} and path.is_file() and not path.is_symlink():
                (place / path.name).symlink_to(f"../{path.name}")
    except OSError as error:
        raise files.FilesError(f"{place}, where an Envoy is tried, can't be furnished: {refusal(error)}") from error


def _why_silent(place: Path) -> str:
    """Wait until it has its configuration and stays up; return the failure, empty if all is well."""
    deadline, admin, steady = time.monotonic() + TIMEOUT, EnvoyAdmin(place), 0.0
    while not steady or time.monotonic() < steady or not admin.ready():
        status = files.read(place / "status")
        terms = processes.last_output(place / logs.NAME, lines=1, without=logs.NOISE)[-_TERMS:]
        if status:
            return terms or _status(status)
        if time.monotonic() > deadline:
            return f"it doesn't answer within {TIMEOUT:g} s" + (f" ({terms})" if terms else "")
        steady = steady or (time.monotonic() + _STEADY if _has_listeners(admin) else 0.0)
        time.sleep(_PAUSE)
    return ""


def _has_listeners(admin: EnvoyAdmin) -> bool:
    """Return whether it is live and has its listeners, or has refused them: then it has as many as it can have."""
    try:
        lds = admin.versions().lds
        return bool(lds.attempts) and lds.settled and admin.ready()
    except EnvoyAdminError:
        return False


def _command(binary: EnvoyBinary) -> tuple[str, ...]:
    return (str(binary.path), *ARGUMENTS, *logs.ARGUMENTS)


def _status(number: int | str) -> str:
    return f"it ended with {str(number).strip()}"
