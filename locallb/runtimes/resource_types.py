"""The resources that are runs: EnvoyProcess and PodmanContainer.

A running Envoy is adopted if it reads the same bootstrap in the same version, and stopped otherwise. Before another
version replaces an Envoy that serves, a trial run of it, which no client reaches, must succeed with the proxy's own
configuration. Sockets of UDP listeners that an Envoy has given up are freed before its drain time only by its end, so
another process takes over from it once no client would notice.

A changed spec is another container. One that doesn't serve (ended, paused, drained) counts as gone, and creating it
again resumes the same one. Not here: hot restart and stopping (`handover`), and finding processes (`processes`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from locallb import programs
from locallb.envoy import ADMIN_SOCKET, ALONE, ARGUMENTS, arguments, push, rollout
from locallb.envoy import binary as logs
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError, comes_to_answer
from locallb.envoy.binary import REMEDY, EnvoyBinary, installed
from locallb.envoy.bootstrap import is_udp_only
from locallb.envoy.push import udp_sockets
from locallb.envoy.rollout import idle, trial_files
from locallb.host import limits
from locallb.host.limits import InotifyError
from locallb.host.sockets import has_streams, own_rows
from locallb.model.errors import ClientError, refusal
from locallb.model.identities import Owner, Protocol, place
from locallb.model.texts import owner_fields
from locallb.programs import Program, ProgramError
from locallb.resources.properties import (
    EnvoyProcessInputs,
    EnvoyProcessState,
    PodmanContainerInputs,
    PodmanContainerState,
)
from locallb.resources.resource_type import ProviderError, ResourceType, grown, proxy_faults
from locallb.runtimes import handover, processes
from locallb.runtimes.handover import STOP_TIMEOUT, Epoch, running, runs_in, stop_all, stop_process
from locallb.runtimes.processes import Process
from locallb.storage import files, paths
from locallb.storage.proxy_directories import OWNER_MARK, PROXY_MARK, ProcessRecord, Proxies

if TYPE_CHECKING:
    from locallb.runtimes.podman import PodmanLifecycle


IDLE_TIMEOUT = 1.0
"""Seconds that clients get to end short connections."""
_BETWEEN_TRIALS = 0.01


def can_release(directory: Path, process: Process, released: AbstractSet[str], timeout: float = 0) -> bool:
    """Return whether a process keeps any of these places, and no client has a connection or a session with it.

    False where that isn't known. A session has a socket of its own for `listeners.UDP_IDLE`. Connections of HTTP/3
    share that of their listener, which always counts as used.
    """
    deadline = time.monotonic() + timeout
    try:
        listeners = push.texts(directory).get(rollout.LISTENERS, "{}")
        served = {place(*socket) for socket in udp_sockets(listeners)}
        given_up = released - {place(*socket) for socket in udp_sockets(listeners, http3=True)}
        while (sockets := _udp_places(process)) & given_up:
            if sockets <= served | given_up and not _has_streams(directory, process):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_BETWEEN_TRIALS)
    except ClientError:
        pass
    return False


def _udp_places(process: Process) -> set[str]:
    """Return where a process has sockets of UDP. Raises ClientError."""
    return {place(row.address, row.port) for row in own_rows(Protocol.UDP, process.pid)}


def _has_streams(directory: Path, process: Process) -> bool:
    """Return whether a client has a TCP connection, also to a listener that is gone. Raises ClientError."""
    admin = EnvoyAdmin(directory)
    listening = {(address, port) for address, port, _ in admin.places() | admin.draining()}
    return has_streams(listening, process.pid)


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
        with programs.alongside(("/bin/sh", "-c", _ATTENDED, logs.NAME, *_command(binary)), place):
            return _why_silent(place)
    finally:
        files.remove_tree(place, directory)


def _texts(directory: Path) -> Mapping[str, str]:
    """Return Envoy's files for the trial: fewer or none if inotify lacks watches for a second copy."""
    texts = push.texts(directory)
    needed = rollout.all_watches(texts)
    available = limits.available(needed)
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


START_TIMEOUT = 30.0
"""Seconds until a new Envoy must answer on its admin socket; it takes about 0.05."""
ADOPTION_TIMEOUT = 1.0
"""Seconds that a process found running gets to answer before it is replaced: a stopped run may have just started it."""
LOG = logs.NAME
BOOTSTRAP_MARK, VERSION_MARK = "LOCALLB_BOOTSTRAP", "LOCALLB_VERSION"
_TAKEOVER_PAUSE = 0.005
_ALIVE = 10
"""Pauses after which it is looked whether a starting Envoy still lives: a look costs both sides of the same cores."""


class EnvoyProcess(ResourceType[EnvoyProcessInputs, EnvoyProcessState]):
    """Starts, adopts and stops."""

    inputs = EnvoyProcessInputs
    state = EnvoyProcessState
    replaced_for = frozenset({"proxy", "bootstrap"})
    """Replace for anything that a running Envoy can't change, old before new: both want the same ports. Another version
    takes the ports over."""
    delete_first = True

    def check(self, new: EnvoyProcessInputs) -> Iterator[tuple[str, str]]:
        """Check the id only: whether this version is installed is known where it is started."""
        return proxy_faults(new.proxy)

    def preview_outputs(self, new: EnvoyProcessInputs, old: EnvoyProcessState | None) -> Mapping[str, object]:
        """Return the process: an update leaves it alone, unless another one may take over."""
        remains = old is not None and (old.version, old.released) == (new.version, new.released)
        return {"pid": old.pid, "started": old.started, "binary": old.binary} if old and remains else {}

    def create(self, new: EnvoyProcessInputs) -> tuple[str, EnvoyProcessState]:
        """Start it, or adopt the one that runs, and wait until it answers; or it takes over from another version."""
        directory = _own_directory(new)
        binary = _wanted_binary(new.version)
        present = running(directory)
        if former := _of_another_version(directory, present, new):
            if claimed := self._succeed(new, former):
                return new.proxy, claimed
            present = running(directory)
        process = _adopt(directory, present, _mark(directory, new))
        if process is None:
            process = _start(directory, binary, new, handover.first(directory))
        else:
            _record(new, binary, process)
        _await_answer(directory, process)
        return new.proxy, self._running(new, binary, process)

    def _running(self, new: EnvoyProcessInputs, binary: EnvoyBinary, process: Process) -> EnvoyProcessState:
        return grown(self.state, new, pid=process.pid, started=process.started, binary=str(binary.path))

    def read(self, state: EnvoyProcessState) -> EnvoyProcessState | None:
        """Check that this very process runs and answers, in the directory that is the proxy's today.

        A log that has grown is cut on the way, which no plan sees. Sockets that clients held up and no longer do show
        as not released.
        """
        directory, process = Proxies.ours().path(state.proxy), Process(state.pid, state.started)
        logs.cut(directory)
        if not runs_in(directory, process) or not EnvoyAdmin(directory).answers():
            return None
        may_renew = state.released and handover.after(directory, process)
        held_up = may_renew and can_release(directory, process, {*state.released.split()})
        return replace(state, released="") if held_up else state

    def leaves_nothing(self, state: EnvoyProcessState) -> bool:
        """Return True: the proxy's directory identifies its process to every run that starts or removes the proxy."""
        del state
        return True

    def update(self, old: EnvoyProcessState, new: EnvoyProcessInputs) -> EnvoyProcessState:
        """Note the new owner; the process stays, or another takes over: of another version, or to free UDP ports."""
        if new.version != old.version:
            return self.create(new)[1]
        if set(new.released.split()) - set(old.released.split()) and (renewed := self._renew(old, new)):
            return renewed
        return grown(self.state, new, pid=old.pid, started=old.started, binary=old.binary)

    def _renew(self, old: EnvoyProcessState, new: EnvoyProcessInputs) -> EnvoyProcessState | None:
        """Start a process that takes over, to free sockets of UDP; None if that is impossible or not needed."""
        directory, former, released = _own_directory(new), Process(old.pid, old.started), {*new.released.split()}
        if handover.successor_of(former, running(directory)):  # of a run that was interrupted
            return self.create(new)[1]
        if not runs_in(directory, former) or not can_release(directory, former, released, IDLE_TIMEOUT):
            return None
        renewed = self._take_over(new, former)
        return renewed if renewed or runs_in(directory, former) else self.create(new)[1]

    def _succeed(self, new: EnvoyProcessInputs, former: Process) -> EnvoyProcessState | None:
        """Try the wanted version, then have it take over from one that serves; None where that one ends first."""
        directory, mark = _own_directory(new), processes.mark_of(former)
        _require_sound(directory, mark.get(VERSION_MARK, "of before"), new)
        claimed = self._take_over(new, former) if mark.get(BOOTSTRAP_MARK) == new.bootstrap else None
        if claimed is None and runs_in(directory, former):
            stop_process(directory, former)
        return claimed

    def _take_over(self, new: EnvoyProcessInputs, former: Process) -> EnvoyProcessState | None:
        """Start the wanted version, which takes over from one that serves; None if that can't be, or failed."""
        directory, binary = _own_directory(new), _wanted_binary(new.version)
        epoch = handover.after(directory, former)
        if epoch is None:
            return None
        has_listeners = False
        with handover.admin_aside(directory, former), suppress(InotifyError):  # not enough for two of them at once
            process = _start(directory, binary, new, epoch)
            with suppress(ProviderError):
                _await_answer(directory, process)
                has_listeners = True
                if handover.await_end(former, process):
                    return self._running(new, binary, process)
            processes.stop(process, STOP_TIMEOUT)
        if has_listeners and runs_in(directory, former):
            stop_process(directory, former)  # it stopped listening, and would serve nobody
        return None

    def delete(self, state: EnvoyProcessState) -> None:
        """Stop what runs for the proxy: new connections are refused at once, open ones get a moment."""
        if not self.belongs_to_copied_project(state.owner):
            directory = Proxies.ours().path(state.proxy)
            stop_all(directory)
            existing = Process(state.pid, state.started)
            if processes.mark_of(existing).get(PROXY_MARK, "").endswith(f"/{state.proxy}"):
                stop_process(directory, existing)  # started under another state home
            with suppress(ClientError):  # no directory, nothing noted
                Proxies.ours().record(state.proxy, None)


def owner_mark(owner: Owner) -> str:
    """Write an owner for a process's environment."""
    return json.dumps(owner_fields(owner), sort_keys=True)


def _own_directory(new: EnvoyProcessInputs) -> Path:
    """Find the proxy's directory with the bootstrap that is to be read."""
    directory = Proxies.ours().find(new.proxy)
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
        raise ProviderError(f"Envoy {version} is wanted, but {binary.version} is installed at {binary.path}: {REMEDY}")
    return binary


def _of_another_version(directory: Path, candidates: Sequence[Process], new: EnvoyProcessInputs) -> Process | None:
    """Find which of those there serves in another version, where none may be taken for the wanted one.

    Not one from which another takes over already, which a stopped run has begun.
    """
    own = tuple(process for process in candidates if runs_in(directory, process))
    serving = {process: processes.mark_of(process) for process in own if not handover.successor_of(process, own)}
    if any(_mark(directory, new).items() <= mark.items() for mark in serving.values()):
        return None
    return next((process for process, mark in serving.items() if mark.get(VERSION_MARK) != new.version), None)


def _require_sound(directory: Path, former: str, new: EnvoyProcessInputs) -> None:
    """Check that another version can be run, before the one that serves is ended for it. Raises ProviderError."""
    binary = _wanted_binary(new.version)
    if why := why_unfit(binary, directory):
        raise ProviderError(
            f"Envoy {new.version} at {binary.path} can't be run: {why}; Envoy {former} goes on serving proxy"
            f" {new.proxy}: {REMEDY}, then run up"
        )


def _adopt(directory: Path, present: Sequence[Process], mark: Mapping[str, str]) -> Process | None:
    """Take the process that is just what is wanted; stop all others of this proxy, and one that doesn't answer."""
    adopted: Process | None = None
    for process in present:
        serves = runs_in(directory, process) and not handover.successor_of(process, tuple(present))
        fits = serves and mark.items() <= processes.mark_of(process).items()
        if adopted is None and fits and comes_to_answer(directory, ADOPTION_TIMEOUT):
            adopted = process
        else:
            stop_process(directory, process)
    return adopted


def _mark(directory: Path, new: EnvoyProcessInputs) -> Mapping[str, str]:
    """Return what a process says by its environment that may be taken for the wanted one."""
    return {PROXY_MARK: str(directory), BOOTSTRAP_MARK: new.bootstrap, VERSION_MARK: new.version}


def _start(directory: Path, binary: EnvoyBinary, new: EnvoyProcessInputs, epoch: Epoch) -> Process:
    _require_instances(directory)
    log = directory / LOG
    with suppress(FileNotFoundError):
        log.replace(directory / logs.PREVIOUS)
    files.remove(directory / ADMIN_SOCKET)
    bootstrap = files.read_shared(directory / rollout.BOOTSTRAP) or ""
    usual = (word for word in arguments(udp_only=is_udp_only(bootstrap)) if word != ALONE)
    mark = {**_mark(directory, new), OWNER_MARK: owner_mark(new.owner), **epoch.mark}
    process = processes.start([str(binary.path), *usual, *logs.ARGUMENTS, *epoch.arguments], directory, mark, log)
    _record(new, binary, process)
    return process


def _require_instances(directory: Path) -> None:
    """Refuse what an Envoy without enough inotify instances answers by an assertion in its own code."""
    limits.require(rollout.all_watches(push.texts(directory)), f"proxy {directory.name}")


def _record(new: EnvoyProcessInputs, binary: EnvoyBinary, process: Process) -> None:
    record = ProcessRecord(process.pid, process.started, str(binary.path), new.version, new.bootstrap)
    Proxies.ours().record(new.proxy, record)


def _await_answer(directory: Path, process: Process) -> None:
    """Wait until a new Envoy answers, which it can once its socket is there. Raises ProviderError."""
    deadline = time.monotonic() + START_TIMEOUT
    admin, checks = EnvoyAdmin(directory), count(1)
    while not admin.answers():
        if next(checks) % _ALIVE == 0 and not processes.is_alive(process):
            _require_instances(directory)
            terms = processes.last_output(directory / LOG, without=logs.NOISE)
            raise ProviderError(f"Envoy of proxy {directory.name} ended at once: {terms or 'without a word'}")
        if time.monotonic() > deadline:
            processes.stop(process, STOP_TIMEOUT)
            raise ProviderError(
                f"Envoy of proxy {directory.name} didn't answer within {START_TIMEOUT:g} s and was stopped:"
                f" {processes.last_output(directory / LOG, without=logs.NOISE) or 'its log is empty'}"
            )
        time.sleep(_TAKEOVER_PAUSE)


class PodmanContainer(ResourceType[PodmanContainerInputs, PodmanContainerState]):
    """Makes, adopts, repairs and removes."""

    inputs = PodmanContainerInputs
    state = PodmanContainerState
    replaced_for = frozenset(PodmanContainerInputs.__struct_fields__) - {"pull"}
    delete_first = True
    """Both want the same ports."""

    @cached_property
    def _life(self) -> PodmanLifecycle:
        from locallb.runtimes.podman import PodmanContainers, PodmanLifecycle  # noqa: PLC0415 - loads a client

        return PodmanLifecycle(PodmanContainers())

    def create(self, new: PodmanContainerInputs) -> tuple[str, PodmanContainerState]:
        """Make and start it, or have the one go on that is just this."""
        identity = self._life.create(new)
        return identity, grown(self.state, new, container=identity)

    def prepare(self, new: PodmanContainerInputs) -> None:
        """Fetch the image, while what will be replaced serves."""
        self._life.prepare(new)

    def read(self, state: PodmanContainerState) -> PodmanContainerState | None:
        """Return whether this very container runs, and is what it was made as."""
        return state if self._life.runs(state) else None

    def leaves_nothing(self, state: PodmanContainerState) -> bool:
        return self._life.is_absent(state.name)

    def update(self, old: PodmanContainerState, new: PodmanContainerInputs) -> PodmanContainerState:
        """Note when an image is fetched; the container stays."""
        return grown(self.state, new, container=old.container)

    def delete(self, state: PodmanContainerState) -> None:
        """Drain, stop and remove it, unless it is a copied project's original; gone is fine."""
        if not self.belongs_to_copied_project(state.owner):
            self._life.delete(state)
