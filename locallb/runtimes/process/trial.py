"""Tries an Envoy without serving anything, before one that serves is ended for it. Not here: starting it to serve."""

from __future__ import annotations

import time
from pathlib import Path

from locallb.envoy import ARGUMENTS, logs, rollout
from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.binary import EnvoyBinary
from locallb.envoy.document import Discovered, text
from locallb.host import inotify
from locallb.programs import program
from locallb.programs.program import Program, ProgramError
from locallb.runtimes.process import processes
from locallb.storage import files, paths

PATIENCE = 10.0
"""Seconds that each step may take; 0.1 are usual."""
PLACE = "trial"
"""The directory, in the proxy's own, where it runs meanwhile."""
_WATCHES = 2  # of lds.json and cds.json
_PAUSE = 0.01
_WORDS = 300
_ATTENDED = """\
ulimit -f 2048
{ "$@" </dev/null >>"$0" 2>&1; echo "$?" >status; } &
read -r _
kill -9 0
"""
"""The shell waits for the end of its standard input, which comes even if we are killed, and takes the program along."""


def why_unfit(binary: EnvoyBinary, directory: Path) -> str:
    """Return why a program can't run as the proxy in `directory`, by its own last words; empty where it can."""
    return _why_invalid(binary, directory) or _why_not_live(binary, directory)


def _why_invalid(binary: EnvoyBinary, directory: Path) -> str:
    try:
        ended = Program((*_command(binary), "--mode", "validate"), PATIENCE, directory=directory, environment={}).run()
    except ProgramError as error:
        return f"it {error.why}"
    return (ended.last_words or _status(ended.code)) if ended.code else ""


def _why_not_live(binary: EnvoyBinary, directory: Path) -> str:
    """Run it with the proxy's bootstrap and nothing to serve, beside the one that serves."""
    if inotify.available(_WATCHES) < _WATCHES:  # not enough for two of them at once
        return ""
    place = directory / PLACE
    files.remove_tree(place, directory)  # of a run that was killed
    try:
        _furnish(place, files.read_shared(directory / rollout.BOOTSTRAP) or "")
        with program.alongside(("/bin/sh", "-c", _ATTENDED, logs.NAME, *_command(binary)), place):
            return _why_silent(place)
    finally:
        files.remove_tree(place, directory)


def _furnish(place: Path, bootstrap: str) -> None:
    paths.private_directory(place)
    nothing = text(Discovered(()).response)
    for name, content in ((rollout.BOOTSTRAP, bootstrap), (rollout.LISTENERS, nothing), (rollout.CLUSTERS, nothing)):
        files.write(place / name, content)


def _why_silent(place: Path) -> str:
    """Wait until it is live; return why it won't be, empty if it is."""
    deadline, admin = time.monotonic() + PATIENCE, EnvoyAdmin(place)
    while not admin.ready():
        status = files.read(place / "status")
        words = processes.last_words(place / logs.NAME, lines=1, without=logs.NOISE)[-_WORDS:]
        if status:
            return words or _status(status)
        if time.monotonic() > deadline:
            return f"it doesn't answer within {PATIENCE:g} s" + (f" ({words})" if words else "")
        time.sleep(_PAUSE)
    return ""


def _command(binary: EnvoyBinary) -> tuple[str, ...]:
    return (str(binary.path), *ARGUMENTS, *logs.ARGUMENTS)


def _status(number: int | str) -> str:
    return f"it ended with {str(number).strip()}"
