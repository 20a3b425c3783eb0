"""The engines that speak Docker's API, Docker itself or another: their addresses, and their names for users.

Not here: the connection (`daemon`), the requests (`engine_api`), and the context in use (`host.capabilities`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from docker.errors import DockerException
from docker.tls import TLSConfig
from docker.utils import kwargs_from_env
from msgspec import Struct

from locallb.host.capabilities import context_place, docker_context, docker_context_problem
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
