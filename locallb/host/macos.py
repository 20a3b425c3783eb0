"""Addresses of pools as aliases of lo0 on macOS, read and changed by `ifconfig`. Untested on a Mac.

macOS has 127.0.0.1 alone on lo0, and no route makes a whole prefix local. All calls of `ifconfig` are here; the choice
of aliases and its arguments and output are pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address

from msgspec import Struct

from locallb.config.candidates import candidates
from locallb.config.settings import Pool
from locallb.model.identities import Family, IPAddress
from locallb.patterns import pattern
from locallb.programs import Program

_SECONDS = 10


def aliases() -> frozenset[IPAddress]:
    """Return the addresses of lo0. Raises ProgramError."""
    return parsed(_run(("ifconfig", DEVICE)))


def change(address: IPAddress, *, wanted: bool) -> None:
    """Give lo0 an address, or take it away. Raises ProgramError."""
    _run(adding(address) if wanted else removing(address))


def _run(terms: Sequence[str]) -> str:
    return Program(tuple(terms), _SECONDS, "run this as root").output()


DEVICE = "lo0"
MAX = 256
"""Aliases of one pool and family: each is an entry of the interface, which every lookup of an address walks along."""
_ENTRY = pattern(r"^\s+inet6? (?P<address>[0-9a-fA-F:.]+)(?:%\S+)? ", re.MULTILINE)


class PoolAlias(Struct, frozen=True):
    """An address of a pool, and whether lo0 has it."""

    pool: str
    address: IPAddress
    present: bool = False

    @property
    def command(self) -> str:
        """The command that a person would type."""
        return " ".join(adding(self.address))


def pool_aliases(pools: Iterable[Pool], present: Collection[IPAddress]) -> Iterator[PoolAlias]:
    """Return the first addresses that each pool may hand out."""
    for pool in pools:
        for family in Family:
            usable = candidates(pool, family)
            for number in range(min(usable.size, MAX)):
                yield PoolAlias(pool.name, usable[number], usable[number] in present)


def alias_notes(pools: Iterable[Pool]) -> Iterator[str]:
    for pool in pools:
        if any(candidates(pool, family).size > MAX for family in Family):
            yield f"of the pool {pool.name} only the first {MAX} addresses of a family become aliases; make it smaller"
    yield "aliases of lo0 are gone after a restart: run `sudo locallb host setup --yes` again (untried on a Mac)"


def parsed(text: str) -> frozenset[IPAddress]:
    """Read the addresses in what `ifconfig lo0` prints; what makes no sense is left out."""
    addresses = set()
    for match in _ENTRY.finditer(text):
        with suppress(ValueError):
            addresses.add(ip_address(match["address"]))
    return frozenset(addresses)


def adding(address: IPAddress) -> tuple[str, ...]:
    """Return the command that gives lo0 an address, and nothing of a network around it."""
    if Family.of(address) is Family.IPV6:
        return ("ifconfig", DEVICE, "inet6", "alias", str(address), "prefixlen", "128")
    return ("ifconfig", DEVICE, "inet", "alias", str(address), "netmask", "255.255.255.255")


def removing(address: IPAddress) -> tuple[str, ...]:
    """Return the command that takes it away again."""
    return ("ifconfig", DEVICE, "inet6" if Family.of(address) is Family.IPV6 else "inet", "-alias", str(address))
