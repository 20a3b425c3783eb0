"""What this process was told of objects last: the newest counts, in whatever order it is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.kubernetes.api.live_object import Recent
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access

AT = Access("k", ContextName("c"))


def reported(version: object, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version, "uid": uid}}


@given(st.lists(st.integers(0, 10**20), min_size=1))
def test_newest_resource_version_wins_in_any_order(versions: list[int]) -> None:
    """The answer to a patch may come after the watch told what somebody wrote over it."""
    recent = Recent()
    for version in versions:
        recent.note(AT, "n", "web", reported(str(version)))
    assert recent.find(AT, "n", "web") == reported(str(max(versions)))


@pytest.mark.parametrize("odd", [reported("v1"), reported(None), reported(""), {"metadata": "x"}, {}])
def test_incomparable_versions_use_the_last_received(odd: dict[str, Any]) -> None:
    """Whatever an odd server says, nothing raises."""
    recent = Recent()
    for item in (reported("7"), odd, reported("5")):
        recent.note(AT, "n", "web", item)
    assert recent.find(AT, "n", "web") == reported("5")


def test_forgotten_object_accepts_older_versions() -> None:
    """A server that was restored counts from an earlier version on."""
    recent = Recent()
    recent.note(AT, "n", "web", reported("9"))
    recent.forget(AT)
    recent.note(AT, "n", "web", reported("3"))
    assert recent.find(AT, "n", "web") == reported("3")


def test_object_with_another_uid_counts_whatever_its_version() -> None:
    """A cluster that was made again under the same kubeconfig begins to count again."""
    recent = Recent()
    recent.note(AT, "n", "web", reported("900"))
    recent.note(AT, "n", "web", reported("3", "another"))
    assert recent.find(AT, "n", "web") == reported("3", "another")
