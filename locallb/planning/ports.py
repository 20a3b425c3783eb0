"""Ports that this host and Envoy can't serve, at all or at a certain address.

Not here: backends (without any a port is closed, which is no fault of the host) and the choice of addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from locallb.model.identities import Family, IPAddress, Protocol
from locallb.model.objects import Service, ServicePort
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Socket

PortProblems: TypeAlias = Mapping[ServicePort, Problem]
"""The ports of a Service that can't be served on this host at all, and why."""


class HostPorts:
    """Ports that can be bound on a host at every address, looked up once for all Services.

    `everywhere` are the sockets that listen at every address.
    """

    def __init__(self, first: int, everywhere: Iterable[Socket]) -> None:
        self._first = first
        self._everywhere: dict[tuple[int, Protocol], list[Socket]] = {}
        for socket in everywhere:
            self._everywhere.setdefault((socket.port, socket.protocol), []).append(socket)

    def problems(self, service: Service) -> PortProblems:
        """Find the ports that can't be served whatever address they get."""
        judged = ((port, self._problem(service, port)) for port in service.ports)
        return {port: problem for port, problem in judged if problem}

    def _problem(self, service: Service, port: ServicePort) -> Problem | None:
        if port.protocol is Protocol.SCTP:
            return Problem(
                Reason.PROTOCOL_UNSUPPORTED,
                f"{service.key} port {port}: Envoy has no listener for SCTP; use TCP or UDP, "
                "or reach it by its nodePort",
            )
        if port.number < self._first:
            return Problem(
                Reason.PORT_PRIVILEGED,
                f"{service.key} port {port}: ports below {self._first} need a right on this host; "
                "as root, `locallb host setup --yes` "
                f"(or `sysctl -w net.ipv4.ip_unprivileged_port_start={port.number}`) gives it",
            )
        if holder := self._holder(service, port):
            return Problem(
                Reason.PORT_IN_USE,
                f"{service.key} port {port}: {_named(holder)} listens on every address of this host at port "
                f"{port.number}; stop it, bind it to an address of its own, or change the Service's port",
            )
        return None

    def _holder(self, service: Service, port: ServicePort) -> Socket | None:
        """Find the socket that has this port on every address of a family of the Service."""
        holders = self._everywhere.get((port.number, port.protocol), ())
        return next((holder for holder in holders if Family.of(holder.address) in service.families), None)


def occupied_ports(
    service: Service, addresses: Iterable[IPAddress], sockets: Sequence[Socket]
) -> Mapping[tuple[ServicePort, IPAddress], Problem]:
    """Find the ports that can't be served at some of `addresses`, where these sockets are."""
    if not sockets:
        return {}
    bound = {(socket.address, socket.port, socket.protocol): socket for socket in reversed(sockets)}
    places = ((port, address) for port in service.ports for address in addresses)
    found = ((place, bound.get((place[1], place[0].number, place[0].protocol))) for place in places)
    return {place: _occupied(service, *place, socket) for place, socket in found if socket}


def _occupied(service: Service, port: ServicePort, address: IPAddress, socket: Socket) -> Problem:
    return Problem(
        Reason.PORT_IN_USE,
        f"{service.key} port {port}: {_named(socket)} listens on {address} at port {port.number}; stop it",
    )


def _named(socket: Socket) -> str:
    return socket.process or "another process"
