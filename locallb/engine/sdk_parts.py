"""Defers rarely used parts of the Pulumi SDK, which it loads at its start, until their first use.

Whoever loads the SDK first decides, so `pulumi up` has it as it is. Not here: what replaces functions of the SDK
(`protocol.sdk_fast_path`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

PARTS = frozenset({"pulumi.automation", "pulumi.dynamic", "pulumi.policy"})
"""Driving the command line, providers written in the program, policy packs."""


class _Finder:
    """Finds these modules and defers them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a part is loaded, None for any other module."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname in PARTS else None
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


def defer() -> None:
    """Defer them, where the SDK isn't loaded yet."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
