"""Processes of this host as a runtime. Their ends are reported at once, by pidfd_open(2), without polling."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.envoy import binary
from locallb.host.facts import host_facts
from locallb.model.desired import PROCESS, RELAY, Resource
from locallb.model.identities import Home, Owner, ProxyId, RunIdentity
from locallb.model.snapshot import HostFacts
from locallb.runtimes import handover, processes
from locallb.runtimes.handover import drain_process, stop_all, stop_process
from locallb.runtimes.processes import Process, ProcessError, is_alive
from locallb.runtimes.runtime import HostRun, Run, Runtime
from locallb.storage.proxy_directories import PROXY_MARK, Proxies, marked_owner
from locallb.threads import SupervisedThread, Task


def read_facts(home: Home, settings: Settings, pids: Collection[int]) -> HostFacts:
    """Find out what this host allows. Raises ClientError."""
    ours = our_pids(home, pids)
    envoy = binary.installed().version
    return replace(host_facts(settings.pools, ours), envoy=envoy)


def our_pids(home: Home, existing: Collection[int]) -> set[int]:
    """Find the processes of a stack's proxies: those in its state, `existing`, and ones that a crash left out of it."""
    marked = processes.marked(PROXY_MARK).items()
    return {
        *existing,
        *(process.pid for process, mark in marked if (owner := marked_owner(mark)) and owner.home == home),
    }


RETRY_DELAY = 5.0
"""Seconds after which what couldn't be followed, because a descriptor was lacking, is tried again."""


class Exits:
    """Calls `ended` with the name of each followed process that ends, from a thread of its own, until `stop`."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._lock = threading.Lock()
        self._followed: dict[Process, int] = {}
        self._names: dict[int, tuple[Process, str]] = {}
        self._remaining: dict[Process, str] = {}
        """Processes without a notification of their end."""
        self._thread = SupervisedThread(Task.EXITS, "exits", self._wait)
        self._thread.start()

    def follow(self, processes: Mapping[Process, str]) -> None:
        """Follow these and no others. One that has ended already counts as ending now."""
        with self._lock:
            for process in self._followed.keys() - processes.keys():
                self._drop(process)
            self._remaining = {}
            removed = self._removed(processes)
            if self._remaining:
                os.eventfd_write(self._bell, 1)
        for name in removed:
            self._ended(name)

    def stop(self) -> None:
        self._thread.stop()
        os.eventfd_write(self._bell, 1)
        self._thread.join(2)
        with self._lock:
            for process in tuple(self._followed):
                self._drop(process)
            self._epoll.close()
            os.close(self._bell)

    def _removed(self, processes: Mapping[Process, str]) -> list[str]:
        """Follow these processes; return the names of those already ended."""
        return [name for process, name in processes.items() if not self._take(process, name)]

    def _take(self, process: Process, name: str) -> bool:
        """Follow one, later if that can't be now; False if it has ended."""
        if process in self._followed:
            self._names[self._followed[process]] = process, name
            return True
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        except OSError:  # no descriptor left, for instance
            if runs := _may_run(process):
                self._remaining[process] = name
            return runs
        if not _may_run(process):  # another one has its pid by now
            os.close(descriptor)
            return False
        self._followed[process] = descriptor
        self._names[descriptor] = process, name
        self._epoll.register(descriptor, select.EPOLLIN)
        return True

    def _drop(self, process: Process) -> None:
        descriptor = self._followed.pop(process)
        self._names.pop(descriptor, None)
        with suppress(OSError):
            self._epoll.unregister(descriptor)
        os.close(descriptor)

    def _wait(self) -> None:
        while not self._thread.stopped.is_set():
            events = self._epoll.poll(RETRY_DELAY if self._remaining else None)
            if not events:
                self._try_again()
            for descriptor, _event in events:
                if descriptor == self._bell and not self._thread.stopped.is_set():
                    os.eventfd_read(self._bell)
                with self._lock:
                    process, name = self._names.get(descriptor, (None, ""))
                if process:
                    self._ended(name)
                    with self._lock:
                        if self._followed.get(process) == descriptor:
                            self._drop(process)

    def _try_again(self) -> None:
        with self._lock:
            remaining, self._remaining = self._remaining, {}
            removed = self._removed(remaining)
        for name in removed:
            self._ended(name)


def _may_run(process: Process) -> bool:
    """Return whether it still runs, or its state is unknown now."""
    try:
        return is_alive(process)
    except ProcessError:
        return True


class Processes(Runtime):
    """Detached Envoys. Their resource starts and ends them itself."""

    def facts(self, home: Home, settings: Settings, pids: Collection[int]) -> HostFacts:
        return read_facts(home, settings, pids)

    def watch(self, ended: Callable[[str], None], presence: Callable[[str], None]) -> ProcessWatch:
        """Follow the ends of processes, of which the kernel tells."""
        del presence
        return ProcessWatch(ended)

    def runs(self) -> Iterator[HostRun]:
        """Find them by what they carry in their environment."""
        for process, mark in processes.marked(PROXY_MARK).items():
            directory, owner = Path(mark[PROXY_MARK]), marked_owner(mark)
            end = partial(_end, directory, process, owner)
            yield HostRun("process", str(process.pid), owner, directory, apart=False, end=end)

    def log(self, run: RunIdentity) -> str:
        del run
        return "envoy.log there"

    def drain(self, run: RunIdentity) -> None:
        """Drain it by its identity; one that is gone is fine."""
        process = _process(run)
        if directory := processes.mark_of(process).get(PROXY_MARK):
            drain_process(Path(directory), process)

    def leave(self, resources: Sequence[Resource], home: Home, state_home: Path) -> int:
        del home
        running = list(living(resources))
        for proxy, process in running:
            stop_process(state_home / "proxies" / proxy, process)
        return len(running)

    def end_hanging(self, directory: Path) -> None:
        """Stop hanging processes as always: they are drained if they answer after all."""
        stop_all(directory)

    def end_requested(self, directory: Path, process: RunIdentity | None, at: float) -> None:
        """Kill it by its id: one that hangs doesn't end when it is asked to."""
        del at
        if process and processes.mark_of(requested := _process(process)).get(PROXY_MARK) == str(directory):
            processes.stop(requested, 0)


class ProcessWatch:
    """Follows the processes that a state has."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._exits = Exits(ended)

    def follow(self, runs: Iterable[Run]) -> None:
        named = ((run, run.outputs.get("pid")) for run in runs if run.type in {PROCESS, RELAY})
        self._exits.follow(
            {
                Process(int(pid), str(resource.outputs["started"])): resource.name
                for resource, pid in named
                if isinstance(pid, int | float)
            }
        )

    def stop(self) -> None:
        self._exits.stop()


def _process(run: RunIdentity) -> Process:
    pid, _, started = run.id.partition("@")
    return Process(int(pid), started)


def living(resources: Iterable[Resource]) -> Iterator[tuple[str, Process]]:
    """Return the processes of a state that run, each with the id of its proxy."""
    for resource in resources:
        pid = resource.outputs.get("pid") if resource.type == PROCESS else None
        process = Process(int(pid) if isinstance(pid, int | float) else 0, str(resource.outputs.get("started")))
        if process.pid > 0 and processes.is_alive(process):
            yield str(resource.inputs["proxy"]), process


def _end(directory: Path, process: Process, owner: Owner | None) -> None:
    """Stop a process with a missing directory or one under another state home, and remove that directory."""
    stop_process(directory, process)
    proxies = Proxies(directory.parent)
    directory_record = proxies.find(ProxyId(directory.name))
    if directory_record is not None and directory_record.owner is not None and directory_record.owner == owner:
        handover.forget(directory)
        proxies.remove(directory_record.id)


RUNTIME = Processes()
