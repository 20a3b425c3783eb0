"""The engines that speak Docker's API, Docker itself or another, and the names they have for their users.

Not here: the connection (`daemon`), and the requests (`engine_api`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from docker.utils import kwargs_from_env
from msgspec import Struct

from locallb.runtimes.docker.contexts import contexts_place

DEFAULT = "unix:///var/run/docker.sock"


class Engine(Struct, frozen=True):
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


DOCKER = Engine(
    "Docker",
    "docker",
    docker_place,
    "DOCKER_HOST",
    "`systemctl start docker`",
    "`systemctl restart docker`",
    "join the group `docker`, or use the runtime process",
    "`locallb image`",
)
