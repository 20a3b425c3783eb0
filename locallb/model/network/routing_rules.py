"""Policy routing rules (`ip rule`) that lead to other tables, and the packets of this host that they catch.

VPNs have such: WireGuard leads packets without its own mark to a table of its own, unless the main table has a
better route than the default route; Tailscale has table 52. Pure: rules and routes are arguments. An unknown condition
of a rule counts as matched. Not here: reading rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_network

from msgspec import Struct

from locallb.model.identities import IPAddress, IPNetwork
from locallb.model.network.routes import DEFAULT_TABLE, LOCAL_TABLE, MAIN_TABLE, Route, inside

LOOKUP, NO_ACTION = "lookup", "nop"
_EVERYTHING = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}
_THROW = "9"
"""A kind of route: go on with the next rule."""


class Rule(Struct, frozen=True):
    """A rule, as the kernel lists it."""

    version: int
    priority: int
    table: int = MAIN_TABLE
    action: str = LOOKUP
    source: IPNetwork | None = None
    destination: IPNetwork | None = None
    mark: int = 0
    mask: int = 0
    """The bits of a packet's mark that must equal those of `mark`."""
    device: bool = False
    """It is about forwarded packets, or packets that leave by one interface."""
    special: bool = False
    """It asks for more than is read: users, ports."""
    inverted: bool = False
    longer_than: int = -1
    """Routes with no more bits than these don't count."""

    def catches(self, own: Iterable[IPAddress]) -> bool:
        """Return whether it may match unmarked packets that this host sends from one of its `own` addresses."""
        source = self.source
        misses = self.device or bool(self.mark & self.mask) or (source and not any(map(source.__contains__, own)))
        return misses or self._requires if self.inverted else not misses

    @property
    def _requires(self) -> bool:
        return bool(self.source or self.destination or self.special)


class Diversion(Struct, frozen=True):
    """Packets of this host that a rule may route differently than the main table."""

    network: IPNetwork
    owner: str
    yields: bool
    """A longer prefix in the main table comes first."""


def diversions(rules: Iterable[Rule], routes: Sequence[Route]) -> tuple[Diversion, ...]:
    """Return what is led elsewhere before the main table is asked for good; sorted, each once."""
    own = [route.destination[0] for route in routes if route.is_own]
    caught = sorted((rule for rule in rules if rule.catches(own)), key=lambda rule: rule.priority)
    diverted = {diversion for version in _EVERYTHING for diversion in _of_family(version, caught, routes)}
    return tuple(sorted(diverted, key=str))


def _of_family(version: int, rules: Iterable[Rule], routes: Sequence[Route]) -> Iterator[Diversion]:
    yields = False
    for rule in rules:
        if rule.version != version or rule.action == NO_ACTION:
            continue
        if rule.action == LOOKUP and rule.table == MAIN_TABLE:
            for_all = not (rule.source or rule.destination or rule.special)
            if for_all and rule.longer_than < 0:
                return
            yields = yields or for_all
        elif rule.action != LOOKUP:
            yield Diversion(_within(rule, _EVERYTHING[version]) or _EVERYTHING[version], _name(rule), yields)
        elif rule.table not in {LOCAL_TABLE, DEFAULT_TABLE}:
            for route in routes:
                if (
                    route.table == rule.table
                    and route.kind != _THROW
                    and route.destination.prefixlen > rule.longer_than
                ):
                    where = _within(rule, route.destination)
                    if where and where.version == version and route.is_usual:
                        yield Diversion(where, f"{route.owner} ({_name(rule)})", yields)


def _within(rule: Rule, network: IPNetwork) -> IPNetwork | None:
    """Return the part of `network` that a rule is about."""
    wanted = None if rule.inverted else rule.destination
    if wanted is None or inside(network, wanted):
        return network
    return wanted if inside(wanted, network) else None


def _name(rule: Rule) -> str:
    where = f"table {rule.table}" if rule.action == LOOKUP else rule.action
    return f"ip rule {rule.priority}: {where}"
