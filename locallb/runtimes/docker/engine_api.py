"""Containers, by docker-py: the daemon that DOCKER_HOST, the TLS variables or Docker's current context name.

Engine API documents in and out, one error class. Not here: what a container should be, and what Pulumi makes of it.
"""

from __future__ import annotations

import io
import os
import socket
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import requests
from docker import APIClient
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, ImageNotFound, NotFound, StreamParseError
from docker.types import CancellableStream
from docker.utils import kwargs_from_env
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from locallb.model.errors import ClientError

DEFAULT = "unix:///var/run/docker.sock"
PATIENCE = 60
"""Seconds that one answer of the daemon may take; a stop waits no longer than it was told to."""
_KEPT_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A host that is gone is noticed within a minute, however silent its daemon was before."""
_SAID = 20_000
"""Bytes of a log that are told, however long its lines are."""
_TAR = 10_240
"""Bytes that an archive has beside those of its only file."""
Document = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., object])


class ContainersError(ClientError):
    """Docker can't be reached, or refuses: one sentence with Docker's own words."""


class DockerAbsentError(ContainersError):
    """No Docker daemon answers."""


def _told(function: F) -> F:
    """Turn what docker-py raises into ContainersError."""

    @wraps(function)
    def telling(self: Containers, *args: object, **kwargs: object) -> object:
        with self._telling():
            return function(self, *args, **kwargs)

    return cast("F", telling)


class Containers:
    """One Docker daemon. Connects when it is first asked; safe to use from several threads."""

    def __init__(self) -> None:
        self._made: APIClient | None = None

    @property
    def host(self) -> str:
        """Where the daemon is, as far as the environment and Docker's context say."""
        return str(_arguments().get("base_url") or DEFAULT)

    def ping(self) -> None:
        """Ask whether the daemon is there. Raises DockerAbsentError."""
        self.version()

    @_told
    def version(self) -> str:
        """Return the daemon's version."""
        return str(self._client().version()["Version"])

    @_told
    def info(self) -> Document:
        """Read what the daemon says of itself and its host."""
        told: Document = self._client().info()
        return told

    def inspect(self, name: str) -> Document | None:
        """Read a container by id or name; None if there is none."""
        with self._telling():
            try:
                container: Document = self._client().inspect_container(name)
            except NotFound:
                return None
            return container

    @_told
    def labelled(self, label: str) -> Sequence[Document]:
        """List the containers, running or not, that have a label: `key` or `key=value`."""
        listed: Sequence[Document] = self._client().containers(all=True, filters={"label": label})
        return listed

    def events(self, label: str, actions: Sequence[str], since: float) -> EventStream:
        """Return what happened to containers that have a label since a time (Unix), as it happens."""
        with self._telling():
            filters = {"type": "container", "label": label, "event": list(actions)}
            stream = self._client().events(decode=True, filters=filters, since=f"{since:.9f}")
        return EventStream(stream, self._telling)

    def close(self) -> None:
        """Let the connections go that nobody uses."""
        made, self._made = self._made, None
        if made is not None:
            made.close()

    def file(self, identity: str, path: str, most: int) -> bytes | None:
        """Read a regular file of at most `most` bytes in a container, running or not; None if it isn't there."""
        with self._telling():
            try:
                stream, _ = self._client().get_archive(identity, path)
            except NotFound:
                return None
            archive = _beginning(stream, most + _TAR)
        try:
            with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
                member = opened.next()
                content = opened.extractfile(member) if member and member.isfile() and member.size <= most else None
                return content.read() if content else None
        except tarfile.TarError as error:
            raise ContainersError(
                f"Docker gives {path} of {identity:.12} in a way that can't be read: {error}"
            ) from None

    @_told
    def create(self, name: str, config: Document) -> str:
        """Create a container from the Engine API's document and give its id; Docker names one without a name."""
        return str(self._client().create_container_from_config(dict(config), name=name or None)["Id"])

    @_told
    def connect(self, identity: str, networks: Mapping[str, Document]) -> None:
        """Take a container that doesn't run yet from the default bridge to other networks; none: leave it there."""
        client = self._client()
        if networks:
            client.disconnect_container_from_network(identity, "bridge")
        for name, endpoint in networks.items():
            client._raise_for_status(  # noqa: SLF001 - docker-py makes another document of the same
                client._post_json(  # noqa: SLF001 - as above
                    client._url("/networks/{0}/connect", name),  # noqa: SLF001 - as above
                    data={"Container": identity, "EndpointConfig": dict(endpoint)},
                )
            )

    def network(self, name: str) -> Document | None:
        """Read a network; None if there is none."""
        with self._telling():
            try:
                answer: Document = self._client().inspect_network(name)
            except NotFound:
                return None
            return answer

    @_told
    def start(self, identity: str) -> None:
        """Start it; one that runs stays."""
        self._client().start(identity)

    @_told
    def unpause(self, identity: str) -> None:
        """Let a paused one go on."""
        self._client().unpause(identity)

    @_told
    def update(self, identity: str, limits: Document) -> None:
        """Change what Docker can change in place: the Engine API's document of /containers/<id>/update."""
        client = self._client()
        client._raise_for_status(  # noqa: SLF001 - docker-py's update_container has no way to say "no limit"
            client._post_json(client._url("/containers/{0}/update", identity), data=dict(limits))  # noqa: SLF001 - as above
        )

    def stop(self, identity: str, seconds: int) -> None:
        """Ask it to end and end it after `seconds`; gone or ended is fine."""
        with self._telling():
            try:
                self._client().stop(identity, timeout=seconds)
            except NotFound:
                return

    @_told
    def put(self, identity: str, name: str, text: str) -> None:
        """Write a file into the root directory of a container that needn't run."""
        archive, data = io.BytesIO(), text.encode()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        self._client().put_archive(identity, "/", archive.getvalue())

    @_told
    def wait(self, identity: str, seconds: int) -> int:
        """Wait for its end and return its exit code."""
        return int(self._client().wait(identity, timeout=seconds)["StatusCode"])

    def remove(self, identity: str, *, volumes: bool) -> None:
        """Remove it, running or not; gone is fine."""
        with self._telling():
            try:
                self._client().remove_container(identity, v=volumes, force=True)
            except NotFound:
                return
            except APIError as error:
                if "already in progress" not in str(error):
                    raise

    def logs(self, identity: str, lines: int) -> str:
        """Read the last lines of its log, in one; empty where there are none."""
        with self._telling():
            try:
                text: bytes = self._client().logs(identity, tail=lines)
            except NotFound:
                return ""
            return " | ".join(line.strip() for line in text[-_SAID:].decode(errors="replace").splitlines())

    def has_image(self, image: str) -> bool:
        """Return whether the daemon has an image."""
        with self._telling():
            try:
                self._client().inspect_image(image)
            except ImageNotFound:
                return False
            return True

    @_told
    def pull(self, image: str) -> None:
        """Fetch an image from its registry, with the user's own credentials."""
        repository, _, tag = image.rpartition(":") if ":" in image.rpartition("/")[2] else (image, "", "")
        if "@" in image:
            repository, tag = image, ""
        self._client().pull(repository, tag=tag or None)

    @_told
    def load(self, archive: Path, image: str, changes: Sequence[str]) -> str:
        """Make an image of a tar file of a root file system, and give its id."""
        repository, _, tag = image.rpartition(":")
        client = self._client()
        answer = client.import_image_from_file(str(archive), repository=repository, tag=tag, changes=list(changes))
        if "error" in answer:
            raise ContainersError(f"Docker didn't take the image {image}: {answer.strip()}")
        return str(answer).strip()

    def _client(self) -> APIClient:
        if self._made is None:
            _try_to_reach(self.host)
            self._made = _Client(version="auto", timeout=PATIENCE, **_arguments())
        return self._made

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except APIError as error:
            raise ContainersError(f"Docker refuses: {error.explanation or error}") from error
        except (DockerException, requests.RequestException, HTTPError, OSError) as error:
            self.close()
            raise DockerAbsentError(_absence(self.host, error)) from error
        except (StreamParseError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ContainersError(f"Docker at {self.host} answers what Docker doesn't say ({error!r:.200})") from error


class EventStream:
    """Events as they happen, until Docker goes. For one thread, but `cut` may be called from any."""

    def __init__(self, stream: CancellableStream, telling: Callable[[], AbstractContextManager[None]]) -> None:
        self._stream = stream
        self._telling = telling

    def __iter__(self) -> Iterator[Document]:
        """Return each event. Raises ContainersError."""
        try:
            with self._telling():
                yield from self._stream
        finally:
            self._stream._response.close()  # noqa: SLF001 - docker-py leaves its descriptor to the garbage

    def cut(self) -> None:
        """End it, also in the midst of a silence."""
        with suppress(OSError, DockerException, AttributeError):  # docker-py looks for a socket that may be gone
            self._stream.close()


def _beginning(stream: Iterable[bytes], most: int) -> bytes:
    """Take what a stream has at first, and leave the rest."""
    taken = bytearray()
    for part in stream:
        taken += part
        if len(taken) > most:
            break
    return bytes(taken)


class _Client(APIClient):  # type: ignore[misc]  # docker-py has no types
    """docker-py's client, with the certificate authority that Docker's settings name, and connections that notice.

    requests prefers REQUESTS_CA_BUNDLE, which is about the web's, to what a session was told. Events may be silent for
    days: whether a daemon elsewhere is still there is found out by TCP itself.
    """

    def mount(self, prefix: str, adapter: HTTPAdapter) -> None:
        """Use this adapter; its connections over TCP, if it makes any, are kept alive."""
        if manager := getattr(adapter, "poolmanager", None):
            manager.connection_pool_kw["socket_options"] = [*HTTPConnection.default_socket_options, *_KEPT_ALIVE]
        super().mount(prefix, adapter)

    def merge_environment_settings(self, *args: object, **kwargs: object) -> dict[str, object]:
        """Take the environment's settings, but for who is to be trusted."""
        settings: dict[str, object] = super().merge_environment_settings(*args, **kwargs)
        return {**settings, "verify": self.verify}


def _arguments() -> dict[str, Any]:
    """Return where the daemon is: the environment first, as Docker's own command does, then the current context."""
    given: dict[str, Any] = dict(kwargs_from_env(environment=dict(os.environ)))
    if "base_url" not in given:
        context = ContextAPI.get_current_context()
        if context is not None and context.Name != "default":
            given = {"base_url": context.Host, "tls": context.TLSConfig or False}
    return {"base_url": DEFAULT, **given}


def _try_to_reach(host: str) -> None:
    """Connect once where the daemon's socket is a file: docker-py leaks the socket of a connection that fails."""
    path = host.removeprefix("unix://") if host.startswith("unix://") else ""
    if path:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            client.connect(path)


def _absence(host: str, error: BaseException) -> str:
    if "SSL" in str(error):
        words = str(error).rpartition("Error(")[2].strip("()'\" ")
        return f"Docker at {host} isn't trusted, or doesn't trust us: {words}; correct DOCKER_CERT_PATH, and run again"
    if "Permission denied" in str(error):
        return f"Docker at {host} isn't open to this user: join the group `docker`, or use the runtime process"
    return (
        f"Docker doesn't answer at {host}: start it (`systemctl start docker`), or correct DOCKER_HOST, and run again"
    )
