"""Defers rarely used parts of the Pulumi SDK, which it loads at its start, until their first use.

Whoever loads the SDK first decides, so `pulumi up` has it as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

PARTS = frozenset({"pulumi.automation", "pulumi.dynamic", "pulumi.policy"})
"""Driving the command line, providers written in the program, policy packs."""
TRACING = "pulumi.runtime._instrumentation"
"""Traces the SDK's calls where the environment names a trace to continue, and loads OpenTelemetry's SDK for that."""


class _Finder:
    """Finds these modules and defers them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a part is loaded, None for any other module."""
        spec = PathFinder.find_spec(fullname, path, target) if _waits(fullname) else None
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


def _waits(name: str) -> bool:
    return name in PARTS or (name == TRACING and "TRACEPARENT" not in os.environ)


def defer() -> None:
    """Defer them, where the SDK isn't loaded yet."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
