"""Notices about Services that are served."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from locallb.model.identities import Family
from locallb.model.objects import FamilyPolicy
from locallb.planning.notices import STACK_NOTICES, notices_of
from tests.support.objects import parsed, service

FOUR, SIX = ip_address("127.77.0.5"), ip_address("fd00:77::5")


@pytest.mark.parametrize(
    ("policy", "addresses", "lacking"),
    [
        (FamilyPolicy.PREFER_DUAL, (FOUR,), ["IPv6"]),
        (FamilyPolicy.REQUIRE_DUAL, (FOUR,), ["IPv6"]),
        (FamilyPolicy.PREFER_DUAL, (SIX,), ["IPv4"]),
        (FamilyPolicy.REQUIRE_DUAL, (FOUR, SIX), []),
        (FamilyPolicy.SINGLE, (FOUR,), []),
    ],
)
def test_a_family_that_a_service_wants_and_lacks_is_reported(
    policy: FamilyPolicy, addresses: tuple[object, ...], lacking: list[str]
) -> None:
    """With the policy that asks for it, and a remedy that the API takes."""
    (plain,) = parsed(service()).services
    dual = replace(plain, families=tuple(Family), family_policy=policy)
    notices = notices_of(dual, addresses, "", None)  # type: ignore[arg-type]
    assert [notice.reason for notice in notices] == ["FamilyMissing"] * len(lacking)
    assert all(f"has no {family} address" in notice.message for notice, family in zip(notices, lacking, strict=True))
    assert all("set the policy to SingleStack" in notice.message for notice in notices)
    assert "FamilyMissing" in STACK_NOTICES
