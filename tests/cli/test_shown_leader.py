"""Who leads a stack is asked where it is shown, and only there."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

from locallb.cli import leading
from locallb.cli.arguments import Arguments
from locallb.cli.commands import status
from locallb.cli.leading import Holder
from locallb.config.lease_timing import Timing
from locallb.kubernetes.answers import Object
from locallb.kubernetes.lease import validity


@pytest.mark.parametrize(
    ("services", "json", "asked"),
    [((), False, True), ((), True, True), (("web",), True, True), (("web",), False, False)],
)
def test_the_leader_is_asked_for_only_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, services: tuple[str, ...], *, json: bool, asked: bool
) -> None:
    """The table and every JSON name it; what is told of one Service in words doesn't."""
    led_by = mock.Mock(return_value=Holder("somebody"))
    monkeypatch.setattr("locallb.cli.leading.led_by", led_by)
    args = Arguments("status", Path(), "dev", json=json, yes=False, expect_no_changes=False, services=services)
    assert status._leader(mock.Mock(), args).identity == ("somebody" if asked else None)
    assert led_by.called is asked


def test_whoever_let_the_lease_run_out_leads_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said whose it was, and JSON names nobody."""
    monkeypatch.setattr("locallb.cli.leading.led_by", lambda *_: Holder("a_7", "2026-11-22T18:00:15Z"))
    args = Arguments("status", Path(), "dev", json=False, yes=False, expect_no_changes=False, services=())
    leader = status._leader(mock.Mock(), args)
    assert leader == status._Leader("Leader: nobody; the Lease of a_7 ran out at 2026-11-22T18:00:15Z", "")


@pytest.mark.parametrize(
    ("spec", "said"),
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
def test_since_when_a_lease_has_run_out(spec: object, said: str) -> None:
    """What it doesn't say, or says oddly, is no end."""
    now, valid = datetime(2026, 11, 22, 18, 1, tzinfo=UTC), validity({"spec": spec})
    assert (valid.end(now) if valid and not valid.is_current(now) else "") == said


RENEWED = datetime(2026, 11, 22, 18, tzinfo=UTC)
YEAR = 365 * 24 * 3600


class Clocks:
    """A Lease that is renewed or isn't, this host's clock so many seconds off, and time that passes by sleeping."""

    def __init__(self, patch: pytest.MonkeyPatch, off: float, *, renewed: bool) -> None:
        self.off, self.renewed, self.passed, self.asked = off, renewed, 0.0, 0
        patch.setattr(leading, "_now", lambda: RENEWED + timedelta(seconds=self.off + self.passed))
        patch.setattr(time, "monotonic", lambda: self.passed)
        patch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.passed += seconds

    def lease(self) -> Object:
        """Give it as the API does; a leader renews it every two seconds."""
        self.asked += 1
        renewals = int(self.passed // 2) if self.renewed else 0
        at = RENEWED + timedelta(seconds=2 * renewals)
        spec = {"holderIdentity": "a_7", "renewTime": f"{at:%Y-%m-%dT%H:%M:%SZ}", "leaseDurationSeconds": 15}
        return {"metadata": {"resourceVersion": str(renewals)}, "spec": spec}


OFF = [-YEAR, -3600, -16, -15, -1, 0, 14, 15, 16, 3600, YEAR]


@pytest.mark.parametrize("off", OFF)
def test_who_renews_the_lease_leads_whatever_the_clocks_say(monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    """Clocks of two hosts differ, or one was set; the answer takes no longer than two renewals."""
    clocks = Clocks(monkeypatch, off, renewed=True)
    assert leading._shown(clocks.lease, Timing()) == Holder("a_7")
    assert clocks.passed <= 4


@pytest.mark.parametrize("off", OFF)
def test_who_renews_it_no_more_is_shown_as_leader_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    """Twice its duration at most, even where this host's clock was set back; then it is said whose it was."""
    clocks = Clocks(monkeypatch, off, renewed=False)
    shown = 0
    for second in range(0, 4000, 3):
        clocks.passed = second
        shown += 3 * (not leading._shown(clocks.lease, Timing()).ran_out)
    assert shown <= 30 + 3


@pytest.mark.parametrize("lease", [None, {"metadata": {}, "spec": {"renewTime": "2020-01-01T00:00:00Z"}}])
def test_nobody_is_waited_for_where_nobody_holds_it(monkeypatch: pytest.MonkeyPatch, lease: Object | None) -> None:
    """There is no Lease, or it was given up."""
    clocks = Clocks(monkeypatch, 0, renewed=False)
    assert leading._shown(lambda: lease, Timing()) == Holder()
    assert clocks.passed == 0
