"""Podman's service, which speaks Docker's API: its socket for this user, and its own wording of answers.

Not here: the requests (`docker.engine_api`), and a container's specification (`spec`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from docker.errors import APIError

from locallb.host.capabilities import PODMAN as VARIABLE
from locallb.host.capabilities import UNIX, podman_place
from locallb.model.identities import ContainerId
from locallb.runtimes.docker.daemon import TIMEOUT, ContainersError, Document, EventStream, none_if_absent, reported
from locallb.runtimes.docker.engine_api import Containers, attributes_of
from locallb.runtimes.docker.engines import ContainerEngine

_OWN_TERMS = {"die": "died", "destroy": "remove"}
_OWN_VERSION = "Libpod-API-Version"


def _place() -> Mapping[str, str]:
    return {"base_url": podman_place()}


PODMAN = ContainerEngine(
    "Podman",
    "podman",
    _place,
    VARIABLE,
    "`systemctl --user start podman.socket`, as root without `--user`",
    "`systemctl --user restart podman`, as root without `--user`",
    "its socket is another user's; start your own, or use the runtime process",
    "`locallb image --runtime podman`",
    "1.40",
)


class PodmanContainers(Containers):
    """What a Podman has. Neither its version nor /info is asked: for either it runs the host's package manager."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        super().__init__(timeout, PODMAN)

    @reported
    def ping(self) -> None:
        """Check that Podman answers. Raises DockerAbsentError, and ContainersError where that is another engine."""
        client = self.client()
        answer = client._get(f"{client.base_url}/_ping")  # noqa: SLF001 - docker-py tells no headers
        client._raise_for_status(answer)  # noqa: SLF001 - as above
        if _OWN_VERSION not in answer.headers:
            raise ContainersError(f"what answers at {self.host} isn't Podman; correct {VARIABLE}, and run again")

    @reported
    def events(self, label: str, actions: Sequence[str], since: float) -> EventStream:
        """Return what happened, chosen here: Podman has its own words for ends, and finds no label without a value."""
        wanted = {*actions, *(_OWN_TERMS[action] for action in actions if action in _OWN_TERMS)}

        def keep(event: Document) -> bool:
            ours = label in attributes_of(event) or event.get("Type") == "network"
            return ours and event.get("Action") in wanted

        return self.stream({"type": ["container", "network"]}, since, keep)

    @none_if_absent
    def stop(self, identity: ContainerId, seconds: int) -> None:
        """Stop a container; a paused one is resumed first, as Podman would say that it ended, and leave it."""
        client = self.client()
        with suppress(APIError):  # it isn't paused
            client.unpause(identity)
        client.stop(identity, timeout=seconds)

    @reported
    def info(self) -> Document:
        """Return what is needed of what it would say of itself: it is rootless where its socket is a user's."""
        self.ping()
        rootless = bool(self.host.startswith(UNIX) and Path(self.host.removeprefix(UNIX)).stat().st_uid)
        return {"SecurityOptions": ["name=rootless"] if rootless else []}
