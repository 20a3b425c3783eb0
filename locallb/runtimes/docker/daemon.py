"""The engines that speak Docker's API, their addresses and names for users, and the connection to the daemon of one.

One error class for all failures, and a timeout for all waiting. Not here: the requests
(`engine_api`).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import wraps
from typing import Any, TypeVar, cast

import requests
from docker import APIClient
from docker.errors import APIError, DockerException, NotFound, StreamParseError
from docker.tls import TLSConfig
from docker.types import CancellableStream
from docker.utils import kwargs_from_env
from msgspec import Struct
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from locallb.host.capabilities import context_place, docker_context, docker_context_problem, try_to_reach
from locallb.model.errors import ClientError, scarcity
from locallb.model.texts import clipped
from locallb.storage import files


class ContextError(DockerException):  # type: ignore[misc]  # docker-py has no types
    """The context that counts isn't there, or can't be read: one sentence."""


def contexts_place() -> Mapping[str, Any]:
    """Return the address of the current context, as arguments of docker-py; none for the default one.

    Read here because docker-py ignores a context that it doesn't find, and searches the working directory for all of
    them if Docker's directory has no config.json. Raises ContextError.
    """
    if problem := docker_context_problem():
        raise ContextError(problem)
    context, _ = docker_context()
    return _place(context) if context else {}


def _place(context: str) -> Mapping[str, Any]:
    path = context_place(context, "meta", "meta.json")
    try:
        endpoint = json.loads(files.read(path) or "")["Endpoints"]["docker"]
        host, unverified = str(endpoint["Host"]), bool(endpoint.get("SkipTLSVerify", False))
    except (files.FilesError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ContextError(
            f"the Docker context {clipped(context)} names no place of Docker in {path}:"
            " make it again with `docker context create`"
        ) from None
    return {"base_url": host, "tls": _tls(context, verified=not unverified)}


def _tls(context: str, *, verified: bool) -> TLSConfig | bool:
    """Return what a context has for TLS: whom it trusts and who it is; False where it has nothing."""
    authority, certificate, key = (
        context_place(context, "tls", "docker", f"{name}.pem") for name in ("ca", "cert", "key")
    )
    if not all(path.is_file() for path in (authority, certificate, key)):
        return False
    return TLSConfig(client_cert=(str(certificate), str(key)), ca_cert=str(authority), verify=verified or None)


DEFAULT = "unix:///var/run/docker.sock"


class ContainerEngine(Struct, frozen=True):
    """What differs between them before anything is asked."""

    name: str
    command: str
    """Its user's own command, by which containers are looked at."""
    where: Callable[[], Mapping[str, Any]]
    """Where its daemon is, as docker-py's client takes it: `base_url`, and perhaps `tls`."""
    variable: str
    """The variable of the environment that says so."""
    start: str
    """How its user starts it."""
    restart: str
    closed: str
    """What helps who may not use it."""
    image: str
    """Our command that makes an image there."""
    api: str = "auto"
    """The version of the API that is spoken; `auto` asks for the newest."""


def docker_place() -> Mapping[str, Any]:
    """Return where Docker is, as its own command finds it: by DOCKER_HOST, DOCKER_CONTEXT, the current context.

    Raises ContextError.
    """
    given: dict[str, Any] = dict(kwargs_from_env(environment=dict(os.environ)))
    if "base_url" not in given:
        given = dict(contexts_place())
    return {"base_url": DEFAULT, **given}


DOCKER = ContainerEngine(
    "Docker",
    "docker",
    docker_place,
    "DOCKER_HOST",
    "`systemctl start docker`",
    "`systemctl restart docker`",
    "join the group `docker`, or use the runtime process",
    "`locallb image`",
)


TIMEOUT, ANSWER = 60, 20
"""Timeouts in seconds: of a daemon's response, also under load, and of one that only reports state. A stop takes no
longer than its own limit.
"""
_LONGEST = 600
"""Seconds for which a daemon that fetches or unpacks an image may say nothing."""
_IDLE = getattr(socket, "TCP_KEEPIDLE", 0x10)
"""macOS has it by another name, and loads this module as well."""
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, _IDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A host that is gone is noticed within a minute, however silent its daemon was before."""
Document = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., object])


class ContainersError(ClientError):
    """The engine can't be reached, or refuses: one sentence with its own words."""


class DockerAbsentError(ContainersError):
    """No daemon of the engine answers."""


def reported(function: F) -> F:
    """Wrap a method, so that it raises ContainersError for what docker-py raises."""

    @wraps(function)
    def reporting(self: Daemon, *args: object, **kwargs: object) -> object:
        with self.reporting():
            return function(self, *args, **kwargs)

    return cast("F", reporting)


_REMOVED = "no such container"
"""Podman's answer, as a failure of its own, where a container goes while it is asked."""


def none_if_absent(function: F) -> F:
    """Return None where Docker has no such thing, and turn what else docker-py raises into ContainersError."""

    @wraps(function)
    def reporting(self: Daemon, *args: object, **kwargs: object) -> object:
        with self.reporting():
            try:
                return function(self, *args, **kwargs)
            except NotFound:
                return None
            except APIError as error:
                if _REMOVED not in str(error):
                    raise
                return None

    return cast("F", reporting)


class Daemon:
    """One daemon of an engine. Connects when it is first asked; safe to use from several threads."""

    def __init__(self, timeout: float = TIMEOUT, engine: ContainerEngine = DOCKER) -> None:
        self.engine = engine
        self._timeout = timeout
        self._made: APIClient | None = None

    @property
    def host(self) -> str:
        """The daemon's address, as the environment and the engine's own settings have it."""
        return str(self.engine.where()["base_url"])

    def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.close()

    def client(self) -> APIClient:
        """Return docker-py's client, made when it is first needed."""
        if self._made is None:
            _try_to_reach(self.host, self._timeout)
            self._made = _Client(version=self.engine.api, timeout=self._timeout, **self.engine.where())
        return self._made

    def require_new_connections(self) -> None:
        """Check that the daemon accepts new connections: one that is shutting down still answers on existing ones.

        Raises docker-py's errors. Where systemd holds the socket, this waits until the daemon is back.
        """
        _try_to_reach(self.host, ANSWER)
        with closing(_Client(version=self.engine.api, timeout=ANSWER, **self.engine.where())) as client:
            client.ping()

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Raise what docker-py raises as ContainersError."""
        try:
            yield
        except ContextError as error:
            raise DockerAbsentError(str(error)) from None
        except APIError as error:
            raise ContainersError(f"{self.engine.name} refuses: {error.explanation or error}") from error
        except (DockerException, requests.RequestException, HTTPError, OSError) as error:
            self.close()
            if why := scarcity(error):  # it may be as well as ever
                raise ContainersError(f"{self.engine.name} at {self.host} can't be asked: {why}") from error
            raise DockerAbsentError(_absence(self.engine, self.host, error)) from error
        except (StreamParseError, ValueError, KeyError, TypeError, AttributeError) as error:
            name = self.engine.name
            raise ContainersError(f"{name} at {self.host} answers what {name} doesn't say ({error!r:.200})") from error


class EventStream:
    """Events as they happen, until Docker goes. For one thread, but `cut` may be called from any."""

    def __init__(self, stream: CancellableStream, daemon: Daemon, keep: Callable[[Document], bool]) -> None:
        self._stream = stream
        self._daemon = daemon
        self._keep = keep

    def __iter__(self) -> Iterator[Document]:
        """Return each event. Raises ContainersError."""
        try:
            with self._daemon.reporting():
                yield from filter(self._keep, self._stream)
        finally:
            self._stream._response.close()  # noqa: SLF001 - docker-py leaves its descriptor to the garbage

    def be_patient(self) -> None:
        """Let the next event come when it comes: only the answer's beginning had to come in time."""
        with suppress(AttributeError):  # over SSH there is no socket
            self._stream._response.raw._fp.fp.raw._sock.settimeout(None)  # noqa: SLF001 - docker-py's way keeps it for ever

    def cut(self) -> None:
        """End it, also in the midst of a silence."""
        with suppress(OSError, DockerException, AttributeError):  # docker-py looks for a socket that may be gone
            self._stream.close()


class _Client(APIClient):  # type: ignore[misc]  # docker-py has no types
    """docker-py's client with the certificate authority of Docker's settings and TCP keep-alive.

    requests prefers REQUESTS_CA_BUNDLE, which is meant for the web, to a session's own setting. Events may be silent
    for days: TCP itself detects that a remote daemon is gone.
    """

    def mount(self, prefix: str, adapter: HTTPAdapter) -> None:
        """Use this adapter; its connections over TCP, if it makes any, are kept alive."""
        if manager := getattr(adapter, "poolmanager", None):
            manager.connection_pool_kw["socket_options"] = [*HTTPConnection.default_socket_options, *_KEEP_ALIVE]
        super().mount(prefix, adapter)

    def request(self, *args: object, **kwargs: object) -> requests.Response:
        """Send a request; where docker-py would wait for ever, that ends as well."""
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = _LONGEST
        answer: requests.Response = super().request(*args, **kwargs)
        return answer

    def merge_environment_settings(self, *args: object, **kwargs: object) -> dict[str, object]:
        """Apply the environment's settings, except for the trusted certificate authority."""
        settings: dict[str, object] = super().merge_environment_settings(*args, **kwargs)
        return {**settings, "verify": self.verify}


def _try_to_reach(host: str, timeout: float) -> None:
    """Connect once where the daemon's socket is a file: docker-py leaks the socket of a connection that fails."""
    path = host.removeprefix("unix://") if host.startswith("unix://") else ""
    if path:
        try_to_reach(path, timeout)


def _absence(engine: ContainerEngine, host: str, error: BaseException) -> str:
    place = f"{engine.name} at {host}"
    if "SSL" in str(error):
        terms = str(error).rpartition("Error(")[2].strip("()'\" ")
        return f"{place} isn't trusted, or doesn't trust us: {terms}; correct DOCKER_CERT_PATH, and run again"
    if "Permission denied" in str(error):
        return f"{place} isn't open to this user: {engine.closed}"
    if "Read timed out" in str(error):
        return (
            f"{place} takes connections and answers nothing: restart it ({engine.restart}),"
            f" or correct {engine.variable}, and run again"
        )
    return (
        f"{engine.name} doesn't answer at {host}: start it ({engine.start}),"
        f" or correct {engine.variable}, and run again"
    )
