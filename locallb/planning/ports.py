"""Which ports of a Service this host and Envoy can serve at all, before any address is chosen.

Not here: backends (their absence closes a port but is nobody's fault) and addresses.
"""

from __future__ import annotations

from locallb.planning.model import Family, HostFacts, IPAddress, Protocol, Service, ServicePort, Socket
from locallb.planning.reasons import Problem, Reason


def port_problem(service: Service, port: ServicePort, host: HostFacts) -> Problem | None:
    """Say why `port` can't be served on this host, or None."""
    if port.protocol is Protocol.SCTP:
        return Problem(
            Reason.PROTOCOL_UNSUPPORTED,
            f"{service.key} port {port}: Envoy has no listener for SCTP; use TCP or UDP, or reach it by its nodePort",
        )
    if port.port < host.unprivileged_port_start:
        return Problem(
            Reason.PORT_PRIVILEGED,
            f"{service.key} port {port}: ports below {host.unprivileged_port_start} need a right on this host; "
            "as root, `locallb host setup --apply` "
            f"(or `sysctl -w net.ipv4.ip_unprivileged_port_start={port.port}`) gives it",
        )
    if holder := _wildcard_holder(service, port, host):
        return Problem(
            Reason.PORT_IN_USE,
            f"{service.key} port {port}: {_named(holder)} listens on every address of this host at port {port.port}; "
            f"stop it, bind it to an address of its own, or change the Service's port",
        )
    return None


def address_problem(service: Service, port: ServicePort, address: IPAddress, host: HostFacts) -> Problem | None:
    """Say why `port` can't be served at `address`, which this Service holds: somebody else listens just there."""
    for socket in host.sockets:
        if (socket.address, socket.port, socket.protocol) == (address, port.port, port.protocol):
            return Problem(
                Reason.PORT_IN_USE,
                f"{service.key} port {port}: {_named(socket)} listens on {address} at port {port.port}; stop it",
            )
    return None


def _wildcard_holder(service: Service, port: ServicePort, host: HostFacts) -> Socket | None:
    return next(
        (
            socket
            for socket in host.sockets
            if socket.port == port.port
            and socket.protocol is port.protocol
            and socket.address.is_unspecified
            and Family.of(socket.address) in service.families
        ),
        None,
    )


def _named(socket: Socket) -> str:
    return socket.process or "another process"
