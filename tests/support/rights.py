"""Rights of local-lb's user in a real API, by the files that give them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from lightkube import ApiError, Client

from tests.support.control_plane import Document
from tests.support.ingress_rights import BINDING, ROLE, SUBJECT

_DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


class Rights:
    """Those of deploy/rbac-*.yaml."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def give(self, name: str) -> None:
        for kind, document in self._documents(name):
            self._client.create(kind.from_dict(document))

    def take(self, name: str) -> None:
        for kind, document in self._documents(name):
            gone(self._client, kind, document["metadata"]["name"])

    @staticmethod
    def _documents(name: str) -> Iterator[tuple[Any, Document]]:
        loaded = list(yaml.safe_load_all((_DEPLOY / f"rbac-{name}.yaml").read_text()))
        bound = {each["roleRef"]["name"] for each in loaded if each["kind"] == "ClusterRoleBinding"}
        for each in loaded:
            if each["kind"] == "ClusterRole" and each["metadata"]["name"] in bound:
                yield ROLE, each
            elif each["kind"] == "ClusterRoleBinding":
                yield BINDING, {**each, "subjects": [SUBJECT]}


def gone(client: Client, kind: Any, name: str) -> None:  # noqa: ANN401 - a type of the client
    """Delete an object, if it is there."""
    try:
        client.delete(kind, name)
    except ApiError as error:
        if error.status.code != 404:
            raise
