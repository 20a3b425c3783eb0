"""Docker's containers as a runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from locallb.config.settings import Settings
from locallb.model.identities import Home, RunIdentity
from locallb.model.snapshot import HostFacts
from locallb.model.state_resource import CONTAINER, Resource
from locallb.planning.planned import PlannedProxy
from locallb.runtimes.docker import runs
from locallb.runtimes.docker.containers import HELPER_LABEL, PROXY_LABEL, labelled_owner
from locallb.runtimes.docker.daemon import DockerAbsentError
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.events import HARM, ContainerEvents
from locallb.runtimes.docker.facts import home_of, read_facts
from locallb.runtimes.runtime import HostRun, Run, Runtime
from locallb.storage import paths

if TYPE_CHECKING:
    import pulumi

    from locallb.resources.declared import ProxyConfig

_SECONDS = 10
"""What an Envoy that is told to end has for its connections, as Docker has it."""


class Docker(Runtime):
    """Containers that pulumi-docker declares. Docker starts them again, and whoever removes one drained it before."""

    asks_a_daemon = True

    def require(self) -> None:
        """Ask Docker. Raises DockerAbsentError."""
        Containers().ping()

    def facts(self, home: Home, settings: Settings, pids: Collection[int]) -> HostFacts:
        """Look at this host and at Docker: a container may bind every port, whoever runs us."""
        return read_facts(home, settings, pids)

    def declare(
        self, planned: PlannedProxy, config: ProxyConfig, parent: pulumi.Resource
    ) -> tuple[pulumi.Resource, pulumi.Output[str]]:
        """Declare a docker.Container."""
        from locallb.runtimes.docker.component import declare_container  # noqa: PLC0415 - 0.3 s to import

        return declare_container(planned, config, parent)

    def watch(self, ended: Callable[[str], None], presence: Callable[[str], None]) -> DockerWatch:
        """Hear of what ends or changes a container from Docker's events."""
        return DockerWatch(ContainerEvents(PROXY_LABEL, HARM, ended, presence))

    def runs(self) -> Iterator[HostRun]:
        """Find them by their labels; none where Docker doesn't answer."""
        try:
            listed = [container for label in (PROXY_LABEL, HELPER_LABEL) for container in Containers().labelled(label)]
        except DockerAbsentError:
            return
        for container in listed:
            labels, name = container["Labels"], str(container["Names"][0]).lstrip("/")
            directory = paths.proxies_root() / labels.get(PROXY_LABEL, name)
            end = partial(Containers().remove, str(container["Id"]), volumes=True)
            yield HostRun("container", name, labelled_owner(labels), directory, apart=True, end=end)

    def await_start(self, run: RunIdentity, directory: Path) -> None:
        """Refuse one that was told to stop, and wait for the others."""
        runs.await_start(run, directory)

    def is_drained(self, run: RunIdentity, directory: Path) -> bool:
        """Ask Docker where something was told to stop there at all."""
        return runs.is_drained(run, directory)

    def drain(self, run: RunIdentity) -> None:
        """Drain it, before whoever declared it ends it."""
        runs.drain(run)

    def log(self, run: RunIdentity) -> str:
        """Return the command that shows it, and its end."""
        return f"`docker logs {runs.name_of(run)}` ({runs.last_words(run)})"

    def unanswered(self, run: RunIdentity, error: str) -> str:
        """Return that it is paused, where it is."""
        if runs.is_paused(run):
            name = runs.name_of(run)
            return f"the container {name} is paused: `docker unpause {name}`, then run up again"
        return super().unanswered(run, error)

    def leave(self, resources: Sequence[Resource], home: Home, state_home: Path) -> int:
        """Remove the stack's containers: they have directories there."""
        del state_home
        if all(resource.type != CONTAINER for resource in resources):
            return 0
        containers = Containers()
        listed = [container for container in containers.labelled(PROXY_LABEL) if home_of(container) == home]
        for container in listed:
            containers.stop(str(container["Id"]), _SECONDS)
            containers.remove(str(container["Id"]), volumes=True)
        return sum(container["State"] == "running" for container in listed)

    def end_hanging(self, directory: Path) -> None:
        """Stop the proxy's containers."""
        runs.end_hanging(directory)


class DockerWatch:
    """Follows every container with our label: those of other stacks are nobody's here."""

    def __init__(self, events: ContainerEvents) -> None:
        self._events = events

    def follow(self, runs: Iterable[Run]) -> None:
        """Follow them all the same."""

    def stop(self) -> None:
        """End the events."""
        self._events.stop()


RUNTIME = Docker()
