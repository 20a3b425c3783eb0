"""Addresses that Ingresses ask for: who is heard, in which families, and what is told of the others."""

from __future__ import annotations

import pytest

from locallb.config.settings import AddressPer
from locallb.model.identities import Family
from locallb.model.objects import ADDRESSES_ANNOTATION, FamilyPolicy
from tests.support.ingress_objects import JsonObject, ingress, only, path, rule

DUAL = "fd00::5, 127.0.0.9"


def asking(text: str, name: str = "web", day: int = 1) -> JsonObject:
    """Make an Ingress that asks for addresses."""
    metadata = {"creationTimestamp": f"2026-01-{day:02}T00:00:00Z", "annotations": {ADDRESSES_ANNOTATION: text}}
    return ingress(rule(path(), host=f"{name}.test"), name=name, metadata=metadata)


@pytest.mark.parametrize(
    ("text", "addresses", "policy"),
    [
        ("127.0.0.9", ["127.0.0.9"], FamilyPolicy.SINGLE),
        ("fd00::5", ["fd00::5"], FamilyPolicy.SINGLE),
        (DUAL, ["127.0.0.9", "fd00::5"], FamilyPolicy.REQUIRE_DUAL),
        (" ", [], FamilyPolicy.SINGLE),
    ],
)
@pytest.mark.parametrize("per", [AddressPer.INGRESS, AddressPer.NAMESPACE])
def test_the_families_are_those_of_the_addresses(
    text: str, addresses: list[str], policy: FamilyPolicy, per: AddressPer
) -> None:
    """As a Gateway's are; without a request IPv4."""
    one = only(asking(text), address=per)
    assert list(map(str, one.want.requested)) == addresses
    assert one.want.family_policy is policy
    assert len(one.want.families) == max(1, len(addresses))
    assert not one.notices


def test_later_request_does_not_move_earlier_ingresses() -> None:
    """Neither to another address nor to another family: the oldest, which asks for nothing, is named."""
    older = asking("", "older")
    one = only(older, asking("fd00::5", "later", 2), address=AddressPer.NAMESPACE)
    assert (one.want.requested, one.want.families) == ((), (Family.IPV4,))
    (reported,) = one.notices
    assert (
        "shop/later: local-lb.dev/addresses asks for fd00::5, which only the oldest Ingress of the address may"
        in reported
    )
    assert "shop/older; annotate that one" in reported


def test_oldest_ingress_decides_the_requested_address() -> None:
    """A request for the same address is no conflict."""
    documents = (asking("127.0.0.8", "late", 3), asking("127.0.0.9", "same", 2), asking("127.0.0.9"))
    one = only(
        *documents,
        ingress(rule(path()), metadata={"creationTimestamp": "2026-01-09T00:00:00Z"}),
        address=AddressPer.NAMESPACE,
    )
    assert list(map(str, one.want.requested)) == ["127.0.0.9"]
    (reported,) = one.notices
    assert reported == (
        "demo: Ingress shop/late: local-lb.dev/addresses asks for 127.0.0.8, and the older Ingress shop/web for"
        " 127.0.0.9, which they have together; ask for the same"
    )


@pytest.mark.parametrize(
    ("text", "per", "stated"),
    [
        ("127.0.0.9", AddressPer.CLASS, "isn't heard where all Ingresses of a class have one address"),
        ("localhost", AddressPer.INGRESS, 'is "localhost"; give an IPv4 or IPv6 address'),
        ("fe80::1%eth0", AddressPer.INGRESS, "give an IPv4 or IPv6 address"),
        ("127.0.0.8,127.0.0.9", AddressPer.INGRESS, "asks for 127.0.0.8 and 127.0.0.9; ask for one IPv4 address"),
    ],
)
def test_refused_address_request_is_reported(text: str, per: AddressPer, stated: str) -> None:
    """It is served at another address."""
    one = only(asking(text), address=per)
    assert one.want.requested == ()
    (reported,) = one.notices
    assert stated in reported
