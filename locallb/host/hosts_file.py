"""A block of names in /etc/hosts for each zone, where nothing on a host takes zones: its text, put in and taken out.

Pure. A block begins and ends with a line of ours; whatever stands around it is kept byte for byte. It has the names of
the moment when it was written, and none that stands for many. Not here: writing the file (`setup`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from locallb.dns.names import is_hostname, lies_in, name_fault
from locallb.model.identities import IPAddress

HOSTS = "/etc/hosts"
_ENDS = "# local-lb: end of "
_BEGINS = "# local-lb: names of "
_JOINED = " (the line before had no end)"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
Table = Mapping[str, Sequence[IPAddress]]


def read_names(shown: Iterable[str]) -> Table:
    """Read names as a state shows them, `web.test 127.77.0.1 ::1`; what can't stand in the file is left out."""
    return {name: addresses for name, addresses in map(_read, shown) if addresses}


def wanted_block(zone: str, names: Table) -> str:
    """Return the block of a zone; empty where it has no names."""
    own = sorted((address, name) for name in names if lies_in(name, zone) for address in map(str, names[name]))
    lines = [f"{address} {name}" for address, name in own]
    return _text([f"{_BEGINS}{zone}", *lines, f"{_ENDS}{zone}"]) if lines else ""


def block_in(text: str, zone: str) -> str:
    """Return what stands for a zone in the file, as `wanted_block` writes it; empty where nothing does."""
    _, block, _ = _parted(_LINE.findall(text), zone)
    return "".join(block).replace(f"{_JOINED}\n", "\n")


def tells(text: str, name: str) -> bool:
    """Return whether a block of ours has a name."""
    labels = name.split(".")
    zones = (".".join(labels[number:]) for number in range(len(labels)))
    return any(f" {name}\n" in block_in(text, zone) for zone in zones)


def with_block(text: str, zone: str, block: str) -> str:
    """Return the file with this block for a zone in place of the one that it has; without one where it is empty."""
    before, known, after = _parted(_LINE.findall(text), zone)
    joined = bool(known) and known[0].endswith(f"{_JOINED}\n")
    if not block:
        above = "".join(before)
        return (above.removesuffix("\n") if joined and not after else above) + "".join(after)
    if not known and before and not before[-1].endswith("\n"):
        before, joined = [*before[:-1], f"{before[-1]}\n"], True
    head, _, rest = block.partition("\n")
    return "".join([*before, f"{head}{_JOINED if joined else ''}\n{rest}", *after])


def _parted(lines: list[str], zone: str) -> tuple[list[str], list[str], list[str]]:
    """Part the lines before a zone's block, of it, and after it. One that lost its beginning or its end is none."""
    heads = {f"{_BEGINS}{zone}\n", f"{_BEGINS}{zone}{_JOINED}\n"}
    first, whole = -1, (len(lines), len(lines))
    for number, line in enumerate(lines):
        if line in heads:
            first = number
        elif line == f"{_ENDS}{zone}\n" and first >= 0:
            whole, first = (first, number + 1), -1
    return lines[: whole[0]], lines[slice(*whole)], lines[whole[1] :]


def removing_command(zone: str) -> str:
    """Return what a person would type to take a zone's block out."""
    return f"sed -i '/^{_BEGINS}{zone}/,/^{_ENDS}{zone}$/d' {HOSTS}"


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


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
