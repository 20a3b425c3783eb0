"""Processes of relays: started so that they outlive us, found by their environment, ended.

Not here: what a relay does (`relay`), and its resource (`provider.pod_routes`).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from locallb.relay import directory as places
from locallb.relay.directory import LOG, MARK, VERSION_MARK
from locallb.runtimes import processes
from locallb.runtimes.processes import Process, ProcessError
from locallb.storage.proxy_directories import OWNER_MARK, PROXY_MARK

START_TIMEOUT = 60.0
"""Seconds until a new relay must answer: it takes about 0.7, far longer on a busy host. An end is seen at once."""
STOP_TIMEOUT = 3.0
"""Seconds until one that is asked to end is killed: open connections get two."""
_PAUSE = 0.02
_LEFT_OUT = (PROXY_MARK, OWNER_MARK, "PULUMI_")
"""Beginnings of variables that it doesn't get; exec plugins may need any other. Pulumi has secrets there."""


def run(directory: Path, version: str, served: str) -> Process:
    """Have a process of this version serve what the directory says, whose digest is `served`. Raises ProcessError."""
    process = _adopted(directory, version) or _started(directory, version)
    _await(directory, process, served)
    return process


def end_relay(directory: Path) -> None:
    """End what serves a directory, and remove it. Raises ProcessError, RelayError."""
    for process in processes.find(MARK, str(directory)):
        processes.stop(process, STOP_TIMEOUT)
    places.remove(directory)


def _adopted(directory: Path, version: str) -> Process | None:
    """Return the process that serves the directory; others of it are ended."""
    adopted = None
    for process in processes.find(MARK, str(directory)):
        fits = processes.mark_of(process).get(VERSION_MARK) == version
        if adopted is None and fits and places.ask(directory):
            adopted = process
        else:
            processes.stop(process, STOP_TIMEOUT)
    return adopted


def _started(directory: Path, version: str) -> Process:
    log = directory / LOG
    log.unlink(missing_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    marks = {MARK: str(directory), VERSION_MARK: version}
    terms = [sys.executable, "-P", "-m", "locallb.relay", str(directory)]
    return processes.start(terms, directory, {**inherited, **marks}, log)


def _await(directory: Path, process: Process, served: str) -> None:
    """Wait until it serves this. Raises ProcessError."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        answer = places.ask(directory)
        if answer and answer.problem:
            raise ProcessError(f"the relay in {directory} can't serve what is wanted: {answer.problem}")
        if answer and answer.version == served:
            return
        if not processes.is_alive(process):
            terms = processes.last_output(directory / LOG) or "without a word"
            raise ProcessError(f"the relay in {directory} ended at once: {terms}")
        if time.monotonic() > deadline:
            processes.stop(process, STOP_TIMEOUT)
            raise ProcessError(f"the relay in {directory} didn't answer within {START_TIMEOUT:g} s and was stopped")
        time.sleep(_PAUSE)
