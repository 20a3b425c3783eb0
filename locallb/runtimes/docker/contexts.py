"""Contexts of the Docker CLI: the daemon that each one names, and its TLS files.

docker-py passes over a context that it doesn't find, and looks for all of them in the working directory where Docker's
directory has no config.json. Not here: which context counts (`host.container_sockets`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from docker.errors import DockerException
from docker.tls import TLSConfig

from locallb.host.container_sockets import context_place, docker_context, docker_context_problem
from locallb.model.formatting import clipped
from locallb.storage import files


class ContextError(DockerException):  # type: ignore[misc]  # docker-py has no types
    """The context that counts isn't there, or can't be read: one sentence."""


def contexts_place() -> Mapping[str, Any]:
    """Return the address of the current context, as arguments of docker-py; none for the default one.

    Raises ContextError.
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
