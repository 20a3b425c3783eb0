"""The status table: one row per Service of this stack, from the plan and from an observation of the proxies. Pure.

Not here: printing rows (`cli.service_output`), and observing proxies (`locallb.observe`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.dns.zones import is_wildcard
from locallb.model.http_serving import HttpListener
from locallb.model.identities import IPAddress, ObjectKey, ObjectKind, UpstreamName
from locallb.model.objects import ServicePort, Via
from locallb.model.reasons import Problem, Reason
from locallb.model.texts import counted
from locallb.planning.notices import Notice, ordered_of
from locallb.planning.planned import LocalUrl, Placement, Plan, PlannedPort


class State(StrEnum):
    """The state of a Service or of one of its ports."""

    SERVING = "serving"
    """Every port answers on every address, and a backend of each takes connections."""
    DEGRADED = "degraded"
    """Some port doesn't, or has no backend that takes any, or a listener isn't served at any."""
    PENDING = "pending"
    """Planned and not deployed yet, or its proxy isn't there now."""
    REJECTED = "rejected"
    """It gets nothing until a change; the reason names it."""


class Observation(Struct, frozen=True):
    """A proxy's answer: bound listeners, reasons of failed ones, and upstreams with backends that answer."""

    listening: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    healthy: Mapping[str, bool] = field(default_factory=dict)
    """Whether any backend of an upstream passes its checks, by the upstream's name; absent without backends."""
    is_outdated: bool = False
    """Whether it is from before an update: unbound listeners may be bound by now."""


NOT_DEPLOYED = "NotDeployed"
"""Reason of a pending state that the next update ends."""
PARTS_REFUSED = "PartsRefused"
"""Listeners, routes or rules are refused, with reasons in their own statuses. The state of their owner is unchanged."""


class PortRow(Struct, frozen=True):
    """The state of one port; `reason` is empty while it serves."""

    port: ServicePort
    state: State
    reason: str = ""
    message: str = ""
    via: Via | None = None
    """Where its connections go first; None where nothing listens."""


class Row(Struct, frozen=True):
    """The state of one Service."""

    key: ObjectKey
    state: State
    addresses: tuple[IPAddress, ...] = ()
    ports: tuple[PortRow, ...] = ()
    reason: str = ""
    message: str = ""
    names: tuple[str, ...] = ()
    ordered: tuple[Notice, ...] = ()
    """The fault that was ordered for it."""
    refused: tuple[str, ...] = ()
    """Sentences about listeners, routes or rules that aren't served as written."""
    local_urls: tuple[LocalUrl, ...] = ()
    """Where it is found below `localhost`."""

    @property
    def local_hosts(self) -> tuple[str, ...]:
        """Return its names below `localhost`, with the port unless it goes without saying, the shortest first."""
        hosts = (each.url.removeprefix("http://").rstrip("/") for each in self.local_urls)
        return tuple(host for host in hosts if "/" not in host)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Return notices in addition to the state: ordered faults and drains, refused parts."""
        sentences = [sentence for sentence in self.refused if sentence != self.message]
        return (*self.ordered, *(Notice(PARTS_REFUSED, sentence) for sentence in sentences))

    @property
    def codes(self) -> tuple[str, ...]:
        """Return the reason of the state, and those of notices, each once."""
        codes = (self.reason, *(notice.reason for notice in self.notices))
        return tuple(dict.fromkeys(code for code in codes if code))


class Cause(Struct, frozen=True):
    """One reason why Services don't serve, which one remedy ends."""

    reason: str
    message: str
    """The sentence of the first of them."""
    keys: tuple[ObjectKey, ...]

    @property
    def is_common(self) -> bool:
        """Whether so many have it that they are said as one."""
        return len(self.keys) >= MIN_COMMON

    @property
    def counted(self) -> str:
        return counted(len(self.keys), "Service" if self.keys[0].kind is ObjectKind.SERVICE else "load balancer")

    @property
    def remedy(self) -> str:
        """Return what ends it; where that isn't known, what is wrong, without a name."""
        return _remedy(self.message, self.keys[0])

    @property
    def sentence(self) -> str:
        """Return the remedy, and the first of them; the message of one alone."""
        fault, _, remedy = self.message.rpartition(_REMEDY)
        if not self.is_common:
            return self.message
        return f"{self.counted}: {', '.join(filter(None, (self.reason, fault and remedy)))}; first: {fault or remedy}"


MIN_COMMON = 3
"""Services with one cause that are said as one."""
_REMEDY = "; "
"""Before the remedy in a sentence."""


def causes(problems: Iterable[tuple[ObjectKey, str, str]]) -> tuple[Cause, ...]:
    """Group problems (Service, reason, message) by reason and remedy; a few of one cause have a sentence each."""
    groups: dict[tuple[str, str], dict[str, list[ObjectKey]]] = {}
    for key, reason, message in problems:
        if message:
            groups.setdefault((reason, _remedy(message, key)), {}).setdefault(message, []).append(key)
    found: list[Cause] = []
    for (reason, _), messages in groups.items():
        whole = Cause(reason, next(iter(messages)), tuple(dict.fromkeys(chain.from_iterable(messages.values()))))
        found += [whole] if whole.is_common else [Cause(reason, text, (keys[0],)) for text, keys in messages.items()]
    return tuple(found)


def _remedy(message: str, key: ObjectKey) -> str:
    fault, _, remedy = message.rpartition(_REMEDY)
    return remedy if fault else message.removeprefix(str(key))


def grouped(table: Sequence[Row]) -> tuple[list[Row], list[Cause]]:
    """Return the rows that are shown one by one, and the causes of many that get nothing at all."""
    refused = [row for row in table if row.state is State.REJECTED and not row.local_urls]
    common = [each for each in causes((row.key, row.reason, row.message) for row in refused) if each.is_common]
    hidden = {(key, State.REJECTED, cause.reason) for cause in common for key in cause.keys}
    return [row for row in table if row.local_urls or (row.key, row.state, row.reason) not in hidden], common


def rows(plan: Plan, observed: Mapping[str, Observation]) -> tuple[Row, ...]:
    """Return the state of every Service of the plan; `observed` has an entry for each proxy (by name) that answered."""
    placed = [
        _placed(placement, observed.get(placement.proxy), plan.refused.get(placement.key, ()))
        for placement in plan.placements
    ]
    rejected = [
        Row(
            rejection.key,
            State.REJECTED,
            reason=rejection.problem.reason,
            message=rejection.problem.message,
            refused=plan.refused.get(rejection.key, ()),
            local_urls=rejection.local_urls,
        )
        for rejection in plan.rejections
    ]
    return tuple(sorted([*placed, *rejected], key=lambda row: (row.key, row.reason)))


def _placed(placement: Placement, observed: Observation | None, refused: tuple[str, ...]) -> Row:
    ports = tuple(replace(_port(placement.key, port, observed), via=port.via) for port in placement.ports)
    troubled = next((port for port in ports if port.state is not State.SERVING), None)
    state = _overall(ports) if observed else State.PENDING
    reason, message = (troubled.reason, troubled.message) if troubled else ("", "")
    if placement.problem and state is State.SERVING:
        state, reason, message = State.DEGRADED, placement.problem.reason, placement.problem.message
    names = tuple(sorted((name.name for name in placement.names), key=lambda name: (is_wildcard(name), name)))
    ordered = ordered_of(placement.notices)
    return Row(
        placement.key,
        state,
        placement.addresses,
        ports,
        reason,
        message,
        names,
        ordered,
        refused,
        placement.local_urls,
    )


def _overall(ports: tuple[PortRow, ...]) -> State:
    states = {port.state for port in ports}
    return states.pop() if len(states) == 1 and State.SERVING in states else State.DEGRADED


def _port(key: ObjectKey, planned: PlannedPort, observed: Observation | None) -> PortRow:
    """Return the state of a port: by the plan's problem first, then by the proxy's listeners."""
    if planned.problem and not planned.listeners:
        waits = planned.problem.reason is Reason.NO_BACKENDS
        return _troubled(planned, State.PENDING if waits else State.REJECTED, planned.problem)
    if observed is None:
        message = f"{key} has no proxy now; `locallb up` starts it"
        return PortRow(planned.port, State.PENDING, NOT_DEPLOYED, message)
    for listener in planned.listeners:
        if listener.name in observed.failed:
            message = f"{listener.name}: {observed.failed[listener.name]}"
            return PortRow(planned.port, State.DEGRADED, "NotBound", message)
        if listener.name not in observed.listening:
            message = f"{listener.name} isn't deployed; `locallb up` does it"
            return PortRow(planned.port, State.PENDING, NOT_DEPLOYED, message)
    problem = planned.problem or next(silent(planned, observed.healthy), (None, None))[1]
    return _troubled(planned, State.DEGRADED, problem) if problem else PortRow(planned.port, State.SERVING)


def silent(planned: PlannedPort, healthy: Mapping[str, bool]) -> Iterator[tuple[UpstreamName, Problem]]:
    """Return the upstreams because of which one of a Service's addresses, or everything behind routes, is silent."""
    is_routed = any(isinstance(listener, HttpListener) for listener in planned.listeners)
    if is_routed and any(healthy.get(name) for name in planned.silence):
        return iter(())
    return (each for each in planned.silence.items() if healthy.get(each[0]) is False)


def _troubled(planned: PlannedPort, state: State, problem: Problem) -> PortRow:
    return PortRow(planned.port, state, problem.reason, problem.message)
