"""Who leads a stack is asked where it is shown, and only there."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pytest

from locallb.cli.arguments import Arguments
from locallb.cli.commands import status
from locallb.cli.leading import Holder
from locallb.kubernetes.lease import ran_out


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
    assert ran_out({"spec": spec}, datetime(2026, 11, 22, 18, 1, tzinfo=UTC)) == said
