"""Leader election: at any moment one leader at most, and terms that only grow, whatever clocks and pauses do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Timing
from locallb.kubernetes.lease import Candidate, LeaseRecord, Term, lease_record, lease_spec, observed, wanted_term, won

TIMING = Timing()
A, B = Candidate("a"), Candidate("b")


def test_unheld_lease_is_taken_at_once() -> None:
    """No Lease, or one that was given up: no waiting."""
    assert wanted_term(A, 0) == 0
    assert wanted_term(A, 0, least=4) == 4
    assert wanted_term(observed(A, LeaseRecord("", 6, "1"), 5), 5) == 7


def test_candidates_wait_a_whole_lease_after_the_last_renewal_seen() -> None:
    """However long ago they saw it first: only their own clock counts."""
    last = observed(A, LeaseRecord("b", 3, "1"), 100)
    assert wanted_term(last, 114.9) is None
    assert wanted_term(observed(last, LeaseRecord("b", 3, "1"), 114.9), 115) == 4
    assert wanted_term(observed(last, LeaseRecord("b", 3, "2"), 114.9), 115) is None


def test_a_leader_counts_from_when_it_asked() -> None:
    """An answer that took long shortens the term, and the Lease of others lasts longer in any case."""
    leader = won(A, LeaseRecord("a", 0, "1"), requested=10, now=14)
    assert leader.term == Term(0, 20)
    assert (leader.leads(19.9), leader.leads(20)) == (True, False)


def test_a_leader_that_was_slow_renews_its_own_term() -> None:
    """Nobody else led meanwhile, so it is the same term."""
    late = won(A, LeaseRecord("a", 3, "1"), requested=10, now=10)
    assert wanted_term(late, 1000, least=9) == 3


def test_leader_that_sees_another_holder_stops_leading() -> None:
    """At once, however long its own term would last."""
    leader = won(A, LeaseRecord("a", 0, "1"), requested=10, now=10)
    assert not observed(leader, LeaseRecord("b", 1, "2"), 11).leads(11)
    assert not observed(leader, None, 11).leads(11)


def test_a_lease_is_written_as_others_read_it() -> None:
    """Field names and types of coordination.k8s.io/v1; nonsense in one counts as nobody's."""
    spec = lease_spec(A, 3, "2026-01-01T00:00:00.000000Z", "2025-01-01T00:00:00.000000Z")
    assert (spec["leaseDurationSeconds"], spec["leaseTransitions"], spec["holderIdentity"]) == (15, 3, "a")
    assert lease_record({"metadata": {"resourceVersion": "9"}, "spec": spec}) == LeaseRecord("a", 3, "9")
    assert lease_record({"metadata": {}, "spec": {"leaseTransitions": "many"}}) == LeaseRecord("", 0, "")


class Api:
    """A Lease that is written over the version that was read, or not at all."""

    def __init__(self) -> None:
        self.lease: LeaseRecord | None = None
        self.versions = 0

    def write(self, wanted: LeaseRecord, read: LeaseRecord | None) -> LeaseRecord | None:
        if read != self.lease:
            return None
        self.versions += 1
        self.lease = replace(wanted, version=str(self.versions))
        return self.lease


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # who
        st.sampled_from(["read", "write", "answer", "lose", "give_up", "delete"]),
        st.floats(0, 9),  # seconds that pass before
    ),
    min_size=10,
    max_size=120,
)


class Trial:
    """Three candidates with clocks of their own, one Lease, and the ledger's last term."""

    def __init__(self, clocks: list[float]) -> None:
        self.api, self.now, self.clocks = Api(), 0.0, clocks
        self.those = [Candidate(str(number)) for number in range(len(clocks))]
        self.requested: dict[int, tuple[LeaseRecord | None, float]] = {}
        self.recorded, self.led = -1, dict[int, str]()

    def read(self, party: int, mine: float) -> None:
        self.those[party] = observed(self.those[party], self.api.lease, mine)

    def write(self, party: int, mine: float) -> None:
        """Ask for what may be asked for; the answer comes later, or never."""
        candidate = self.those[party]
        if (term := wanted_term(candidate, mine, self.recorded + 1)) is not None:
            self.requested[party] = (
                self.api.write(LeaseRecord(candidate.identity, term, ""), candidate.observed),
                mine,
            )

    def answer(self, party: int, mine: float) -> None:
        record, requested = self.requested.pop(party, (None, 0.0))
        if record is not None:
            self.those[party] = won(self.those[party], record, requested, mine)

    def lose(self, party: int, _mine: float) -> None:
        self.requested.pop(party, None)

    def give_up(self, party: int, mine: float) -> None:
        candidate = self.those[party]
        if (
            candidate.leads(mine)
            and candidate.observed
            and self.api.write(replace(candidate.observed, holder=""), candidate.observed)
        ):
            self.those[party] = observed(candidate, None, mine)

    def delete(self, _sources: int, _mine: float) -> None:
        """Let somebody delete the Lease while nobody leads."""
        if not self.requested and not self.leaders():
            self.api.lease = None

    def leaders(self) -> list[Candidate]:
        """Return those who count themselves as leaders."""
        return [
            candidate
            for candidate, clock in zip(self.those, self.clocks, strict=True)
            if candidate.leads(self.now + clock)
        ]

    def check(self) -> None:
        """One leader at most; each term has one, and no later one has a smaller number."""
        leaders = self.leaders()
        assert len(leaders) <= 1
        for leader in leaders:
            assert leader.term is not None
            assert leader.term.number >= self.recorded
            assert self.led.setdefault(leader.term.number, leader.identity) == leader.identity
            self.recorded = leader.term.number


@given(STEPS, st.lists(st.floats(0, 1000), min_size=3, max_size=3))
@settings(max_examples=300)
def test_never_two_leaders_and_terms_only_grow(steps: list[tuple[int, str, float]], clocks: list[float]) -> None:
    """Each reads, writes and gets its answer at any time, or never."""
    trial = Trial(clocks)
    for party, deed, passed in steps:
        trial.now += passed
        getattr(trial, deed)(party, trial.now + clocks[party])
        trial.check()
