"""EnvoyProcess: an Envoy of its own for a proxy, started so that it outlives us, stopped without cutting clients short.

One that lives already is adopted if it reads the same bootstrap in the same version, and stopped otherwise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from locallb.envoy import ADMIN_SOCKET, ARGUMENTS, logs, push, rollout
from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.binary import EnvoyBinary, installed
from locallb.envoy.waiting import comes_to_answer
from locallb.host import inotify
from locallb.model.errors import ClientError
from locallb.model.identities import Owner
from locallb.model.naming import owner_fields
from locallb.resources.errors import ProviderError
from locallb.resources.properties import EnvoyProcessInputs, EnvoyProcessState
from locallb.resources.resource_type import ResourceType, grown, proxy_faults
from locallb.runtimes.process import processes
from locallb.runtimes.process.processes import Process
from locallb.runtimes.process.stopping import STOP_PATIENCE, running, runs_in, stop_all, stop_process
from locallb.storage import files, paths
from locallb.storage.proxy_directories import OWNER_MARK, PROXY_MARK, ProcessRecord, Proxies

START_PATIENCE = 10.0
"""Seconds until a new Envoy must answer on its admin socket; it takes about 0.05."""
ADOPTION_PATIENCE = 1.0
"""Seconds that a process found running gets to answer before it is replaced: a stopped run may have just started it."""
LOG = logs.NAME
BOOTSTRAP_MARK, VERSION_MARK = "LOCALLB_BOOTSTRAP", "LOCALLB_VERSION"
_PAUSE = 0.005
_NOISE = r"\]\[backtrace\]|stacktrace for envoy bug|#\d+: |UNKNOWN \["
"""Lines of Envoy's log that tell a user nothing."""
_OWN_WATCHES = 2  # of lds.json and cds.json


class EnvoyProcess(ResourceType[EnvoyProcessInputs, EnvoyProcessState]):
    """Starts, adopts and stops."""

    inputs = EnvoyProcessInputs
    state = EnvoyProcessState
    replaced_for = frozenset({"proxy", "bootstrap", "version"})
    """Replace for anything that a running Envoy can't change, old before new: both want the same ports."""
    delete_first = True

    def check(self, new: EnvoyProcessInputs) -> Iterator[tuple[str, str]]:
        """Check the id only: whether this version is installed is known where it is started."""
        return proxy_faults(new.proxy)

    def preview_outputs(self, new: EnvoyProcessInputs, old: EnvoyProcessState | None) -> Mapping[str, object]:
        """Return the process: an update leaves it alone."""
        del new
        return {"pid": old.pid, "started": old.started, "binary": old.binary} if old else {}

    def create(self, new: EnvoyProcessInputs) -> tuple[str, EnvoyProcessState]:
        """Start it, or adopt the one that runs, and wait until it answers."""
        directory = _own_directory(new)
        binary = _wanted_binary(new.version)
        mark = {PROXY_MARK: str(directory), BOOTSTRAP_MARK: new.bootstrap, VERSION_MARK: new.version}
        process = _adopt(directory, mark) or _start(directory, binary, {**mark, OWNER_MARK: owner_mark(new.owner)})
        record = ProcessRecord(process.pid, process.started, str(binary.path), new.version, new.bootstrap)
        _proxies().record(new.proxy, record)
        _await_answer(directory, process)
        return new.proxy, grown(self.state, new, pid=process.pid, started=process.started, binary=str(binary.path))

    def read(self, state: EnvoyProcessState) -> EnvoyProcessState | None:
        """Check that this very process runs and answers, in the directory that is the proxy's today.

        A log that has grown is cut on the way, which no plan sees.
        """
        directory = _proxies().path(state.proxy)
        logs.cut(directory)
        alive = runs_in(directory, Process(state.pid, state.started))
        return state if alive and EnvoyAdmin(directory).answers() else None

    def leaves_nothing(self, state: EnvoyProcessState) -> bool:
        """Return True: the proxy's directory leads whoever starts or removes the proxy to what runs in it."""
        del state
        return True

    def update(self, old: EnvoyProcessState, new: EnvoyProcessInputs) -> EnvoyProcessState:
        """Note the new owner; the process stays."""
        return grown(self.state, new, pid=old.pid, started=old.started, binary=old.binary)

    def delete(self, state: EnvoyProcessState) -> None:
        """Stop what runs for the proxy: new connections are refused at once, open ones get a moment."""
        if not self.belongs_to_copied_project(state.owner):
            directory = _proxies().path(state.proxy)
            stop_all(directory)
            known = Process(state.pid, state.started)
            if processes.mark_of(known).get(PROXY_MARK, "").endswith(f"/{state.proxy}"):
                stop_process(directory, known)  # started under another state home
            with suppress(ClientError):  # no directory, nothing noted
                _proxies().record(state.proxy, None)


def owner_mark(owner: Owner) -> str:
    """Write an owner for a process's environment."""
    return json.dumps(owner_fields(owner), sort_keys=True)


def _own_directory(new: EnvoyProcessInputs) -> Path:
    """Find the proxy's directory with the bootstrap that is to be read."""
    directory = _proxies().find(new.proxy)
    if directory is None or directory.owner != new.owner:
        raise ProviderError(f"proxy {new.proxy} has no directory of {new.owner}: refresh and run up again")
    text = files.read_shared(directory.path / rollout.BOOTSTRAP)
    if text is None or rollout.fingerprint({rollout.BOOTSTRAP: text}) != new.bootstrap:
        path = directory.path / rollout.BOOTSTRAP
        raise ProviderError(f"{path} isn't what was planned, somebody changed it: refresh and run up again")
    return directory.path


def _wanted_binary(version: str) -> EnvoyBinary:
    binary = installed()
    if binary.version != version:
        raise ProviderError(
            f"Envoy {version} is wanted, but {binary.version} is installed at {binary.path}: install requirements.txt"
        )
    return binary


def _adopt(directory: Path, mark: Mapping[str, str]) -> Process | None:
    """Take the process that is just what is wanted; stop all others of this proxy, and one that doesn't answer."""
    adopted: Process | None = None
    for process in running(directory):
        fits = runs_in(directory, process) and mark.items() <= processes.mark_of(process).items()
        if adopted is None and fits and comes_to_answer(directory, ADOPTION_PATIENCE):
            adopted = process
        else:
            stop_process(directory, process)
    return adopted


def _start(directory: Path, binary: EnvoyBinary, mark: Mapping[str, str]) -> Process:
    texts = push.texts(directory)
    watches = rollout.new_watches("", texts.get(rollout.CLUSTERS, "")) + rollout.new_references({}, texts)
    inotify.require(_OWN_WATCHES + watches + rollout.new_gate({}, texts), f"proxy {directory.name}")
    log = directory / LOG
    with suppress(FileNotFoundError):
        log.replace(directory / logs.PREVIOUS)
    files.remove(directory / ADMIN_SOCKET)
    return processes.start([str(binary.path), *ARGUMENTS, *logs.ARGUMENTS], directory, mark, log)


def _await_answer(directory: Path, process: Process) -> None:
    deadline = time.monotonic() + START_PATIENCE
    admin = EnvoyAdmin(directory)
    while not admin.answers():
        if not processes.is_alive(process):
            words = processes.last_words(directory / LOG, without=_NOISE)
            raise ProviderError(f"Envoy of proxy {directory.name} ended at once: {words or 'without a word'}")
        if time.monotonic() > deadline:
            processes.stop(process, STOP_PATIENCE)
            raise ProviderError(
                f"Envoy of proxy {directory.name} didn't answer within {START_PATIENCE:g} s and was stopped:"
                f" {processes.last_words(directory / LOG, without=_NOISE) or 'its log is empty'}"
            )
        time.sleep(_PAUSE)


def _proxies() -> Proxies:
    return Proxies(paths.proxies_root())
