"""Creates a container with any engine that speaks Docker's API: checks its owner, provides its image, starts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from locallb.config.settings import PullPolicy
from locallb.model.identities import ContainerId, ImageName, Owner
from locallb.resources.resource_type import ProviderError
from locallb.runtimes.docker.containers import labelled_owner
from locallb.runtimes.docker.daemon import ContainersError, DockerAbsentError, Document
from locallb.runtimes.docker.engine_api import Containers


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
