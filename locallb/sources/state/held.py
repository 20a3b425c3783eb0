"""Addresses, proxies and processes that this stack's own state lists.

Read from the state file that the engine and the Pulumi CLI share, without either. Not here: whether any of it still
runs, and holdings of other stacks (the ledger).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from locallb.guarded import reader
from locallb.model.identities import Fingerprint, IPAddress, ProxyName
from locallb.model.memory import Memo
from locallb.model.serving import HeapBounds
from locallb.model.snapshot import Claim, HeldProxy, HeldProxyAssignment
from locallb.sources import SourceError
from locallb.sources.state.held_resources import (
    Authority,
    HeldResource,
    OfStack,
    Part,
    Run,
    as_object,
    held_types,
    stated,
)
from locallb.storage import files

_Stated = TypeVar("_Stated")


class HeldByState(Struct, frozen=True):
    """Contents of the state, sorted; empty if there is no state yet."""

    remembered: tuple[Claim, ...] = ()
    proxies: tuple[HeldProxy, ...] = ()
    pids: tuple[int, ...] = ()
    runtimes: frozenset[str] = frozenset()
    """The runtimes of its proxies."""
    stack_proxies: tuple[ProxyName, ...] = ()
    """Names of the proxies that are the stack's and not one Service's."""
    http_proxies: frozenset[ProxyName] = frozenset()
    """Stack proxies that serve HTTP."""
    heaps: Mapping[ProxyName, HeapBounds] = field(default_factory=dict)
    """The limits of their heaps, as `HeldProxy` has it; absent where nothing shows it."""
    assignments: tuple[HeldProxyAssignment, ...] = ()
    """The Services of the stack proxies."""
    name_servers: tuple[tuple[IPAddress, int], ...] = ()
    """Where its own name server answers."""
    authority: Fingerprint = Fingerprint("")
    """The fingerprint of the authority that signed its local certificates."""


class HeldMemory(Struct):
    """Cached contents of each resource of a state, and their sum."""

    resources: Memo[object] = field(default_factory=Memo)
    held: Memo[HeldByState] = field(default_factory=Memo)


def read_held(state: Path) -> HeldByState:
    """Read the stack's state file, `<backend>/.pulumi/stacks/<project>/<stack>.json`.

    Raises:
        SourceError: if it is there but can't be read.

    """
    try:
        text = files.read(state, reader.STATE)
        return _held(tuple(map(stated, () if text is None else _resources(json.loads(text)))))
    except files.FilesError as error:
        raise SourceError(f"the stack's state can't be read: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SourceError(
            f"{state} can't be used: it isn't what Pulumi writes;"
            f" run `locallb state restore` to go back to the last good state"
        ) from None


def held_by(resources: Iterable[HeldResource], existing: HeldMemory) -> HeldByState:
    """Return the holdings of a state's resources; `existing` caches results of identical resources.

    Raises:
        SourceError: if a resource has an unknown form.
    """
    types = held_types()
    holders = [resource for resource in resources if resource.type in types]
    try:
        return existing.held.of(None, _held, existing.resources.each(stated, holders))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"the stack's state has a resource that isn't as local-lb writes it: {error}") from None


def _resources(state: Mapping[str, Mapping[str, Mapping[str, list[Mapping[str, object]]]]]) -> Iterator[HeldResource]:
    """Return the resources of ours."""
    latest = state["checkpoint"].get("latest") or {}
    for raw in latest.get("resources") or []:
        kind, old = str(raw["type"]), bool(raw.get("delete"))
        yield _Resource(kind, as_object(raw.get("inputs")), as_object(raw.get("outputs")), old)


class _Resource(Struct, frozen=True):
    type: str
    inputs: Mapping[str, object]
    outputs: Mapping[str, object]
    delete: bool


def _held(every: tuple[object, ...]) -> HeldByState:
    """Put together what all resources of a state say."""

    def of(kind: type[_Stated]) -> list[_Stated]:
        return [item for item in every if isinstance(item, kind)]

    of_stack = of(OfStack)
    names = {config.id: config.name for config in of_stack}
    assignments = [
        HeldProxyAssignment(part.service, names[part.proxy], part.patient) for part in of(Part) if part.proxy in names
    ]
    whole = [(config.serves, config.name) for config in of_stack if config.serves]
    assignments += [HeldProxyAssignment(proxy.service, name, whole=True) for proxy, name in whole]
    return HeldByState(
        tuple(sorted(of(Claim), key=attrgetter("order"))),
        tuple(sorted((*of(HeldProxy), *(proxy for proxy, _ in whole)), key=lambda proxy: proxy.service)),
        tuple(sorted({run.pid for run in of(Run) if run.pid})),
        frozenset(run.runtime for run in of(Run)),
        tuple(sorted(names.values())),
        frozenset(config.name for config in of_stack if config.may_serve_http),
        {config.name: config.heap for config in of_stack if config.heap is not None},
        tuple(sorted(assignments)),
        tuple(place for config in of_stack for place in config.answers_at),
        next((authority.fingerprint for authority in of(Authority)), Fingerprint("")),
    )
