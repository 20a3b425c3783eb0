"""Who leads a stack is asked where it is shown, and only there."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from locallb.cli import leading
from locallb.cli.arguments import Arguments
from locallb.cli.commands import status
from locallb.cli.leading import LeaderChecks, Leaders, LeaseHolder
from locallb.config.settings import LeaderElection, Timing
from locallb.kubernetes.answers import Object
from locallb.kubernetes.lease import validity
from locallb.model.identities import ClusterName


@pytest.mark.parametrize(
    ("services", "json", "requested"),
    [((), False, True), ((), True, True), (("web",), True, True), (("web",), False, False)],
)
def test_the_leader_is_asked_for_only_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, services: tuple[str, ...], *, json: bool, requested: bool
) -> None:
    """The table and every JSON name it; what is told of one Service in words doesn't."""
    inspect = mock.Mock(return_value=LeaseHolder("somebody"))
    monkeypatch.setattr(Leaders, "inspect", inspect)
    args = Arguments("status", Path(), "dev", json=json, yes=False, expect_no_changes=False, services=services)
    leaders = status._Leaders()
    for reported in (leaders.inspect(mock.Mock(), args), leaders.settled(mock.Mock(), args, mock.Mock())):
        assert reported.identity == ("somebody" if requested else None)
    assert inspect.called is requested


@pytest.mark.parametrize(
    ("holder", "reported", "identity"),
    [
        (LeaseHolder(), "Leader: nobody holds the Lease", ""),
        (LeaseHolder("a_7"), "Leader: a_7", "a_7"),
        (
            LeaseHolder("a_7", "2026-11-22T18:00:15Z"),
            "Leader: nobody; the Lease of a_7 ran out at 2026-11-22T18:00:15Z",
            "",
        ),
        (LeaseHolder("a_7", doubtful=True), "Leader: a_7, if it renews its Lease, which shows within seconds", None),
    ],
)
def test_holder_of_an_expired_lease_is_not_shown_as_leader(
    holder: LeaseHolder, reported: str, identity: str | None
) -> None:
    """It is said whose it was, and JSON names nobody; a doubt is one, and JSON says nothing."""
    assert status._leader(holder) == status._Leader(reported, identity, doubtful=holder.doubtful)


@pytest.mark.parametrize(
    ("spec", "stated"),
    [
        ({"renewTime": "2026-11-22T18:00:00.5Z", "leaseDurationSeconds": 15}, "2026-11-22T18:00:15Z"),
        ({"renewTime": "2026-11-22T19:00:00+01:00", "leaseDurationSeconds": 15}, "2026-11-22T18:00:15Z"),
        ({"renewTime": "2026-11-22T18:00:50.000000Z", "leaseDurationSeconds": 15}, ""),
        ({"renewTime": "2026-11-22T18:00:00", "leaseDurationSeconds": 15}, ""),
        ({"renewTime": "2026-11-22T18:00:00Z", "leaseDurationSeconds": 10**30}, ""),
        ({"renewTime": "2026-11-22T18:00:00Z", "leaseDurationSeconds": "soon"}, ""),
        ({"renewTime": "never", "leaseDurationSeconds": 15}, ""),
        ({"renewTime": None}, ""),
        ({}, ""),
        (7, ""),
    ],
)
def test_since_when_a_lease_has_run_out(spec: object, stated: str) -> None:
    """What it doesn't say, or says oddly, is no end."""
    now, valid = datetime(2026, 11, 22, 18, 1, tzinfo=UTC), validity({"spec": spec})
    assert (valid.end(now) if valid and not valid.is_current(now) else "") == stated


RENEWED = datetime(2026, 11, 22, 18, tzinfo=UTC)
YEAR = 365 * 24 * 3600


class Clocks:
    """A Lease that is renewed or isn't, this host's clock so many seconds off, and time that passes by sleeping."""

    def __init__(self, patch: pytest.MonkeyPatch, off: float, *, renewed: bool) -> None:
        self.off, self.renewed, self.passed, self.requested = off, renewed, 0.0, 0
        patch.setattr(leading, "_now", lambda: RENEWED + timedelta(seconds=self.off + self.passed))
        patch.setattr(time, "monotonic", lambda: self.passed)
        patch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.passed += seconds

    def lease(self) -> Object:
        """Give it as the API does; a leader renews it every two seconds."""
        self.requested += 1
        renewals = int(self.passed // 2) if self.renewed else 0
        at = RENEWED + timedelta(seconds=2 * renewals)
        spec = {"holderIdentity": "a_7", "renewTime": f"{at:%Y-%m-%dT%H:%M:%SZ}", "leaseDurationSeconds": 15}
        return {"metadata": {"resourceVersion": str(renewals)}, "spec": spec}


def shown(clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> tuple[LeaseHolder, list[str]]:
    """Return who leads, as one who waits for that is told, and what it is told meanwhile."""
    monkeypatch.setattr(leading, "_keeper", lambda *_: SimpleNamespace(lease=lambda *_: clocks.lease()))
    monkeypatch.setattr(leading, "_place", lambda _: ("n", "l"))
    reported: list[str] = []
    settings: Any = SimpleNamespace(leader_election=LeaderElection(ClusterName("c")))
    return Leaders().settled(settings, Path(), reported.append), reported


OFF = [-YEAR, -3600, -16, -15, -1, 0, 14, 15, 16, 3600, YEAR]


@pytest.mark.parametrize("off", OFF)
def test_renewing_holder_is_the_leader_despite_clock_skew(monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    """Clocks of two hosts differ, or one was set; the answer takes no longer than one renewal and a bit."""
    clocks = Clocks(monkeypatch, off, renewed=True)
    holder, reported = shown(clocks, monkeypatch)
    assert holder == LeaseHolder("a_7")
    assert clocks.passed <= 2.25
    assert bool(reported) is bool(clocks.passed)


@pytest.mark.parametrize("off", OFF)
def test_holder_that_stops_renewing_is_shown_as_leader_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    """Twice its duration at most, even where this host's clock was set back; then it is said whose it was."""
    clocks = Clocks(monkeypatch, off, renewed=False)
    led = 0
    for second in range(0, 4000, 10):
        clocks.passed = second
        led += 10 * (not shown(clocks, monkeypatch)[0].ran_out)
        assert clocks.passed <= second + 3
    assert led <= 30 + 10


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("renewed", [True, False])
def test_repeated_status_does_not_wait_for_a_renewal(
    monkeypatch: pytest.MonkeyPatch, off: float, *, renewed: bool
) -> None:
    """After the first seconds it knows by what it saw before, and goes on knowing."""
    clocks, checks = Clocks(monkeypatch, off, renewed=renewed), LeaderChecks(Timing())
    observed = []
    for _ in range(100):
        observed.append(checks.inspect(clocks.lease()))
        clocks.passed += 1
    assert clocks.requested == 100
    assert not any(holder.doubtful for holder in observed[3:])
    assert {holder.ran_out == "" for holder in observed[3 if renewed else 50 :]} == {renewed}
    assert {holder.identity for holder in observed} == {"a_7"}


def test_new_holder_of_the_lease_is_shown_as_leader_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever gave it up no longer does."""
    clocks, checks = Clocks(monkeypatch, YEAR, renewed=False), LeaderChecks(Timing())
    lease = clocks.lease()
    other = {"metadata": {"resourceVersion": "9"}, "spec": {**lease["spec"], "holderIdentity": "b_8"}}
    assert [checks.inspect(lease), checks.inspect(other), checks.inspect(None)] == [
        LeaseHolder("a_7", doubtful=True),
        LeaseHolder("b_8"),
        LeaseHolder(),
    ]


@pytest.mark.parametrize("lease", [None, {"metadata": {}, "spec": {"renewTime": "2020-01-01T00:00:00Z"}}])
def test_absent_or_released_lease_is_not_waited_for(lease: Object | None) -> None:
    """There is no Lease, or it was given up."""
    assert LeaderChecks(Timing()).inspect(lease) == LeaseHolder()
