"""Kubeconfigs that finders generate for the clusters they found, readable by this user only.

Their input is untrusted, so only certificates and tokens are copied, as texts, and nothing that could run a command
here, read a file, or connect elsewhere. Not here: the input of a finder, and which clusters exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from locallb import safe_files
from locallb.kubernetes.api.kubeconfig import UNWRITTEN
from locallb.kubernetes.documents import DocumentError, read_documents
from locallb.model.errors import UNTOLD, ClientError, refusal
from locallb.model.fields import JsonObject
from locallb.model.identities import ContextName
from locallb.model.texts import clipped
from locallb.sources import SourceError
from locallb.storage import files, paths

LARGEST = 2**20
"""Bytes of a kubeconfig."""
SUFFIX = ".kubeconfig"
_CLUSTER_FIELDS = frozenset({"server", "certificate-authority-data"})
_RETAINED_FIELDS = _CLUSTER_FIELDS | {"tls-server-name"}
_USER_FIELDS = frozenset({"client-certificate-data", "client-key-data", "token"})
_UNUSABLE = (DocumentError, KeyError, IndexError, TypeError, ValueError, AttributeError)
"""Errors of reading a file that isn't a kubeconfig."""


@dataclass(frozen=True, slots=True)
class GeneratedAccess:
    """Access to a cluster's API: a kubeconfig, empty where it is unknown, and the entries of it that were refused."""

    text: str = field(default="", repr=False)
    refused: tuple[str, ...] = ()


class ServerAddress(Struct, frozen=True):
    """Address of a server as seen from here."""

    url: str
    name: str = ""
    """The name in its certificate, if it differs from the URL."""

    @property
    def fields(self) -> Mapping[str, str]:
        """Return the fields that a kubeconfig's cluster has of the kept access."""
        return {"server": self.url, **({"tls-server-name": self.name} if self.name else {})}


def admitted(
    context: ContextName, given: bytes | None, reach: Callable[[str], ServerAddress], token: str = ""
) -> GeneratedAccess:
    """Copy the allowed fields of a kubeconfig's first cluster and user; empty if it isn't complete yet.

    `reach` converts its server to the address as seen from here; a `token` replaces the user's credentials.
    """
    try:
        cluster, user, _ = _parts(given or b"")
        reached = reach(str(cluster["server"]))
    except _UNUSABLE:
        return GeneratedAccess()
    user = {"token": token} if token else user
    refused = (*_beyond(cluster, _CLUSTER_FIELDS), *_beyond(user, _USER_FIELDS))
    cluster, user = _within(cluster, _CLUSTER_FIELDS), _within(user, _USER_FIELDS)
    if not user:
        return GeneratedAccess(refused=refused or ("no certificate and no token",))
    return GeneratedAccess(_text(context, {**cluster, **reached.fields}, user), refused)


def retained(directory: Path) -> dict[str, Path]:
    """Return the usable kubeconfigs in a directory, by cluster. Raises SourceError if it can't be read."""
    paths_of = {path.name.removesuffix(SUFFIX): path for path in listed(directory, SUFFIX)}
    return {name: path for name, path in paths_of.items() if is_usable(path)}


def listed(directory: Path, suffix: str) -> tuple[Path, ...]:
    """List the files that a finder keeps. Raises SourceError if the directory can't be read."""
    try:
        return paths.entries(directory, suffix)
    except OSError as error:
        raise SourceError(f"can't determine what was found before: {directory}: {refusal(error)}") from None


def is_usable(path: Path) -> bool:
    """Return whether a kept kubeconfig has a context, and nothing but what we take.

    Raises SourceError where the system can't read just now: its cluster isn't gone for that.
    """
    try:
        cluster, user, contexts = _parts(safe_files.read(path, LARGEST))
        return bool(contexts) and not (_beyond(cluster, _RETAINED_FIELDS) or _beyond(user, _USER_FIELDS))
    except OSError as error:
        if error.errno in UNTOLD:
            raise SourceError(f"{path} can't be read: {refusal(error)}") from None
        return False
    except _UNUSABLE:
        return False


def forgotten() -> str:
    """Make a kubeconfig without a context: that cluster isn't waited for any more."""
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "contexts": []})


def put(finder: str, path: Path, text: str, *, keep: bool) -> None:
    """Have readers of `path` find `text` there, written or not. Raises SourceError."""
    UNWRITTEN.pop(str(path), None)
    try:
        if files.read(path) == text:
            return
        if not keep:
            UNWRITTEN[str(path)] = text.encode()
            return
        paths.private_directory(path.parent)
        files.write(path, text)
    except ClientError as error:
        raise SourceError(f"source {finder}: {path} can't be kept: {error}") from None


def _parts(data: bytes) -> tuple[dict[str, Any], dict[str, Any], object]:
    """Return the first cluster, the first user, and the contexts."""
    (document,) = read_documents(data, is_json=False)
    value: Any = document.value
    return dict(value["clusters"][0]["cluster"]), dict(value["users"][0]["user"]), value.get("contexts")


def _beyond(section: JsonObject, fields: Collection[str]) -> tuple[str, ...]:
    return tuple(clipped(key) for key, value in section.items() if key not in fields or not isinstance(value, str))


def _within(section: JsonObject, fields: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in section.items() if key in fields and isinstance(value, str)}


def _text(context: ContextName, cluster: object, user: object) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
    }
    return yaml.safe_dump(document)
