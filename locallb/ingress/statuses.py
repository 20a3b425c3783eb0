"""The desired status of an Ingress: the addresses and ports that serve it. Not here: when that is true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from locallb.gateway.status.statuses import ApiStatus
from locallb.ingress.translation import BoundIngresses
from locallb.model.formatting import few
from locallb.model.gateway.ingresses import Ingress
from locallb.model.gateway.objects import Named
from locallb.model.identities import IPAddress
from locallb.model.objects import ServicePort


def ingress_statuses(
    bound: BoundIngresses,
    addresses: Sequence[IPAddress],
    ports: Sequence[ServicePort],
    hosts: Mapping[Named, str],
) -> Iterable[ApiStatus]:
    """Return the statuses of the Ingresses that are served at these addresses, each with its name of `hosts`."""
    listed = [{"port": port.port, "protocol": str(port.protocol)} for port in ports]
    for ingress in bound.ingresses:
        name = {"hostname": host} if (host := hosts.get(ingress.meta.key)) else {}
        entries = [{"ip": str(address), **name, "ports": listed} for address in addresses]
        if not ingress.problem:
            yield ApiStatus(ingress.reference, ingress.meta, {"loadBalancer": {"ingress": entries}})


def served_text(
    bound: BoundIngresses, ingress: Ingress, addresses: Sequence[IPAddress], ports: Sequence[ServicePort]
) -> str:
    """Describe the served parts of an Ingress and their addresses: at the TLS port only hosts with a certificate."""
    secured, hosts = bound.secured.get(ingress.meta.key, ()), ingress.hosts or ("",)
    plain = [port for port in ports if port.port != bound.tls_port]
    if len(secured) == len(hosts) or len(plain) == len(ports):
        return serving_text(ingress.hosts, addresses, ports)
    by_tls = [str(port.number) for port in ports if port.port == bound.tls_port]
    also = f" ({few(secured)} also on {', '.join(by_tls)})" if secured else ""
    return serving_text(ingress.hosts, addresses, plain) + also


def serving_text(hosts: Sequence[str], addresses: Sequence[IPAddress], ports: Sequence[ServicePort]) -> str:
    """Say in a few words what is served where."""
    what = f"serves {few(hosts) or 'every host'} on {', '.join(str(port.number) for port in ports)}"
    return f"{what} at {' and '.join(map(str, addresses))}"
