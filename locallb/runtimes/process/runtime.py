"""Processes of this host as a runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from locallb.config.settings import Settings
from locallb.model.desired import PROCESS, Resource
from locallb.model.identities import Home, Owner, ProxyId, RunIdentity
from locallb.model.snapshot import HostFacts
from locallb.runtimes.process import handover, processes
from locallb.runtimes.process.exits import Exits
from locallb.runtimes.process.facts import read_facts
from locallb.runtimes.process.processes import Process
from locallb.runtimes.process.stopping import drain_process, stop_all, stop_process
from locallb.runtimes.runtime import HostRun, Run, Runtime
from locallb.storage.proxy_directories import PROXY_MARK, Proxies, marked_owner


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
        """Stop the processes that are in the state."""
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
        named = ((run, run.outputs.get("pid")) for run in runs if run.type == PROCESS)
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
