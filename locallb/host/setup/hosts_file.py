"""The text of a block in /etc/hosts for each zone, for hosts whose resolver takes no zones.

Pure. It has the names of the moment when it was written, and none that stands for many. Not here: blocks in texts
(`dns.blocks`), and writing the file (`changes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from locallb.dns.blocks import BEGINS, ENDS, block, block_in
from locallb.dns.names import is_hostname, is_within, name_fault
from locallb.model.identities import IPAddress

HOSTS = "/etc/hosts"
Table = Mapping[str, Sequence[IPAddress]]


def read_names(shown: Iterable[str]) -> Table:
    """Read names as a state shows them, `web.test 127.77.0.1 ::1`; what can't stand in the file is left out."""
    return {name: addresses for name, addresses in map(_read, shown) if addresses}


def wanted_block(zone: str, names: Table) -> str:
    """Return the block of a zone; empty where it has no names."""
    own = sorted((address, name) for name in names if is_within(name, zone) for address in map(str, names[name]))
    lines = [f"{address} {name}" for address, name in own]
    return block(zone, lines)


def applies_to(text: str, name: str) -> bool:
    """Return whether a block of ours has a name."""
    labels = name.split(".")
    zones = (".".join(labels[number:]) for number in range(len(labels)))
    return any(f" {name}\n" in block_in(text, zone) for zone in zones)


def removing_command(zone: str) -> str:
    """Return what a person would type to take a zone's block out."""
    return f"sed -i '/^{BEGINS}{zone}/,/^{ENDS}{zone}$/d' {HOSTS}"


def _read(shown: str) -> tuple[str, tuple[IPAddress, ...]]:
    name, *targets = shown.split() or [""]
    usable = is_hostname(name) and not name_fault(name)
    return name, tuple(_addresses(targets)) if usable else ()


def _addresses(targets: Iterable[str]) -> Iterator[IPAddress]:
    for target in targets:
        try:
            yield ip_address(target)
        except ValueError:
            return
