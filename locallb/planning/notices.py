"""Notices about Services that are served: Nodes used against their label, drains, faults, other controllers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from locallb.model.faults import ALL, FAULT_ANNOTATION, Fault
from locallb.model.identities import Family, IPAddress, Protocol
from locallb.model.objects import FamilyPolicy, Service
from locallb.model.texts import few

NODES = "ExcludedNodesUsed"
"""Every Node is excluded from load balancers, so all are used."""
OTHERS = "OtherController"
"""The status lists addresses that aren't ours."""
PROXY_PROTOCOL = "ProxyProtocolIgnored"
"""A UDP port can't have what was asked for."""
FAMILY = "FamilyMissing"
"""It lacks an address of a requested family."""
FAULT = "FaultOrdered"
"""Connections fail because a fault was ordered."""
DRAIN = "Drained"
"""Backends get no new connections because a drain was ordered."""
_ORDERED = "is ordered by"
"""In every sentence about one of the two."""
OF_OVERRIDES = frozenset({FAULT, DRAIN})
STACK_NOTICES = OF_OVERRIDES | {FAMILY, OTHERS, PROXY_PROTOCOL}
"""Notices of single Services that are shown for the whole plan, too."""


class Notice(Struct, frozen=True):
    """An event's reason, and a sentence."""

    reason: str
    message: str


def notices_of(
    service: Service, addresses: tuple[IPAddress, ...], lone: str, held: Collection[IPAddress] | None
) -> tuple[Notice, ...]:
    """Return the notices of a Service that gets `addresses`.

    `lone` says that all Nodes are used although all are excluded. `held` are the addresses that claims give it; None
    where its status says nothing of others: in manifests, and where what they wrote goes.
    """
    notices = [Notice(NODES, lone)] if lone else []
    if held is not None and (others := _of_others(service, addresses, held)):
        notices.append(Notice(OTHERS, _other_controller(service, others)))
    notices += [Notice(FAMILY, _without(service, family)) for family in _missing(service, addresses)]
    if service.proxy_protocol and any(port.protocol is Protocol.UDP for port in service.ports):
        notices.append(Notice(PROXY_PROTOCOL, _only_tcp(service)))
    if service.failing or service.ordered.down:
        notices.append(Notice(FAULT, _ordered(service)))
    if service.ordered.drained:
        notices.append(Notice(DRAIN, _drained(service)))
    return tuple(notices)


def _missing(service: Service, addresses: Iterable[IPAddress]) -> list[Family]:
    """Return the families that the Service wants and has no address of."""
    if service.family_policy is FamilyPolicy.SINGLE:
        return []
    had = {Family.of(address) for address in addresses}
    return [family for family in service.families if family not in had]


def _without(service: Service, family: Family) -> str:
    why = f"{service.key} has no {family} address, although its spec.ipFamilyPolicy is {service.family_policy}"
    return f"{why}: no pool has one for it; add one to local-lb:pools or set the policy to {FamilyPolicy.SINGLE}"


def of_faults(service: Service, faults: Mapping[str, Fault]) -> tuple[Notice, ...]:
    """Return notices of the faults that annotations of routes and Ingresses order, unless one fault covers all."""
    end = "remove the annotation to end it before"
    stated = {} if service.failing else faults
    return tuple(
        Notice(FAULT, f"{service.key}: {name}: a fault {_ORDERED} its annotation {FAULT_ANNOTATION}: {fault}; {end}")
        for name, fault in stated.items()
    )


def ordered_of(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """Return the notices about ordered faults and drains."""
    return tuple(notice for notice in notices if notice.reason in OF_OVERRIDES)


def _ordered(service: Service) -> str:
    fault, down = service.failing, service.ordered.down
    faults = [str(fault)] if fault else []
    if down:
        faults.append(f"as if refusing, {few(sorted(down.names))} gets no new TCP connections, until {down.until}")
    by, end = f"its annotation {FAULT_ANNOTATION}", "remove the annotation to end it before"
    if service.ordered.fault or down:
        by, end = "a command", f"`locallb fault {service.key} --undo` ends it before"
    return f"{service.key}: a fault {_ORDERED} {by}: {'; '.join(faults)}; {end}"


def _drained(service: Service) -> str:
    names = service.ordered.drained
    party = "none of its backends" if ALL in names else f"of its backends not {few(sorted(names))}"
    end = f"`locallb drain {service.key} --undo` ends it"
    return f"{service.key}: a drain {_ORDERED} a command: {party} gets new connections; {end}"


def _only_tcp(service: Service) -> str:
    ports = few([str(port) for port in service.ports if port.protocol is Protocol.UDP])
    return (
        f"{service.key} port {ports}: the PROXY protocol is for TCP only, so its datagrams go to backends as they are;"
        " give UDP ports a Service of their own to be rid of this notice"
    )


def _of_others(service: Service, addresses: tuple[IPAddress, ...], held: Collection[IPAddress]) -> list[IPAddress]:
    listed = (ingress.address for ingress in service.ingress)
    return [address for address in listed if address not in addresses and address not in held]


def _other_controller(service: Service, others: list[IPAddress]) -> str:
    return (
        f"{service.key}: its status lists {', '.join(map(str, others))}, which is not ours: another controller serves"
        " it as well, or did; stop that one or give it a class of its own, then local-lb:takeOver removes what it left"
    )
