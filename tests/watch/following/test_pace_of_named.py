"""Many Secrets that can't be read: how often they are asked for, and how long a good one waits beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from locallb.gateway.kinds import SECRET
from locallb.kubernetes.api.servers import KubeError, RefusedError, UnreachableError
from locallb.model.gateway_objects import Named, Reference
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from locallb.sources.kubernetes import named_objects
from locallb.sources.kubernetes.informers import EVERY
from locallb.sources.kubernetes.named_objects import FIRST, LATER, MAX, RETRY_DELAY, NamedObjects

ACCESS = Access("/kubeconfig", ContextName("dev"))
ROUNDING = 1e-6
LONGEST_PAUSE = MAX + LATER
"""Of a pass that was nearly at its end when the last one failed."""


def named(name: str) -> Reference:
    return Reference("", SECRET, Named("shop", name))


@dataclass
class Simulation:
    """A cluster's Secrets, and its follower's thread, on a clock of their own."""

    bad: dict[Reference, type[KubeError]]
    now: float = 0.0
    requested: list[tuple[float, Reference]] = field(default_factory=list)
    failed_in_passes: list[list[type[KubeError]]] = field(default_factory=list)
    next_check: float = 0.0

    def __post_init__(self) -> None:
        self.objects = NamedObjects(ACCESS)

    def answer(self, _: Access, requested: Reference) -> None:
        """Answer that there is none, or that it can't be read."""
        self.requested.append((self.now, requested))
        if requested in self.bad:
            self.failed_in_passes[-1].append(self.bad[requested])
            raise self.bad[requested]("no")

    def run(self, of: set[Reference], until: float) -> None:
        """Do what the thread does: pass, wait until something is due, pass again."""
        while self.now < until:
            if checks := self.now >= self.next_check:
                self.next_check = self.now + EVERY
            self.failed_in_passes.append([])
            self.objects.read(of, retry=of if checks else ())
            assert self.objects.due > self.now
            self.now = min(self.next_check, self.objects.due, until)

    def times(self, of: Reference) -> list[float]:
        return [at for at, requested in self.requested if requested == of]


def simulated(bad: dict[Reference, type[KubeError]], patch: pytest.MonkeyPatch) -> Simulation:
    simulation = Simulation(bad)
    patch.setattr(named_objects, "time", SimpleNamespace(monotonic=lambda: simulation.now))
    patch.setattr(named_objects, "stand_in", simulation.answer)
    return simulation


@given(
    st.dictionaries(
        st.integers(0, 60).map(lambda i: named(f"{i}-bad")), st.sampled_from([RefusedError, UnreachableError])
    ),
    st.sets(st.integers(0, 60).map(lambda i: named(f"{i}-good"))),
    st.floats(0, 100),
)
@example({named(f"{i}-bad"): RefusedError for i in range(60)}, {named("9-good")}, 1.5)
def test_bad_ones_are_no_load_and_hold_up_no_good_one(
    bad: dict[Reference, type[KubeError]], good: set[Reference], come: float
) -> None:
    """The loop never spins, none is asked for sooner than its back-off says, and none is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        simulation = simulated(bad, patch)
        new = named("z-new")
        simulation.run({*bad, *good}, come)
        simulation.run({*bad, *good, new}, end := come + 600)
    for each in {*good, new}:
        begun = come if each == new else 0.0
        assert simulation.times(each)[0] - begun <= LONGEST_PAUSE + len(bad) * FIRST + ROUNDING
    later = []
    for each in bad:
        times = [*simulation.times(each)]
        later += times[1:]
        for failures, (one, next_one) in enumerate(pairwise(times), 1):
            assert next_one - one >= RETRY_DELAY.delay(failures) - ROUNDING
        longest = RETRY_DELAY.delay(99, 1.0) + (len(bad) + 1) * LONGEST_PAUSE
        assert all(next_one - one <= longest for one, next_one in pairwise([*times, end]))
    assert all(next_one - one >= LATER - ROUNDING for one, next_one in pairwise(sorted(later)))
    for failed in simulation.failed_in_passes:
        assert UnreachableError not in failed[:-1]
        assert len(failed) <= MAX / FIRST


def test_a_thousand_refused_ones_cost_ten_requests_a_second_at_first_and_two_in_the_long_run() -> None:
    """Of Gateways and of Ingresses together, which have half of it each; several are refused in a pass."""
    bad: dict[Reference, type[KubeError]] = {named(f"{i:04}"): RefusedError for i in range(1000)}
    with pytest.MonkeyPatch.context() as patch:
        simulation = simulated(bad, patch)
        simulation.run({*bad}, 200)
        assert {requested for _, requested in simulation.requested} == bad.keys()
        assert len(simulation.requested) == 1000
        assert len(simulation.failed_in_passes) <= 1000 / 5 + math.ceil(200 / EVERY)
        simulation.run({*bad}, 800)
    assert 590 <= len(simulation.requested) - 1000 <= 600
