"""What this stack's own state says that it holds: addresses, proxies and their processes.

Read from the state file that the engine and the Pulumi CLI share, without either. Not here: whether any of it still
lives, and what other stacks hold (the ledger).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol, TypeVar

from locallb.envoy import rollout
from locallb.envoy.http.faults import may_fail
from locallb.envoy.listeners import holds_clients
from locallb.model.identities import ObjectKey, Owner, ProxyId, ProxyName
from locallb.model.memory import Each, Memory
from locallb.model.naming import owner_from
from locallb.model.objects import Discovery
from locallb.model.snapshot import Claim, HeldProxy, HeldProxyAssignment, MappedPort
from locallb.model.state_resource import ADDRESS, CERTIFICATE, CONFIG, PORTS, PROCESS, SERVICE, Resource
from locallb.planning.runs import run_types
from locallb.sources import SourceError
from locallb.storage import files

_ENDPOINT_FILES = "eds-"
"""How the names of files begin that a proxy learns endpoints from."""
_Said = TypeVar("_Said")


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


@dataclass(slots=True)
class HeldMemory:
    """What the resources of a state said when they were read last, and what that came to."""

    said: Each[object] = field(default_factory=Each)
    held: Memory[HeldByState] = field(default_factory=Memory)


def read_held(state: Path) -> HeldByState:
    """Read the stack's state file, `<backend>/.pulumi/stacks/<project>/<stack>.json`.

    Raises:
        SourceError: if it is there but can't be read.

    """
    try:
        text = files.read(state)
        return _held(tuple(map(_said, () if text is None else _resources(json.loads(text)))))
    except files.FilesError as error:
        raise SourceError(f"the stack's state can't be read: {error}; give this user the right to read it") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SourceError(
            f"{state} can't be used: it isn't what Pulumi writes;"
            f" run `locallb state restore` to go back to the last good state"
        ) from None


def held_by(resources: Iterable[HeldResource], known: HeldMemory) -> HeldByState:
    """Return what the resources of a state in memory hold; `known` has what was read of them before.

    Raises:
        SourceError: if one isn't as we write it.

    """
    try:
        return known.held.of(None, _held, known.said.of(_said, resources))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"the stack's state has a resource that isn't as local-lb writes it: {error}") from None


def _resources(state: Mapping[str, Mapping[str, Mapping[str, list[Mapping[str, object]]]]]) -> Iterator[HeldResource]:
    """Return the resources of ours."""
    latest = state["checkpoint"].get("latest") or {}
    for raw in latest.get("resources") or []:
        kind, old = str(raw["type"]), bool(raw.get("delete"))
        yield _Resource(kind, _object(raw.get("inputs")), _object(raw.get("outputs")), old)


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


def _held(said: tuple[object, ...]) -> HeldByState:
    """Put together what all resources of a state say."""

    def of(kind: type[_Said]) -> list[_Said]:
        return [one for one in said if isinstance(one, kind)]

    names = {config.id: config.name for config in of(_OfStack)}
    seats = [HeldProxyAssignment(one.service, names[one.proxy], one.patient) for one in of(_Part) if one.proxy in names]
    return HeldByState(
        tuple(sorted(of(Claim), key=_order)),
        tuple(sorted(of(HeldProxy), key=lambda proxy: proxy.service)),
        tuple(sorted({one.pid for one in of(_Run) if one.pid})),
        frozenset(one.runtime for one in of(_Run)),
        tuple(sorted(names.values())),
        tuple(sorted(seats)),
        next((one.fingerprint for one in of(_Authority)), ""),
    )


def _said(resource: HeldResource) -> object:
    """Return what one resource says; None where it holds nothing.

    Raises ValueError, KeyError or TypeError where a field isn't as we write it.
    """
    kind = resource.type
    if kind in run_types():
        return _Run(run_types()[kind], _pid(resource.outputs) if kind == PROCESS else 0)
    if resource.delete or kind not in _READ:
        return None  # an old instance that waits for its deletion only has its process
    return _READ[kind](resource.inputs)


def _order(claim: Claim) -> tuple[int, int, Owner]:
    return claim.address.version, int(claim.address), claim.owner


def _claim(inputs: Mapping[str, object]) -> Claim:
    return Claim(ip_address(str(inputs["address"])), owner_from(_texts(inputs["owner"])))


def _ports(inputs: Mapping[str, object]) -> Claim:
    listed = inputs["ports"]
    if not isinstance(listed, list | tuple):
        raise TypeError(listed)
    return replace(_claim(inputs), ports=tuple(MappedPort.parse(str(text)) for text in listed))


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of a proxy: in which runtime, and which process of this host; 0 for none."""

    runtime: str
    pid: int


@dataclass(frozen=True, slots=True)
class _OfStack:
    """A proxy that is the stack's: its owner names no cluster."""

    id: ProxyId
    name: ProxyName


@dataclass(frozen=True, slots=True)
class _Part:
    """What a Service has of a proxy of the stack."""

    service: ObjectKey
    proxy: ProxyId
    patient: bool | None
    """Whether its listeners hold clients."""


@dataclass(frozen=True, slots=True)
class _Authority:
    """Whoever made a local certificate."""

    fingerprint: str


def _service(inputs: Mapping[str, object]) -> ObjectKey:
    return owner_from(_texts(inputs["owner"])).service


def _part(inputs: Mapping[str, object]) -> _Part:
    listeners = "".join(_texts(inputs.get("listeners")).values())
    return _Part(_service(inputs), ProxyId(str(inputs["proxy"])), holds_clients(listeners))


def _authority(inputs: Mapping[str, object]) -> _Authority:
    return _Authority(str(inputs["authority"]))


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


_READ: Mapping[str, Callable[[Mapping[str, object]], object]] = {
    ADDRESS: _claim,
    CERTIFICATE: _authority,
    CONFIG: _config,
    PORTS: _ports,
    SERVICE: _part,
}
