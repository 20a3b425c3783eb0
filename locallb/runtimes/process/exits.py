"""Reports the end of a process at once, by pidfd_open(2), without polling."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from locallb.runtimes.process.processes import Process, ProcessError, is_alive
from locallb.threads import SupervisedThread, Task

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
