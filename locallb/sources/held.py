"""Addresses, proxies and processes that this stack's own state lists, parsed resource by resource, and their sum.

Read from the state file that the engine and the Pulumi CLI share, without either. Not here: whether any of it still
runs (`runtimes.process_runtime`, `runtimes.docker.facts`), and holdings of other stacks (`ledger.ledger`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from ipaddress import ip_address
from operator import attrgetter
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from locallb import safe_files
from locallb.envoy import rollout
from locallb.envoy.bootstrap import heap_bounds, takes_http
from locallb.envoy.listeners import holds_clients
from locallb.envoy.push import traits_of
from locallb.model.desired import (
    ADDRESS,
    CERTIFICATE,
    CONFIG,
    INITIALIZED_NODE,
    OWN_CLASS,
    PORTS,
    PROCESS,
    SERVICE_CONFIG,
    Resource,
)
from locallb.model.identities import (
    ClusterName,
    Fingerprint,
    IPAddress,
    NodeName,
    ObjectKey,
    ObjectKind,
    ProxyId,
    ProxyName,
)
from locallb.model.memory import Memo
from locallb.model.objects import Discovery
from locallb.model.own_classes import HeldClass
from locallb.model.own_nodes import InitializedNode
from locallb.model.serving import HeapBounds
from locallb.model.snapshot import Claim, HeldProxy, HeldProxyAssignment, MappedPort
from locallb.model.texts import NAME_SERVER, owner_from
from locallb.planning.planned import run_types
from locallb.sources import SourceError
from locallb.storage import files


class HeldResource(Resource, Protocol):
    """A resource in a state, and whether it still holds its named object."""

    @property
    def delete(self) -> bool:
        """Return whether a replacement left it to be deleted."""


@cache
def held_types() -> frozenset[str]:
    """Return the types of resources that may hold something."""
    return frozenset((*_READ, *run_types()))


def stated(resource: HeldResource) -> object:
    """Return the parsed holding of one resource of the state; None if it holds nothing.

    Raises ValueError, KeyError or TypeError if a field has an unknown form.
    """
    kind = resource.type
    if kind in run_types():
        return Run(run_types()[kind], _pid(resource.outputs) if kind == PROCESS else 0)
    if resource.delete or kind not in _READ:
        return None  # an old instance that waits for its deletion only has its process
    return _READ[kind](resource.inputs)


def _claim(inputs: Mapping[str, object]) -> Claim:
    return Claim(ip_address(str(inputs["address"])), owner_from(_texts(inputs["owner"])))


def _ports(inputs: Mapping[str, object]) -> Claim:
    listed = inputs["ports"]
    if not isinstance(listed, list | tuple):
        raise TypeError(listed)
    return replace(_claim(inputs), ports=tuple(MappedPort.parse(str(text)) for text in listed))


class Run(Struct, frozen=True):
    """A run of a proxy: in which runtime, and which process of this host; 0 for none."""

    runtime: str
    pid: int


class OfStack(Struct, frozen=True):
    """A proxy that is the stack's: its owner names no cluster."""

    id: ProxyId
    name: ProxyName
    may_serve_http: bool = False
    heap: HeapBounds | None = None
    serves: HeldProxy | None = None
    """The proxy, if it serves nothing else."""
    answers_at: tuple[tuple[IPAddress, int], ...] = ()
    """Addresses with ports, of the one that answers for zones."""


class Part(Struct, frozen=True):
    """A Service's share of a stack proxy."""

    service: ObjectKey
    proxy: ProxyId
    patient: bool | None
    """Whether its listeners hold clients."""


class Authority(Struct, frozen=True):
    """The authority that signed a local certificate."""

    fingerprint: Fingerprint


def _service(inputs: Mapping[str, object]) -> ObjectKey:
    return owner_from(_texts(inputs["owner"])).service


def _part(inputs: Mapping[str, object]) -> Part:
    listeners = "".join(_texts(inputs.get("listeners")).values())
    return Part(_service(inputs), ProxyId(str(inputs["proxy"])), holds_clients(listeners))


def _authority(inputs: Mapping[str, object]) -> Authority:
    return Authority(Fingerprint(str(inputs["authority"])))


def _own_class(inputs: Mapping[str, object]) -> HeldClass:
    kind = ObjectKind(str(inputs["kind"]))
    return HeldClass(ClusterName(str(inputs["cluster"])), kind, bool(inputs["default"]), bool(inputs["used"]))


def _initialized_node(inputs: Mapping[str, object]) -> InitializedNode:
    addresses = inputs["addresses"]
    if not isinstance(addresses, list | tuple):
        raise TypeError(addresses)
    return InitializedNode(
        ClusterName(str(inputs["cluster"])),
        NodeName(str(inputs["node"])),
        str(inputs["uid"]),
        str(inputs["provider"]),
        tuple(ip_address(str(address)) for address in addresses),
        str(inputs["hostname"]),
    )


def _config(inputs: Mapping[str, object]) -> HeldProxy | OfStack:
    """Return what a proxy is like: a Service's own, or one of the stack's."""
    service = _service(inputs)
    if service.cluster:
        return _serving(service, inputs)
    serves = str(inputs.get("serves", ""))
    files = as_object(inputs["files"])
    # A refresh that found files missing has no bootstrap: it counts as it is made now.
    bootstrap = files.get(rollout.BOOTSTRAP)
    return OfStack(
        ProxyId(str(inputs["proxy"])),
        ProxyName(str(inputs["name"])),
        bootstrap is None or takes_http(str(bootstrap)),
        None if bootstrap is None else heap_bounds(str(bootstrap)),
        _serving(ObjectKey.parse(serves), inputs) if serves else None,
        _answers_at(files) if inputs["name"] == NAME_SERVER else (),
    )


def _answers_at(files: Mapping[str, object]) -> tuple[tuple[IPAddress, int], ...]:
    """Return the sockets of listeners; none where a refresh found the file missing."""
    listeners = json.loads(str(files.get(rollout.LISTENERS) or "{}")).get("resources", ())
    sockets = [listener["address"]["socket_address"] for listener in listeners]
    return tuple((ip_address(str(socket["address"])), int(socket["port_value"])) for socket in sockets)


def _serving(service: ObjectKey, inputs: Mapping[str, object]) -> HeldProxy:
    """Return how a proxy learns its endpoints; one without endpoints has no method to keep."""
    files = _texts(inputs["files"])
    endpoint_files = sum(name.startswith(rollout.ENDPOINTS) for name in files)
    traits = traits_of(files, str(inputs.get("released", "")).split())
    if watched := endpoint_files + rollout.new_references({}, files):
        return HeldProxy(service, Discovery.EDS, watched, traits)
    clusters = as_object(json.loads(files.get(rollout.CLUSTERS, "{}"))).get("resources")
    return HeldProxy(service, Discovery.STATIC if clusters else None, traits=traits)


def _pid(outputs: Mapping[str, object]) -> int:
    """Return the process; 0 where it never started. JSON may have it as a float."""
    pid = outputs.get("pid") or 0
    if not isinstance(pid, int | float) or pid < 0:
        raise ValueError(pid)
    return int(pid)


def as_object(value: object) -> Mapping[str, object]:
    """Return an object of JSON; null is an empty one. Raises TypeError."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(value)
    return value


def _texts(value: object) -> Mapping[str, str]:
    return {name: str(text) for name, text in as_object(value).items()}


_READ: Mapping[str, Callable[[Mapping[str, object]], object]] = {
    ADDRESS: _claim,
    CERTIFICATE: _authority,
    CONFIG: _config,
    INITIALIZED_NODE: _initialized_node,
    OWN_CLASS: _own_class,
    PORTS: _ports,
    SERVICE_CONFIG: _part,
}


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
    classes: tuple[HeldClass, ...] = ()
    """Its classes in running clusters."""
    nodes: tuple[InitializedNode, ...] = ()
    """The Nodes that it initialized."""


class HeldMemory(Struct):
    """Cached contents of each resource of a state, and their sum."""

    resources: Memo[object] = field(default_factory=Memo)
    held: Memo[HeldByState] = field(default_factory=Memo)


def read_resources(state: Path) -> Iterable[HeldResource]:
    """Read a stack's state file, `<backend>/.pulumi/stacks/<project>/<stack>.json`; nothing where there is none.

    Raises:
        SourceError: if it is there but can't be read.

    """
    try:
        text = files.read(state, safe_files.STATE)
        return () if text is None else tuple(_resources(json.loads(text)))
    except files.FilesError as error:
        raise SourceError(f"the stack's state can't be read: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SourceError(
            f"{state} can't be used: it isn't what Pulumi writes;"
            f" run `locallb state restore` to go back to the last good state"
        ) from None


def held_by(resources: Iterable[HeldResource], existing: HeldMemory | None = None) -> HeldByState:
    """Return the holdings of a state's resources; `existing` caches results of identical resources.

    Raises:
        SourceError: if a resource has an unknown form.
    """
    types, existing = held_types(), existing or HeldMemory()
    holders = [resource for resource in resources if resource.type in types]
    try:
        return existing.held.of(None, _held, existing.resources.each(stated, holders))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"the stack's state has a resource that isn't as local-lb writes it ({error});"
            " run `locallb state restore` to go back to the last good state"
        ) from None


def _resources(state: Mapping[str, Mapping[str, Mapping[str, list[Mapping[str, object]]]]]) -> Iterator[HeldResource]:
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
        tuple(sorted(of(HeldClass), key=lambda held: (held.cluster, held.kind))),
        tuple(sorted(of(InitializedNode), key=lambda held: (held.cluster, held.name))),
    )
