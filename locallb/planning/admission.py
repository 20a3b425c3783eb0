"""Admission: which Services get addresses and a proxy, in which order they are placed, and why the others don't.

It doesn't depend on endpoints and routes of Gateways, which change most often. Not here: what is served, and how an
address or a proxy is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.identities import IPAddress, ObjectKey
from locallb.model.objects import Service
from locallb.model.reasons import Problem
from locallb.model.snapshot import Snapshot
from locallb.planning.addresses.allocation import Answer
from locallb.planning.addresses.port_mapping import map_ports
from locallb.planning.foreign import served_by_others
from locallb.planning.memory import PlanMemory
from locallb.planning.ports import PortProblems
from locallb.planning.proxies.assignment import ProxyAssignment, ProxyAssignments

FindProblems = Callable[[Service], PortProblems]


class Admission(Struct, frozen=True):
    """The Services that are placed, column by column in the order of keys, and what became of the others."""

    services: tuple[Service, ...]
    """With their ports mapped, where those are."""
    addresses: tuple[tuple[IPAddress, ...], ...]
    assignments: tuple[ProxyAssignment, ...]
    where: Mapping[ObjectKey, tuple[int, ProxyAssignment]]
    """Where in that order each stands, and how it is served."""
    problems: Mapping[ObjectKey, PortProblems]
    assigned: ProxyAssignments
    refused: Mapping[ObjectKey, Answer]
    """Who gets no proxy, and why: addresses, where the host has no room."""


def admit(
    snapshot: Snapshot, settings: Settings, files: Mapping[ObjectKey, int], memory: PlanMemory, find: FindProblems
) -> Admission:
    """Decide which Services are served; `files` has the Gateways, `find` returns a Service's unservable ports."""
    # Endpoints and objects of Gateway API are left out: with others of them the answer is the same.
    decides = replace(snapshot, slices=(), gateway_api=())
    admission: Admission = memory.admitted.of(
        None, partial(_admitted, memory=memory, find=find), decides, settings, files
    )
    return admission


def _admitted(
    snapshot: Snapshot, settings: Settings, files: Mapping[ObjectKey, int], memory: PlanMemory, find: FindProblems
) -> Admission:
    wanted: Sequence[Service] = memory.ours(snapshot.services, settings)
    others = served_by_others(wanted, snapshot, settings)
    wanted = [service for service in wanted if service.key not in others] if others else wanted
    mapped = memory.mapped(map_ports(snapshot, wanted)) if settings.port_mapping else None
    wanted = mapped.services if mapped else wanted
    problems = memory.problems(snapshot.host, wanted, find)
    servable, hopeless = _by_servable_ports(wanted, problems)
    answers = mapped.answers if mapped else memory.allocate(snapshot, servable, settings)
    given = {key: answer for key, answer in answers.items() if not isinstance(answer, Problem)}
    assigned = memory.assignments(
        [service for service in servable if service.key in given], snapshot, settings.proxies, files
    )
    seats = assigned.assignments
    in_order = sorted((service for service in servable if service.key in seats), key=lambda service: service.key)
    beside = {key: problem for key, problem in hopeless.items() if not isinstance(answers.get(key), Problem)}
    return Admission(
        services=tuple(in_order),
        addresses=tuple(given[service.key] for service in in_order),
        assignments=tuple(seats[service.key] for service in in_order),
        where={service.key: (number, seats[service.key]) for number, service in enumerate(in_order)},
        problems=problems,
        assigned=assigned,
        refused={key: answer for key, answer in {**answers, **beside, **others}.items() if key not in seats},
    )


def _by_servable_ports(
    services: Sequence[Service], problems: Mapping[ObjectKey, PortProblems]
) -> tuple[list[Service], Mapping[ObjectKey, Problem]]:
    """Set apart the Services of which no port can be served here."""
    servable, hopeless = [], {}
    for service in services:
        mine = problems[service.key]
        if mine and all(port in mine for port in service.ports):
            hopeless[service.key] = mine[service.ports[0]]
        else:
            servable.append(service)
    return servable, hopeless
