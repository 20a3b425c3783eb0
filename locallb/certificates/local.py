"""The certificates to be made by this user's own authority: names and validity. Pure.

A certificate is valid for 90 days and gets a successor every 30, each on a day of its own that its name decides: all
who plan agree on it without asking what was made when, and a host that slept for weeks has still a valid one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from ipaddress import ip_network

from locallb.model.http_serving import LocalCertificate
from locallb.model.identities import IPAddress
from locallb.model.snapshot import LocalAuthority

VALID_DAYS = 90
RENEWED_DAYS = 30
DOMAINS = ("test", "localhost", "example", "invalid", "internal", "local", "home.arpa")
"""Domains that are reserved and not delegated on the Internet (RFC 2606, 6761, 6762, 8375, and ICANN's `internal`)."""
NETWORKS = (
    *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
    *("::1/128", "fc00::/7", "fe80::/10"),
)
"""Addresses of hosts and private networks."""
_NETWORKS = tuple(map(ip_network, NETWORKS))


def certificate(authority: LocalAuthority, name: str, hosts: Iterable[str]) -> LocalCertificate:
    """Return the certificate of this name for these hosts, today."""
    shift = int.from_bytes(hashlib.sha256(name.encode()).digest()[:2]) % RENEWED_DAYS
    return LocalCertificate(name, needed(hosts), authority.fingerprint, (authority.day + shift) // RENEWED_DAYS)


def certifies(authority: LocalAuthority, host: str) -> bool:
    """Return whether clients believe the authority for a hostname."""
    below = f".{host.removeprefix('*.')}"
    return not authority.domains or any(below.endswith(f".{domain}") for domain in authority.domains)


def certifies_address(address: IPAddress) -> bool:
    """Return whether an authority counts for an address; a certificate with another one is void for all its names."""
    return any(address in network for network in _NETWORKS)


def refusal(authority: LocalAuthority, host: str) -> str:
    """Explain why the authority makes no certificate for a host."""
    return (
        f"{host} isn't below {', '.join(authority.domains)}, for which alone your own authority counts; name a Secret,"
        f" or make another authority with `locallb ca create --replace --domain {host.removeprefix('*.')}`"
    )


def needed(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return hosts in order, each once, except ones that a listed wildcard covers: one label, no more."""
    named = frozenset(hosts)
    return tuple(sorted(host for host in named if not _is_covered(host, named)))


def _is_covered(host: str, named: frozenset[str]) -> bool:
    _, _, rest = host.partition(".")
    return "." in rest and f"*.{rest}" in named - {host}
