"""The stack's own proxies, shared ones or spares: their number, and the Services that they serve.

A Service keeps its proxy, as it keeps its address, so that an added or removed one moves no other. The number of
shared proxies is the configured one, or one more if all are full; a new Service goes to the one with the fewest. A
spare is started before it is needed, serves one Service or Gateway for the rest of its life, and is then replaced by
another. Not here: Services with a proxy of their own, and the host's capacity (`capacity`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappush, heapreplace
from itertools import count, filterfalse
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct, field

from locallb.config.settings import ProxySettings
from locallb.model.identities import ObjectKey, ProxyName
from locallb.model.snapshot import HeldProxyAssignment

SHARED, SPARE = "shared", "spare"
_NAME = re.compile(r"(shared|spare)-([1-9][0-9]*)")


class Assignment(Struct, frozen=True):
    """The stack's proxies, and the Services of each."""

    proxies: tuple[ProxyName, ...] = ()
    """Names, in order of their numbers."""
    assignments: Mapping[ObjectKey, ProxyName] = field(default_factory=dict)


class Http(NamedTuple):
    """Services that need HTTP, and spares that can serve it: spares of earlier versions can't."""

    wanted_by: Collection[ObjectKey] = ()
    proxies: Collection[ProxyName] = ()


NO_HTTP = Http()


def is_shared(name: ProxyName) -> bool:
    """Return whether a proxy of this name is shared."""
    return name.startswith(f"{SHARED}-")


def serves_services(name: ProxyName) -> bool:
    """Return whether a proxy of this name is shared or a spare."""
    return _NAME.fullmatch(name) is not None


def assign_shared(
    services: Sequence[ObjectKey], assignments: Iterable[HeldProxyAssignment], settings: ProxySettings, room: int
) -> Assignment:
    """Assign a shared proxy to each of `services`, in this order; `room` is the number of proxies that fit."""
    wanted = set(services)
    held = {
        assignment.service: assignment.proxy
        for assignment in assignments
        if assignment.service in wanted and is_shared(assignment.proxy)
    }
    numbers = range(1, settings.count + 1) if settings.count else sorted({*map(_number, held.values())}) or (1,)
    names = {_shared(number): number for number in [*numbers][:room]}
    if not names:
        return Assignment()
    retained = {service: proxy for service, proxy in held.items() if proxy in names}
    load = Counter(retained.values())
    least = [(load[name], number) for name, number in names.items()]
    heapify(least)
    unused = filterfalse({*names.values()}.__contains__, count(1))
    for service in services:
        if service not in retained:
            if not settings.count and least[0][0] >= settings.each and len(least) < room:
                heappush(least, (0, next(unused)))
            has, number = least[0]
            retained[service] = _shared(number)
            heapreplace(least, (has + 1, number))
    return Assignment(tuple(_shared(number) for _, number in sorted(least, key=itemgetter(1))), retained)


def _shared(number: int) -> ProxyName:
    return ProxyName(f"{SHARED}-{number}")


def assign_spares(
    newcomers: Sequence[ObjectKey],
    staying: Collection[ObjectKey],
    held: Iterable[ProxyName],
    assignments: Collection[HeldProxyAssignment],
    http: Http = NO_HTTP,
) -> Assignment:
    """Assign waiting spares to `newcomers`, in this order; Services that stay keep theirs.

    `held` are the running stack proxies. The result has the assigned and the still waiting ones. A proxy of a removed
    Service isn't in it: it may still carry that Service's streams, so it is stopped and not used again.
    """
    running = set(held)
    retained = {
        assignment.service: assignment.proxy
        for assignment in assignments
        if assignment.proxy in running and assignment.service in staying
    }
    waiting = _spares(running) - {assignment.proxy for assignment in assignments}
    claimed = _claimed(newcomers, sorted(waiting, key=lambda name: (name in http.proxies, _number(name))), http)
    return Assignment(tuple(sorted({*retained.values(), *waiting}, key=_order)), {**retained, **claimed})


def _claimed(newcomers: Sequence[ObjectKey], waiting: list[ProxyName], http: Http) -> Mapping[ObjectKey, ProxyName]:
    """Assign each newcomer the first spare that can serve it; Services first get spares that can't serve HTTP."""
    claimed: dict[ObjectKey, ProxyName] = {}
    for key in newcomers:
        fitting = (name for name in waiting if key not in http.wanted_by or name in http.proxies)
        if name := next(fitting, None):
            claimed[key] = name
            waiting.remove(name)
    return claimed


def with_spares(assignment: Assignment, held: Iterable[ProxyName], wanted: int) -> Assignment:
    """Keep `wanted` proxies waiting besides the assigned ones; new ones get free numbers."""
    claimed = set(assignment.assignments.values())
    waiting = [name for name in assignment.proxies if name not in claimed]
    fresh = _unused({*held, *assignment.proxies})
    spares = [*waiting[:wanted], *(next(fresh) for _ in range(wanted - len(waiting)))]
    return Assignment(tuple(sorted({*claimed, *spares}, key=_order)), assignment.assignments)


def _unused(names: set[ProxyName]) -> Iterator[ProxyName]:
    return (name for number in count(1) if (name := ProxyName(f"{SPARE}-{number}")) not in names)


def _spares(names: Iterable[ProxyName]) -> set[ProxyName]:
    return {name for name in names if (match := _NAME.fullmatch(name)) and match[1] == SPARE}


def _number(name: ProxyName) -> int:
    match = _NAME.fullmatch(name)
    return int(match[2]) if match else 0


def _order(name: ProxyName) -> tuple[str, int]:
    return name.partition("-")[0], _number(name)
