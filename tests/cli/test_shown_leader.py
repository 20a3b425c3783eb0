"""Who leads a stack is asked where it is shown, and only there."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from locallb.cli.arguments import Arguments
from locallb.cli.commands import status


@pytest.mark.parametrize(
    ("services", "json", "asked"),
    [((), False, True), ((), True, True), (("web",), True, True), (("web",), False, False)],
)
def test_the_leader_is_asked_for_only_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, services: tuple[str, ...], *, json: bool, asked: bool
) -> None:
    """The table and every JSON name it; what is told of one Service in words doesn't."""
    led_by = mock.Mock(return_value="somebody")
    monkeypatch.setattr("locallb.cli.leading.led_by", led_by)
    args = Arguments("status", Path(), "dev", json=json, yes=False, expect_no_changes=False, services=services)
    assert status._leader(mock.Mock(), args).identity == ("somebody" if asked else None)
    assert led_by.called is asked
