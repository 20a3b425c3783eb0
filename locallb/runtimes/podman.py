"""Podman's service, which speaks Docker's API, and the operations on a container there: its labels name the owner.

A run may be killed between an effect and its line in the state; `create` therefore adopts what is its own already,
known by a digest of all that it was made of. Not here: the requests (`docker.engine_api`), and a container's
specification (`planners`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from docker.errors import APIError

from locallb.envoy.admin import answers_while_present
from locallb.host.capabilities import PODMAN as VARIABLE
from locallb.host.capabilities import UNIX, podman_place
from locallb.model.desired import PODMAN_CONTAINER
from locallb.model.identities import ContainerId
from locallb.resources.properties import PodmanContainerInputs, PodmanContainerState
from locallb.runtimes.docker.daemon import (
    TIMEOUT,
    ContainerEngine,
    ContainersError,
    DockerAbsentError,
    Document,
    EventStream,
    none_if_absent,
    reported,
)
from locallb.runtimes.docker.engine_api import (
    Containers,
    attributes_of,
    labels_of,
    make_started,
    provide_image,
    require_owner,
)
from locallb.runtimes.docker.facts import drain_container, lacks_network, needs_restart, start_seconds
from locallb.runtimes.docker.route_helper import ContainerRoutes
from locallb.runtimes.docker.runtime import Docker
from locallb.runtimes.planners import SPEC_LABEL, body, labelled_owner
from locallb.storage.proxy_directories import Proxies

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


GRACE = 5
"""Seconds from SIGTERM to SIGKILL; Envoy takes a few milliseconds."""


class PodmanLifecycle:
    """Containers of one Podman."""

    def __init__(self, containers: Containers) -> None:
        self._containers = containers

    def create(self, new: PodmanContainerInputs) -> ContainerId:
        """Make and start it, or have the one go on that is just this; gives its id."""
        wanted = _body(new)
        observed = self._containers.inspect(new.name)
        if observed is not None:
            require_owner(self._containers, new.name, observed, new.owner)
            same = labels_of(observed).get(SPEC_LABEL) == wanted["Labels"][SPEC_LABEL] and _is_connected(observed, new)
            if same and self._have_run(observed, new):
                return ContainerId(observed["Id"])
        # First: what another version of ours made serves meanwhile.
        provide_image(self._containers, new.image, new.name, new.pull)
        if observed is not None:
            self._end(observed)
        return make_started(self._containers, new.name, wanted)

    def prepare(self, new: PodmanContainerInputs) -> None:
        """Have the image fetched, if it must be."""
        provide_image(self._containers, new.image, new.name, new.pull)

    def is_absent(self, name: str) -> bool:
        return self._containers.inspect(name) is None

    def runs(self, state: PodmanContainerState) -> bool:
        """Return whether it runs, serves, and is what it was made as."""
        observed = self._containers.inspect(state.container or state.name)
        if observed is None or labels_of(observed).get(SPEC_LABEL) != _body(state)["Labels"][SPEC_LABEL]:
            return False
        status = observed["State"]
        serves = status["Running"] and not status.get("Paused") and not needs_restart(observed)
        return bool(serves) and _is_connected(observed, state)

    def delete(self, state: PodmanContainerState) -> None:
        """Drain, stop and remove the container; gone or another's is fine."""
        observed = self._containers.inspect(state.container or state.name)
        if observed is not None and labelled_owner(labels_of(observed)) == state.owner:
            self._end(observed)

    def _end(self, observed: Document) -> None:
        drain_container(observed)
        self._containers.stop(ContainerId(observed["Id"]), GRACE)
        self._containers.remove(ContainerId(observed["Id"]), volumes=True)

    def _have_run(self, observed: Document, new: PodmanContainerInputs) -> bool:
        """Start or resume it, whatever was done to it, and wait until it answers.

        False if Podman can't start it, or removes it meanwhile: that it died may be the begin of a removal.
        """
        identity = ContainerId(observed["Id"])
        if observed["State"].get("Paused"):
            self._containers.unpause(identity)
        if needs_restart(observed):
            self._containers.stop(identity, GRACE)
        try:
            self._containers.start(identity)
        except DockerAbsentError:
            raise
        except ContainersError:
            return False

        def seconds() -> float | None:
            return start_seconds(self._containers.inspect(identity))

        return answers_while_present(_directory(new), seconds) and seconds() is not None


def _is_connected(observed: Document, inputs: PodmanContainerInputs) -> bool:
    return not inputs.network or not lacks_network(observed, inputs.network)


def _directory(inputs: PodmanContainerInputs) -> Path:
    return Proxies.ours().path(inputs.proxy)


def _body(inputs: PodmanContainerInputs) -> Mapping[str, Any]:
    return body(inputs, str(_directory(inputs)))


class Podman(Docker):
    """Containers of Podman, root's or this user's own. Their resource starts and ends them itself."""

    engine = PODMAN
    token = PODMAN_CONTAINER

    def containers(self, timeout: float = TIMEOUT) -> PodmanContainers:
        return PodmanContainers(timeout)


RUNTIME = Podman()


ROUTE_HELPER = ContainerRoutes(PodmanContainers)
