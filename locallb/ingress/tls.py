"""Certificates for the hosts of Ingresses: of several the one of the oldest Ingress.

Not here: the routes behind TLS (`hosts`), and keys.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from locallb.certificates import local
from locallb.gateway.conditions import Failure
from locallb.gateway.hostnames import covering
from locallb.gateway.listeners.pairs import pair_in
from locallb.ingress.hosts import Hosts
from locallb.model.gateway.ingresses import Ingress, IngressTls
from locallb.model.gateway.objects import Named
from locallb.model.gateway.of_cluster import GatewayObjects
from locallb.model.http.serving import AnyCertificate, Chain, LocalCertificate, Termination
from locallb.model.objects import EMPTY
from locallb.model.snapshot import LocalAuthority


class TlsProblem(NamedTuple):
    """The reason that an entry of spec.tls shows no certificate for a name."""

    ingress: Ingress
    message: str


class Certificates(NamedTuple):
    """The certificate of each name, an empty one for every other name; and why some names have none."""

    by_name: dict[str, AnyCertificate]
    problems: tuple[TlsProblem, ...]
    namespaces: Mapping[str, str] = EMPTY
    """Of the Ingress that shows it, by name."""


def certificates(
    ingresses: Sequence[Ingress], objects: GatewayObjects, authority: LocalAuthority | None = None
) -> Certificates:
    """Return what clients see, `ingresses` the oldest first."""
    by_name: dict[str, AnyCertificate] = {}
    owners: dict[str, Ingress] = {}
    problems = []
    for ingress in ingresses:
        for entry in ingress.tls:
            shown = certificate(ingress, entry, objects, authority)
            if isinstance(shown, Failure):
                problems.append(TlsProblem(ingress, shown.message))
                continue
            for name in entry.hosts or ("",):
                if by_name.setdefault(name, shown) != shown and not isinstance(shown, LocalCertificate):
                    older = owners[name].meta.key
                    why = f"for {name or 'every other name'} the older Ingress {older} shows another certificate"
                    problems.append(TlsProblem(ingress, f"{why}; name the same Secret, or another host"))
                owners.setdefault(name, ingress)
    return Certificates(by_name, tuple(problems), {name: owner.meta.key.namespace for name, owner in owners.items()})


def certificate(
    ingress: Ingress, entry: IngressTls, objects: GatewayObjects, authority: LocalAuthority | None
) -> AnyCertificate | Failure:
    """Return what an entry of spec.tls shows, or why it can't."""
    names = ", ".join(entry.hosts) or "every name"
    if not entry.secret and authority:
        return _local(ingress, entry, authority)
    if not entry.secret:
        return Failure("NoSecret", f"spec.tls names no Secret for {names}; name one of type kubernetes.io/tls")
    return pair_in(objects, Named(ingress.meta.key.namespace, entry.secret), "NoSecret", names)


def _local(ingress: Ingress, entry: IngressTls, authority: LocalAuthority) -> LocalCertificate | Failure:
    """Return the certificate of our own that an Ingress has for all its hosts without a Secret."""
    for host in entry.hosts:
        if not local.certifies(authority, host):
            return Failure("NoSecret", f"spec.tls names no Secret, and {local.refusal(authority, host)}")
    every = [without_secret for without_secret in ingress.tls if not without_secret.secret]
    hosts = [
        host
        for without_secret in every
        for host in without_secret.hosts or ingress.hosts
        if local.certifies(authority, host)
    ]
    return local.certificate(authority, f"ingresses/{ingress.meta.key}", hosts)


def chains(shown: Certificates, hosts: Hosts) -> Iterator[Chain]:
    """Yield the chains of TLS connections: one for each certificate, and one for all other names.

    A host is served by the chain that a connection to it takes, and by that of every other name: not by each of all the
    wildcards that cover it.
    """
    by_name = {name: presented for name, presented in shown.by_name.items() if name}
    names: dict[AnyCertificate, list[str]] = {}
    below: dict[AnyCertificate, list[str]] = {}
    elsewhere: dict[AnyCertificate, list[str]] = {}
    for name, presented in by_name.items():
        names.setdefault(presented, []).append(name)
        wider = _nearest(name, by_name, itself=False)
        if wider and by_name[wider] != presented:
            elsewhere.setdefault(by_name[wider], []).append(name)
    for host in hosts.names:
        if name := _nearest(host, by_name):
            below.setdefault(by_name[name], []).append(host)
    for presented, served_names in names.items():
        table = hosts.table_within(served_names, below.get(presented, ()), elsewhere.get(presented, ()))
        yield Chain(table, tuple(sorted(served_names)), Termination((presented,)))
    if last := shown.by_name.get(""):
        yield Chain(hosts.table(hosts.names), (), Termination((last,)))


def _nearest(host: str, names: Container[str], *, itself: bool = True) -> str:
    """Return the most specific of `names` that covers a host; empty if none does."""
    return next((name for name in covering(host) if name in names and (itself or name != host)), "")
