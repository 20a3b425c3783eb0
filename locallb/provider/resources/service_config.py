"""ServiceConfig: one Service's part of a shared proxy's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from locallb.envoy import push, rollout
from locallb.envoy.access_logs import GATE
from locallb.host import inotify
from locallb.provider.resources import proxy_fragments
from locallb.provider.resources.proxy_fragments import FragmentChange
from locallb.resources.errors import ProviderError
from locallb.resources.properties import ServiceConfigInputs, ServiceConfigState
from locallb.resources.resource_type import ResourceType, grown, id_faults
from locallb.storage import files
from locallb.storage.found_directories import find_former
from locallb.storage.proxy_directories import Proxies


class ServiceConfig(ResourceType[ServiceConfigInputs, ServiceConfigState]):
    """Puts a part in, and takes it out before the Service's addresses go."""

    inputs = ServiceConfigInputs
    state = ServiceConfigState
    replaced_for = frozenset({"proxy", "part"})
    """Move to another proxy old before new: two can't listen at one address."""
    delete_first = True

    def check(self, new: ServiceConfigInputs) -> Iterator[tuple[str, str]]:
        """Check ids only; the texts are Envoy's to judge."""
        yield from id_faults("proxy", new.proxy)
        yield from id_faults("part", new.part)

    def create(self, new: ServiceConfigInputs) -> tuple[str, ServiceConfigState]:
        """Put it in, in place of what an interrupted run left."""
        return new.part, self._put(new, frozenset())

    def read(self, state: ServiceConfigState) -> ServiceConfigState | None:
        """Read the files: a fragment changed or removed by another process shows as a changed property."""
        directory = _directory(state)
        if directory is None:
            return None
        listeners, clusters = proxy_fragments.read(directory, state.part)
        return replace(state, listeners=listeners, clusters=clusters)

    def leaves_nothing(self, state: ServiceConfigState) -> bool:
        """Return whether no file has anything of this part."""
        directory = _directory(state)
        return directory is None or not any(proxy_fragments.read(directory, state.part))

    def update(self, old: ServiceConfigState, new: ServiceConfigInputs) -> ServiceConfigState:
        """Put it in again; a port that is no longer there is closed when this ends."""
        return self._put(new, frozenset(old.listeners.keys() - new.listeners.keys()))

    def delete(self, state: ServiceConfigState) -> None:
        """Take it out, and check that nothing listens there any more. Open connections go on with the proxy."""
        directory = _directory(state)
        if directory and not self.belongs_to_copied_project(state.owner):
            proxy_fragments.apply(directory, FragmentChange(state.part, removed=frozenset(state.listeners)))

    def _put(self, new: ServiceConfigInputs, removed: frozenset[str]) -> ServiceConfigState:
        directory = _directory(new)
        if directory is None:
            home = new.owner.home
            raise ProviderError(f"proxy {new.proxy} has no directory of {home}: refresh and run up again")
        if any(GATE in text for text in new.listeners.values()):
            _prepare_gate(directory, new.part)
        proxy_fragments.apply(directory, FragmentChange(new.part, new.listeners, new.clusters, removed))
        return grown(self.state, new)


def _prepare_gate(directory: Path, part: str) -> None:
    """Create the file that listeners with a log refer to, where it is missing."""
    if not (directory / GATE).exists():
        inotify.require(1, f"the log of {part}")
    push.close_gate(directory, files.mode(directory / rollout.LISTENERS))


def _directory(existing: ServiceConfigInputs) -> Path | None:
    """Find the proxy's directory, if it is this stack's."""
    directory = find_former(Proxies.ours(), existing.proxy)
    if directory is None or directory.owner is None or directory.owner.home != existing.owner.home:
        return None
    return directory.path
