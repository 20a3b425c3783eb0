"""Docker's containers as a runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from locallb.config.settings import Settings
from locallb.envoy.waiting import comes_to_answer
from locallb.model.identities import ContainerId, Home, ProxyId, RunIdentity
from locallb.model.snapshot import HostFacts
from locallb.model.state_resource import CONTAINER, Resource
from locallb.planning.planned import PlannedProxy
from locallb.resources.errors import ProviderError
from locallb.runtimes import draining
from locallb.runtimes.docker.containers import HELPER_LABEL, PROXY_LABEL, labelled_owner
from locallb.runtimes.docker.daemon import ANSWER, PATIENCE, ContainersError, DockerAbsentError
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.engines import DOCKER
from locallb.runtimes.docker.events import HARM, ContainerEvents
from locallb.runtimes.docker.facts import home_of, read_facts
from locallb.runtimes.docker.runs import drain_container, was_drained
from locallb.runtimes.runtime import HostRun, Run, Runtime
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies

if TYPE_CHECKING:
    import pulumi

    from locallb.resources.declared import ProxyConfig

START_PATIENCE = 10.0
"""Seconds until the Envoy of a container that was just started must answer; it takes 0.1 to 0.3."""
_SECONDS = 10
"""What an Envoy that is told to end has for its connections, as Docker has it."""


class Docker(Runtime):
    """Containers that pulumi-docker declares. Docker starts them again, and whoever removes one drained it before.

    An engine with the same API is a runtime of this kind, too, whose containers are declared in another way.
    """

    asks_a_daemon = True
    engine = DOCKER
    token = CONTAINER
    """The type of its containers in states."""

    def containers(self, patience: float = PATIENCE) -> Containers:
        """Return the client of this engine."""
        return Containers(patience, self.engine)

    def require(self) -> None:
        """Ask the engine. Raises DockerAbsentError."""
        self.containers().ping()

    def facts(self, home: Home, settings: Settings, pids: Collection[int]) -> HostFacts:
        """Look at this host and at the engine: a container of root's may bind every port, whoever runs us."""
        return read_facts(home, settings, pids, self.containers(ANSWER))

    def declare(
        self, planned: PlannedProxy, config: ProxyConfig, parent: pulumi.Resource
    ) -> tuple[pulumi.Resource, pulumi.Output[str]]:
        """Declare a docker.Container."""
        from locallb.runtimes.docker.component import declare_container  # noqa: PLC0415 - 0.3 s to import

        return declare_container(planned, config, parent)

    def watch(self, ended: Callable[[str], None], presence: Callable[[str], None]) -> DockerWatch:
        """Follow what ends or changes a container by the engine's events."""
        return DockerWatch(ContainerEvents(PROXY_LABEL, HARM, ended, presence, self.containers))

    def runs(self) -> Iterator[HostRun]:
        """Find them by their labels; none where the engine doesn't answer."""
        client = self.containers()
        try:
            listed = [container for label in (PROXY_LABEL, HELPER_LABEL) for container in client.labelled(label)]
        except DockerAbsentError:
            return
        for container in listed:
            labels, name = container["Labels"], str(container["Names"][0]).lstrip("/")
            directory = paths.proxies_root() / labels.get(PROXY_LABEL, name)
            end = partial(client.remove, ContainerId(container["Id"]), volumes=True)
            yield HostRun("container", name, labelled_owner(labels), directory, apart=True, end=end)

    def await_start(self, run: RunIdentity, directory: Path) -> None:
        """Wait for its Envoy: a container is made before that is ready.

        Refuses one that an interrupted run told to stop: it answers, but listens no longer.
        """
        if self.is_drained(run, directory):
            name = _name_of(run)
            raise ProviderError(
                f"the container {name} was told to stop by a run that was interrupted:"
                f" `{self.engine.command} restart {name}`, then run up again"
            )
        comes_to_answer(directory, START_PATIENCE)

    def is_drained(self, run: RunIdentity, directory: Path) -> bool:
        """Ask the engine, where something was told to stop there at all: its listeners look alive all the same."""
        if not (directory / draining.STOPPING).exists():
            return False
        seen = self.containers().inspect(run.id)
        return seen is not None and was_drained(seen)

    def drain(self, run: RunIdentity) -> None:
        """Drain it. Who removes the container says that it can't be asked."""
        with suppress(ContainersError):
            if seen := self.containers().inspect(run.id):
                drain_container(seen)

    def log(self, run: RunIdentity) -> str:
        """Return the command that shows the log, and its end: an image of another kind says there what it is."""
        try:
            end = self.containers().logs(ContainerId(run.id), 2) or "it says nothing"
        except ContainersError as error:
            end = str(error)
        return f"`{self.engine.command} logs {_name_of(run)}` ({end})"

    def unanswered(self, run: RunIdentity, error: str) -> str:
        """Return that it is paused, where it is; the official plugin takes it for one that runs."""
        with suppress(ContainersError):
            seen = self.containers().inspect(run.id)
            if seen and seen["State"].get("Paused"):
                name = _name_of(run)
                return f"the container {name} is paused: `{self.engine.command} unpause {name}`, then run up again"
        return super().unanswered(run, error)

    def end_hanging(self, directory: Path) -> None:
        """Stop the proxy's containers, where its directory is one that containers use. Raises ContainersError."""
        if Proxies.ours().is_shared(ProxyId(directory.name)):
            for container in self.containers().labelled(f"{PROXY_LABEL}={directory.name}"):
                self.containers().stop(ContainerId(container["Id"]), 0)

    def leave(self, resources: Sequence[Resource], home: Home, state_home: Path) -> int:
        """Remove the stack's containers: they have directories there."""
        del state_home
        if all(resource.type != self.token for resource in resources):
            return 0
        containers = self.containers()
        listed = [container for container in containers.labelled(PROXY_LABEL) if home_of(container) == home]
        for container in listed:
            containers.stop(ContainerId(container["Id"]), _SECONDS)
            containers.remove(ContainerId(container["Id"]), volumes=True)
        return sum(container["State"] == "running" for container in listed)


class DockerWatch:
    """Follows every container with our label: those of other stacks are nobody's here."""

    def __init__(self, events: ContainerEvents) -> None:
        self._events = events

    def follow(self, runs: Iterable[Run]) -> None:
        """Follow them all the same."""

    def stop(self) -> None:
        """End the events."""
        self._events.stop()


def _name_of(run: RunIdentity) -> str:
    """Return the name under which its user finds it."""
    return run.id[:12]


RUNTIME = Docker()
