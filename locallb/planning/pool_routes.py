"""Address pools compared with the host's routes: local already, harmful to make local, or impossible.

Pure. Not here: which single addresses are this host's (`model.routes`), and making a route.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv6Network, summarize_address_range

from msgspec import Struct

from locallb.config.candidates import NEVER_SPANS
from locallb.config.settings import Pool
from locallb.model.identities import Family, IPAddress, IPNetwork
from locallb.model.ranges import AddressRange, Span, covered, range_of, span_of, spans_of, subtract
from locallb.model.reasons import Problem, Reason
from locallb.model.routes import LOOPBACK, HostAddresses, HostRoute, inside, is_public, usable
from locallb.model.snapshot import HostFacts
from locallb.model.texts import few

_WIDEST = 8
"""Bits of the shortest prefix that one host can have for itself."""
_SHOWN = 5
"""Items of a list in one sentence."""


class PoolRoute(Struct, frozen=True):
    """A prefix of a pool that needs a local route, and its state."""

    pool: str
    prefix: IPNetwork
    local: bool = False
    """Every address of it is this host's already."""
    problem: Problem | None = None
    """The reason that it can't be made local."""
    note: str = ""
    """A caution about a usable prefix."""
    warning: str = ""
    """Its effect on others: a public prefix, or an address that a network reaches."""
    partly: bool = False
    """Services can have some addresses of its range, inside or outside the prefix."""


class _Part(Struct, frozen=True):
    """A range of the configuration, and its part outside the loopback networks."""

    pool: Pool
    addresses: AddressRange
    host: HostAddresses

    @property
    def prefixes(self) -> Iterator[IPNetwork]:
        """The prefixes that would have to be routed."""
        family = Family.of(self.addresses.first)
        for span in subtract(spans_of([self.addresses], family), [*_LOOPBACK[family], *NEVER_SPANS[family]]):
            piece = range_of(family, span)
            yield from summarize_address_range(piece.first, piece.last)

    @property
    def usable(self) -> bool:
        """Whether Services can have any address of it."""
        family = Family.of(self.addresses.first)
        return bool(subtract(usable([self.addresses], family, self.host), NEVER_SPANS[family]))

    @property
    def is_too_wide(self) -> bool:
        """Whether a route for it would capture addresses by which other hosts are reached."""
        return any(prefix.prefixlen < _WIDEST for prefix in self.prefixes)

    @property
    def faced(self) -> str:
        """The interface that has its only address; empty if none does, or if there are several addresses."""
        lone = self.addresses.first == self.addresses.last
        return self.host.interface(self.addresses.first) if lone else ""

    def has(self, address: IPAddress) -> bool:
        return Family.of(address) is Family.of(self.addresses.first) and (
            int(self.addresses.first) <= int(address) <= int(self.addresses.last)
        )

    def __str__(self) -> str:
        return f"pool {self.pool.name}: {self.addresses}"


_LOOPBACK: dict[Family, list[Span]] = {Family.of(network): [span_of(network)] for network in LOOPBACK}


def pool_routes(pools: Iterable[Pool], host: HostAddresses | None) -> tuple[PoolRoute, ...]:
    """Hold every prefix of the pools outside the loopback networks against the host; nothing where it isn't known."""
    if host is None:
        return ()
    parts = [_Part(pool, addresses, host) for pool in pools for addresses in pool.ranges]
    return tuple(_judge(part, prefix) for part in parts for prefix in part.prefixes)


def pool_notices(pools: Iterable[Pool], host: HostFacts) -> tuple[str, ...]:
    """Return the notices for plans with these pools on this host, each sentence once."""
    judged = pool_routes(pools, host.addresses)
    missing = [sentence for partly, sentence in left_out(judged) if partly]
    missing += [part.problem.message for part in judged if part.problem and part.partly]
    return tuple(dict.fromkeys([*missing, *(text for part in judged for text in (part.warning, part.note) if text)]))


def unchecked(pools: Iterable[Pool]) -> tuple[str, ...]:
    """Return notices about the pools if no host is known; empty if every Linux has their addresses."""
    parts = [_Part(pool, addresses, HostAddresses()) for pool in pools for addresses in pool.ranges]
    some = ", ".join(dict.fromkeys(f"{part.addresses} (pool {part.pool.name})" for part in parts if any(part.prefixes)))
    reported = f"no host is known here: whether {some} can be used is found out where the stack runs"
    return (reported,) if some else ()


def left_out(judged: Iterable[PoolRoute]) -> Iterator[tuple[bool, str]]:
    """Yield for each pool whether it is partly usable, and a sentence about prefixes that aren't this host's."""
    by_pool: dict[tuple[str, bool], list[str]] = {}
    for part in judged:
        if not part.local and not part.problem:
            by_pool.setdefault((part.pool, part.partly), []).append(str(part.prefix))
    for (pool, partly), prefixes in by_pool.items():
        verb = "isn't" if len(prefixes) == 1 else "aren't"
        yield partly, f"{few(prefixes, _SHOWN)} of pool {pool} {verb} this host's: no local route has all of it"


def is_local(prefix: IPNetwork, routes: Iterable[HostRoute]) -> bool:
    """Return whether every address of `prefix` has a local route: by one route, or by several that add up."""
    return covered(prefix, {route.destination for route in routes if route.is_local})


def on_link(where: IPNetwork, pool: str, prefix: IPNetwork) -> Problem:
    """Explain that an IPv6 pool lies in a connected network."""
    return Problem(
        Reason.POOL_ON_LINK,
        f"pool {pool}: {prefix} lies in {where}, a network that this host is connected to, where neighbours would "
        f"never find its addresses; choose a prefix outside of it, for example one below fd00:ff::/64",
    )


def _judge(part: _Part, prefix: IPNetwork) -> PoolRoute:
    pool, host = part.pool.name, part.host
    local = is_local(prefix, host.routes)
    if local and part.faced:
        return PoolRoute(pool, prefix, local=True, warning=_facing(part), partly=part.usable)
    others = [route for route in host.routes if prefix.overlaps(route.destination)]
    problems = [problem for route in others if (problem := _problem(pool, prefix, route, local=local))]
    if part.is_too_wide:
        problems = [_too_wide(part)]
    if local and not part.usable:
        problems.append(_nothing(part))
    notes = [_note(pool, prefix, route) for route in others if route.is_connected]
    if local:
        notes += [_skipped(part, own, device) for own, device in host.own if own in prefix]
    return PoolRoute(
        pool,
        prefix,
        local,
        min(problems, default=None),
        "" if problems else "; ".join(notes),
        _public(part, local=local) if is_public(part.addresses) else "",
        part.usable,
    )


def _problem(pool: str, prefix: IPNetwork, route: HostRoute, *, local: bool) -> Problem | None:
    where = route.destination
    if isinstance(where, IPv6Network) and route.is_connected:
        return on_link(where, pool, prefix)
    if local:
        return None  # what is, is; nothing would be made
    if route.is_local:
        if route.device == "lo":
            return None
        why = f"has this host's own address {where.network_address} on {route.device}"
    elif route.is_connected and inside(prefix, where) and prefix != where:
        return None
    else:
        why = f"overlaps {route.owner}: what is reached there now would be cut off"
    return Problem(Reason.POOL_OVERLAPS, f"pool {pool}: {prefix} {why}; choose another prefix in local-lb:pools")


def _too_wide(part: _Part) -> Problem:
    why = "is more than one host can have: what is reached there now would be cut off"
    return Problem(Reason.POOL_OVERLAPS, f"{part} {why}; choose a longer prefix in local-lb:pools")


def _nothing(part: _Part) -> Problem:
    own = ", ".join(f"{address} of {device}" for address, device in part.host.own if part.has(address))
    why = "more specific routes of the local table, such as of broadcasts, take all of it"
    if own:
        why = f"an interface's own address ({own}) is only given where it is listed by itself"
    return Problem(Reason.NOT_ON_HOST, f"{part} has nothing to give: {why}; correct local-lb:pools")


def _note(pool: str, prefix: IPNetwork, route: HostRoute) -> str:
    return (
        f"pool {pool}: {prefix} lies in {route.destination} of {route.owner}: nothing there may hand out the same "
        "addresses (limit its DHCP or `--ip-range`)"
    )


def _skipped(part: _Part, own: IPAddress, device: str) -> str:
    return f"{part} leaves out {own}, an address of {device}: such a one is only given where it is listed by itself"


def _facing(part: _Part) -> str:
    return (
        f"{part} is this host's own address on {part.faced}: whoever reaches that network reaches its Services; "
        "choose an address of the loopback network if only this host shall"
    )


def _public(part: _Part, *, local: bool) -> str:
    when = "this host doesn't reach" if local else "with a local route this host would no longer reach"
    return f"{part} is public: {when} what the internet has there; choose a private prefix in local-lb:pools"
