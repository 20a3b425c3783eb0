"""Fixtures of the soak: those of the live cluster."""

from __future__ import annotations

from tests.support.clusters import cluster, plane

__all__ = ["cluster", "plane"]
