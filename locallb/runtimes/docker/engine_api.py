"""Containers, images, networks and events of any engine that speaks Docker's API: Engine API documents in and out.

A container is created in steps: its owner is checked, its image provided, and it is started. Not here: what a container
should be, and what Pulumi makes of it.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from docker.errors import APIError
from docker.types import CancellableStream
from docker.utils import convert_filters

from locallb.config.settings import PullPolicy
from locallb.model.fields import at
from locallb.model.identities import ContainerId, ImageName, Owner
from locallb.resources.resource_type import ProviderError
from locallb.runtimes.docker.daemon import (
    ANSWER,
    ContainersError,
    Daemon,
    DockerAbsentError,
    Document,
    EventStream,
    none_if_absent,
    reported,
)
from locallb.runtimes.planners import labelled_owner
from locallb.threads import SupervisedThread, Task

_STATED = 20_000
"""Maximum bytes of a log in a message, however long its lines are."""
_EXIT_NOT_WRITTEN = "timed out waiting for file"
"""Podman's response if it ended a container with a monitor that, on a busy host, is slow to write its exit code."""
_TAR = 10_240
"""Bytes of an archive in addition to its only file."""


DISCONNECT = "disconnect"
"""The event of a network that a container was taken from."""


def attributes_of(event: Document) -> Mapping[str, str]:
    """Return the attributes of an event's subject, including a container's labels."""
    return (event.get("Actor") or {}).get("Attributes") or {}


class Containers(Daemon):
    """What a daemon has. Every method raises ContainersError."""

    def ping(self) -> None:
        """Check that the daemon answers. Raises DockerAbsentError."""
        self.version()

    @reported
    def version(self) -> str:
        return str(self.client().version()["Version"])

    @reported
    def info(self) -> Document:
        """Read what the daemon says of itself and its host."""
        document: Document = self.client().info()
        return document

    @none_if_absent
    def inspect(self, name: str) -> Document | None:
        """Read a container by id or name; None if there is none."""
        container: Document = self.client().inspect_container(name)
        return container

    @reported
    def labelled(self, label: str) -> Sequence[Document]:
        """List the containers, running or not, that have a label: `key` or `key=value`."""
        listed: Sequence[Document] = self.client().containers(all=True, filters={"label": label})
        return listed

    @reported
    def events(self, label: str, actions: Sequence[str], since: float) -> EventStream:
        """Return what happened to containers that have a label since a time (Unix), as it happens.

        With DISCONNECT among the actions, also what networks lost, whichever containers those were.
        """
        if DISCONNECT not in actions:
            return self.stream({"type": "container", "label": label, "event": list(actions)}, since)

        def keep(event: Document) -> bool:
            return event.get("Type") == "network" or label in attributes_of(event)

        return self.stream({"type": ["container", "network"], "event": list(actions)}, since, keep)

    def stream(
        self, filters: Mapping[str, object], since: float, keep: Callable[[Document], bool] = lambda _event: True
    ) -> EventStream:
        """Stream the events that match a filter and `keep`, beginning at a time."""
        client = self.client()
        answer = client._get(  # noqa: SLF001 - docker-py waits for ever for the beginning of its answer
            client._url("/events"),  # noqa: SLF001 - as above
            params={"since": f"{since:.9f}", "filters": convert_filters(filters)},
            stream=True,
        )
        stream = client._stream_helper(answer, decode=True)  # noqa: SLF001 - as above
        events = EventStream(CancellableStream(stream, answer), self, keep)
        events.be_patient()
        return events

    def file(self, identity: ContainerId, path: str, maximum: int) -> bytes | None:
        """Read a regular file of at most `maximum` bytes in a container, running or not; None if it isn't there."""
        archive = self._archive(identity, path, maximum + _TAR)
        if archive is None:
            return None
        try:
            with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
                member = opened.next()
                content = opened.extractfile(member) if member and member.isfile() and member.size <= maximum else None
                return content.read() if content else None
        except tarfile.TarError as error:
            raise ContainersError(
                f"{self.engine.name} gives {path} of {identity:.12} in a way that can't be read: {error}"
            ) from None

    @none_if_absent
    def _archive(self, identity: ContainerId, path: str, maximum: int) -> bytes | None:
        stream, _ = self.client().get_archive(identity, path)
        return _beginning(stream, maximum)

    @reported
    def create(self, name: str, config: Document) -> ContainerId:
        """Create a container from the Engine API's document; return its id. Docker names one without a name."""
        return ContainerId(str(self.client().create_container_from_config(dict(config), name=name or None)["Id"]))

    @reported
    def connect(self, identity: ContainerId, networks: Mapping[str, Document]) -> None:
        """Take a container that doesn't run yet from the default bridge to other networks; none: leave it there."""
        client = self.client()
        if networks:
            client.disconnect_container_from_network(identity, "bridge")
        for name, endpoint in networks.items():
            client._raise_for_status(  # noqa: SLF001 - docker-py makes another document of the same
                client._post_json(  # noqa: SLF001 - as above
                    client._url("/networks/{0}/connect", name),  # noqa: SLF001 - as above
                    data={"Container": identity, "EndpointConfig": dict(endpoint)},
                )
            )

    @none_if_absent
    def network(self, name: str) -> Document | None:
        """Read a network; None if there is none."""
        network: Document = self.client().inspect_network(name)
        return network

    @reported
    def connected(self, network: str) -> Sequence[Document]:
        listed: Sequence[Document] = self.client().containers(all=True, filters={"network": network})
        return listed

    @reported
    def start(self, identity: ContainerId) -> None:
        """Start it; one that runs stays.

        Nothing is started by a daemon that is going down: what it starts then may be left where the next one can
        neither start it nor use it.
        """
        self.require_new_connections()
        self.client().start(identity)

    @reported
    def unpause(self, identity: ContainerId) -> None:
        self.client().unpause(identity)

    @reported
    def update(self, identity: ContainerId, limits: Document) -> None:
        """Change what Docker can change in place: the Engine API's document of /containers/<id>/update."""
        client = self.client()
        client._raise_for_status(  # noqa: SLF001 - docker-py's update_container has no way to say "no limit"
            client._post_json(client._url("/containers/{0}/update", identity), data=dict(limits))  # noqa: SLF001 - as above
        )

    @none_if_absent
    def stop(self, identity: ContainerId, seconds: int) -> None:
        """Stop a container, by force after `seconds`; gone or ended is fine."""
        self.client().stop(identity, timeout=seconds)

    @reported
    def put(self, identity: ContainerId, name: str, text: str) -> None:
        """Write a file into the root directory of a container that needn't run."""
        archive, data = io.BytesIO(), text.encode()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        self.client().put_archive(identity, "/", archive.getvalue())

    @reported
    def wait(self, identity: ContainerId, seconds: int) -> int:
        """Wait for a container's end; return its exit code."""
        return int(self.client().wait(identity, timeout=seconds)["StatusCode"])

    @none_if_absent
    def remove(self, identity: ContainerId, *, volumes: bool) -> None:
        """Remove it, running or not; gone is fine."""
        try:
            self._remove(identity, volumes=volumes)
        except APIError as error:
            if _EXIT_NOT_WRITTEN not in str(error):
                raise
            self._remove(identity, volumes=volumes)

    def _remove(self, identity: ContainerId, *, volumes: bool) -> None:
        try:
            self.client().remove_container(identity, v=volumes, force=True)
        except APIError as error:
            if "already in progress" not in str(error):
                raise

    def logs(self, identity: ContainerId, lines: int) -> str:
        """Read the last lines of its log, in one; empty where there are none."""
        text = self._log(identity, lines) or b""
        return " | ".join(line.strip() for line in text[-_STATED:].decode(errors="replace").splitlines())

    @reported
    def output(self, identity: ContainerId) -> str:
        """Read all that a container has written to its standard output."""
        text: bytes = self.client().logs(identity, stderr=False)
        return text.decode(errors="replace")

    @none_if_absent
    def _log(self, identity: ContainerId, lines: int) -> bytes | None:
        text: bytes = self.client().logs(identity, tail=lines)
        return text

    def has_image(self, image: ImageName) -> bool:
        return self._image(image) is not None

    @none_if_absent
    def _image(self, image: ImageName) -> Document | None:
        inspected: Document = self.client().inspect_image(image)
        return inspected

    @reported
    def pull(self, image: ImageName) -> None:
        """Fetch an image from its registry, with the user's own credentials."""
        repository, _, tag = image.rpartition(":") if ":" in image.rpartition("/")[2] else (image, "", "")
        if "@" in image:
            repository, tag = image, ""
        lines = [json.loads(line) for line in self.client().pull(repository, tag=tag or None).splitlines()]
        if refused := [line["error"] for line in lines if "error" in line]:
            raise ContainersError(f"{self.engine.name} refuses: {refused[0]}")

    @reported
    def load(self, archive: Path, image: ImageName, changes: Sequence[str]) -> str:
        """Make an image of a tar file of a root file system, and give its id; one that had the name goes, if unused."""
        client, before = self.client(), self._image(image)
        answer = client.import_image_from_file(str(archive), repository=image, changes=list(changes))
        if "error" in answer:
            raise ContainersError(f"{self.engine.name} didn't take the image {image}: {answer.strip()}")
        if before and (nameless := self._image(before["Id"])) and not nameless.get("RepoTags"):
            with suppress(APIError):  # a container is of it
                client.remove_image(before["Id"])
        return str(json.loads(answer.splitlines()[-1])["status"])


def _beginning(stream: Iterable[bytes], maximum: int) -> bytes:
    """Take what a stream has at first, and leave the rest."""
    claimed = bytearray()
    for part in stream:
        claimed += part
        if len(claimed) > maximum:
            break
    return bytes(claimed)


def labels_of(observed: Document) -> Mapping[str, str]:
    """Return the labels of an inspected container."""
    return dict(observed["Config"].get("Labels") or {})


def failed_to_start(observed: Document) -> bool:
    """Return whether the engine couldn't start a container: it may never be able to, and another container is."""
    state = observed["State"]
    return bool(state.get("Error")) and not state["Running"] and not state.get("Restarting")


def require_owner(containers: Containers, name: str, observed: Document, owner: Owner | None) -> None:
    """Raise ProviderError where the container that has the name isn't this owner's."""
    labelled = labelled_owner(labels_of(observed))
    if owner is None or labelled != owner:
        raise ProviderError(
            f"the container {name} exists already and belongs to {labelled or 'somebody else'};"
            f" look at it, then `{containers.engine.command} rm -f {name}`"
        )


def provide_image(containers: Containers, image: ImageName, name: str, pull: str) -> None:
    """Ensure that the image of the container `name` is there, fetched if necessary. Raises ProviderError."""
    if pull != PullPolicy.ALWAYS and containers.has_image(image):
        return
    try:
        containers.pull(image)
    except DockerAbsentError:
        raise
    except ContainersError as error:
        raise ProviderError(
            f"the image {image} for the container {name} can't be fetched ({error});"
            f" {containers.engine.image} makes one here, then say its name as local-lb:image"
        ) from error


def make_started(
    containers: Containers, name: str, body: Document, prepare: Callable[[ContainerId], object] = lambda _identity: None
) -> ContainerId:
    """Make a container, prepare it and start it; gives its id. One that an engine doesn't take is left nowhere."""
    identity = containers.create(name, body)
    try:
        prepare(identity)
        containers.start(identity)
    except DockerAbsentError:
        raise
    except ContainersError:
        containers.remove(identity, volumes=True)
        raise
    return identity


HARM = ("die", "pause", "unpause", "destroy", "update", "rename", DISCONNECT)
"""Events that end or change a container: for containers that we start ourselves."""
LIFE = ("start", "die", "destroy")
"""Events that add or remove a container: for containers that other programs start."""
_RETRY_DELAY = 1.0
"""Seconds until Docker is asked again where it doesn't answer."""
_SILENCE = 20.0
"""Seconds after which it is asked whether it is still there: one that hangs keeps its connections, and says nothing."""


class ContainerEvents:
    """Calls `changed` with the value of `label` of each affected container, from its own thread, until `stop`.

    Events since its creation are not missed, however long Docker takes to answer first. `presence` receives a sentence
    when Docker stops answering, and an empty one once it answers again: events in between are unknown.
    """

    def __init__(
        self,
        label: str,
        actions: Sequence[str],
        changed: Callable[[str], None],
        presence: Callable[[str], None],
        client: Callable[[float], Containers] = Containers,
    ) -> None:
        self._client = client
        self._label = label
        self._actions = actions
        self._changed = changed
        self._presence = presence
        self._since = time.time()
        self._absent = False
        self._stream: EventStream | None = None
        self._thread = SupervisedThread(Task.CONTAINERS, f"containers {label}", self._follow, failed=self._lose)
        self._hangs = ""
        """Why nothing is heard any more although the connection stands."""
        self._asker = SupervisedThread(Task.CONTAINERS, f"daemon of {label}", self._ask, stopped=self._thread.stopped)
        self._thread.start()
        self._asker.start()

    def stop(self) -> None:
        """End, also in the midst of a silence."""
        self._thread.stop()
        if self._stream:
            self._stream.cut()

    def _follow(self) -> None:
        while not self._thread.stopped.is_set():
            try:
                with closing(self._client(ANSWER)) as docker:
                    self._take(docker)
                reason = self._hangs or f"{docker.engine.name} ended its events"
            except ContainersError as error:
                reason = str(error)
            self._lose(reason)
            self._thread.stopped.wait(_RETRY_DELAY)

    def _ask(self) -> None:
        """Cut the events of a daemon that answers nothing."""
        with closing(self._client(ANSWER)) as docker:
            while not self._thread.stopped.wait(_SILENCE):
                try:
                    docker.ping()
                    self._hangs = ""
                except ContainersError as error:
                    self._hangs = str(error)
                    if self._stream:
                        self._stream.cut()

    def _take(self, docker: Containers) -> None:
        """Pass on what happens until Docker goes."""
        self._stream = docker.events(self._label, self._actions, self._since)
        if self._absent:
            self._presence("")
            self._absent = False
        if self._thread.stopped.is_set():  # too late for `stop` to cut it
            self._stream.cut()
        for event in self._stream:
            if self._thread.stopped.is_set():
                return
            if event.get("Type") == "network":
                subject = at(event, "Actor", "ID")  # for Podman that is the container, for Docker the network
                self._lost_network(docker, str(attributes_of(event).get("container") or subject or ""))
            else:
                self._changed(str(at(event, "Actor", "Attributes", self._label) or ""))

    def _lost_network(self, docker: Containers, identity: str) -> None:
        """Pass on that a running container was taken from a network; one that ends is taken from each."""
        observed = docker.inspect(identity) if identity else None
        if (
            observed
            and observed["State"]["Running"]
            and (value := (observed["Config"].get("Labels") or {}).get(self._label))
        ):
            self._changed(str(value))

    def _lose(self, reason: str) -> None:
        """Note that events aren't reported any more."""
        self._since = time.time()
        if not self._absent and not self._thread.stopped.is_set():
            self._presence(reason)
            self._absent = True
