"""The resource PodmanContainer: a proxy's container. Its operations are in `engine`, which loads a client.

A changed spec is another container. One that doesn't serve (ended, paused, drained) counts as gone, and creating it
again resumes the same one.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from locallb.resources.properties import PodmanContainerInputs, PodmanContainerState
from locallb.resources.resource_type import ResourceType, grown

if TYPE_CHECKING:
    from locallb.runtimes.podman.engine import PodmanLifecycle


class PodmanContainer(ResourceType[PodmanContainerInputs, PodmanContainerState]):
    """Makes, adopts, repairs and removes."""

    inputs = PodmanContainerInputs
    state = PodmanContainerState
    replaced_for = frozenset(PodmanContainerInputs.__struct_fields__) - {"pull"}
    delete_first = True
    """Both want the same ports."""

    @cached_property
    def _life(self) -> PodmanLifecycle:
        from locallb.runtimes.podman.engine import PodmanContainers, PodmanLifecycle  # noqa: PLC0415 - loads a client

        return PodmanLifecycle(PodmanContainers())

    def create(self, new: PodmanContainerInputs) -> tuple[str, PodmanContainerState]:
        """Make and start it, or have the one go on that is just this."""
        identity = self._life.create(new)
        return identity, grown(self.state, new, container=identity)

    def prepare(self, new: PodmanContainerInputs) -> None:
        """Fetch the image, while what will be replaced serves."""
        self._life.prepare(new)

    def read(self, state: PodmanContainerState) -> PodmanContainerState | None:
        """Return whether this very container runs, and is what it was made as."""
        return state if self._life.runs(state) else None

    def leaves_nothing(self, state: PodmanContainerState) -> bool:
        return self._life.is_absent(state.name)

    def update(self, old: PodmanContainerState, new: PodmanContainerInputs) -> PodmanContainerState:
        """Note when an image is fetched; the container stays."""
        return grown(self.state, new, container=old.container)

    def delete(self, state: PodmanContainerState) -> None:
        """Drain, stop and remove it, unless it is a copied project's original; gone is fine."""
        if not self.belongs_to_copied_project(state.owner):
            self._life.delete(state)


RESOURCE_TYPES = (PodmanContainer,)
