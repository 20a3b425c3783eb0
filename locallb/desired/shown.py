"""Displayed values of a plan besides its resources: the stack's outputs, and the requested versions of providers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from locallb.planning.planned import Plan

_OUR_PACKAGE = "locallb"
"""The package with a provider that has no version of its own."""


def exports(plan: Plan) -> Mapping[str, object]:
    """Return the stack's outputs: the addresses of every Service. Of two plans they differ only where those do."""
    return {
        "services": {
            str(placement.key): [str(address) for address in placement.addresses] for placement in plan.placements
        }
    }


def exports_the_same(plan: Plan, other: Plan) -> bool:
    """Return whether two plans have the same outputs, quickly if most placements are identical."""
    if len(plan.placements) != len(other.placements):
        return False
    both = zip(plan.placements, other.placements, strict=True)
    return all(was is now or (was.key, was.addresses) == (now.key, now.addresses) for was, now in both)


@cache
def provider_version(package: str) -> str | None:
    """Return the version of the provider that a package's types ask for: that of the package's installed SDK.

    Asked of the metadata, as the package's SDK does: to import that takes a third of a second.
    """
    return None if package == _OUR_PACKAGE else version(f"pulumi_{package}")
