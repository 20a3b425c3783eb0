"""The resources of a state that hold something, parsed one by one.

Not here: their sum, and where the state is (`held`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from ipaddress import ip_address
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from locallb.envoy import rollout
from locallb.envoy.bootstrap import heap_bounds, is_udp_only, takes_http
from locallb.envoy.http.faults import may_fail
from locallb.envoy.listeners import holds_clients
from locallb.envoy.stale_datagrams import udp_sockets
from locallb.model.identities import Fingerprint, IPAddress, ObjectKey, ProxyId, ProxyName, place
from locallb.model.naming import NAME_SERVER, owner_from
from locallb.model.objects import Discovery
from locallb.model.serving import HeapBounds
from locallb.model.snapshot import Claim, HeldProxy, MappedPort
from locallb.model.state_resource import ADDRESS, CERTIFICATE, CONFIG, PORTS, PROCESS, SERVICE, Resource
from locallb.planning.runs import run_types


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
        _heap(files),
        _serving(ObjectKey.parse(serves), inputs) if serves else None,
        _answers_at(files) if inputs["name"] == NAME_SERVER else (),
    )


def _heap(files: Mapping[str, object]) -> HeapBounds | None:
    """Return the bounds of the heap as `HeldProxy` has it."""
    bootstrap = files.get(rollout.BOOTSTRAP)
    return None if bootstrap is None else heap_bounds(str(bootstrap))


def _is_udp_only(files: Mapping[str, object]) -> bool | None:
    """Return what `HeldProxy` has of it."""
    bootstrap = files.get(rollout.BOOTSTRAP)
    return None if bootstrap is None else is_udp_only(str(bootstrap))


def _answers_at(files: Mapping[str, object]) -> tuple[tuple[IPAddress, int], ...]:
    """Return the sockets of listeners; none where a refresh found the file missing."""
    listeners = json.loads(str(files.get(rollout.LISTENERS) or "{}")).get("resources", ())
    sockets = [listener["address"]["socket_address"] for listener in listeners]
    return tuple((ip_address(str(socket["address"])), int(socket["port_value"])) for socket in sockets)


def _serving(service: ObjectKey, inputs: Mapping[str, object]) -> HeldProxy:
    """Return how a proxy learns its endpoints; one without endpoints has no method to keep."""
    names = as_object(inputs["files"])
    endpoint_files = sum(name.startswith(rollout.ENDPOINTS) for name in names)
    listeners = str(names.get(rollout.LISTENERS, ""))
    patient, fails = holds_clients(listeners), may_fail(listeners)
    datagrams = frozenset(str(inputs.get("released", "")).split())
    if '"UDP"' in listeners:
        # One of every address is in a container of its own.
        sockets = (socket for socket in udp_sockets(listeners) if not socket[0].is_unspecified)
        datagrams = datagrams.union(place(*socket) for socket in sockets)
    heap, udp_only = _heap(names), _is_udp_only(names)
    if watched := endpoint_files + rollout.new_references({}, _texts(names)):
        return HeldProxy(service, Discovery.EDS, watched, patient, fails, heap, udp_only, datagrams)
    clusters = as_object(json.loads(str(names.get(rollout.CLUSTERS, "{}")))).get("resources")
    return HeldProxy(service, Discovery.STATIC if clusters else None, 1, patient, fails, heap, udp_only, datagrams)


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
    PORTS: _ports,
    SERVICE: _part,
}
