"""The interface of a runtime: all effects on runs of Envoy. How a run is planned is in `planning.planned`.

Methods block; what goes wrong is a ClientError or a ProviderError. Not here: what an Envoy serves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, cast

from msgspec import Struct

from locallb.config.registry import RUNTIMES
from locallb.config.settings import Settings
from locallb.envoy.admin import EnvoyAdmin
from locallb.model.desired import Resource
from locallb.model.errors import ClientError
from locallb.model.identities import Home, Owner, RunIdentity
from locallb.model.snapshot import HostFacts


class UnfitRuntimeError(ClientError):
    """This host's runtime can't do what the configuration wants: one sentence."""


class HostRun(Struct, frozen=True):
    """A run that is on this host, whether a state knows it or not."""

    sort: str
    what: str
    """The pid, or a name that its user knows."""
    owner: Owner | None
    directory: Path
    """That of its proxy, which needn't be there."""
    apart: bool
    """Who removes the directory doesn't end it."""
    end: Callable[[], None]


class Run(Resource, Protocol):
    """A resource of a state that may be a run."""

    @property
    def name(self) -> str:
        """The name of the proxy, where it is one."""


class RunWatch(Protocol):
    """Tells from threads of its own which runs end, until `stop`."""

    def follow(self, runs: Iterable[Run]) -> None:
        """Follow these resources of a state and no others; those of other types are passed over."""

    def stop(self) -> None:
        """Follow nothing any more."""


class Runtime(ABC):
    """What Envoy runs in."""

    uses_daemon = False
    """Whether a question about this host may wait for another program's answer."""

    def require(self) -> None:  # noqa: B027 - most have nothing that could be away
        """Check that it is there, before anything begins."""

    @abstractmethod
    def facts(self, home: Home, settings: Settings, pids: Collection[int]) -> HostFacts:
        """Return the host facts for this stack; `pids` are its processes in the state.

        Raises UnfitRuntimeError if the host can't do what is configured.
        """

    def facts_at_a_glance(self, home: Home, settings: Settings, pids: Collection[int]) -> tuple[HostFacts, str]:
        """Return the same for commands that change nothing, and why some of it is unknown: it is soon returned.

        Raises UnfitRuntimeError.
        """
        return self.facts(home, settings, pids), ""

    def image(self, settings: Settings, envoy: str) -> tuple[str, bool]:
        """Return the image that runs are made from, with this version of Envoy, and whether it is there.

        Empty for a runtime that needs none. Raises ClientError.
        """
        del settings, envoy
        return "", True

    @abstractmethod
    def watch(self, ended: Callable[[str], None], presence: Callable[[str], None]) -> RunWatch:
        """Call `ended` with the name or id of the proxy of each run that ends or changes.

        `presence` receives the reason when notifications stop, and an empty text once they resume.
        """

    @abstractmethod
    def runs(self) -> Iterator[HostRun]:
        """Yield every run on this host, of any owner; none if the runtime can't be queried."""

    def await_start(self, run: RunIdentity, directory: Path) -> None:  # noqa: B027 - who starts a run may wait itself
        """Wait until a run that was just declared answers. Raises ProviderError where it never will."""

    def is_drained(self, run: RunIdentity, directory: Path) -> bool:
        """Return whether a run was drained: it answers, and listens no longer."""
        del run, directory
        return False

    def cannot_serve(self, run: RunIdentity, directory: Path) -> bool:
        """Return whether it is known without its Envoy that a run serves nothing now: that may wait for an answer."""
        return self.is_drained(run, directory)

    def drain(self, run: RunIdentity) -> None:  # noqa: B027 - who ends a run may drain it himself
        """Close its listeners before it is ended, and leave open connections a moment."""

    @abstractmethod
    def log(self, run: RunIdentity) -> str:
        """Return where its log is, for a sentence to its user, and the end of it where that is hard to find."""

    def unanswered(self, run: RunIdentity, error: str) -> str:
        """Return what to do where it doesn't answer, which `error` says."""
        return f"{error}; run up again, and see {self.log(run)} if that doesn't help"

    @abstractmethod
    def leave(self, resources: Sequence[Resource], home: Home, state_home: Path) -> int:
        """End the runs of stack `home`, with `resources` in its state, from another state home; return their number.

        Raises ClientError if one can't be ended.
        """

    @abstractmethod
    def end_hanging(self, directory: Path) -> None:
        """End what runs for the proxy there and doesn't answer; nothing does that is fine."""

    @abstractmethod
    def end_requested(self, directory: Path, process: RunIdentity | None, at: float) -> None:
        """End at once the very run of the proxy there that was asked and hangs, and no other; gone is fine.

        It was asked `at` that time (Unix), and `process` is the one that listens, where it can be seen. Raises
        ClientError, within seconds.
        """


@cache
def runtime(word: str) -> Runtime:
    return cast("Runtime", RUNTIMES.load(word, "runtime"))


def runtimes() -> tuple[Runtime, ...]:
    return tuple(runtime(word) for word in RUNTIMES)


def end_hanging(directory: Path) -> None:
    """End an Envoy that runs but doesn't answer, in whatever it runs: it may listen still.

    Raises ClientError. Few hosts have all daemons: one that is away is fine unless an Envoy is left that may be its.
    """
    silent: list[ClientError] = []
    for runtime in runtimes():
        try:
            runtime.end_hanging(directory)
        except ClientError as error:
            if not runtime.uses_daemon:
                raise
            silent.append(error)
    if silent and EnvoyAdmin(directory).is_held():
        raise silent[0]
