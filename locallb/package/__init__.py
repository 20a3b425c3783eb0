"""The package `locallb` for programs in every language: our resources, and the component made of them."""

from __future__ import annotations

from locallb.package.construct import make_package
from locallb.provider import plugin


def main(arguments: list[str] | None = None) -> None:
    """Serve it to the Pulumi CLI until that ends us."""
    plugin.main(arguments, make=make_package)
