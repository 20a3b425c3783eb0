"""Triggers of the loop: files, directories, containers, processes and routes that are watched.

Each runs in a thread of its own and only sets a mark. Not here: what a mark means (`planner`), clusters' own
events (`sources.kubernetes.followed_cluster`), and when to look (`schedule`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from locallb.config.settings import Settings
from locallb.host.netlink import RouteEvents
from locallb.model.identities import Home
from locallb.runtimes.runtime import Run, RunWatch, runtime
from locallb.sources.overrides import path_of
from locallb.sources.source import Watch, finder_type, source_type
from locallb.storage.folder_watch import FileWatch, FolderWatch
from locallb.watch.events import Cause, Mark


class Triggers:
    """Calls `mark` from any thread, until `stop`."""

    def __init__(self, home: Home, configuration: Path, mark: Callable[[Mark], None]) -> None:
        self._root = Path(home.root)
        self._configuration = configuration
        self._overrides = path_of(home)
        self._mark = mark
        self._runs: tuple[str, RunWatch] | None = None
        """What is watched of which runtime."""
        self._watches: list[Watch] = []
        self._watched: Settings | None = None

    def follow(self, settings: Settings) -> None:
        """Watch what these settings name, and nothing else."""
        if self._watched == settings:
            return
        self._unwatch()
        self._watched = None  # until all of it is watched: where something can't begin, all is begun again
        self._watches.append(self._files(settings))
        self._watches += self._folders(settings)
        self._watches.append(RouteEvents(self._setter(Mark(Cause.ROUTES))))
        if self._runs is None or self._runs[0] != settings.runtime:
            self._unwatch_runs()
            word, ended = settings.runtime, self._marker(Cause.PROXY)
            self._runs = word, runtime(word).watch(ended, partial(self._presence, word))
        changed = self._marker(Cause.FOUND_CLUSTERS)
        self._watches += [finder_type(finder.type).watch(finder, self._root, changed) for finder in settings.finders]
        self._watched = settings

    def runs(self, resources: Iterable[Run]) -> None:
        """Watch for the end of the runs among these, and of no others."""
        if self._runs:
            self._runs[1].follow(resources)

    def stop(self) -> None:
        self._unwatch()
        self._unwatch_runs()

    def _files(self, settings: Settings) -> FileWatch:
        """Watch the configuration, what is ordered, and what says how sources are reached."""
        marks = {self._configuration: [Mark(Cause.CONFIGURATION)], self._overrides: [Mark(Cause.OVERRIDES)]}
        for source in settings.sources:
            for path in source_type(source.type).access_files(source, self._root):
                marks.setdefault(path, []).append(Mark(Cause.KUBECONFIG, source.cluster))

        def changed(path: Path) -> None:
            for mark in marks[path]:
                self._mark(mark)

        return FileWatch(marks, changed)

    def _folders(self, settings: Settings) -> list[FolderWatch]:
        return [
            FolderWatch(path, self._setter(Mark(Cause.SOURCE, source.cluster)), source.cluster)
            for source in settings.sources
            for path in source_type(source.type).contents(source, self._root)
        ]

    def _presence(self, word: str, fault: str) -> None:
        """Note that ends are not reported any more (why), or that they are again."""
        self._mark(Mark(Cause.RUNTIME, "" if fault else word))

    def _setter(self, mark: Mark) -> Callable[[], None]:
        return lambda: self._mark(mark)

    def _marker(self, cause: Cause) -> Callable[[str], None]:
        return lambda subject: self._mark(Mark(cause, subject))

    def _unwatch_runs(self) -> None:
        if self._runs:
            self._runs[1].stop()
            self._runs = None

    def _unwatch(self) -> None:
        for watch in self._watches:
            watch.stop()
        self._watches = []
