"""What this stack's own state says that it holds: addresses, proxies and their processes.

Read from the state file that the engine and the Pulumi CLI share, without either. Not here: whether any of it still
lives, and what other stacks hold (the ledger).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, TypeVar

from locallb.envoy import rollout
from locallb.envoy.http.faults import may_fail
from locallb.envoy.listeners import holds_clients
from locallb.model.identities import ObjectKey, Owner, ProxyId, ProxyName
from locallb.model.memory import Memory
from locallb.model.naming import owner_from
from locallb.model.objects import Discovery
from locallb.model.snapshot import Claim, HeldProxy, HeldProxyAssignment
from locallb.model.state_resource import ADDRESS, CERTIFICATE, CONFIG, PROCESS, SERVICE, Resource
from locallb.planning.runs import run_types
from locallb.sources import SourceError
from locallb.storage import files

_OURS = frozenset({ADDRESS, CERTIFICATE, CONFIG, SERVICE})
_ENDPOINT_FILES = "eds-"
"""How the names of files begin that a proxy learns endpoints from."""
_Held = TypeVar("_Held")


@dataclass(frozen=True, slots=True)
class HeldByState:
    """What the state says, sorted; empty where there is no state yet."""

    remembered: tuple[Claim, ...] = ()
    proxies: tuple[HeldProxy, ...] = ()
    pids: tuple[int, ...] = ()
    runtimes: frozenset[str] = frozenset()
    """How its proxies run."""
    stack_proxies: tuple[ProxyName, ...] = ()
    """Names of the proxies that are the stack's and not one Service's."""
    seats: tuple[HeldProxyAssignment, ...] = ()
    """Who is served by one of those."""
    authority: str = ""
    """The fingerprint of whoever made its local certificates."""


def read_held(state: Path) -> HeldByState:
    """Read the stack's state file, `<backend>/.pulumi/stacks/<project>/<stack>.json`.

    Raises:
        SourceError: if it is there but can't be read.

    """
    try:
        text = files.read(state)
        resources = [] if text is None else list(_resources(json.loads(text)))
        return _held(resources, Memory())
    except files.FilesError as error:
        raise SourceError(f"the stack's state can't be read: {error}; give this user the right to read it") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SourceError(
            f"{state} can't be used: it isn't what Pulumi writes;"
            f" run `locallb state restore` to go back to the last good state"
        ) from None


def held_by(resources: Iterable[HeldResource], known: Memory[Any]) -> HeldByState:
    """Return what the resources of a state in memory hold; `known` has what was read of them before.

    Raises:
        SourceError: if one isn't as we write it.

    """
    try:
        return _held([resource for resource in resources if _counts(resource)], known)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"the stack's state has a resource that isn't as local-lb writes it: {error}") from None


def _resources(state: Mapping[str, Mapping[str, Mapping[str, list[Mapping[str, object]]]]]) -> Iterator[HeldResource]:
    """Return the resources of ours."""
    latest = state["checkpoint"].get("latest") or {}
    for raw in latest.get("resources") or []:
        kind, old = str(raw["type"]), bool(raw.get("delete"))
        resource = _Resource(kind, _object(raw.get("inputs")), _object(raw.get("outputs")), old)
        if _counts(resource):
            yield resource


def _counts(resource: HeldResource) -> bool:
    """Return whether a resource holds anything: an old instance that waits for its deletion only has its process."""
    return resource.type in run_types() or (resource.type in _OURS and not resource.delete)


class HeldResource(Resource, Protocol):
    """A resource in a state, and whether it still holds what it names."""

    @property
    def delete(self) -> bool:
        """Whether a replacement left it to be deleted."""


@dataclass(frozen=True, slots=True)
class _Resource:
    type: str
    inputs: Mapping[str, object]
    outputs: Mapping[str, object]
    delete: bool


def _held(resources: list[HeldResource], known: Memory[Any]) -> HeldByState:
    """Return what resources hold. Raises ValueError, KeyError or TypeError where a field isn't as we write it."""
    by_kind: dict[str, list[HeldResource]] = {}
    for resource in resources:
        by_kind.setdefault(resource.type, []).append(resource)

    def parsed(kind: str, read: Callable[[HeldResource], _Held]) -> list[_Held]:
        return [known.of_this(resource, partial(read, resource)) for resource in by_kind.get(kind, ())]

    claims = parsed(ADDRESS, lambda resource: _ranked(_claim(resource.inputs)))
    configs = parsed(CONFIG, lambda resource: _config(resource.inputs))
    proxies = [config for config in configs if isinstance(config, HeldProxy)]
    names = {config.id: config.name for config in configs if isinstance(config, _OfStack)}
    served = parsed(SERVICE, lambda resource: _part(resource.inputs))
    seats = [HeldProxyAssignment(service, names[proxy], held) for service, proxy, held in served if proxy in names]
    authorities = parsed(CERTIFICATE, lambda resource: str(resource.inputs["authority"]))
    pids = {pid for resource in by_kind.get(PROCESS, ()) if (pid := _pid(resource.outputs))}
    known.evict_unused()
    return HeldByState(
        tuple(claim for _, claim in sorted(claims, key=itemgetter(0))),
        tuple(sorted(proxies, key=lambda proxy: proxy.service)),
        tuple(sorted(pids)),
        frozenset(runtime for kind, runtime in run_types().items() if kind in by_kind),
        tuple(sorted(names.values())),
        tuple(sorted(seats)),
        next(iter(authorities), ""),
    )


def _ranked(claim: Claim) -> tuple[tuple[int, int, Owner], Claim]:
    """Return a claim with its place in the order."""
    return (claim.address.version, int(claim.address), claim.owner), claim


def _claim(inputs: Mapping[str, object]) -> Claim:
    return Claim(ip_address(str(inputs["address"])), owner_from(_texts(inputs["owner"])))


@dataclass(frozen=True, slots=True)
class _OfStack:
    """A proxy that is the stack's: its owner names no cluster."""

    id: ProxyId
    name: ProxyName


def _service(inputs: Mapping[str, object]) -> ObjectKey:
    return owner_from(_texts(inputs["owner"])).service


def _part(inputs: Mapping[str, object]) -> tuple[ObjectKey, ProxyId, bool | None]:
    """Return a Service's part of a proxy of the stack, and whether its listeners hold clients."""
    listeners = "".join(_texts(inputs.get("listeners")).values())
    return _service(inputs), ProxyId(str(inputs["proxy"])), holds_clients(listeners)


def _config(inputs: Mapping[str, object]) -> HeldProxy | _OfStack:
    """Return how a Service's own proxy learns its endpoints; one that has none to learn has no way to keep."""
    service = _service(inputs)
    if not service.cluster:
        return _OfStack(ProxyId(str(inputs["proxy"])), ProxyName(str(inputs["name"])))
    names = _object(inputs["files"])
    endpoint_files = sum(name.startswith(_ENDPOINT_FILES) for name in names)
    listeners = str(names.get("lds.json", ""))
    patient, fails = holds_clients(listeners), may_fail(listeners)
    if watched := endpoint_files + rollout.new_references({}, _texts(names)):
        return HeldProxy(service, Discovery.EDS, watched, patient, fails)
    clusters = _object(json.loads(str(names.get("cds.json", "{}")))).get("resources")
    return HeldProxy(service, Discovery.STATIC if clusters else None, patient=patient, may_fail=fails)


def _pid(outputs: Mapping[str, object]) -> int:
    """Return the process; 0 where it never started. JSON may have it as a float."""
    pid = outputs.get("pid") or 0
    if not isinstance(pid, int | float) or pid < 0:
        raise ValueError(pid)
    return int(pid)


def _object(value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(value)
    return value


def _texts(value: object) -> Mapping[str, str]:
    return {name: str(text) for name, text in _object(value).items()}
