"""Deletes what is no longer wanted: in parallel, each resource after everything that refers to it.

A deletion that fails keeps what the resource refers to. After failures in the program's part, what a failed or skipped
resource may still need is kept as well.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from graphlib import CycleError, TopologicalSorter
from queue import SimpleQueue

from msgspec import Struct

from locallb.engine.deploy.events import Severity
from locallb.engine.deploy.interrupts import waited_for
from locallb.engine.deploy.provider_resources import ProviderResources
from locallb.engine.deploy.steps import Steps
from locallb.engine.deploy.threads import Shift
from locallb.engine.providers.handles import Handle
from locallb.engine.state.errors import StepError, Unsupported
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import is_provider

_REFUSED = {"protect": "protect", "retainOnDelete": "retain_on_delete"}
_Key = int | str


class Deleter(Struct):
    """Deletes a set of resources; the keys are URNs of live resources and numbers of old instances."""

    steps: Steps
    providers: ProviderResources
    crew: ThreadPoolExecutor

    def delete(self, live: Iterable[ResourceState], old_instances: Mapping[int, ResourceState]) -> None:
        """Delete these, users first; failures are reported, not raised."""
        doomed: dict[_Key, ResourceState] = {resource.urn: resource for resource in live} | dict(old_instances)
        self._keep_what_others_use(doomed)
        try:
            order = order_of(doomed)
        except CycleError as error:
            self._refuse([doomed[key].urn for key in error.args[1]])
            return
        with waited_for(Shift(self.crew)) as pool:
            self._schedule(doomed, order, pool)

    def _refuse(self, circle: list[str]) -> None:
        what = f"nothing was deleted: {' refers to '.join(circle)}, so none of them can go first"
        self.steps.reporter.log(Severity.ERROR, f"{what}; run `pulumi state delete` for one of them", circle[0])

    def _keep_what_others_use(self, doomed: dict[_Key, ResourceState]) -> None:
        """Leave out what a resource that stays refers to; one whose creation isn't finished may come to stay."""
        snapshot = self.steps.recorder.snapshot
        staying = [old for number, old in snapshot.condemned.items() if number not in doomed]
        staying += [operation.resource for operation in snapshot.pending.values() if operation.kind == "creating"]
        for urn in [key for key in doomed if isinstance(key, str)]:
            users = [user for user in snapshot.users_of(urn) if user.urn not in doomed]
            users += [old for old in staying if urn in old.references]
            if users:
                self._keep(doomed, urn, users[0].urn)

    def _keep(self, doomed: dict[_Key, ResourceState], urn: str, user: str) -> None:
        resource = doomed.pop(urn, None)
        if resource is None:
            return
        if not self.steps.reporter.failed():  # otherwise the failure explains it
            self.steps.reporter.log(Severity.ERROR, f"{urn} can't be deleted: {user}, which stays, refers to it", urn)
        for used in resource.references:
            self._keep(doomed, used, urn)

    def _schedule(
        self, doomed: dict[_Key, ResourceState], order: TopologicalSorter[_Key], pool: ThreadPoolExecutor
    ) -> None:
        """Start each deletion when those that come before it have succeeded; what waits for a failed one is kept."""
        ended: SimpleQueue[Future[_Key | None]] = SimpleQueue()
        running = 0
        while (ready := order.get_ready()) or running:
            for key in ready:
                pool.submit(self._delete, key, doomed[key]).add_done_callback(ended.put)
            running += len(ready) - 1
            removed = ended.get().result()
            if removed is not None:
                order.done(removed)

    def _delete(self, key: _Key, resource: ResourceState) -> _Key | None:
        """Delete one; gives its key if it is gone."""
        try:
            refuse_options(resource)
            handle = self._handle(resource)
            if isinstance(key, int):
                self.steps.delete_old_instance(key, resource, handle)
            else:
                self.steps.delete(resource, handle)
        except (StepError, Unsupported) as error:
            self.steps.reporter.log(Severity.ERROR, str(error), resource.urn)
            return None
        return key

    def _handle(self, resource: ResourceState) -> Handle | None:
        needs_provider = resource.custom and not is_provider(resource.type) and not resource.pending_replacement
        return self.providers.handle_of(resource) if needs_provider else None


def refuse_options(resource: ResourceState) -> None:
    """Raise Unsupported for a resource that mustn't be deleted, or only forgotten."""
    for name, option in _REFUSED.items():
        if resource.extras.get(name):
            raise Unsupported(f"deleting {resource.urn}, which has the resource option {option},")


def order_of(doomed: Mapping[_Key, ResourceState]) -> TopologicalSorter[_Key]:
    """Return the order in which resources are deleted: each after what refers to it. Raises CycleError.

    A reference names a URN, which old instances share with their successor: most likely all are meant, but where that
    makes a circle only the successor is.
    """
    try:
        return _sorted_by(doomed, doomed)
    except CycleError:
        return _sorted_by(doomed, [key for key in doomed if isinstance(key, str)])


def _sorted_by(doomed: Mapping[_Key, ResourceState], intended: Iterable[_Key]) -> TopologicalSorter[_Key]:
    """Sort; `intended` are those that a reference to their URN means."""
    by_urn: dict[str, list[_Key]] = {}
    for key in intended:
        by_urn.setdefault(doomed[key].urn, []).append(key)
    order: TopologicalSorter[_Key] = TopologicalSorter(dict.fromkeys(doomed, ()))
    for key, resource in doomed.items():
        for used in resource.references:
            for other in by_urn.get(used, ()):
                order.add(other, key)
    order.prepare()
    return order
