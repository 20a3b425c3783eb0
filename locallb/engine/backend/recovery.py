"""Recovery from a journal that an earlier run left: replayed onto its state, or salvaged where the state is another.

Changes can't be applied to a state that the journal doesn't know (another engine wrote it since), and mustn't be
forgotten: what they made may exist, what they removed may be listed. So each resource that they left different from
what the state says becomes an operation under way, to be resolved like any other: made again, which adopts it, or
looked at.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from locallb.engine.state.errors import StateBroken, StateUnusable
from locallb.engine.state.integrity import check_resources
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.snapshot import Begin, Drop, End, Mutation, Put, Snapshot, Supersede
from locallb.engine.state.urns import is_provider


def replay(mutations: Iterable[Mutation], snapshot: Snapshot, journal: Path) -> None:
    """Apply a journal's changes to its state. Raises StateUnusable when they don't fit; the snapshot is spoilt then."""
    try:
        for mutation in mutations:
            snapshot.apply(mutation)
        complaint = next(check_resources(snapshot.in_order()), "")
    except (KeyError, StateBroken) as error:
        complaint = str(error)
    if complaint:
        raise StateUnusable(journal, f"it doesn't fit the state, {complaint}")


def salvaged(mutations: Iterable[Mutation], snapshot: Snapshot) -> Iterator[Pending]:
    """Return an operation for each resource that a journal leaves otherwise than the state."""
    after: dict[str, ResourceState | None] = {}
    begun: dict[int, Pending] = {}
    for mutation in mutations:
        match mutation:
            case Put(resource) | Supersede(resource, _):
                after[resource.urn] = resource
            case Drop(urn):
                after[urn] = None
            case Begin(number, operation):
                begun[number] = operation
            case End(number):
                begun.pop(number, None)
    for urn, then in after.items():
        yield from _operation(snapshot.live.get(urn), then)
    yield from begun.values()


def _operation(now: ResourceState | None, then: ResourceState | None) -> Iterator[Pending]:
    """Compare a resource of the state with what the journal left of it; None is a resource that isn't there."""
    subject = then or now
    if subject is None or not subject.custom or is_provider(subject.type):
        return
    if then is None:
        yield Pending("deleting", subject)
    elif now is None or now.id != then.id:
        yield Pending("creating", replace(then, id="", outputs={}, created="", modified=""))
    elif not now.equals(then):
        yield Pending("updating", replace(then, id="", outputs={}))
